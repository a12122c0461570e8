package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/correct"
	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// correctFlags are the flags of correct and of correct fit.
type correctFlags struct {
	readings, field    string
	preset, profile    string
	tau, tauU          time.Duration
	window, period     time.Duration
	delay              time.Duration
	slope              string
	level              float64
	from, to           float64
	floor, cap         float64
	svg                string
	noStore, noPlot    bool
	runs               []string
	givenFrom, givenTo bool
}

func (a *app) correctCmd() *cobra.Command {
	var f correctFlags
	c := &cobra.Command{
		Use: "correct TASK | --readings FILE", Short: "Make power and energy of what a built-in sensor said", Args: cobra.MaximumNArgs(1),
		Long: `Undo what a GPU's built-in power sensor does to the power it shows:

  a lag     the sensor follows the power slowly, as on Kepler cards: its slope times
            a constant is added (--preset k20, --tau, or a profile)
  a window  the sensor shows the mean of a window every so often, as on newer cards:
            least squares (--window and --period, or a profile); what it never
            looked at is told as a bound

Of a TASK the sensor's stored readings are corrected and held against the meter, and
the corrected variants are stored as software methods that wattmark show lists.

Of a file, CSV of nvidia-smi or a table with the columns time_s and power_w, the work
is found where the corrected power exceeds the active idle, which is found in the
data unless --level gives it, and the phases of the paper (kernel, decay, active
idle, steps) are told. --from and --to name the kernel instead, in seconds since the
first reading.

docs/correction.md tells the equations, and what can be recovered of which sensor.`,
		Example: `  wattmark correct --readings smi.csv --preset k20 --svg corrected.svg
  wattmark correct fit --readings smi.csv
  wattmark correct --readings smi.csv --tau 58ms --from 1.2 --to 7.2
  wattmark correct 42 --field average --window 1s --period 100ms
  wattmark correct 42 --profile 'GPU-… average'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.givenFrom, f.givenTo = cmd.Flags().Changed("from"), cmd.Flags().Changed("to")
			return a.correct(cmd.Context(), args, f)
		},
	}
	f.source(c)
	fl := c.Flags()
	fl.StringVar(&f.preset, "preset", "", "published constants of a lag: "+strings.Join(correct.PresetNames(), ", "))
	fl.StringVar(&f.profile, "profile", "", "stored profile of the sensor, by name")
	fl.DurationVar(&f.tau, "tau", 0, "constant of a lag, as correct fit finds it")
	fl.DurationVar(&f.tauU, "tau-u", 0, "its expanded uncertainty (k = 2)")
	fl.DurationVar(&f.window, "window", 0, "what a reading is the mean of")
	fl.DurationVar(&f.period, "period", 0, "from one renewal of the register to the next (default: 15ms for a lag)")
	fl.DurationVar(&f.delay, "delay", 0, "how long after its window a value appears")
	fl.StringVar(&f.slope, "slope", "symmetric", "how a lag's slope is taken: symmetric, five-point, or savitzky-golay:N with N readings")
	fl.Float64Var(&f.level, "level", 0, "active idle in watts (default: the preset's, else found in the data)")
	fl.Float64Var(&f.floor, "floor", 0, "least power that the card draws, in watts, for bounds (default: the least reading)")
	fl.Float64Var(&f.cap, "cap", 0, "most power that the card draws, in watts, for bounds (default: the greatest reading)")
	svgFlag(fl, &f.svg, "draw readings, corrected power and phases into this file")
	fl.BoolVar(&f.noPlot, "no-plot", false, "leave the plot in the terminal out")
	fl.BoolVar(&f.noStore, "no-store", false, "of a task, do not store the corrected variants")
	c.AddCommand(a.correctFitCmd(), a.correctModelCmd())
	return a.jsonFlag(c)
}

// source adds the flags that name readings.
func (f *correctFlags) source(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.readings, "readings", "", "CSV of nvidia-smi, or a table with the columns time_s and power_w")
	fl.StringVar(&f.field, "field", "", "which of the sensor's fields: instant, average, usage, or a column of nvidia-smi as in power.draw")
	fl.Float64Var(&f.from, "from", 0, "the kernel's begin, in seconds since the first reading")
	fl.Float64Var(&f.to, "to", 0, "the kernel's end")
}

// oneSource checks that a task or a file is named, and not both.
func (f *correctFlags) oneSource(args []string) error {
	if (len(args) == 1) == (f.readings != "") {
		return withCode(exitUsage, errors.New("name a TASK, or a file of readings with --readings"))
	}
	if len(args) == 1 {
		_, err := taskID(args[0])
		return err
	}
	return nil
}

// kernel is what --from and --to name; its zero value if nothing.
func (f *correctFlags) kernel() (correct.Span, error) {
	s := correct.Span{From: measure.Seconds(f.from), To: measure.Seconds(f.to)}
	switch {
	case !f.givenFrom && !f.givenTo:
		return correct.Span{}, nil
	case f.givenFrom != f.givenTo:
		return s, withCode(exitUsage, errors.New("give --from and --to, or neither"))
	case !(s.From < s.To) || math.IsInf(f.to-f.from, 0):
		return s, withCode(exitUsage, fmt.Errorf("--from %g --to %g: the kernel must end after it began", f.from, f.to))
	}
	return s, nil
}

// sensorFrom is what the flags say of the sensor: a profile, and of a lag the options.
func (a *app) sensorFrom(ctx context.Context, f *correctFlags) (*sensor.Profile, correct.Options, error) {
	slope, err := correct.ParseSlope(f.slope)
	if err != nil {
		return nil, correct.Options{}, withCode(exitUsage, fmt.Errorf("--slope: %w", err))
	}
	var ways []string
	for name, given := range map[string]bool{"--preset": f.preset != "", "--profile": f.profile != "", "--tau": f.tau != 0, "--window": f.window != 0} {
		if given {
			ways = append(ways, name)
		}
	}
	if len(ways) != 1 || f.tau < 0 || f.window < 0 || f.period < 0 || f.tauU < 0 {
		return nil, correct.Options{}, withCode(exitUsage, errors.New("say what the sensor does by one of --preset, --tau, --window (with --period) and --profile; wattmark correct fit finds a lag's constant"))
	}
	o := correct.Options{Level: measure.Watt(f.level), Period: measure.SecondsOf(f.period)}
	p := &sensor.Profile{Field: f.field, Gain: 1, Delay: measure.SecondsOf(f.delay), Period: measure.SecondsOf(f.period)}
	switch {
	case f.profile != "":
		p, err = a.namedProfile(ctx, f.profile)
		if err != nil {
			return nil, o, err
		}
		o.Period = p.Period
	case f.preset != "":
		preset, err := correct.FindPreset(f.preset)
		if err != nil {
			return nil, o, withCode(exitUsage, fmt.Errorf("--preset: %w", err))
		}
		p.Model, p.Tau, p.UTau = sensor.FirstOrder, preset.Lag.C, preset.Lag.U
		if o.Level == 0 {
			o.Level, o.Margin = preset.Level, preset.Margin
		}
	case f.tau > 0:
		p.Model, p.Tau, p.UTau = sensor.FirstOrder, measure.SecondsOf(f.tau), measure.SecondsOf(f.tauU)
	default:
		if f.period == 0 {
			return nil, o, withCode(exitUsage, errors.New("--window wants --period: how often the register is renewed"))
		}
		p.Model, p.Window = sensor.Boxcar, measure.SecondsOf(f.window)
	}
	if p.Period == 0 {
		p.Period = correct.K20Period
	}
	o.Lag = correct.FromProfile(p)
	o.Lag.Slope = slope
	return p, o, p.Validate()
}

// namedProfile reads the newest version of a sensor's profile.
func (a *app) namedProfile(ctx context.Context, name string) (*sensor.Profile, error) {
	db, err := a.openDB(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return profileIn(ctx, db, name)
}

func (a *app) correct(ctx context.Context, args []string, f correctFlags) error {
	if err := f.oneSource(args); err != nil {
		return err
	}
	kernel, err := f.kernel()
	if err != nil {
		return err
	}
	p, o, err := a.sensorFrom(ctx, &f)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		return a.correctTask(ctx, args[0], p, f)
	}
	o.Kernel = kernel
	rs, field, err := readReadings(f.readings, f.field)
	if err != nil {
		return err
	}
	var r *correctionReport
	if p.Model == sensor.FirstOrder {
		r, err = correctLag(rs, p, o)
	} else {
		r, err = correctWindow(rs, p, kernel, f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.readings, err)
	}
	r.Readings, r.Field = f.readings, field
	if p.Undecided || p.Weak {
		r.Warnings = append(r.Warnings, "the profile does not tell a lag from a window well, or not its constant: wattmark sensor shows why")
	}
	if f.svg != "" {
		if err := writeFile(f.svg, r.writeSVG); err != nil {
			return err
		}
		r.Picture = f.svg
	}
	if a.json {
		return a.printJSON(r)
	}
	r.render(a.out, !f.noPlot)
	return nil
}
