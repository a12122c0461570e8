package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/hostagent/sim"
	"wattmark/hostagent/tiny"
	"wattmark/measure"
)

// insert is the kernel that the flags name.
func (f *tinyFlags) insert() (hostagent.Insert, *sim.Kernel, error) {
	usage := func(err error) (hostagent.Insert, *sim.Kernel, error) {
		return hostagent.Insert{}, nil, withCode(exitUsage, err)
	}
	f.repeat = 1
	if countTrue(f.ptx != "", f.benchmark != "", f.simKernel != "") != 1 {
		return usage(errors.New("name one kernel: --ptx, --benchmark with --length, or --sim-kernel"))
	}
	switch tiny.Method(f.method) {
	case tiny.Contrast, tiny.Fold, tiny.Repeat:
	default:
		return usage(fmt.Errorf("--method %q: want contrast, fold or repeat", f.method))
	}
	if !(f.u >= 0) || f.u > 1 || f.length < 0 || f.slice < 0 || f.phase < 0 || f.blocks < 0 || f.launches < 0 || f.settle < 0 {
		return usage(errors.New("--u lies between 0 and 1; lengths and numbers are not negative"))
	}
	if err := errors.Join(checkBenchmark("--carrier", f.carrier), finiteFlag("--expect-energy", f.energy), finiteFlag("--drift", f.drift), f.check(nil)); err != nil {
		return hostagent.Insert{}, nil, err
	}
	switch {
	case f.simKernel != "":
		if !strings.HasPrefix(f.gpu, simPrefix) {
			return usage(errors.New("--sim-kernel is for a simulated GPU: --gpu sim:SOCKET"))
		}
		k, err := parseSimKernel(f.simKernel)
		return hostagent.Insert{Name: f.simKernel}, k, err
	case f.benchmark != "":
		if f.length == 0 {
			return usage(errors.New("--benchmark: say how long with --length"))
		}
		return hostagent.Insert{Name: fmt.Sprintf("%s %v", f.benchmark, f.length), Benchmark: hostagent.Benchmark(f.benchmark), Length: f.length}, nil, nil
	}
	l, err := f.ptxLaunch()
	return hostagent.Insert{Name: firstOf(f.entry, baseName(f.ptx)), PTX: &l}, nil, err
}

// parseSimKernel reads "280W:120us,120W:80us", with what a warm launch draws
// after a slash.
func parseSimKernel(text string) (*sim.Kernel, error) {
	cold, warm, _ := strings.Cut(text, "/")
	var k sim.Kernel
	for part, to := range map[string]*[]sim.Step{cold: &k.Cold, warm: &k.Warm} {
		if part == "" {
			continue
		}
		for _, s := range strings.Split(part, ",") {
			power, length, ok := strings.Cut(s, ":")
			w, err := parseQuantity(power, measure.UnitWatt)
			d, err2 := time.ParseDuration(length)
			if err := errors.Join(err, err2); !ok || err != nil || w <= 0 || d <= 0 {
				return nil, withCode(exitUsage, fmt.Errorf("--sim-kernel: %q is no step: write 280W:120us", s))
			}
			*to = append(*to, sim.Step{Level: measure.Watt(w), For: d})
		}
	}
	if len(k.Cold) == 0 {
		return nil, withCode(exitUsage, fmt.Errorf("--sim-kernel %q: no step: write 280W:120us", text))
	}
	return &k, nil
}

// findTinyGPU is findGPU with a kernel that a simulated GPU is to show.
func findTinyGPU(selector string, k *sim.Kernel) (*foundGPU, error) {
	socket, simulated := strings.CutPrefix(selector, simPrefix)
	if !simulated || k == nil {
		return findGPU(selector)
	}
	dev, sensor, err := findSim(socket, k)
	if err != nil {
		return nil, err
	}
	return &foundGPU{dev, func() (gpuSensor, error) { return sensor, nil }}, nil
}

// tinyDryRun plans a kernel whose length is known for the bench at hand, without a GPU.
func (a *app) tinyDryRun(ctx context.Context, f tinyFlags, insert hostagent.Insert) error {
	m, err := dialMeter(ctx, f.monitor, monitorclient.Options{Version: version(), Dial: a.tracing.dial()})
	if err != nil {
		return err
	}
	plan, length, err := f.plan(ctx, m, nil, insert)
	if err = errors.Join(err, m.Close()); err != nil {
		return err
	}
	return a.printTinyPlan(plan, length)
}

func (a *app) printTinyPlan(plan tiny.Plan, length measure.Seconds) error {
	if a.json {
		return a.printJSON(plan)
	}
	fmt.Fprintln(a.out, planText(plan, length))
	return nil
}

// plan tries the kernel out on r, unless that is nil, and plans its measurement for the bench at hand.
func (f *tinyFlags) plan(ctx context.Context, m measurement.Monitor, r hostagent.TrainRunner, insert hostagent.Insert) (tiny.Plan, measure.Seconds, error) {
	bench, err := m.GetBench(ctx)
	if err != nil {
		return tiny.Plan{}, 0, err
	}
	if len(bench.Setup.Channels) == 0 {
		return tiny.Plan{}, 0, fmt.Errorf("%w: %s", measurement.ErrBench, bench.Trouble)
	}
	length := seconds(f.length)
	if r != nil && (f.length == 0 || insert.Benchmark != "") {
		t, err := tiny.Probe(ctx, r, hostagent.Benchmark(f.carrier), insert)
		if err != nil {
			return tiny.Plan{}, 0, err
		}
		length = t.Length
	}
	e := tiny.Expect{Length: length, Energy: measure.Joule(f.energy)}
	meter := tiny.MeterOf(&bench.Setup, 200)
	meter.Drift = measure.Watt(f.drift)
	p, err := f.planned(e, meter)
	if f.slice > 0 {
		p.Slices = max(1, int(time.Duration(p.Slices)*(p.Slice+p.Dither/2)/(f.slice+p.Dither/2)))
		p.Slice, p.U = f.slice, 0
	}
	if f.phase > 0 {
		p.Slices, p.U = max(1, int(f.phase/(p.Slice+p.Dither/2))), 0
	}
	if f.blocks > 0 {
		p.Blocks, p.U = f.blocks, 0
	}
	if f.launches > 0 {
		p.Launches = f.launches
	}
	// What the user sets by hand needs no plan that reaches --u.
	if err != nil && !(p.Method == tiny.Contrast && f.blocks > 0 && p.Slices > 0) {
		return p, length, err
	}
	return p, length, nil
}

func (f *tinyFlags) planned(e tiny.Expect, m tiny.Meter) (tiny.Plan, error) {
	switch tiny.Method(f.method) {
	case tiny.Repeat:
		return tiny.PlanRepeat(e, m)
	case tiny.Fold:
		return tiny.PlanFold(e, m, f.u, seconds(f.settle), f.bins)
	}
	return tiny.PlanContrast(e, m, f.u)
}

func planText(p tiny.Plan, length measure.Seconds) string {
	took := p.Takes(length).Round(10 * time.Millisecond)
	switch p.Method {
	case tiny.Repeat:
		return fmt.Sprintf("plan: %d launches of %v back to back, %v", p.Launches, length, took)
	case tiny.Fold:
		return fmt.Sprintf("plan: %d launches of %v, %v to %v apart, %d bins, %v in all", p.Launches, length, p.Slice, p.Slice+p.Dither, p.Bins, took)
	}
	text := fmt.Sprintf("plan: %d blocks of 4 phases of %d slices of %v to %v; %d launches of %v, %v in all",
		p.Blocks, p.Slices, p.Slice, p.Slice+p.Dither, 2*p.Blocks*p.Slices, length, took)
	if p.U > 0 {
		text += fmt.Sprintf("; ± %.2g %% expected", 100*p.U)
	}
	return text
}
