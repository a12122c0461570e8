package predict

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/predict"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/experiment/sweep"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/store"
)

// predictSweepFlags are the flags of sweep, beside those that it shares with run.
type predictSweepFlags struct {
	run.RunFlags
	sweep.Plan           // but for its blocks, which are in sizes
	kernel, method, name string
	sizes, use           []string
	resident             uint64
	csv, svg             string
}

// byMeter selects the external meter as the method; others read the GPU's own
// sensor.
const byMeter = "meter"

func predictSweepCmd(a *cli.App) *cobra.Command {
	var f predictSweepFlags
	c := cli.Command("sweep", "Measure a kernel over its number of blocks, calibrate, and predict the rest", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			return f.Metered(ctx, a, func(ctx context.Context) error { return predictSweep(a, ctx, f) })
		})
	fl := c.Flags()
	f.AddBench(fl)
	fl.StringVar(&f.kernel, "kernel", "", "vectoradd or matmul (required)")
	fl.StringSliceVar(&f.sizes, "sizes", nil,
		"numbers of blocks (default: a quarter of what the GPU holds to eight times that)")
	fl.StringSliceVar(&f.use, "use", nil, "numbers of blocks to calibrate on (default: one, two and four full rounds)")
	fl.IntVar(&f.Plan.Repeat, "times", 3, "times that every size is measured")
	fl.DurationVar(&f.Round, "round", 600*time.Millisecond, "how long a full round is to take")
	fl.DurationVar(&f.Rest, "rest", 400*time.Millisecond, "rest before each launch")
	fl.DurationVar(&f.Idle, "idle", 3*time.Second, "how long the GPU is measured at rest, before and after all")
	fl.DurationVar(&f.Settle, "settle", 1500*time.Millisecond, "how long it may settle before that")
	fl.Uint64Var(&f.resident, "resident", 0,
		"blocks that a multiprocessor holds, for the rounds (default: what the driver says)")
	fl.StringVar(&f.method, "method", "",
		"counter, instant, average, mtsm, sma or papi; or meter (default: meter where one is named, else counter)")
	f.AddMeter(fl, "", "address of a monitor whose meter reads along; none when left out")
	fl.StringVar(&f.name, "name", "", "name of the model (default: of the kernel)")
	fl.Uint64Var(&f.Seed, "seed", 1, "of the order")
	cli.OutFlag(fl, &f.csv, "output", "write the points into this file", "CSV", ".csv")
	cli.SVGFlag(fl, &f.svg, "draw time and energy into this file")
	return a.JSONFlag(c)
}

// plan checks the flags and returns the launches to make. It sets the default
// method: the meter with --monitor, else the GPU's energy counter. Every error is
// wrong usage.
func (f *predictSweepFlags) plan() (p sweep.Plan, err error) {
	p, p.Kernel = f.Plan, sweep.Kernel(f.kernel)
	if p.Blocks, err = parseBlocks("sizes", f.sizes); err != nil {
		return p, err
	}
	if !slices.Contains(sweep.Kernels(), p.Kernel) {
		return p, cli.Usagef("--kernel %q: want vectoradd or matmul", f.kernel)
	}
	byDefault := map[bool]string{true: byMeter, false: string(sensor.Counter)}
	f.method = cmp.Or(f.method, byDefault[f.Monitor != ""])
	switch {
	case f.method == byMeter && f.Monitor == "":
		return p, cli.Usagef("--method meter: name the meter with --instrument and --port, or --monitor")
	case f.method != byMeter && !slices.Contains(sensor.Methods(), sensor.Method(f.method)):
		return p, cli.Usagef("--method %q: want counter, instant, average, mtsm, sma, papi or meter", f.method)
	}
	if _, err = parseBlocks("use", f.use); err != nil {
		return p, err
	}
	if err := errors.Join(session.NotNegative("--wait", f.Wait), session.Free(f.csv, f.svg)); err != nil {
		return p, err
	}
	return p, cli.WithCode(cli.ExitUsage, p.Check())
}

// predictSweep measures the kernel over its numbers of blocks, calibrates on some
// of them, predicts the others, stores and prints the model. It blocks for the
// whole sweep, by default about 75 s.
func predictSweep(a *cli.App, ctx context.Context, f predictSweepFlags) error {
	p, err := f.plan()
	if err != nil {
		return err
	}
	o, meter, tasks, err := f.measure(a, ctx, p)
	if err != nil {
		return err
	}
	points, idle, silent, err := sweepPoints(o, f.method, meter)
	if err != nil {
		return err
	}
	// Reported, not fatal: the other launches may still determine the model.
	if silent > 0 {
		fmt.Fprintf(a.Err,
			"wattmark: %d of %d launches are left out: %s said nothing of them; make --round longer, or take "+
				"another --method\n", silent, silent+len(points), f.method)
	}
	// CSV that calibrate reads, with the conditions in a comment.
	if err := out.ToFile(f.csv, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		fmt.Fprintf(b, "# %s on %s by %s: %d multiprocessors with %d resident blocks, %d turns a block; idle %.3f W, "+
			"standard uncertainty %.3f W\nkernel,blocks,time_s,energy_j\n",
			o.Kernel, o.GPU.Name, f.method, o.SMs, o.Resident, o.Loops, float64(idle[0]), float64(idle[1]))
		for _, p := range points {
			fmt.Fprintf(b, "%s,%d,%.9g,%.9g\n", o.Kernel, p.Blocks, float64(p.Time), float64(p.Energy))
		}
		return b.Flush()
	}); err != nil {
		return err
	}
	return sweepPredict(a, ctx, f, o, points, idle, tasks)
}

// findSweep finds a GPU that can run the kernels: CUDA, or the simulated GPU of
// wattmark emulate. A GPU that cannot is closed again.
func findSweep(selector string) (*session.FoundGPU, sweep.Machine, error) {
	card, err := session.FindGPU(selector)
	if err != nil {
		return nil, nil, err
	}
	switch d := card.Device.(type) {
	case sim.RemoteDevice:
		return card, simBlocks{d}, nil
	case *cuda.Device:
		return card, sweep.OnGPU(d), nil
	}
	return nil, nil, errors.Join(fmt.Errorf("%s cannot run the kernels of a sweep", card.Info().Name), card.Close())
}

// measure makes the launches of p. With a meter it returns its mean power over each, NaN where scans
// are missing, and the task. The GPU is opened inside the measurement, so that a capture can be running
// before its context exists.
func (f predictSweepFlags) measure(a *cli.App, ctx context.Context, p sweep.Plan) (
	o *sweep.Outcome, meter []measure.Watt, tasks []store.TaskID, err error,
) {
	card, machine, err := findSweep(f.GPU)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, card.Close()) }()
	// The sweep reads the GPU's sensor itself; a GPU alone is not warmed up.
	f.Name, f.NoSensor = "sweep-"+f.kernel, true
	if f.Monitor != "" {
		f.WarmUp = 200 * time.Millisecond
	}
	b, done, err := run.NewBench(a, ctx, f.RunFlags, card, "")
	if err != nil {
		return nil, nil, nil, err
	}
	defer done()
	if b.Meter != nil {
		b.Meter.Progress = nil // the launches are shown
	}
	// The sensor is opened by Prepare, after the capture, and read by the sweep.
	var own gpu.PowerSensor
	b.Prepare = func(context.Context) (err error) {
		own, err = card.Sensor()
		return err
	}
	ran, err := b.Run(ctx, func(ctx context.Context) (_ []gpu.Kernel, err error) {
		bar := a.Progress(fmt.Sprintf("%s: launches", p.Kernel))
		defer bar.End()
		o, err = sweep.Measure(ctx, machine, own, p, bar.Set)
		if errors.Is(err, sweep.ErrPlan) {
			err = cli.WithCode(cli.ExitUsage, err)
		}
		return sweepKernels(o), err
	})
	if err != nil || b.Meter == nil {
		return o, nil, nil, err
	}
	spans := lists.Map(o.Launches, func(l sweep.Launch) gpu.Span { return l.Span })
	if meter, err = measurement.Means(ctx, b.Meter.DB.(*store.DB), ran.Task, spans); err != nil {
		err = fmt.Errorf("the meter's powers are missing: %w", err)
	}
	return o, meter, []store.TaskID{ran.Task}, err
}

// sweepKernels returns the launches as kernels of the task; idle measurements are
// named rest.
func sweepKernels(o *sweep.Outcome) (out []gpu.Kernel) {
	if o == nil {
		return nil
	}
	for _, l := range o.Launches {
		name := fmt.Sprintf("%s,blocks=%d", o.Kernel, l.Blocks)
		if l.Blocks == 0 {
			name = "rest"
		}
		out = append(out, gpu.Kernel{Name: name, Span: l.Span})
	}
	return out
}

// sweepPoints makes one point per launch, with energy by the given method. idle
// holds the mean power of the two idle measurements and the standard uncertainty
// of that mean. silent counts launches too short for the method to give a value.
func sweepPoints(o *sweep.Outcome, method string, meter []measure.Watt) (points []predict.Point, idle [2]measure.Watt,
	silent int, err error,
) {
	var rests []float64
	for i, l := range o.Launches {
		// A sensor that updates every 100 ms may have no value within a short launch.
		e, ok := l.Energy[sensor.Method(method)]
		if method == byMeter {
			e, ok = measure.Joule(float64(meter[i])*float64(l.Time())), !math.IsNaN(float64(meter[i]))
		}
		switch {
		case !ok:
			silent++
			continue
		case l.Blocks == 0:
			rests = append(rests, float64(e)/float64(l.Time()))
			continue
		}
		points = append(points, predict.Point{
			Blocks: l.Blocks, Time: l.Time(), Energy: e, From: fmt.Sprintf("pass %d, %d blocks", l.Pass+1, l.Blocks),
		})
	}
	if len(rests) != 2 {
		return nil, idle, silent,
			fmt.Errorf("%s says nothing of the GPU at rest: make --idle longer, or take another --method", method)
	}
	// The standard deviation of the mean of two values is half their difference.
	return points, [2]measure.Watt{
		measure.Watt((rests[0] + rests[1]) / 2), measure.Watt(math.Abs(rests[0]-rests[1]) / 2),
	}, silent, nil
}

// sweepPredict calibrates on the sizes of --use, or on one, two and four full
// rounds, predicts the others, stores the model, and prints it.
func sweepPredict(a *cli.App, ctx context.Context, f predictSweepFlags, o *sweep.Outcome, points []predict.Point,
	idle [2]measure.Watt, tasks []store.TaskID,
) error {
	resident, use := cmp.Or(f.resident, o.Resident), f.use
	if len(use) == 0 {
		r := o.SMs * resident
		use = []string{fmt.Sprint(r), fmt.Sprint(2 * r), fmt.Sprint(4 * r)}
	}
	fit, others, err := (&predictFlags{use: use}).split(points)
	if err != nil {
		return err
	}
	c := predictionContent{
		Kernel: string(o.Kernel), GPU: o.GPU.Name, Points: fit, Others: others,
		FlopsPerBlock: o.Kernel.Flops() * float64(o.Loops),
		Options:       predict.Options{Idle: idle[0], UIdle: idle[1], SMs: o.SMs, Resident: resident},
	}
	var doubts []string
	if o.GPU.Simulated {
		doubts = append(doubts, "the GPU is simulated: its blocks draw what they were made to draw")
	}
	// Reduced clocks lengthen some launches and not others, and bend the line.
	held, by := 0, map[string]bool{}
	for _, l := range o.Launches {
		if len(l.Throttled) > 0 {
			held++
		}
		for _, t := range l.Throttled {
			by[t] = true
		}
	}
	if held > 0 {
		doubts = append(doubts, fmt.Sprintf("in %d launches the clocks were held down by %s", held,
			strings.Join(slices.Sorted(maps.Keys(by)), ", ")))
	}
	return c.finish(a, ctx, cmp.Or(f.name, f.kernel), doubts, tasks, false, f.svg)
}

// simBlocks runs the blocks of a sweep on a simulated GPU, after the paper's
// model: in rounds of SimSMs × SimResident blocks at SimBusy, and the last round
// above SimRest in proportion to the blocks in it. It computes nothing.
type simBlocks struct{ sim.RemoteDevice }

// Shape and powers of the simulated GPU. SimRest equals the active idle power of
// the emulated board. simTurn is the time of one turn of a block's loop.
const (
	SimSMs, SimResident = 14, 2
	simTurn             = time.Microsecond
	SimBusy, SimRest    = measure.Watt(280), measure.Watt(58)
)

// Load returns at once: there is nothing to compile.
func (s simBlocks) Load(context.Context, sweep.Kernel, uint64) (sweep.Loaded, error) { return s, nil }

// Shape returns the multiprocessors and the blocks that each holds.
func (simBlocks) Shape() (sms, resident uint64) { return SimSMs, SimResident }

// Run schedules the power of all rounds and blocks until the last one has ended.
// If ctx ends first the schedule is cancelled.
func (s simBlocks) Run(ctx context.Context, blocks, loops uint64) (gpu.Span, error) {
	const wide = SimSMs * SimResident
	var steps []load.Step
	length := time.Duration(loops) * simTurn
	// The last round may be partly filled: its power is between rest and busy.
	for left := blocks; left > 0; left -= min(left, wide) {
		share := float64(min(left, wide)) / wide
		steps = append(steps, load.Step{Level: SimRest + measure.Watt(share*float64(SimBusy-SimRest)), For: length})
	}
	begin, err := s.Plant.SetSteps(time.Now().Add(sim.RemoteLaunch), append(steps, load.Step{Load: load.ActiveIdle}))
	if err != nil {
		return gpu.Span{}, fmt.Errorf("simulated GPU: %w", err)
	}
	end := begin.Add(time.Duration(len(steps)) * length)
	if err := session.PauseUntil(ctx, end); err != nil {
		s.Plant.Cancel(time.Now())
		return gpu.Span{}, err
	}
	return gpu.Span{Start: begin, End: end}, nil
}

func (simBlocks) Check(uint64) error { return nil }

func (simBlocks) Close() error { return nil }
