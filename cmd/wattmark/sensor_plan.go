package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// sensorPlanFlags say what is to be measured and with what sensor.
type sensorPlanFlags struct {
	kernel                     time.Duration
	u, swing, mean             float64
	gpu, field                 string
	version                    int
	period, window, tau, delay time.Duration
	noise                      float64
}

func (f *sensorPlanFlags) add(fl *pflag.FlagSet) {
	fl.Float64Var(&f.u, "u", 0.02, "relative uncertainty (95 %) that is wanted, without the sensor's static error")
	fl.Float64Var(&f.swing, "swing", 1, "how far the power goes up and down within a repetition, relative to its mean (0 to 2)")
	fl.Float64Var(&f.mean, "mean", 300, "mean power in watts, roughly")
	fl.StringVar(&f.field, "field", "instant", "field of the sensor: instant, average or usage")
	fl.IntVar(&f.version, "version", 0, "version of the stored profile (default: the newest)")
	fl.DurationVar(&f.period, "period", 0, "the sensor's period, in place of a stored profile")
	fl.DurationVar(&f.window, "window", 0, "its window")
	fl.DurationVar(&f.tau, "tau", 0, "its time constant, in place of a window")
	fl.DurationVar(&f.delay, "delay", 0, "its delay")
	fl.Float64Var(&f.noise, "noise", 1, "noise of one value in watts, with --period")
}

// profile is the stored one of a GPU, or what the flags say.
func (f *sensorPlanFlags) profile(ctx context.Context, a *app, gpu string) (*sensor.Profile, error) {
	if f.period > 0 {
		if (f.window > 0) == (f.tau > 0) {
			return nil, withCode(exitUsage, errors.New("--period goes with --window or with --tau"))
		}
		p := &sensor.Profile{Field: f.field, Model: sensor.Boxcar, Period: seconds(f.period), Window: seconds(f.window), Delay: seconds(f.delay), Gain: 1, Noise: measure.Watt(f.noise)}
		sees := p.Window
		if f.tau > 0 {
			p.Model, p.Window, p.Tau, sees = sensor.FirstOrder, 0, seconds(f.tau), 2*seconds(f.tau)
		}
		p.Seen = min(1, float64(sees/p.Period))
		return p, p.Validate()
	}
	if gpu == "" {
		return nil, withCode(exitUsage, errors.New("name the sensor: a stored profile by --gpu-uuid and --field, or --period with --window or --tau"))
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	s, err := a.findProfile(ctx, db, gpu, f.field, f.version)
	if err != nil {
		return nil, err
	}
	return &s.Profile, nil
}

func (f *sensorPlanFlags) wanted() sensor.Wanted {
	return sensor.Wanted{Kernel: seconds(f.kernel), U: f.u, Swing: f.swing, Mean: measure.Watt(f.mean)}
}

// sensorPlanReport is what sensor plan prints.
type sensorPlanReport struct {
	KernelS float64         `json:"kernel_s"`
	Profile *sensor.Profile `json:"profile"`
	Plan    *sensor.Plan    `json:"plan"`
}

func (a *app) sensorPlanCmd() *cobra.Command {
	var f sensorPlanFlags
	c := &cobra.Command{
		Use: "plan", Short: "Plan a measurement with the GPU's own sensor alone", Args: cobra.NoArgs,
		Long: `Plan how to measure a kernel with the GPU's own sensor alone: how often to repeat it
(32 times, or for 5 s), how many trials with random delays, with what pauses within a
trial where the sensor sees a part of each period only, how much of the rise to
discard, and what uncertainty to expect. The rules are those of arXiv 2312.02741; the
expected error is worked out from the sensor's model over all phases between work
and sensor.

The sensor is a stored profile (wattmark sensor list), or told by flags.`,
		Example: `  wattmark sensor plan --kernel 20ms --gpu-uuid GPU-8f1d --field instant --u 0.05
  wattmark sensor plan --kernel 50ms --period 100ms --window 25ms --u 0.01`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := f.profile(cmd.Context(), a, f.gpu)
			if err != nil {
				return err
			}
			plan, err := sensor.NewPlan(p, f.wanted())
			if err != nil {
				return err
			}
			return a.printPlan(p, plan, f.kernel)
		},
	}
	f.add(c.Flags())
	c.Flags().DurationVar(&f.kernel, "kernel", 0, "how long the kernel, or one repetition, lasts")
	c.Flags().StringVar(&f.gpu, "gpu-uuid", "", "GPU whose stored profile to use: its UUID, or the beginning of it")
	return a.jsonFlag(c)
}

func (a *app) printPlan(p *sensor.Profile, x *sensor.Plan, kernel time.Duration) error {
	if a.json {
		short := *p
		short.Evidence = nil // show tells it
		return a.printJSON(sensorPlanReport{kernel.Seconds(), &short, x})
	}
	renderPlan(a.out, p, x, seconds(kernel))
	return nil
}

func renderPlan(w io.Writer, p *sensor.Profile, x *sensor.Plan, kernel measure.Seconds) {
	constant := fmt.Sprintf("window %v", p.Window)
	if p.Model == sensor.FirstOrder {
		constant = fmt.Sprintf("τ %v", p.Tau)
	}
	fmt.Fprintf(w, "Sensor: %s, period %v, %s, sees %s of the time\n", p.Field, p.Period, constant, shareText(p.Seen, 0))
	fmt.Fprintf(w, "  %d trials of %d repetitions of %v, each trial after a random delay of up to %v\n", x.Trials, x.Repetitions, kernel, x.MostDelay)
	if x.Segments > 1 {
		fmt.Fprintf(w, "  within a trial %d segments of %d, with pauses of %v between them: they shift the phase\n", x.Segments, x.PerSegment, x.Shift)
	}
	fmt.Fprintf(w, "  the first %v of each segment are discarded: the sensor's rise; %d renewals count in a trial\n", x.Discard, x.Renewals)
	fmt.Fprintf(w, "  %v in all\n", x.Total)
	fmt.Fprintf(w, "  expected: ± %.2g %% (95 %%), beside the sensor's static error; one trial ± %.2g %%, a single reading ± %.2g %% (k = 1)\n", 100*x.U, 100*x.OneTrial, 100*x.Single)
}
