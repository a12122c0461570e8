package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/predict"
	"wattmark/hostagent"
	"wattmark/hostagent/cuda"
	"wattmark/hostagent/gpus"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/methods"
	"wattmark/hostagent/monitorclient"
	"wattmark/hostagent/nvml"
	"wattmark/hostagent/sweep"
	"wattmark/measure"
	"wattmark/store"
)

// sweepFlags are the flags of sweep.
type sweepFlags struct {
	kernel, gpu, monitor, method, name string
	sizes, use                         []string
	round, rest, idle, settle, wait    time.Duration
	repeat                             int
	seed                               uint64
	resident                           uint64
	csv, svg                           string
}

// byMeter is the method of an external meter.
const byMeter = "meter"

func (a *app) predictSweepCmd() *cobra.Command {
	var f sweepFlags
	c := &cobra.Command{
		Use: "sweep", Short: "Measure a kernel over its number of blocks, calibrate, and predict the rest", Args: cobra.NoArgs,
		Long: `Measure one of the paper's kernels, vectorAdd or matrixMul, with many numbers of
blocks: parts of what the GPU holds, all of it, and several rounds. Calibrate on
three of them, predict the others, and tell how far off that is.

Power comes from the GPU's own sensor, by the method that --method names (its
energy counter unless told otherwise), or with --monitor from a meter, whose
capture of the whole sweep is stored as a task. The model is stored; --csv keeps
the points. Nothing else should use the GPU meanwhile.

With the defaults a kernel takes a minute on a GPU.`,
		Example: `  wattmark predict sweep --kernel vectoradd --csv vectoradd.csv
  wattmark predict sweep --kernel matmul --repeat 5 --use 264,528,2112
  wattmark predict sweep --kernel matmul --monitor lab-monitor:7551`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.predictSweep(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.kernel, "kernel", "", "vectoradd or matmul (required)")
	fl.StringSliceVar(&f.sizes, "sizes", nil, "numbers of blocks (default: a quarter of what the GPU holds to eight times that)")
	fl.StringSliceVar(&f.use, "use", nil, "numbers of blocks to calibrate on (default: one, two and four full rounds)")
	fl.IntVar(&f.repeat, "repeat", 3, "times that every size is measured")
	fl.DurationVar(&f.round, "round", 400*time.Millisecond, "how long a full round is to take")
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
	fl.StringVar(&f.csv, "csv", "", "write the points into this file")
	fl.StringVar(&f.svg, "svg", "", "draw time and energy into this file")
	return a.jsonFlag(c)
}

func (f *sweepFlags) plan() (p sweep.Plan, err error) {
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
	return p, free(f.csv, f.svg)
}

func (a *app) predictSweep(ctx context.Context, f sweepFlags) (err error) {
	p, err := f.plan()
	if err != nil {
		return err
	}
	dev, machine, sensor, err := openSweep(ctx, f.gpu)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sensor.Close(), dev.Close()) }()
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
		err = work(ctx)
	} else {
		tasks, meter, err = a.sweepMetered(ctx, f, dev, work, &o)
	}
	if err != nil {
		return err
	}
	points, idle, err := sweepPoints(o, f.method, meter)
	if err != nil {
		return err
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

// openSweep opens a GPU that runs the kernels, and its sensor.
func openSweep(ctx context.Context, selector string) (hostagent.Device, sweep.Machine, gpuSensor, error) {
	if socket, ok := strings.CutPrefix(selector, simPrefix); ok {
		dev, sensor, err := openSim(socket, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		return dev, simBlocks{dev.(simDevice)}, sensor, nil
	}
	dev, err := cuda.Open(ctx, selector)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := gpus.Whole(dev.Info()); err != nil {
		return nil, nil, nil, errors.Join(err, dev.Close())
	}
	sensor, err := nvml.Open(dev.Info().UUID)
	if err != nil {
		return nil, nil, nil, errors.Join(err, dev.Close())
	}
	return dev, sweep.OnGPU(dev), sensor, nil
}

// sweepMetered makes a sweep the work of one measurement, and tells the meter's
// mean power over each of its launches.
func (a *app) sweepMetered(ctx context.Context, f sweepFlags, dev hostagent.Device, work func(context.Context) error, o **sweep.Outcome) ([]store.TaskID, []measure.Watt, error) {
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	mon, err := monitorclient.Dial(f.monitor, monitorclient.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer mon.Close()
	login, holder := whoami()
	cfg := measurement.Config{
		DB: db, Monitor: mon, Device: dev, Name: "sweep-" + f.kernel, User: login, Holder: holder, WarmUp: 200 * time.Millisecond, Wait: f.wait,
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

// sweepKernels are the launches for the task, the rests among them.
func sweepKernels(o *sweep.Outcome) (out []hostagent.Kernel) {
	if o == nil {
		return nil
	}
	for _, l := range o.Launches {
		name := fmt.Sprintf("%s,blocks=%d", o.Kernel, l.Blocks)
		if l.Blocks == 0 {
			name = "rest"
		}
		out = append(out, hostagent.Kernel{Name: name, Span: l.Span})
	}
	return out
}

// sweepPoints makes points of launches, and the idle power of the rests, with the
// standard uncertainty of their mean.
func sweepPoints(o *sweep.Outcome, method string, meter []measure.Watt) (points []predict.Point, idle [2]measure.Watt, err error) {
	var rests []float64
	for i, l := range o.Launches {
		e, ok := l.Energy[methods.Method(method)]
		if method == byMeter {
			e, ok = measure.Joule(float64(meter[i])*float64(l.Time())), !math.IsNaN(float64(meter[i]))
		}
		if !ok {
			return nil, idle, fmt.Errorf("%s says nothing of a launch of %d blocks in %v: make --round longer, or take another --method", method, l.Blocks, l.Time())
		}
		if l.Blocks == 0 {
			rests = append(rests, float64(e)/float64(l.Time()))
			continue
		}
		points = append(points, predict.Point{Blocks: l.Blocks, Time: l.Time(), Energy: e, From: fmt.Sprintf("pass %d, %d blocks", l.Pass+1, l.Blocks)})
	}
	if len(rests) != 2 {
		return nil, idle, errors.New("the sweep did not measure the GPU at rest")
	}
	// Of two values half their difference is the standard deviation of the mean.
	return points, [2]measure.Watt{measure.Watt((rests[0] + rests[1]) / 2), measure.Watt(math.Abs(rests[0]-rests[1]) / 2)}, nil
}

func writePoints(w io.Writer, o *sweep.Outcome, method string, points []predict.Point, idle [2]measure.Watt) error {
	_, err := fmt.Fprintf(w, "# %s on %s by %s: %d multiprocessors with %d resident blocks, %d turns a block; idle %.3f W, standard uncertainty %.3f W\nkernel,blocks,time_s,energy_j\n",
		o.Kernel, o.GPU.Name, method, o.SMs, o.Resident, o.Loops, float64(idle[0]), float64(idle[1]))
	for _, p := range points {
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s,%d,%.9g,%.9g\n", o.Kernel, p.Blocks, float64(p.Time), float64(p.Energy))
	}
	return err
}

// sweepPredict calibrates on some sizes of a sweep, and predicts the others.
func (a *app) sweepPredict(ctx context.Context, f sweepFlags, o *sweep.Outcome, points []predict.Point, idle [2]measure.Watt, tasks []store.TaskID) error {
	resident := f.resident
	if resident == 0 {
		resident = o.Resident
	}
	use := f.use
	if len(use) == 0 {
		r := o.SMs * resident
		use = []string{fmt.Sprint(r), fmt.Sprint(2 * r), fmt.Sprint(4 * r)}
	}
	fit, others, err := (&predictFlags{use: use}).split(points)
	if err != nil {
		return err
	}
	c := predictionContent{
		Kernel: string(o.Kernel), GPU: o.GPU.Name, Points: fit, Others: others, FlopsPerBlock: o.Kernel.Flops() * float64(o.Loops),
		Options: predict.Options{Idle: idle[0], UIdle: idle[1], SMs: o.SMs, Resident: resident},
	}
	p, err := c.model(firstOf(f.name, f.kernel))
	if err != nil {
		return err
	}
	p.Doubts = predict.Review(fit, c.Options)
	if o.GPU.Simulated {
		p.Doubts = append(p.Doubts, "the GPU is simulated: its blocks draw what they were made to draw")
	}
	if held := throttled(o); held != "" {
		p.Doubts = append(p.Doubts, held)
	}
	if err := a.storePrediction(ctx, p, tasks); err != nil {
		return err
	}
	return a.showPrediction(p, f.svg)
}

// throttled says what held the clocks down.
func throttled(o *sweep.Outcome) string {
	n, by := 0, map[string]bool{}
	for _, l := range o.Launches {
		if len(l.Throttled) > 0 {
			n++
		}
		for _, t := range l.Throttled {
			by[t] = true
		}
	}
	if n == 0 {
		return ""
	}
	var names []string
	for t := range by {
		names = append(names, t)
	}
	slices.Sort(names)
	return fmt.Sprintf("in %d launches the clocks were held down by %s", n, strings.Join(names, ", "))
}

// free refuses files that are there already, before anything is measured for them.
func free(files ...string) error {
	for _, path := range files {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			return fmt.Errorf("%s exists: remove it first or name another file", path)
		}
	}
	return nil
}
