package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/experiment"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/plot/plotter"
)

// pulseFlags are the flags of pulse. alone measures without a meter; flatOut and noCounter
// change the software methods (see options).
type pulseFlags struct {
	RunFlags
	on, off, length time.Duration
	alone           bool
	flatOut         bool
	noCounter       bool
	svg             string
}

// pulseCmd returns pulse, which stores a task only where a meter gives the truth.
func pulseCmd(a *cli.App) *cobra.Command {
	var f pulseFlags
	c := cli.Command("pulse", "Show what software misreads of short pulses of work", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if f.alone && cli.Given(f.meter.all, "monitor") {
				return cli.Usagef("--no-meter measures without a monitor: leave it or --monitor out")
			}
			if err := f.validate(); err != nil {
				return err
			}
			return f.Metered(ctx, a, func(ctx context.Context) error { return pulse(ctx, a, f) })
		})
	fl := c.Flags()
	f.AddBench(fl)
	fl.DurationVar(&f.on, "on", 50*time.Millisecond, "length of a pulse")
	fl.DurationVar(&f.off, "off", 50*time.Millisecond, "length of the rest after it")
	fl.DurationVar(&f.length, "duration", 5*time.Second, "length of it all")
	fl.StringVar(&f.Benchmark, "benchmark", "memory", "kernel of the pulses: half, compute or memory")
	f.AddMeter(fl, cli.DefaultMonitor, "in place of these: the monitor that has the meter")
	fl.BoolVar(&f.alone, "no-meter", false, "measure without a meter")
	cli.SVGFlag(fl, &f.svg, "file to draw into (default: pulse-TASK.svg, or pulse-TIME.svg without a meter)")
	fl.BoolVar(&f.flatOut, "flat-out", false, "let MTSM read without pause, as the paper has it, instead of every 0.5 ms")
	fl.BoolVar(&f.noCounter, "no-counter", false,
		"do not read the energy counter, whose calls take milliseconds; without a meter there is no truth then")
	fl.DurationVar(&f.WarmUp, "warm-up", 200*time.Millisecond, "load the GPU for this long before; 0 for none")
	cli.UserFlag(fl, &f.User)
	fl.StringVar(&f.Name, "name", "pulse", "name of the task")
	return a.JSONFlag(c)
}

// validate fails with ExitUsage for pulses that do not fit the length, and for a file that
// exists or a folder that cannot be written, before the GPU is loaded.
func (f *pulseFlags) validate() error {
	if err := errors.Join(f.Check(nil), session.Free(f.svg)); err != nil {
		return err
	}
	switch {
	case f.meter.chosen() && (f.alone || f.meter.Instrument == nvml.Kind):
		return cli.Usagef("--no-meter measures by the GPU's own sensor alone: give it without --instrument and --bench")
	case f.on <= 0 || f.off < 0:
		return cli.Usagef("--on must be positive, and --off not negative")
	case f.length < f.on+f.off:
		return cli.Usagef("--duration %v holds no pulse of %v and rest of %v", f.length, f.on, f.off)
	}
	if f.svg == "" {
		return session.Writable(".") // for the file that gets its name from the task
	}
	return nil
}

// options converts the flags; a negative interval means "without pause" for MTSM and "not
// read" for the counter.
func (f *pulseFlags) options() (o sensor.MethodOptions) {
	if f.flatOut {
		o.MTSMEvery = -1
	}
	if f.noCounter {
		o.CounterPause = -1
	}
	return o
}

// pulse alternates a benchmark with rest and compares the software methods with the meter,
// or with the GPU's energy counter where no meter is usable. A meter that is named must answer.
func pulse(ctx context.Context, a *cli.App, f pulseFlags) error {
	// why is the reason to measure without a meter; empty with one.
	why := "--no-meter"
	if !f.alone {
		var err error
		if why, err = noTruth(ctx, f.Monitor, f.meter.chosen() || f.meter.all.Changed("monitor")); err != nil {
			return err
		}
	}
	card, err := session.FindGPU(f.GPU)
	if err != nil {
		return err
	}
	defer card.Close()
	work := session.PulseWork(card.Device, gpu.Benchmark(f.Benchmark), f.on, f.off, f.length)
	if why != "" {
		return pulseAlone(ctx, a, f, why, card, work)
	}
	cfg, done, err := MeasureConfig(a, ctx, f.RunFlags, card, f.Name)
	if err != nil {
		return err
	}
	defer done()
	cfg.Methods = f.options()
	id, err := Measure(a, ctx, cfg, work)
	if id == 0 {
		return err
	}
	return errors.Join(err, pulseResult(ctx, a, f, cfg.DB.(*store.DB), id))
}

// pulseResult draws the stored task into a file and prints it. A failed drawing does not
// hide the report.
func pulseResult(ctx context.Context, a *cli.App, f pulseFlags, db *store.DB, id store.TaskID) error {
	if ctx.Err() != nil {
		return nil // the measurement's error names the task kept
	}
	path := cmp.Or(f.svg, fmt.Sprintf("pulse-%d.svg", id))
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	drawErr := report.DrawTask(ctx, db, &t, path)
	if drawErr != nil {
		path = ""
	}
	err = report.ShowTask(a, ctx, db, id, func(r *report.Report) { r.Picture = path })
	if path != "" {
		a.Textf("\nDrawn into %s\n", path)
	}
	return errors.Join(err, drawErr)
}

// noTruth returns the reason why the monitor offers no true power, empty where it does. A
// monitor that does not answer is an error where its address was named, else a reason. It
// waits 1 s at most for a connection.
func noTruth(ctx context.Context, address string, named bool) (string, error) {
	client, err := cli.DialMeter(ctx, address, monitorclient.Options{Patience: time.Second, Version: cli.Version()})
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
	case b.Instrument.OwnSensor():
		return "the monitor's meter is the GPU's own sensor", nil
	}
	return "", nil
}

// PulseReport is the JSON of pulse without a meter. Truth names the reference, TruthW its
// mean power in W, nil where there is none.
type PulseReport struct {
	GPU       string                `json:"gpu"`
	Driver    string                `json:"driver,omitempty"`
	OnS       float64               `json:"on_s"`
	OffS      float64               `json:"off_s"`
	DurationS float64               `json:"duration_s"`
	Pulses    int                   `json:"pulses"`
	Truth     string                `json:"truth"`
	TruthW    *float64              `json:"truth_w,omitempty"`
	Methods   []report.MethodReport `json:"methods"`
	Picture   string                `json:"picture,omitempty"`
}

// settleAlone is how long the methods read before and after the work: the plot then shows
// the idle level, and the counter has updated after the last kernel.
const settleAlone = 300 * time.Millisecond

// pulseAlone measures without a meter and stores nothing. The mean power of the GPU's own
// energy counter serves as the reference; its own error is unknown, and the report shows no
// error for the counter method itself.
func pulseAlone(ctx context.Context, a *cli.App, f pulseFlags, why string, card *session.FoundGPU,
	work measurement.Work,
) error {
	w, kernels, err := watched(ctx, a, f, card, work)
	if err != nil {
		return err
	}
	// Energy and reference cover the span from the first kernel's start to the last one's
	// end, pauses included.
	of := gpu.Span{Start: kernels[0].Span.Start, End: kernels[len(kernels)-1].Span.End}
	info := card.Info()
	r := &PulseReport{
		GPU: info.Name, Driver: info.Driver, OnS: f.on.Seconds(), OffS: f.off.Seconds(),
		DurationS: of.End.Sub(of.Start).Seconds(),
		Pulses:    len(kernels), Truth: "the GPU's own energy counter over the whole time (" + why + ")",
	}
	// The methods integrate over the same span, so that their means compare.
	results := w.Results(of)
	truth := counterTruth(results)
	if truth == nil {
		r.Truth = "none: the energy counter was not read or tells nothing, and no meter (" + why + ")"
	} else {
		r.TruthW = cli.Number(float64(truth.Mean))
	}
	r.Methods = report.NewMethodReports(results, truth)
	for i := range r.Methods {
		if m := &r.Methods[i]; truth != nil && m.Method == string(sensor.Counter) {
			m.ErrorPct, m.Note = nil, out.JoinNonEmpty("; ", "taken as the truth", m.Note)
		}
	}
	r.Picture = cmp.Or(f.svg, "pulse-"+of.Start.Local().Format("20060102-150405")+".svg")
	p := alonePicture(r, w.Traces(), of, truth)
	if err := cli.WriteFile(r.Picture, p.WriteSVG); err != nil {
		return err
	}
	return a.Print(r, func(w io.Writer) { renderPulse(w, r) })
}

// watched runs the work without a meter while every method reads the GPU's sensor. No kernel is
// an error.
func watched(ctx context.Context, a *cli.App, f pulseFlags, card *session.FoundGPU, work measurement.Work) (
	w *sensor.Watcher, kernels []gpu.Kernel, err error,
) {
	f.Monitor, f.NoSensor = "", false
	b, done, err := NewBench(a, ctx, f.RunFlags, card, f.Name)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	b.Alone = func(ctx context.Context, own gpu.PowerSensor, work measurement.Work) ([]gpu.Kernel, error) {
		w = sensor.NewWatcher(own, f.options())
		return experiment.Around(ctx, settleAlone, settleAlone, w.Run, func(ctx context.Context) ([]gpu.Kernel, error) {
			w.Begin()
			defer w.End()
			return work(ctx)
		})
	}
	ran, err := b.Run(ctx, work)
	if err == nil && len(ran.Kernels) == 0 {
		err = errors.New("no kernel ran")
	}
	return w, ran.Kernels, err
}

// counterTruth returns the counter's mean power as reference, nil where the counter gave no
// value. Its uncertainty is NaN, which means unknown.
func counterTruth(results []store.MethodResult) *report.Truthful {
	for _, m := range results {
		if m.Method == string(sensor.Counter) && !math.IsNaN(float64(m.Mean)) {
			return &report.Truthful{
				Mean: m.Mean, Meter: measure.Estimate{U: measure.Joule(math.NaN())},
				Other: func(*store.MethodResult) string { return "" },
			}
		}
	}
	return nil
}

// alonePicture returns the plot of the methods' traces over the time since the first kernel
// began, with the counter's mean as a horizontal line.
func alonePicture(r *PulseReport, traces []sensor.Trace, of gpu.Span, truth *report.Truthful) *report.Picture {
	p := report.NewPicture(fmt.Sprintf("%g ms on, %g ms off on %s: power by software, no meter", 1e3*r.OnS, 1e3*r.OffS,
		r.GPU), measure.SecondsOf(of.End.Sub(of.Start)))
	if truth != nil {
		mean := float64(truth.Mean)
		ends := plotter.XYs{{X: 0, Y: mean}, {X: of.End.Sub(of.Start).Seconds(), Y: mean}}
		p.Line("counter's mean", report.Looks["truth"], ends)
	}
	p.AddTraces(traces, func(pt sensor.Point) measure.Seconds { return measure.SecondsOf(pt.At.Sub(of.Start)) })
	return p
}

func renderPulse(w io.Writer, r *PulseReport) {
	fmt.Fprintf(w, "%d pulses of %g ms, %g ms apart, on %s\n", r.Pulses, 1e3*r.OnS, 1e3*r.OffS,
		out.JoinNonEmpty(", driver ", r.GPU, r.Driver))
	fmt.Fprintf(w, "  truth    %s\n", r.Truth)
	if r.TruthW != nil {
		fmt.Fprintf(w, "           %.1f W; what it is worth only a meter tells\n", *r.TruthW)
	}
	against := "the energy counter"
	if r.TruthW == nil {
		against = "nothing"
	}
	report.RenderMethods(w, r.Methods, against)
	fmt.Fprintln(w, "\nDrawn into", r.Picture)
}
