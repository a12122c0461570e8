package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent"
	"wattmark/hostagent/cuda"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/methods"
	"wattmark/hostagent/monitorclient"
	"wattmark/hostagent/sweep"
	"wattmark/measure"
	"wattmark/store"
)

// predictSweepFlags are the flags of sweep.
type predictSweepFlags struct {
	kernel, gpu, monitor, method, name string
	sizes, use                         []string
	round, rest, idle, settle, wait    time.Duration
	repeat                             int
	seed                               uint64
	resident                           uint64
	cluster                            gateFlags
	csv, svg                           string
}

// byMeter is the method of an external meter.
const byMeter = "meter"

func (a *app) predictSweepCmd() *cobra.Command {
	var f predictSweepFlags
	c := &cobra.Command{
		Use: "sweep", Short: "Measure a kernel over its number of blocks, calibrate, and predict the rest", Args: cobra.NoArgs,
		Long: `Measure one of the paper's kernels, vectorAdd or matrixMul, with many numbers of
blocks: parts of what the GPU holds, all of it, and several rounds. Calibrate on
three of them, predict the others, and tell how far off that is.

Power comes from the GPU's own sensor, by the method that --method names (its
energy counter unless told otherwise), or with --monitor from a meter, whose
capture of the whole sweep is stored as a task. The model is stored; --csv keeps
the points. Nothing else should use the GPU meanwhile.

With the defaults a kernel takes some 75 seconds on a GPU.`,
		Example: `  wattmark predict sweep --kernel vectoradd --csv vectoradd.csv
  wattmark predict sweep --kernel matmul --repeat 5 --use 264,528,2112
  wattmark predict sweep --kernel matmul --monitor lab-monitor:7551`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.predictSweep(cmd.Context(), f) },
	}
	fl := c.Flags()
	f.cluster.addTo(fl)
	fl.StringVar(&f.kernel, "kernel", "", "vectoradd or matmul (required)")
	fl.StringSliceVar(&f.sizes, "sizes", nil, "numbers of blocks (default: a quarter of what the GPU holds to eight times that)")
	fl.StringSliceVar(&f.use, "use", nil, "numbers of blocks to calibrate on (default: one, two and four full rounds)")
	fl.IntVar(&f.repeat, "repeat", 3, "times that every size is measured")
	fl.DurationVar(&f.round, "round", 600*time.Millisecond, "how long a full round is to take")
	fl.DurationVar(&f.rest, "rest", 400*time.Millisecond, "rest before each launch")
	fl.DurationVar(&f.idle, "idle", 3*time.Second, "how long the GPU is measured at rest, before and after all")
	fl.DurationVar(&f.settle, "settle", 1500*time.Millisecond, "how long it is left alone before that")
	fl.Uint64Var(&f.resident, "resident", 0, "blocks that a multiprocessor holds, for the rounds (default: what the driver says)")
	fl.StringVar(&f.method, "method", "", "counter, instant, average, mtsm, sma or papi; or meter (default: meter with --monitor, else counter)")
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	fl.StringVar(&f.monitor, "monitor", "", "address of a monitor whose meter reads along; none when left out")
	fl.DurationVar(&f.wait, "wait", 0, "how long to queue for a busy bench")
	fl.StringVar(&f.name, "name", "", "name of the model (default: of the kernel)")
	fl.Uint64Var(&f.seed, "seed", 1, "of the order")
	outFlag(fl, &f.csv, "csv", "write the points into this file", "CSV", ".csv")
	svgFlag(fl, &f.svg, "draw time and energy into this file")
	return a.jsonFlag(c)
}

func (f *predictSweepFlags) plan() (p sweep.Plan, err error) {
	p = sweep.Plan{
		Kernel: sweep.Kernel(f.kernel), Round: f.round, Rest: f.rest, Idle: f.idle, Settle: f.settle, Repeat: f.repeat, Seed: f.seed,
	}
	if p.Blocks, err = parseBlocks("sizes", f.sizes); err != nil {
		return p, err
	}
	if !slices.Contains(sweep.Kernels(), p.Kernel) {
		return p, withCode(exitUsage, fmt.Errorf("--kernel %q: want vectoradd or matmul", f.kernel))
	}
	if f.method == "" {
		f.method = string(methods.Counter)
		if f.monitor != "" {
			f.method = byMeter
		}
	}
	switch {
	case f.method == byMeter && f.monitor == "":
		return p, withCode(exitUsage, errors.New("--method meter: name the meter's --monitor"))
	case f.method != byMeter && !slices.Contains(methods.All(), methods.Method(f.method)):
		return p, withCode(exitUsage, fmt.Errorf("--method %q: want counter, instant, average, mtsm, sma, papi or meter", f.method))
	}
	if _, err = parseBlocks("use", f.use); err != nil {
		return p, err
	}
	if err := errors.Join(notNegative(span{"--wait", f.wait}), free(f.csv, f.svg)); err != nil {
		return p, err
	}
	if err := p.Check(); err != nil {
		return p, withCode(exitUsage, err)
	}
	return p, nil
}

func (a *app) predictSweep(ctx context.Context, f predictSweepFlags) (err error) {
	p, err := f.plan()
	if err != nil {
		return err
	}
	gpu, machine, err := findSweep(f.gpu)
	if err != nil {
		return err
	}
	var sensor gpuSensor
	open := func(ctx context.Context) (err error) {
		if err = gpu.open(ctx); err == nil {
			sensor, err = gpu.openSensor()
		}
		return err
	}
	defer func() {
		if sensor != nil {
			err = errors.Join(err, sensor.Close())
		}
		err = errors.Join(err, gpu.Close())
	}()
	var o *sweep.Outcome
	work := func(ctx context.Context) (err error) {
		o, err = sweep.Measure(ctx, machine, sensor, p, a.sweepProgress(p.Kernel))
		if errors.Is(err, sweep.ErrPlan) {
			err = withCode(exitUsage, err)
		}
		return err
	}
	var tasks []store.TaskID
	var meter []measure.Watt
	if f.monitor == "" {
		if err = open(ctx); err == nil {
			err = work(ctx)
		}
	} else {
		tasks, meter, err = a.sweepMetered(ctx, f, gpu.Device, open, work, &o)
	}
	if err != nil {
		return err
	}
	points, idle, silent, err := sweepPoints(o, f.method, meter)
	if err != nil {
		return err
	}
	if silent > 0 {
		fmt.Fprintf(a.err, "wattmark: %d of %d launches are left out: %s said nothing of them; make --round longer, or take another --method\n", silent, silent+len(points), f.method)
	}
	if f.csv != "" {
		if err := writeFile(f.csv, func(w io.Writer) error { return writePoints(w, o, f.method, points, idle) }); err != nil {
			return err
		}
	}
	return a.sweepPredict(ctx, f, o, points, idle, tasks)
}

// sweepProgress shows how far a sweep is.
func (a *app) sweepProgress(k sweep.Kernel) func(done, all int) {
	if !isTerminal(a.err) {
		return nil
	}
	return func(done, all int) {
		fmt.Fprintf(a.err, "\r\x1b[K%s: %d of %d launches", k, done, all)
		if done == all {
			fmt.Fprint(a.err, "\r\x1b[K")
		}
	}
}

// findSweep finds a GPU that runs the kernels.
func findSweep(selector string) (*foundGPU, sweep.Machine, error) {
	gpu, err := findGPU(selector)
	if err != nil {
		return nil, nil, err
	}
	switch d := gpu.Device.(type) {
	case simDevice:
		return gpu, simBlocks{d}, nil
	case *cuda.Device:
		return gpu, sweep.OnGPU(d), nil
	}
	return nil, nil, errors.Join(fmt.Errorf("%s cannot run the kernels of a sweep", gpu.Info().Name), gpu.Close())
}

// sweepMetered makes a sweep the work of one measurement, and tells the meter's
// mean power over each of its launches.
func (a *app) sweepMetered(ctx context.Context, f predictSweepFlags, dev hostagent.Device, open, work func(context.Context) error, o **sweep.Outcome) ([]store.TaskID, []measure.Watt, error) {
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	mon, err := dialMeter(ctx, f.monitor, monitorclient.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer mon.Close()
	gate := a.gate(ctx, f.cluster, db)
	defer gate.close()
	login, holder := whoami()
	cfg := measurement.Config{
		DB: db, Monitor: gate.monitor(mon), Device: dev, Name: "sweep-" + f.kernel, User: login, Holder: holder, WarmUp: 200 * time.Millisecond, Wait: f.wait,
		Open: func(ctx context.Context) (hostagent.PowerSensor, error) { return nil, open(ctx) },
	}
	id, err := a.measure(ctx, cfg, func(ctx context.Context) ([]hostagent.Kernel, error) {
		err := work(ctx)
		return sweepKernels(*o), err
	})
	if err != nil || id == 0 {
		return nil, nil, err
	}
	var spans []hostagent.Span
	for _, l := range (*o).Launches {
		spans = append(spans, l.Span)
	}
	watts, err := measurement.Means(ctx, db, id, spans)
	if err != nil {
		err = fmt.Errorf("the meter's powers are missing: %w", err)
	}
	return []store.TaskID{id}, watts, err
}
