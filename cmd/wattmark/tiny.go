package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/sim"
	"wattmark/hostagent/tiny"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// tinyFlags are the flags of tiny beside those that it shares with run.
type tinyFlags struct {
	runFlags
	method, carrier, simKernel string
	length                     time.Duration
	u                          float64
	energy, drift              float64
	slice, phase, settle       time.Duration
	blocks, launches, bins     int
	seed                       uint64
	dryRun                     bool
}

func (a *app) tinyCmd() *cobra.Command {
	var f tinyFlags
	c := &cobra.Command{
		Use: "tiny", Short: "Measure a kernel far shorter than the meter can bracket", Args: cobra.NoArgs,
		Long: `Measure the energy of one launch of a kernel that lasts microseconds, from many
launches of it:

  contrast  a steady carrier, in turn plain and with the kernel between its
            slices; the difference, divided by the launches (recommended)
  fold      thousands of launches laid over each other: a power profile finer
            than the meter's scans, for meters that sample without averaging
  repeat    launches back to back, divided by their number. Caches are warm and
            launches may overlap: not the energy of a single cold launch

The kernel is one of a PTX file (--ptx, as for run) or a built-in benchmark for a
time (--benchmark with --length). How often it is launched follows from --u, the
relative uncertainty (k = 2) that is wanted. See docs/tiny-kernels.md.`,
		Example: `  wattmark tiny --ptx kernel.ptx --entry vadd --grid 64 --block 256 --buffer 65536 --buffer 65536
  wattmark tiny --benchmark compute --length 10us --u 0.02
  wattmark tiny --method fold --gpu sim:/tmp/gpu --sim-kernel 280W:120us,120W:80us`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.tiny(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.method, "method", "contrast", "contrast, fold or repeat")
	fl.StringVar(&f.carrier, "carrier", "half", "benchmark that surrounds the launches: half, compute or memory")
	fl.StringVar(&f.monitor, "monitor", defaultMonitor, "address of the monitor")
	fl.StringVar(&f.user, "user", "", "user of the task (default: the login name)")
	fl.StringVar(&f.name, "name", "", "name of the task (default: of the kernel)")
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	fl.StringVar(&f.simKernel, "sim-kernel", "", "kernel of a simulated GPU: POWER:TIME,… and, after a slash, the same once its data is cached")
	fl.StringVar(&f.benchmark, "benchmark", "", "built-in benchmark as the kernel: half, compute or memory")
	fl.DurationVar(&f.length, "length", 0, "how long the benchmark runs; of a PTX kernel, how long it is expected to (default: tried out)")
	fl.StringVar(&f.ptx, "ptx", "", "PTX file")
	fl.StringVar(&f.entry, "entry", "", "kernel in the PTX file (default: the only one)")
	fl.StringVar(&f.grid, "grid", "1", "blocks of the PTX kernel: x[,y[,z]]")
	fl.StringVar(&f.block, "block", "1", "threads of a block of the PTX kernel: x[,y[,z]]")
	fl.Uint32Var(&f.shared, "shared", 0, "bytes of dynamic shared memory of the PTX kernel")
	fl.Int64SliceVar(&f.buffers, "buffer", nil, "allocate and zero a buffer of so many bytes, passed as the next parameter (repeatable)")
	fl.UintSliceVar(&f.scalars, "scalar", nil, "32-bit value passed after the buffers (repeatable)")
	fl.Float64Var(&f.u, "u", 0.02, "relative uncertainty that is wanted (k = 2)")
	fl.Float64Var(&f.energy, "expect-energy", 0, "joules of one launch, roughly, for the plan (default: what the carrier draws in that time)")
	fl.Float64Var(&f.drift, "drift", 0, "watts a second that the card's power wanders, for the plan")
	fl.DurationVar(&f.slice, "slice", 0, "carrier between two launches (default: 100 µs, or the kernel's length if that is more)")
	fl.DurationVar(&f.phase, "phase", 0, "contrast: length of a phase (default: planned)")
	fl.IntVar(&f.blocks, "blocks", 0, "contrast: number of blocks of four phases (default: planned)")
	fl.IntVar(&f.launches, "launches", 0, "fold and repeat: number of launches (default: planned)")
	fl.IntVar(&f.bins, "bins", 100, "fold: points of the profile")
	fl.DurationVar(&f.settle, "settle", 1500*time.Microsecond, "fold: how long the power may take to settle behind a launch")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the slices' dither")
	fl.DurationVar(&f.warmUp, "warm-up", 200*time.Millisecond, "load the GPU for this long before the first marker; 0 for none")
	fl.DurationVar(&f.wait, "wait", 0, "how long to queue for a busy bench")
	fl.BoolVar(&f.noSensor, "no-nvml", false, "do not read the GPU's own sensor beside the meter")
	fl.BoolVar(&f.dryRun, "dry-run", false, "show the plan and measure nothing")
	return a.jsonFlag(c)
}

func (a *app) tiny(ctx context.Context, f tinyFlags) (err error) {
	insert, kernel, err := f.insert()
	if err != nil {
		return err
	}
	dev, sensor, err := openTinyGPU(ctx, f.gpu, kernel)
	if err != nil {
		return err
	}
	defer dev.Close()
	runner, ok := dev.(hostagent.TrainRunner)
	if !ok {
		return fmt.Errorf("%s cannot launch a kernel between slices of a carrier", dev.Info().Name)
	}
	cfg, done, err := a.measureConfig(ctx, f.runFlags, dev, sensor, insert.Name)
	if err != nil {
		return err
	}
	defer done()
	plan, length, err := f.plan(ctx, cfg.Monitor, runner, insert)
	if err != nil {
		return err
	}
	if fmt.Fprintf(a.err, "%s\n", planText(plan, length)); f.dryRun {
		return nil
	}
	var ran hostagent.Ran
	id, err := a.measure(ctx, cfg, func(ctx context.Context) (_ []hostagent.Kernel, err error) {
		ran, err = runner.RunTrain(ctx, plan.Train(hostagent.Benchmark(f.carrier), insert, f.seed))
		return tiny.Kernels(plan, ran, insert.Name), err
	})
	if id == 0 {
		return err
	}
	db := cfg.DB.(*store.DB)
	if err == nil {
		err = f.result(ctx, db, id, plan, ran, insert.Name)
	}
	return errors.Join(err, a.showTask(ctx, db, id, nil))
}

// insert is the kernel that the flags name.
func (f *tinyFlags) insert() (hostagent.Insert, *sim.Kernel, error) {
	usage := func(err error) (hostagent.Insert, *sim.Kernel, error) {
		return hostagent.Insert{}, nil, withCode(exitUsage, err)
	}
	if countTrue(f.ptx != "", f.benchmark != "", f.simKernel != "") != 1 {
		return usage(errors.New("name one kernel: --ptx, --benchmark with --length, or --sim-kernel"))
	}
	switch tiny.Method(f.method) {
	case tiny.Contrast, tiny.Fold, tiny.Repeat:
	default:
		return usage(fmt.Errorf("--method %q: want contrast, fold or repeat", f.method))
	}
	if !(f.u > 0) || f.u > 1 || f.length < 0 || f.slice < 0 || f.phase < 0 || f.blocks < 0 || f.launches < 0 || f.settle < 0 {
		return usage(errors.New("--u lies above 0 and up to 1; lengths and numbers are not negative"))
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
	f.repeat = 1
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

// openTinyGPU is openGPU with a kernel that a simulated GPU is to show.
func openTinyGPU(ctx context.Context, selector string, k *sim.Kernel) (hostagent.Device, func() (gpuSensor, error), error) {
	socket, simulated := strings.CutPrefix(selector, simPrefix)
	if !simulated || k == nil {
		return openGPU(ctx, selector)
	}
	dev, sensor, err := openSim(socket, k)
	return dev, func() (gpuSensor, error) { return sensor, nil }, err
}

// plan tries the kernel out and plans its measurement for the bench at hand.
func (f *tinyFlags) plan(ctx context.Context, m measurement.Monitor, r hostagent.TrainRunner, insert hostagent.Insert) (tiny.Plan, measure.Seconds, error) {
	bench, err := m.GetBench(ctx)
	if err != nil {
		return tiny.Plan{}, 0, err
	}
	if len(bench.Setup.Channels) == 0 {
		return tiny.Plan{}, 0, fmt.Errorf("%w: %s", measurement.ErrBench, bench.Trouble)
	}
	length := seconds(f.length)
	if f.length == 0 || insert.Benchmark != "" {
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

// result works the energy of a launch out of a stored task, and stores it.
func (f *tinyFlags) result(ctx context.Context, db *store.DB, id store.TaskID, p tiny.Plan, ran hostagent.Ran, name string) error {
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	if t.Clock == nil {
		return withCode(exitIncomplete, fmt.Errorf("task %d: without markers that tell the meter's time the launches cannot be placed: %s", id, t.Reason))
	}
	out, err := tiny.Analyse(p, ran, tiny.Source{
		Setup: &t.Setup, Fit: *t.Clock, Blocks: chunk.DecodeAll(db.Chunks(ctx, id, 0), &t.Setup),
	})
	if err != nil {
		return err
	}
	out.Missed(f.u)
	plan, err := json.Marshal(p)
	if err != nil {
		return err
	}
	row := store.Tiny{
		Method: string(out.Method), Kernel: name, Launches: out.Launches, Energy: out.Energy, Budget: out.Budget,
		Length: out.Length, Gap: out.Gap, Carrier: out.Carrier, DOF: out.DOF, Residual: out.Residual,
		Above: measure.Estimate{Energy: measure.Joule(math.NaN()), U: measure.Joule(math.NaN())}, Plan: plan, Warnings: out.Warnings,
	}
	if out.Method == tiny.Repeat {
		row.Carrier, row.Gap = measure.Watt(math.NaN()), measure.Seconds(math.NaN())
	}
	if out.Profile != nil {
		row.Above = out.Profile.Above
		for _, b := range out.Profile.Bins {
			row.Profile = append(row.Profile, store.TinyBin{At: b.At, Power: b.Power, U: b.U, Readings: b.N})
		}
	}
	return db.PutTiny(ctx, id, row)
}
