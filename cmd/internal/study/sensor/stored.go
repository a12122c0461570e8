package sensor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/study/correct"
	"github.com/wattmark/wattmark/cmd/internal/study/stored"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// StoredProfile is a profile with its name, version and origin in the database.
type StoredProfile struct {
	Name    string         `json:"name"`
	Version int            `json:"version"`
	Made    time.Time      `json:"made"`
	Maker   string         `json:"maker"`
	Tasks   []store.TaskID `json:"tasks,omitempty"` // that it was identified from
	sensor.Profile
}

// newStoredProfile decodes and validates a stored analysis.
func newStoredProfile(s *store.Analysis) (*StoredProfile, error) {
	p, err := correct.ReadProfile(s)
	if err != nil {
		return nil, err
	}
	return &StoredProfile{s.Name, s.Version, s.Made, s.Maker, s.Tasks, *p}, nil
}

// findProfile reads the profile of a field of a GPU; version 0 is the newest. gpu is the
// beginning of the UUID, with or without "GPU-". No match is an ExitNotFound error,
// several GPUs are a usage error.
func findProfile(a *cli.App, ctx context.Context, gpu, field string, version int) (*StoredProfile, error) {
	all, err := correct.Profiles.All(a, ctx)
	if err != nil {
		return nil, err
	}
	var found *store.Analysis // the last one that fits: versions are in order
	names := map[string]bool{}
	for i := range all {
		s := &all[i]
		uuid, ok := strings.CutSuffix(s.Name, " "+field)
		if !ok || !strings.HasPrefix(uuid, gpu) && !strings.HasPrefix(uuid, "GPU-"+gpu) {
			continue
		}
		names[s.Name] = true
		if version == 0 || s.Version == version {
			found = s
		}
	}
	switch {
	case len(names) > 1:
		return nil, cli.Usagef("%d GPUs fit %q: write more of the UUID", len(names), gpu)
	case len(names) == 0:
		return nil, cli.NotFoundf("no profile of the %s field of a GPU %q in %s: see "+
			"wattmark sensor list, or make one with wattmark sensor load", field, gpu, a.DB)
	case found == nil:
		return nil, cli.NotFoundf("the profile of GPU %q has no version %d: see wattmark sensor list", gpu, version)
	}
	return newStoredProfile(found)
}

func sensorShowCmd(a *cli.App) *cobra.Command {
	var version int
	c := cli.Command("show GPU FIELD", "Show a stored profile of a GPU's sensor", cobra.ExactArgs(2),
		func(ctx context.Context, args []string) error {
			p, err := findProfile(a, ctx, args[0], args[1], version)
			if err != nil {
				return err
			}
			return a.Print(p, func(w io.Writer) {
				renderProfile(w, &p.Profile)
				fmt.Fprintf(w, "  stored   version %d, %s, by %s\n", p.Version, p.Made.Local().Format(time.DateTime),
					p.Maker)
			})
		})
	c.Flags().IntVar(&version, "version", 0, "version (default: the newest)")
	return a.JSONFlag(c)
}

// sensorListCmd returns sensor list: all stored versions, without their evidence, which sensor show prints.
func sensorListCmd(a *cli.App) *cobra.Command {
	read := func(x *store.Analysis) (*StoredProfile, error) {
		p, err := newStoredProfile(x)
		if err == nil {
			p.Evidence = nil
		}
		return p, err
	}
	head := out.Row{"GPU", "field", "-version", "--made", "period", "model", "constant", "sees"}
	return stored.ListCmd(a, correct.Profiles, "profiles", "List the stored profiles of sensors", read, "", head,
		func(p *StoredProfile) out.Row {
			constant := map[bool]measure.Seconds{true: p.Tau, false: p.Window}[p.Model == sensor.FirstOrder]
			return out.Row{
				out.JoinNonEmpty(" ", p.GPU, p.UUID), p.Field, p.Version, p.Made.Local().Format(time.DateTime), p.Period,
				p.Model, constant, shareText(p.Seen, 0),
			}
		})
}

func sensorDeleteCmd(a *cli.App) *cobra.Command {
	var version int
	var all, yes bool
	c := cli.Command("delete GPU FIELD", "Delete a stored profile, one version or all", cobra.ExactArgs(2),
		func(ctx context.Context, args []string) error {
			if (version > 0) == all {
				return cli.Usagef("say which: --version N or --all")
			}
			p, err := findProfile(a, ctx, args[0], args[1], version)
			if err != nil {
				return err
			}
			return correct.Profiles.Delete(a, ctx, p.Name, version, yes)
		})
	c.Flags().IntVar(&version, "version", 0, "version to delete")
	c.Flags().BoolVar(&all, "all", false, "delete all versions")
	task.YesFlag(c.Flags(), &yes)
	return a.JSONFlag(c)
}

// SensorPlanFlags describe the measurement and the sensor. The sensor is a stored
// profile, or with period set one made from the flags.
type SensorPlanFlags struct {
	Kernel time.Duration // length of a repetition
	// relative uncertainty (95 %), relative swing of the power, mean in watts
	U, Swing, Mean             float64
	certified                  correct.CertificateFlags
	gpu, field                 string // of a stored profile, with version
	version                    int
	period, window, tau, delay time.Duration // of a sensor without a stored profile
	noise                      float64
}

// add adds the flags that plan and run share to fl.
func (f *SensorPlanFlags) add(fl *pflag.FlagSet) {
	cli.RelativeFlag(fl, &f.U, "until-u", 0.02, "relative uncertainty (95 %) that is wanted, without the sensor's static error")
	fl.Float64Var(&f.Swing, "swing", 1,
		"how far the power goes up and down within a repetition, relative to its mean (0 to 2)")
	fl.Float64Var(&f.Mean, "mean", 300, "mean power in watts, roughly")
	fl.StringVar(&f.field, "field", "instant", "field of the sensor: instant, average or usage")
	fl.IntVar(&f.version, "version", 0, "version of the stored profile (default: the newest)")
	f.certified.Flags(fl)
	fl.DurationVar(&f.period, "period", 0, "the sensor's period, in place of a stored profile")
	fl.DurationVar(&f.window, "window", 0, "its window")
	fl.DurationVar(&f.tau, "tau", 0, "its time constant, in place of a window")
	fl.DurationVar(&f.delay, "delay", 0, "its delay")
	fl.Float64Var(&f.noise, "noise", 1, "noise of one value in watts, with --period")
}

// profile returns the profile that the flags describe, else the stored one of gpu. A
// certificate, which names its field, of another GPU or driver is refused.
func (f *SensorPlanFlags) profile(ctx context.Context, a *cli.App, gpu, driver string) (*sensor.Profile, error) {
	if f.certified.Path != "" {
		c, err := f.certified.Read(a)
		if err != nil {
			return nil, err
		}
		f.field = c.Sensor.Field
		return &c.Sensor, f.certified.Fits(&c.Sensor, gpu, driver)
	}
	if f.period > 0 {
		if (f.window > 0) == (f.tau > 0) {
			return nil, cli.Usagef("--period goes with --window or with --tau")
		}
		// An uncalibrated profile: gain 1, offset 0.
		p := &sensor.Profile{
			Field: f.field, Model: sensor.Boxcar, Period: measure.SecondsOf(f.period), Window: measure.SecondsOf(f.window),
			Delay: measure.SecondsOf(f.delay), Gain: 1, Noise: measure.Watt(f.noise),
		}
		// A lag of τ covers about as much time as a window of 2τ.
		sees := p.Window
		if f.tau > 0 {
			p.Model, p.Window, p.Tau, sees = sensor.FirstOrder, 0, measure.SecondsOf(f.tau), 2*measure.SecondsOf(f.tau)
		}
		p.Seen = min(1, float64(sees/p.Period))
		return p, p.Validate()
	}
	if gpu == "" {
		return nil, cli.Usagef(
			"name the sensor: a stored profile by --gpu and --field, or --period with --window or --tau")
	}
	s, err := findProfile(a, ctx, gpu, f.field, f.version)
	if err != nil {
		return nil, err
	}
	return &s.Profile, nil
}

// wanted converts the flags to the goals of a plan.
func (f *SensorPlanFlags) wanted() sensor.Wanted {
	return sensor.Wanted{Kernel: measure.SecondsOf(f.Kernel), U: f.U, Swing: f.Swing, Mean: measure.Watt(f.Mean)}
}

// SensorPlanReport is the result of sensor plan.
type SensorPlanReport struct {
	KernelS float64         `json:"kernel_s"`
	Profile *sensor.Profile `json:"profile"`
	Plan    *sensor.Plan    `json:"plan"`
}

func sensorPlanCmd(a *cli.App) *cobra.Command {
	var f SensorPlanFlags
	c := cli.Command("plan", "Plan a measurement with the GPU's own sensor alone", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			p, err := f.profile(ctx, a, f.gpu, "")
			if err != nil {
				return err
			}
			x, err := sensor.NewPlan(p, f.wanted())
			if err != nil {
				return err
			}
			return printPlan(a, p, x, f.Kernel)
		})
	f.add(c.Flags())
	c.Flags().DurationVar(&f.Kernel, "length", 0, "how long the kernel, or one repetition, lasts")
	c.Flags().StringVar(&f.gpu, "gpu", "", "GPU whose stored profile to use: its UUID, or the beginning of it")
	return a.JSONFlag(c)
}

// printPlan prints a plan as JSON or text: the sensor, trials, segments, duration and the
// expected uncertainty. The profile is printed without its evidence.
func printPlan(a *cli.App, p *sensor.Profile, x *sensor.Plan, kernel time.Duration) error {
	short := *p
	short.Evidence = nil // sensor show prints it
	return a.Print(SensorPlanReport{kernel.Seconds(), &short, x}, func(w io.Writer) {
		constant := map[bool]string{true: fmt.Sprint("τ ", p.Tau), false: fmt.Sprint("window ", p.Window)}
		fmt.Fprintf(w, "Sensor: %s, period %v, %s, sees %s of the time\n", p.Field, p.Period,
			constant[p.Model == sensor.FirstOrder], shareText(p.Seen, 0))
		fmt.Fprintf(w, "  %d trials of %d repetitions of %v, each trial after a random delay of up to %v\n", x.Trials,
			x.Repetitions, measure.SecondsOf(kernel), x.MostDelay)
		if x.Segments > 1 {
			fmt.Fprintf(w, "  within a trial %d segments of %d, with pauses of %v between them: they shift the phase\n",
				x.Segments, x.PerSegment, x.Shift)
		}
		fmt.Fprintf(w, "  the first %v of each segment are discarded: the sensor's rise; %d renewals count in a "+
			"trial\n", x.Discard, x.Renewals)
		fmt.Fprintf(w, "  %v in all\n", x.Total)
		fmt.Fprintf(w, "  expected: ± %.2g %% (95 %%), beside the sensor's static error; one trial ± %.2g %%, a "+
			"single reading ± %.2g %% (k = 1)\n", 100*x.U, 100*x.OneTrial, 100*x.Single)
	})
}
