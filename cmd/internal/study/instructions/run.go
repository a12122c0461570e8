// Package instructions has the commands of energy per instruction: campaigns of generated
// PTX, their tables, and comparisons with published ones.
package instructions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/experiment"
	"github.com/wattmark/wattmark/hostagent/experiment/instructions"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// InstructionsFlags are the flags of run, beside those that it shares with the command run.
type InstructionsFlags struct {
	run.RunFlags
	Out     string
	Levels  []int
	Layouts []string
	// Length is the measured time of a kernel and Settle its run before; 0 keeps the
	// plan's, which differ by layout.
	Length, Settle time.Duration
	Passes         int
	seed           uint64
}

func instructionsRunCmd(a *cli.App) *cobra.Command {
	var f InstructionsFlags
	c := cli.Command("run [INSTRUCTION...]", "Measure instructions on a GPU", nil,
		func(ctx context.Context, args []string) error {
			p, err := f.Plan(args)
			if err != nil {
				return cli.WithCode(cli.ExitUsage, err)
			}
			return f.Metered(ctx, a, func(ctx context.Context) error { return instructionsRun(a, ctx, f, p) })
		})
	fl := c.Flags()
	f.Cluster.AddTo(fl)
	cli.GPUFlag(fl, &f.GPU, "GPU by index, UUID or PCI bus id; the first when left out")
	cli.OutFlag(fl, &f.Out, "output", "file that every run is added to as well, a JSON object a line",
		"a JSON object a line", ".jsonl", ".ndjson", ".json")
	f.AddMeter(fl, "", "address of a monitor whose meter reads along; none when left out")
	fl.DurationVar(&f.Wait, "wait", 0, "how long to queue for a busy bench")
	fl.IntVar(&f.Passes, "passes", 3, "times that everything is measured, each in another order")
	fl.IntSliceVar(&f.Levels, "opt-level", []int{3, 0}, "optimisation levels of the driver's compiler")
	fl.StringSliceVar(&f.Layouts, "layout", []string{string(instructions.OneThread), string(instructions.WholeGPU)},
		"one-thread, whole-gpu")
	fl.DurationVar(&f.Length, "length", 0,
		"how long a kernel is measured; 0.3 s of one thread and 0.4 s of a whole GPU when 0")
	fl.DurationVar(&f.Settle, "settle", 0,
		"how long the power may settle under a kernel before; 0.2 s of one thread and 1.1 s of a whole GPU when 0")
	fl.Uint64Var(&f.seed, "seed", 1, "of the order")
	return c
}

// Plan checks the flags and returns the plan for the named instructions, all if
// none is named. It touches no GPU. A simulated GPU is refused, since it runs no
// PTX.
func (f *InstructionsFlags) Plan(names []string) (p instructions.Plan, err error) {
	// The defaults that differ by layout are the plan's: a flag replaces those of all layouts.
	p = instructions.DefaultPlan()
	p.Passes, p.Levels, p.Seed, p.Version = f.Passes, f.Levels, f.seed, cli.Version()
	if err := errors.Join(session.NotNegative("--wait", f.Wait), session.Appendable(f.Out)); err != nil {
		return p, err
	}
	if f.Passes < 1 {
		return p, fmt.Errorf("--passes %d: want 1 at least", f.Passes)
	}
	for _, l := range f.Levels {
		if l < 0 || l > 4 {
			return p, fmt.Errorf("--opt-level %d: want 0 to 4", l)
		}
	}
	if strings.HasPrefix(f.GPU, sim.Prefix) {
		return p, fmt.Errorf("--gpu %s: instructions are PTX, which a simulated GPU does not run: name a CUDA GPU", f.GPU)
	}
	if f.Length < 0 || f.Settle < 0 {
		return p, errors.New("--length and --settle: want a positive time")
	}
	p.Layouts = nil
	for _, l := range f.Layouts {
		if _, ok := p.Steps[instructions.Layout(l)]; !ok {
			return p, fmt.Errorf("--layout %q: want %s or %s", l, instructions.OneThread, instructions.WholeGPU)
		}
		p.Layouts = append(p.Layouts, instructions.Layout(l))
	}
	for l := range p.Steps {
		p.Length[l], p.Settle[l] = cmp.Or(f.Length, p.Length[l]), cmp.Or(f.Settle, p.Settle[l])
	}
	p.Host, _ = os.Hostname()
	p.Instructions, err = instructions.Find(names...)
	return p, err
}

// instructionsRun measures a campaign and stores each run as it ends; it blocks
// until the last. With a monitor the whole campaign is one capture. An interrupted
// campaign keeps the runs that ended.
func instructionsRun(a *cli.App, ctx context.Context, f InstructionsFlags, p instructions.Plan) error {
	dev, err := session.FindCUDA(f.GPU)
	if err != nil {
		return err
	}
	defer dev.Close()
	sink, done, err := NewSink(a, ctx, f, &session.FoundGPU{Device: dev})
	if err != nil {
		return err
	}
	defer done()
	var sensor *nvml.Device
	sink.Bench.Prepare = func(context.Context) (err error) { sensor, err = nvml.Open(dev.Info().UUID); return err }
	defer func() {
		if sensor != nil {
			_ = sensor.Close() // only read: nothing to lose
		}
	}()
	// The GPU stays open: only buffers in its memory are released by Close.
	gpu := instructions.OnGPU(dev)
	err = sink.Measure(ctx, func(ctx context.Context) error {
		return instructions.Measure(ctx, gpu, sensor, p, func(r instructions.Run) error { return sink.Add(ctx, r) })
	})
	// The sink is closed last, also after an error: a late file is written there.
	err = errors.Join(err, gpu.Close(), sink.Close(ctx))
	if sink.ID != 0 {
		fmt.Fprintf(a.Out, "%d programs on a %s: campaign %d in %s\nwattmark instructions table --campaign %d\n",
			sink.N, dev.Info().Name, sink.ID, a.DB, sink.ID)
	}
	return err
}

// InstructionSink runs a campaign and stores its runs as they end: in the database at
// once, in a file line by line. With a meter the file is written on Close, when the
// meter's powers are known. Not for concurrent use.
type InstructionSink struct {
	DB    *store.DB
	Bench *experiment.Bench
	a     *cli.App
	File  string
	bar   *cli.Progress

	ID  store.CampaignID // zero before the first run
	N   int
	out *os.File
	// Spans has the time of each run, in the order of their numbers, from 1.
	Spans []gpu.Span
}

// NewSink opens the database and, with f.Monitor, the connection to the meter. The returned
// function closes both; it must be called after a call without an error.
func NewSink(a *cli.App, ctx context.Context, f InstructionsFlags,
	card *session.FoundGPU,
) (*InstructionSink, func(), error) {
	// The campaign reads the GPU's sensor itself; a GPU alone is not warmed up.
	f.Name, f.NoSensor = "instructions", true
	if f.Monitor != "" {
		f.WarmUp = 200 * time.Millisecond
	}
	b, done, err := run.NewBench(a, ctx, f.RunFlags, card, "")
	if err != nil {
		return nil, nil, err
	}
	s := &InstructionSink{Bench: b, a: a, File: f.Out}
	if b.Meter != nil {
		b.Meter.Progress = nil // Add shows its own
		s.DB = b.Meter.DB.(*store.DB)
		return s, done, nil
	}
	if s.DB, err = store.Open(ctx, a.DB); err != nil {
		done()
		return nil, nil, err
	}
	return s, func() { done(); _ = s.DB.Close() }, nil
}

// Add stores a run; the first one begins the campaign and opens the file for appending, so
// that campaigns collect in it. It stores even if ctx has ended: the measurement is already
// paid for.
func (s *InstructionSink) Add(ctx context.Context, r instructions.Run) (err error) {
	campaign, run := r.Stored()
	ctx = context.WithoutCancel(ctx)
	if s.ID == 0 {
		s.bar = s.a.Progress("instructions")
		if s.File != "" {
			if s.out, err = os.OpenFile(s.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
				return fmt.Errorf("--output: %w", err)
			}
		}
		if s.ID, err = s.DB.BeginInstructions(ctx, campaign); err != nil {
			return err
		}
	}
	if s.N, err = s.DB.AddInstruction(ctx, s.ID, run); err != nil {
		return err
	}
	s.Spans = append(s.Spans, r.Span())
	s.bar.Note(fmt.Sprintf("pass %d, %d programs: %s -O%d %s", r.Pass+1, s.N, r.Instruction, r.Level, r.Layout))
	if s.out == nil || s.Bench.Meter != nil {
		return nil
	}
	return json.NewEncoder(s.out).Encode(r)
}

// Close ends the progress line and closes the file. With a meter it first copies the
// campaign from the database to the file, one JSON object per line.
func (s *InstructionSink) Close(ctx context.Context) (err error) {
	s.bar.End()
	if s.out == nil {
		return nil
	}
	if s.Bench.Meter != nil {
		var runs []instructions.Run
		runs, err = CampaignRuns(context.WithoutCancel(ctx), s.DB, s.ID)
		enc := json.NewEncoder(s.out)
		for i := 0; i < len(runs) && err == nil; i++ {
			err = enc.Encode(runs[i])
		}
	}
	return errors.Join(err, s.out.Close())
}

// Measure runs work on the bench, then adds the meter's mean powers to the runs as one more
// method, even if work failed: the runs before that are complete. Runs with missing scans are
// skipped and reported as one error. The launches are kernels of the task,
// named by their number in the campaign; runs that launched nothing have an empty span and
// are left out.
func (s *InstructionSink) Measure(ctx context.Context, work func(context.Context) error) error {
	ran, err := s.Bench.Run(ctx, func(ctx context.Context) (kernels []gpu.Kernel, _ error) {
		err := work(ctx)
		for n, span := range s.Spans {
			if span.Start.Before(span.End) {
				kernels = append(kernels, gpu.Kernel{Name: fmt.Sprintf("instruction run %d", n+1), Span: span})
			}
		}
		return kernels, err
	})
	if ran.Task == 0 || s.N == 0 {
		return err
	}
	fmt.Fprintf(s.a.Out, "The meter's samples are task %d\n", ran.Task)
	ctx = context.WithoutCancel(ctx)
	means, missed := measurement.Means(ctx, s.DB, ran.Task, s.Spans)
	if missed != nil {
		return errors.Join(err, fmt.Errorf("the meter's powers are missing: %w", missed))
	}
	// Runs are numbered from 1 in the database. A mean is NaN where scans are missing.
	watts := map[int]measure.Watt{}
	for n, w := range means {
		if !math.IsNaN(float64(w)) {
			watts[n+1] = w
		}
	}
	err = errors.Join(err, s.DB.AddInstructionPowers(ctx, s.ID, string(instructions.Meter), watts))
	if len(watts) < len(means) {
		err = errors.Join(err, fmt.Errorf("the meter saw %d of %d programs: scans are missing, or the program did "+
			"not run", len(watts), len(means)))
	}
	return err
}
