package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent/instructions"
	"wattmark/hostagent/nvml"
	"wattmark/store"
)

// instructionsFlags are what a run can be told.
type instructionsFlags struct {
	gpu, out, monitor string
	levels            []int
	layouts           []string
	length, settle    time.Duration
	wait              time.Duration
	cluster           gateFlags
	passes            int
	seed              uint64
}

func (a *app) instructionsRunCmd() *cobra.Command {
	var f instructionsFlags
	c := &cobra.Command{
		Use: "run [INSTRUCTION...]", Short: "Measure instructions on a GPU",
		Long: `Measure instructions, all unless some are named (add.*, div.s32), by every way to
read the GPU's own sensor, at the driver's optimisation levels 3 and 0. Results of
the kernels are compared with what they must be. Each run goes into the task
database as it ends, as a part of one campaign, and with --out into a file as well.
Nothing else should use the GPU meanwhile.

With --monitor the external meter reads along: one capture, stored as a task, has
the whole campaign between its markers, and each run gets the meter's mean power
as one more method, meter. The file is then written at the end.

All instructions take some 20 minutes at 3 passes.`,
		Example: `  wattmark instructions run
  wattmark instructions run 'div.*' mul.f32 --passes 1 --out some.jsonl
  wattmark instructions run --monitor lab-monitor:7551`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.plan(args)
			if err != nil {
				return withCode(exitUsage, err)
			}
			return a.instructionsRun(cmd.Context(), f, p)
		},
	}
	fl := c.Flags()
	f.cluster.addTo(fl)
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id; the first when left out")
	outFlag(fl, &f.out, "out", "file that every run is added to as well, a JSON object a line", "a JSON object a line", ".jsonl", ".ndjson", ".json")
	fl.StringVar(&f.monitor, "monitor", "", "address of a monitor whose meter reads along; none when left out")
	fl.DurationVar(&f.wait, "wait", 0, "how long to queue for a busy bench")
	fl.IntVar(&f.passes, "passes", 3, "times that everything is measured, each in another order")
	fl.IntSliceVar(&f.levels, "level", []int{3, 0}, "optimisation levels of the driver's compiler")
	fl.StringSliceVar(&f.layouts, "layout", []string{string(instructions.OneThread), string(instructions.WholeGPU)}, "one-thread, whole-gpu")
	fl.DurationVar(&f.length, "length", 0, "how long a kernel is measured; 0.3 s of one thread and 0.4 s of a whole GPU when 0")
	fl.DurationVar(&f.settle, "settle", 0, "how long a kernel runs before; 0.2 s of one thread and 1.1 s of a whole GPU when 0")
	fl.Uint64Var(&f.seed, "seed", 1, "of the order")
	return c
}

func (f *instructionsFlags) plan(names []string) (instructions.Plan, error) {
	p := instructions.DefaultPlan()
	p.Passes, p.Levels, p.Seed, p.Version = f.passes, f.levels, f.seed, version()
	if err := errors.Join(notNegative(span{"--wait", f.wait}), appendable(f.out)); err != nil {
		return p, err
	}
	if f.passes < 1 {
		return p, fmt.Errorf("--passes %d: want 1 at least", f.passes)
	}
	for _, l := range f.levels {
		if l < 0 || l > 4 {
			return p, fmt.Errorf("--level %d: want 0 to 4", l)
		}
	}
	if strings.HasPrefix(f.gpu, simPrefix) {
		return p, fmt.Errorf("--gpu %s: instructions are PTX, which a simulated GPU does not run: name a CUDA GPU", f.gpu)
	}
	if f.length < 0 || f.settle < 0 {
		return p, errors.New("--length and --settle: want a positive time")
	}
	p.Layouts = nil
	for _, l := range f.layouts {
		if _, ok := p.Steps[instructions.Layout(l)]; !ok {
			return p, fmt.Errorf("--layout %q: want %s or %s", l, instructions.OneThread, instructions.WholeGPU)
		}
		p.Layouts = append(p.Layouts, instructions.Layout(l))
	}
	for l := range p.Steps {
		if f.length > 0 {
			p.Length[l] = f.length
		}
		if f.settle > 0 {
			p.Settle[l] = f.settle
		}
	}
	if host, err := os.Hostname(); err == nil {
		p.Host = host
	}
	var err error
	p.Instructions, err = instructions.Find(names...)
	return p, err
}

func (a *app) instructionsRun(ctx context.Context, f instructionsFlags, p instructions.Plan) error {
	dev, err := findCUDA(f.gpu)
	if err != nil {
		return err
	}
	defer dev.Close()
	var sensor *nvml.Device
	open := func(ctx context.Context) (err error) {
		if err = dev.Open(ctx); err == nil {
			sensor, err = nvml.Open(dev.Info().UUID)
		}
		return err
	}
	defer func() {
		if sensor != nil {
			_ = sensor.Close() // it was read from only
		}
	}()
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer db.Close()
	sink := &instructionSink{db: db, file: f.out, late: f.monitor != "", show: a.err, live: isTerminal(a.err)}
	gpu := instructions.OnGPU(dev)
	work := func(ctx context.Context) error {
		return instructions.Measure(ctx, gpu, sensor, p, func(r instructions.Run) error { return sink.add(ctx, r) })
	}
	if f.monitor == "" {
		if err = open(ctx); err == nil {
			err = work(ctx)
		}
	} else {
		err = a.instructionsMetered(ctx, f, dev, open, sink, work)
	}
	err = errors.Join(err, gpu.Close(), sink.close(ctx))
	if sink.id != 0 {
		fmt.Fprintf(a.out, "%d programs on a %s: campaign %d in %s\nwattmark instructions table --campaign %d\n", sink.n, dev.Info().Name, sink.id, a.db, sink.id)
	}
	return err
}
