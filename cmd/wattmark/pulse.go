package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent"
	"wattmark/hostagent/methods"
	"wattmark/hostagent/monitorclient"
	"wattmark/store"
)

// pulseFlags are the flags of pulse.
type pulseFlags struct {
	runFlags
	on, off, length time.Duration
	alone           bool
	flatOut         bool
	noCounter       bool
	svg             string
}

func (a *app) pulseCmd() *cobra.Command {
	var f pulseFlags
	c := &cobra.Command{
		Use: "pulse", Short: "Show what software misreads: short pulses of work by every method and by the meter", Args: cobra.NoArgs,
		Long: `Alternate a kernel with rest on the GPU, read its own power sensor by every software
method meanwhile, and hold what each says against the truth, in a table and a plot
(SVG). docs/methods.md tells what the methods are.

The truth is the external meter of the monitor, whose task is stored as any other.
With --no-meter, where no monitor serves at the default address, or where its meter is
the GPU's own sensor, the GPU's energy counter over the whole time stands for it: it
has an error of its own, the output says so, and nothing is stored.`,
		Example: `  wattmark pulse
  wattmark pulse --on 20ms --off 80ms --for 10s --svg pulse.svg
  wattmark pulse --gpu sim:/tmp/gpu.sock --monitor 127.0.0.1:7551`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.pulse(cmd.Context(), f, cmd.Flags().Changed("monitor"))
		},
	}
	fl := c.Flags()
	f.cluster.addTo(fl)
	fl.DurationVar(&f.on, "on", 50*time.Millisecond, "length of a pulse")
	fl.DurationVar(&f.off, "off", 50*time.Millisecond, "length of the rest after it")
	fl.DurationVar(&f.length, "for", 5*time.Second, "length of it all")
	fl.StringVar(&f.benchmark, "benchmark", "memory", "kernel of the pulses: half, compute or memory")
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	fl.StringVar(&f.monitor, "monitor", defaultMonitor, "address of the monitor")
	fl.BoolVar(&f.alone, "no-meter", false, "measure without a meter")
	svgFlag(fl, &f.svg, "file to draw into (default: pulse-TASK.svg, or pulse-TIME.svg without a meter)")
	fl.BoolVar(&f.flatOut, "flat-out", false, "let MTSM read without pause, as the paper has it, instead of every 0.5 ms")
	fl.BoolVar(&f.noCounter, "no-counter", false, "do not read the energy counter, whose calls take milliseconds; without a meter there is no truth then")
	fl.DurationVar(&f.warmUp, "warm-up", 200*time.Millisecond, "load the GPU for this long before; 0 for none")
	fl.DurationVar(&f.wait, "wait", 0, "how long to queue for a busy bench")
	fl.StringVar(&f.user, "user", "", "user of the task (default: the login name)")
	fl.StringVar(&f.name, "name", "pulse", "name of the task")
	return a.jsonFlag(c)
}

func (f *pulseFlags) validate() error {
	if err := errors.Join(f.check(nil), free(f.svg)); err != nil {
		return err
	}
	switch {
	case f.on <= 0 || f.off < 0:
		return withCode(exitUsage, errors.New("--on must be positive, and --off not negative"))
	case f.length < f.on+f.off:
		return withCode(exitUsage, fmt.Errorf("--for %v holds no pulse of %v and rest of %v", f.length, f.on, f.off))
	}
	if f.svg == "" {
		return writable(".") // for the file that gets its name from the task
	}
	return nil
}

func (f *pulseFlags) options() (o methods.Options) {
	if f.flatOut {
		o.MTSMEvery = -1
	}
	if f.noCounter {
		o.CounterPause = -1
	}
	return o
}

func (a *app) pulse(ctx context.Context, f pulseFlags, named bool) error {
	if err := f.validate(); err != nil {
		return err
	}
	why := "--no-meter"
	if !f.alone {
		var err error
		if why, err = noTruth(ctx, f.monitor, named); err != nil {
			return err
		}
	}
	gpu, err := findGPU(f.gpu)
	if err != nil {
		return err
	}
	defer gpu.Close()
	work := pulseWork(gpu.Device, hostagent.Benchmark(f.benchmark), f.on, f.off, f.length)
	if why != "" {
		return a.pulseAlone(ctx, f, why, gpu, work)
	}
	cfg, done, err := a.measureConfig(ctx, f.runFlags, gpu, f.name)
	if err != nil {
		return err
	}
	defer done()
	cfg.Methods = f.options()
	id, err := a.measure(ctx, cfg, work)
	if id == 0 {
		return err
	}
	return errors.Join(err, a.pulseResult(ctx, f, cfg.DB.(*store.DB), id))
}

// pulseResult draws and shows a task.
func (a *app) pulseResult(ctx context.Context, f pulseFlags, db *store.DB, id store.TaskID) error {
	if ctx.Err() != nil {
		return nil // the measurement's error says what was kept
	}
	path := firstOf(f.svg, fmt.Sprintf("pulse-%d.svg", id))
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	drawErr := a.drawTask(ctx, db, &t, path)
	if drawErr != nil {
		path = ""
	}
	err = a.showTask(ctx, db, id, func(r *report) { r.Picture = path })
	if path != "" && !a.json {
		fmt.Fprintln(a.out, "\nDrawn into", path)
	}
	return errors.Join(err, drawErr)
}

// noTruth says why the monitor has no truth to offer; empty where it has. An
// address that was named must answer.
func noTruth(ctx context.Context, address string, named bool) (string, error) {
	client, err := dialMeter(ctx, address, monitorclient.Options{Patience: time.Second, Version: version()})
	if err != nil {
		return "", err
	}
	defer client.Close()
	b, err := client.GetBench(ctx)
	switch {
	case err != nil && named:
		return "", err
	case err != nil:
		return "no monitor serves at " + address, nil
	case b.Instrument.Kind == "nvml":
		return "the monitor's meter is the GPU's own sensor", nil
	}
	return "", nil
}
