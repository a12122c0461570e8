// Package tiny has the command that measures kernels too short for the meter, out of many
// launches.
package tiny

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/experiment/tiny"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/store"
)

// tinyFlags are the flags of tiny; RunFlags are those that it shares with run.
type tinyFlags struct {
	run.RunFlags
	method, carrier, simKernel string
	length                     time.Duration
	u, energy, drift           float64
	// slice is the carrier between two launches, phase a sequence of slices with or
	// without the kernel, settle the decay of power after a launch.
	slice, phase, settle   time.Duration
	blocks, launches, bins int
	seed                   uint64
	dryRun                 bool
}

// runTiny plans, measures a train of launches under one capture, computes the
// energy of a launch, stores it with the task, and prints the task. A dry run
// stops after the plan. The plan is made in the preparation of the measurement,
// since it may have to run the kernel.
func runTiny(a *cli.App, ctx context.Context, f tinyFlags, insert gpu.Insert, kernel *sim.Kernel) error {
	if f.dryRun && f.length > 0 {
		return f.dry(a, ctx, insert)
	}
	card, runner, err := findTinyGPU(f.GPU, kernel)
	if err != nil {
		return err
	}
	defer card.Close()
	b, done, err := run.NewBench(a, ctx, f.RunFlags, card, insert.Name)
	if err != nil {
		return err
	}
	defer done()
	var plan tiny.Plan
	var length measure.Seconds
	progress := out.NewProgress(a)
	b.Meter.Progress = progress.Update
	b.Prepare = func(ctx context.Context) (err error) { // it tries the kernel out
		plan, length, err = f.plan(ctx, b.Meter.Monitor, runner, insert)
		if err == nil && f.dryRun {
			err = cli.ErrPlanned
		}
		if err == nil {
			a.Stepf("%s\n", planText(plan, length))
			progress.Expect(f.WarmUp + plan.Takes(length))
		}
		return err
	}
	var train gpu.Ran
	ran, err := b.Run(ctx, func(ctx context.Context) (_ []gpu.Kernel, err error) {
		train, err = runner.RunTrain(ctx, plan.Train(gpu.Benchmark(f.carrier), insert, f.seed))
		return tiny.Kernels(plan, train, insert.Name), err
	})
	if errors.Is(err, cli.ErrPlanned) {
		return a.Print(plan, func(w io.Writer) { fmt.Fprintln(w, planText(plan, length)) })
	}
	if ran.Task == 0 {
		return err
	}
	db := b.Meter.DB.(*store.DB)
	if err == nil {
		err = f.result(ctx, db, ran.Task, plan, train, insert.Name)
	}
	return errors.Join(err, report.ShowTask(a, ctx, db, ran.Task, nil))
}

// dry prints the plan for a kernel of known length on the present bench. It opens no GPU and
// takes no capture.
func (f *tinyFlags) dry(a *cli.App, ctx context.Context, insert gpu.Insert) error {
	m, err := cli.DialMeter(ctx, f.Monitor, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		return err
	}
	plan, length, err := f.plan(ctx, m, nil, insert)
	if err = errors.Join(err, m.Close()); err != nil {
		return err
	}
	return a.Print(plan, func(w io.Writer) { fmt.Fprintln(w, planText(plan, length)) })
}

// result computes the energy of a launch from the samples of task id and stores
// it. The launches are placed in the samples by the markers' clock; without that
// the task is incomplete. A result that misses the wanted uncertainty carries a
// warning.
func (f *tinyFlags) result(ctx context.Context, db *store.DB, id store.TaskID, p tiny.Plan, ran gpu.Ran,
	name string,
) error {
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	if t.Clock == nil {
		return cli.WithCode(cli.ExitIncomplete,
			fmt.Errorf("task %d: without markers that tell the meter's time the launches cannot be placed: %s", id, t.Reason))
	}
	out, err := tiny.Analyse(p, ran, tiny.Source{
		Setup: &t.Setup, Fit: *t.Clock, Blocks: chunk.DecodeAll(db.Chunks(ctx, id, 0), &t.Setup),
	})
	if err != nil {
		return err
	}
	// The default, or the plan's own expectation if the meter cannot reach it.
	if f.u == 0 {
		f.u = max(tiny.DefaultU, p.U)
	}
	out.Missed(f.u)
	plan, err := json.Marshal(p)
	if err != nil {
		return err
	}
	// NaN stands for figures that the method does not give; the database has NULL there.
	row := store.Tiny{
		Method: string(out.Method), Kernel: name, Launches: out.Launches, Energy: out.Energy, Budget: out.Budget,
		Length: out.Length, Gap: out.Gap, Carrier: out.Carrier, DOF: out.DOF, Residual: out.Residual,
		Above: measure.Estimate{Energy: measure.Joule(math.NaN()), U: measure.Joule(math.NaN())}, Plan: plan,
		Warnings: out.Warnings,
	}
	// Back-to-back launches have neither a carrier nor gaps.
	if out.Method == tiny.Repeat {
		row.Carrier, row.Gap = measure.Watt(math.NaN()), measure.Seconds(math.NaN())
	}
	if out.Profile != nil {
		row.Above, row.Profile = out.Profile.Above, out.Profile.Bins
	}
	return db.PutTiny(ctx, id, row)
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	var f tinyFlags
	var fl *pflag.FlagSet
	c := cli.Command("tiny", "Measure a kernel far shorter than the meter can bracket", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if fl.Changed("until-u") && !(f.u > 0) {
				return cli.Usagef("--until-u %v: want more than 0", f.u)
			}
			if err := f.fits(fl); err != nil {
				return err
			}
			insert, kernel, err := f.insert()
			if err != nil {
				return err
			}
			return f.Metered(ctx, a, func(ctx context.Context) error { return runTiny(a, ctx, f, insert, kernel) })
		})
	fl = c.Flags()
	f.AddBench(fl)
	fl.StringVar(&f.method, "scheme", "contrast", "contrast, fold or repeat")
	fl.StringVar(&f.carrier, "carrier", "half", "benchmark that surrounds the launches: half, compute or memory")
	f.AddMeter(fl, cli.DefaultMonitor, "in place of these: the monitor that has the meter")
	cli.UserFlag(fl, &f.User)
	fl.StringVar(&f.Name, "name", "", "name of the task (default: of the kernel)")
	fl.StringVar(&f.simKernel, "sim-kernel", "",
		"kernel of a simulated GPU: POWER:TIME,… and, after a slash, the same once its data is cached")
	fl.StringVar(&f.Benchmark, "benchmark", "", "built-in benchmark as the kernel: half, compute or memory")
	fl.DurationVar(&f.length, "length", 0,
		"how long the benchmark runs; of a PTX kernel, how long it is expected to (default: tried out)")
	f.AddPTX(fl)
	cli.Section(fl, "The plan", func() { f.addPlan(fl) })
	fl.DurationVar(&f.WarmUp, "warm-up", 200*time.Millisecond,
		"load the GPU for this long before the first marker; 0 for none")
	fl.BoolVar(&f.NoSensor, "no-nvml", false, "do not read the GPU's own sensor beside the meter")
	fl.BoolVar(&f.dryRun, "dry-run", false, "show the plan and measure nothing")
	return cli.In(cli.Measure, help, a.JSONFlag(c))
}

// addPlan adds the flags that the plan follows.
func (f *tinyFlags) addPlan(fl *pflag.FlagSet) {
	cli.RelativeFlag(fl, &f.u, "until-u", 0,
		"relative uncertainty that is wanted, k = 2 (default: 0.02, or what the meter can reach if that is more)")
	fl.Float64Var(&f.energy, "expect-energy", 0,
		"joules of one launch, roughly, for the plan (default: what the carrier draws in that time)")
	fl.Float64Var(&f.drift, "wander", 0, "watts a second that the card's power wanders, for the plan")
	fl.DurationVar(&f.slice, "slice", 0,
		"carrier between two launches (default: 100 µs, or the kernel's length if that is more)")
	fl.DurationVar(&f.phase, "phase", 0, "contrast: length of a phase (default: planned)")
	fl.IntVar(&f.blocks, "quads", 0, "contrast: number of blocks of four phases (default: planned)")
	fl.IntVar(&f.launches, "launches", 0, "fold and repeat: number of launches (default: planned)")
	fl.IntVar(&f.bins, "bins", 100, "fold: points of the profile")
	fl.DurationVar(&f.settle, "settle", 1500*time.Microsecond,
		"fold: how long the power may take to settle behind a launch")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the slices' dither")
}

// fits refuses flags of another scheme or kind of kernel.
func (f *tinyFlags) fits(fl *pflag.FlagSet) error {
	is := func(m tiny.Method) bool { return tiny.Method(f.method) == m }
	return cmp.Or(f.Fits(fl),
		cli.GoesWith(fl, is(tiny.Contrast), "--scheme contrast", "phase quads"),
		cli.GoesWith(fl, is(tiny.Fold), "--scheme fold", "bins settle"),
		cli.GoesWith(fl, is(tiny.Fold) || is(tiny.Repeat), "--scheme fold or repeat", "launches"))
}

// insert checks the flags and returns the kernel to insert between the slices of
// the carrier: from a PTX file, a benchmark of given length, or, for a simulated
// GPU, a course of power. Exactly one must be named; every error is wrong usage.
func (f *tinyFlags) insert() (gpu.Insert, *sim.Kernel, error) {
	usage := func(format string, a ...any) (gpu.Insert, *sim.Kernel, error) {
		return gpu.Insert{}, nil, cli.Usagef(format, a...)
	}
	f.Repeat = 1 // here the plan sets the number of launches
	if session.CountTrue(f.PTX != "", f.Benchmark != "", f.simKernel != "") != 1 {
		return usage("name one kernel: --ptx, --benchmark with --length, or --sim-kernel")
	}
	if f.Monitor == "" {
		return usage("--monitor: name the monitor whose meter measures")
	}
	if !slices.Contains([]tiny.Method{tiny.Contrast, tiny.Fold, tiny.Repeat}, tiny.Method(f.method)) {
		return usage("--scheme %q: want contrast, fold or repeat", f.method)
	}
	if !(f.u >= 0) || f.u > 1 || f.length < 0 || f.slice < 0 || f.phase < 0 || f.blocks < 0 || f.launches < 0 ||
		f.settle < 0 {
		return usage("--until-u lies between 0 and 1; lengths and numbers are not negative")
	}
	if err := errors.Join(session.CheckBenchmark("--carrier", f.carrier),
		session.FiniteFlag("--expect-energy", f.energy), session.FiniteFlag("--wander", f.drift), f.Check(nil)); err != nil {
		return gpu.Insert{}, nil, err
	}
	switch {
	case f.simKernel != "":
		if !strings.HasPrefix(f.GPU, sim.Prefix) {
			return usage("--sim-kernel is for a simulated GPU: --gpu sim:SOCKET")
		}
		k, err := parseSimKernel(f.simKernel)
		return gpu.Insert{Name: f.simKernel}, k, err
	case f.Benchmark != "":
		if f.length == 0 {
			return usage("--benchmark: say how long with --length")
		}
		return gpu.Insert{
			Name: fmt.Sprintf("%s %v", f.Benchmark, f.length), Benchmark: gpu.Benchmark(f.Benchmark), Length: f.length,
		}, nil, nil
	}
	l, err := f.PTXLaunch()
	return gpu.Insert{Name: cmp.Or(f.Entry, filepath.Base(f.PTX)), PTX: &l}, nil, err
}

// parseSimKernel parses "280W:120us,120W:80us": the power of each step and its
// duration. After a slash follows the course of a launch whose data is cached.
func parseSimKernel(text string) (*sim.Kernel, error) {
	cold, warm, _ := strings.Cut(text, "/")
	var k sim.Kernel
	for part, to := range map[string]*[]load.Step{cold: &k.Cold, warm: &k.Warm} {
		if part == "" {
			continue
		}
		for s := range strings.SplitSeq(part, ",") {
			power, length, ok := strings.Cut(s, ":")
			w, err := bench.ParseQuantity(power, measure.UnitWatt)
			d, err2 := time.ParseDuration(length)
			if err := errors.Join(err, err2); !ok || err != nil || w <= 0 || d <= 0 {
				return nil, cli.Usagef("--sim-kernel: %q is no step: write 280W:120us", s)
			}
			*to = append(*to, load.Step{Level: measure.Watt(w), For: d})
		}
	}
	if len(k.Cold) == 0 {
		return nil, cli.Usagef("--sim-kernel %q: no step: write 280W:120us", text)
	}
	return &k, nil
}

// findTinyGPU finds the GPU of selector, which must be able to run trains. A simulated one
// shows the kernel k, unless that is nil.
func findTinyGPU(selector string, k *sim.Kernel) (card *session.FoundGPU, r gpu.TrainRunner, err error) {
	if socket, simulated := strings.CutPrefix(selector, sim.Prefix); simulated && k != nil {
		dev, sensor, err := sim.FindRemote(socket, k)
		if err != nil {
			return nil, nil, err
		}
		card = &session.FoundGPU{Device: dev, OpenSensor: func() (session.GPUSensor, error) { return sensor, nil }}
	} else if card, err = session.FindGPU(selector); err != nil {
		return nil, nil, err
	}
	r, ok := card.Device.(gpu.TrainRunner)
	if !ok {
		err = fmt.Errorf("%s cannot launch a kernel between slices of a carrier", card.Info().Name)
		return nil, nil, errors.Join(err, card.Close())
	}
	return card, r, nil
}

// plan returns the plan and the length of one launch. If r is not nil, and the
// length is not known, it first runs the kernel to find out. Flags replace parts
// of the plan; U, the expected uncertainty, is then unknown and 0. A plan that
// cannot reach --until-u is an error, unless the flags fix blocks and slices.
func (f *tinyFlags) plan(ctx context.Context, m measurement.Monitor, r gpu.TrainRunner, insert gpu.Insert) (tiny.Plan,
	measure.Seconds, error,
) {
	bench, err := m.GetBench(ctx)
	if err != nil {
		return tiny.Plan{}, 0, err
	}
	if len(bench.Setup.Channels) == 0 {
		return tiny.Plan{}, 0, fmt.Errorf("%w: %s", measurement.ErrBench, bench.Trouble)
	}
	// A benchmark's length differs from the one asked for: it is always measured.
	length := measure.SecondsOf(f.length)
	if r != nil && (f.length == 0 || insert.Benchmark != "") {
		t, err := tiny.Probe(ctx, r, gpu.Benchmark(f.carrier), insert)
		if err != nil {
			return tiny.Plan{}, 0, err
		}
		length = t.Length
	}
	e := tiny.Expect{Length: length, Energy: measure.Joule(f.energy)}
	// The noise at 200 W, about the load of a carrier.
	meter := tiny.MeterOf(&bench.Setup, 200)
	meter.Drift = measure.Watt(f.drift)
	p, err := f.planned(e, meter)
	// Slices of another length keep the duration of a phase.
	if f.slice > 0 {
		// The dither adds half its width to a slice on average.
		p.Slices = max(1, int(time.Duration(p.Slices)*(p.Slice+p.Dither/2)/(f.slice+p.Dither/2)))
		p.Slice, p.U = f.slice, 0
	}
	if f.phase > 0 {
		p.Slices, p.U = max(1, int(f.phase/(p.Slice+p.Dither/2))), 0
	}
	if f.blocks > 0 {
		p.Blocks, p.U = f.blocks, 0
	}
	p.Launches = cmp.Or(f.launches, p.Launches)
	// Blocks and slices set by hand need no plan that reaches --until-u.
	if p.Method == tiny.Contrast && f.blocks > 0 && p.Slices > 0 {
		err = nil
	}
	return p, length, err
}

// planned returns the plan of the method for the expected energy and the meter's
// noise.
func (f *tinyFlags) planned(e tiny.Expect, m tiny.Meter) (tiny.Plan, error) {
	switch tiny.Method(f.method) {
	case tiny.Repeat:
		return tiny.PlanRepeat(e, m)
	case tiny.Fold:
		return tiny.PlanFold(e, m, f.u, measure.SecondsOf(f.settle), f.bins)
	}
	return tiny.PlanContrast(e, m, f.u)
}

// planText returns the plan in one line, with its duration and expected
// uncertainty.
func planText(p tiny.Plan, length measure.Seconds) string {
	took := measure.SecondsOf(p.Takes(length))
	least, most := measure.SecondsOf(p.Slice), measure.SecondsOf(p.Slice+p.Dither)
	switch p.Method {
	case tiny.Repeat:
		return fmt.Sprintf("plan: %d launches of %v back to back, %v", p.Launches, length, took)
	case tiny.Fold:
		return fmt.Sprintf("plan: %d launches of %v, %v to %v apart, %d bins, %v in all", p.Launches, length, least,
			most, p.Bins, took)
	}
	text := fmt.Sprintf("plan: %d blocks of 4 phases of %d slices of %v to %v; %d launches of %v, %v in all",
		p.Blocks, p.Slices, least, most, 2*p.Blocks*p.Slices, length, took)
	if p.U > 0 {
		text += fmt.Sprintf("; ± %.2g %% expected", 100*p.U)
	}
	return text
}
