// Package correct implements wattmark correct, which reconstructs power and energy from
// the readings of a GPU's built-in sensor.
//
//	readings (task or file) + sensor (profile, preset, lag or window) → analysis/correct
//	→ corrected power, energy with U, phases → text, plot, JSON, SVG or stored methods
//
// A sensor that lags (first order, time constant τ) is corrected by adding τ times the
// slope of its readings. A sensor that shows the mean of a window is corrected by least
// squares over the renewals of its register; where the window is shorter than the period,
// the unseen part leaves a bound on the energy and no estimate.
//
// correct fit determines the constant of a lag from the readings alone; correct model
// prints the readings of a simulated K20. Times are in seconds since the first reading of
// a file, or since the begin of a task's work; U is expanded (k = 2).
package correct

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/correct"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/study/stored"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/store"
)

// CorrectFlags are the flags of correct and of correct fit. validate uses those of the
// sensor alone, to correct the readings that it validates.
type CorrectFlags struct {
	readings, field string
	// the sensor, by exactly one of Preset, Profile, Certificate, Tau and Window
	Preset, Profile                  string
	Certificate                      CertificateFlags
	Tau, tauU, Window, Period, delay time.Duration
	Slope                            string
	level, floor, cap                float64
	from, to                         time.Duration
	svg                              string
	noStore, noPlot                  bool
	runs                             []string               // of correct fit
	given                            func(flag string) bool // whether the command line gives it
}

//go:embed help.md
var help string

// Commands returns the command of this package, with its subcommands fit and model.
func Commands(a *cli.App) []*cobra.Command {
	var f CorrectFlags
	c := f.command(a, "correct TASK | --readings FILE", "Make power and energy of what a built-in sensor said",
		runCorrect)
	fl := c.Flags()
	cli.Section(fl, "The sensor, and the levels of the card", func() { f.sensor(fl) })
	cli.SVGFlag(fl, &f.svg, "draw readings, corrected power and phases into this file")
	fl.BoolVar(&f.noPlot, "no-plot", false, "leave the plot in the terminal out")
	fl.BoolVar(&f.noStore, "no-store", false, "of a task, do not store the corrected variants")
	c.AddCommand(correctFitCmd(a), correctModelCmd(a))
	return cli.In(cli.Learn, help, a.HostFlag(a.JSONFlag(c)))
}

// command returns a command that calls run with the flags of a source, which it has, and a task's number.
func (f *CorrectFlags) command(a *cli.App, use, short string,
	run func(*cli.App, context.Context, []string, CorrectFlags) error,
) *cobra.Command {
	c := cli.Command(use, short, cobra.MaximumNArgs(1),
		func(ctx context.Context, args []string) error { return run(a, ctx, args, *f) })
	fl := c.Flags()
	f.given = fl.Changed
	fl.StringVar(&f.readings, "readings", "", "CSV of nvidia-smi, or a table with the columns time_s and power_w")
	fl.StringVar(&f.field, "field", "",
		"which of the sensor's fields: instant, average, usage, or a column of nvidia-smi as in power.draw")
	fl.DurationVar(&f.from, "from", 0, "the kernel's begin, in time since the first reading")
	fl.DurationVar(&f.to, "to", 0, "the kernel's end")
	return c
}

// sensor adds the flags of the sensor and of the levels of the card.
func (f *CorrectFlags) sensor(fl *pflag.FlagSet) {
	fl.StringVar(&f.Preset, "preset", "", "published constants of a lag: "+strings.Join(correct.PresetNames(), ", "))
	fl.StringVar(&f.Profile, "profile", "", "stored profile of the sensor, by name")
	f.Certificate.Flags(fl)
	fl.DurationVar(&f.Tau, "tau", 0, "constant of a lag, as correct fit finds it")
	fl.DurationVar(&f.tauU, "tau-u", 0, "its expanded uncertainty (k = 2)")
	fl.DurationVar(&f.Window, "window", 0, "what a reading is the mean of")
	fl.DurationVar(&f.Period, "period", 0, "from one renewal of the register to the next (default: 15ms for a lag)")
	fl.DurationVar(&f.delay, "delay", 0, "how long after its window a value appears")
	fl.StringVar(&f.Slope, "slope", "symmetric",
		"how a lag's slope is taken: symmetric, five-point, or savitzky-golay:N with N readings")
	fl.Float64Var(&f.level, "active-idle", 0, "active idle in watts (default: the preset's, else found in the data)")
	fl.Float64Var(&f.floor, "floor", 0,
		"least power that the card draws, in watts, for bounds (default: the least reading)")
	fl.Float64Var(&f.cap, "cap", 0,
		"most power that the card draws, in watts, for bounds (default: the greatest reading)")
}

// oneSource returns a usage error unless either a task or a file is named.
func (f *CorrectFlags) oneSource(args []string) error {
	if (len(args) == 1) == (f.readings != "") {
		return cli.Usagef("name a TASK, or a file of readings with --readings")
	}
	if len(args) == 1 {
		_, err := cli.TaskID(args[0])
		return err
	}
	return nil
}

// kernel returns the span of --from and --to, or the zero Span where neither is set.
func (f *CorrectFlags) kernel() (correct.Span, error) {
	s := correct.Span{From: measure.SecondsOf(f.from), To: measure.SecondsOf(f.to)}
	switch {
	case !f.given("from") && !f.given("to"):
		return correct.Span{}, nil
	case f.given("from") != f.given("to"):
		return s, cli.Usagef("give --from and --to, or neither")
	case s.From >= s.To:
		return s, cli.Usagef("--from %v --to %v: the kernel must end after it began", f.from, f.to)
	}
	return s, nil
}

// Sensors returns the number of flags that name a sensor.
func (f *CorrectFlags) Sensors() int {
	return session.CountTrue(f.Preset != "", f.Profile != "", f.Certificate.Path != "", f.Tau != 0, f.Window != 0)
}

// SensorFrom returns the sensor that the flags describe as a profile, and the options of
// a correction by its lag. It opens the database for a stored profile only. Exactly one
// flag names the sensor; errors in the flags are usage errors.
func SensorFrom(a *cli.App, ctx context.Context, f *CorrectFlags) (*sensor.Profile, correct.Options, error) {
	slope, err := correct.ParseSlope(f.Slope)
	if err != nil {
		return nil, correct.Options{}, cli.Usagef("--slope: %w", err)
	}
	if f.Sensors() != 1 ||
		min(f.Tau, f.Window, f.Period, f.tauU) < 0 {
		return nil, correct.Options{}, cli.Usagef("say what the sensor does by one of --preset, --tau, --window " +
			"(with --period), --profile and --certificate; wattmark correct fit finds a lag's constant")
	}
	// A profile from flags has a gain of 1 and no offset; a level of zero is found in the readings.
	o := correct.Options{Level: measure.Watt(f.level), Period: measure.SecondsOf(f.Period)}
	p := &sensor.Profile{Field: f.field, Gain: 1, Delay: measure.SecondsOf(f.delay), Period: measure.SecondsOf(f.Period)}
	switch {
	case f.Profile != "":
		x, err := Profiles.Get(a, ctx, f.Profile)
		if err != nil {
			return nil, o, err
		}
		if p, err = ReadProfile(x); err != nil {
			return nil, o, err
		}
		o.Period = p.Period
	case f.Certificate.Path != "":
		c, err := f.Certificate.Read(a)
		if err != nil {
			return nil, o, err
		}
		p, o.Period = &c.Sensor, c.Sensor.Period
	case f.Preset != "":
		preset, err := correct.FindPreset(f.Preset)
		if err != nil {
			return nil, o, cli.Usagef("--preset: %w", err)
		}
		// A preset carries the active idle of its card, unless --active-idle replaces it.
		p.Model, p.Tau, p.UTau = sensor.FirstOrder, preset.Lag.C, preset.Lag.U
		if o.Level == 0 {
			o.Level, o.Margin = preset.Level, preset.Margin
		}
	case f.Tau > 0:
		p.Model, p.Tau, p.UTau = sensor.FirstOrder, measure.SecondsOf(f.Tau), measure.SecondsOf(f.tauU)
	default:
		if f.Period == 0 {
			return nil, o, cli.Usagef("--window wants --period: how often the register is renewed")
		}
		p.Model, p.Window = sensor.Boxcar, measure.SecondsOf(f.Window)
	}
	if p.Period == 0 {
		p.Period = correct.K20Period
	}
	o.Lag = correct.FromProfile(p)
	o.Lag.Slope = slope
	return p, o, p.Validate()
}

// Profiles are the stored profiles of sensors.
var Profiles = stored.Kind{Kind: sensor.Kind, Noun: "profile", Family: "sensor"}

// ReadProfile decodes and validates a stored profile.
func ReadProfile(x *store.Analysis) (p *sensor.Profile, err error) {
	if err = json.Unmarshal(x.Content, &p); err == nil {
		err = p.Validate()
	}
	if err != nil {
		err = fmt.Errorf("profile %q, version %d: %w: delete it with wattmark sensor delete", x.Name, x.Version, err)
	}
	return p, err
}

// runCorrect corrects a task or a file, and prints the result.
func runCorrect(a *cli.App, ctx context.Context, args []string, f CorrectFlags) error {
	if err := f.oneSource(args); err != nil {
		return err
	}
	kernel, err := f.kernel()
	if err != nil {
		return err
	}
	p, o, err := SensorFrom(a, ctx, &f)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		return correctTask(a, ctx, args[0], p, f)
	}
	o.Kernel = kernel
	rs, field, err := readReadings(f.readings, f.field)
	if err != nil {
		return err
	}
	var r *CorrectionReport
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
		r.Warnings = append(r.Warnings,
			"the profile does not tell a lag from a window well, or not its constant: wattmark sensor shows why")
	}
	r.Picture = f.svg
	if err := out.ToFile(f.svg, func(w io.Writer) error { return r.chart().WriteSVG(w) }); err != nil {
		return err
	}
	return a.Print(r, func(w io.Writer) { r.render(w, !f.noPlot) })
}

// readReadings reads a file of at most 1 GiB and returns its readings, in seconds since
// the first of them, with the field they belong to. A heading with power.draw marks a log
// of nvidia-smi; any other file is a table of time_s and power_w.
func readReadings(path, field string) ([]correct.Reading, string, error) {
	b, err := cli.ReadFile(path, func(r io.Reader, _ string) ([]byte, error) {
		// One byte above the limit distinguishes a file of the limit from a longer one.
		return io.ReadAll(io.LimitReader(r, exchange.MaxSmi+1))
	})
	if err != nil {
		return nil, "", err
	}
	if len(b) > exchange.MaxSmi {
		return nil, "", fmt.Errorf("%s: larger than 1 GiB: cut out what is wanted", path)
	}
	// The heading decides between the two forms, whatever the file is called.
	head, _, _ := bytes.Cut(b, []byte("\n"))
	var rs []correct.Reading
	if bytes.Contains(head, []byte("power.draw")) {
		rs, field, err = smiColumn(b, field)
	} else {
		rs, err = correct.ParseCSV(bytes.NewReader(b))
	}
	if err != nil {
		return nil, "", logfile.In(path, err)
	}
	if len(rs) == 0 {
		return nil, "", fmt.Errorf("%s: no readings in it", path)
	}
	first := rs[0].At
	for i := range rs {
		rs[i].At -= first
	}
	return rs, field, nil
}

// smiColumn reads a column of a log of nvidia-smi: the named one, else the one nearest to
// the true power. The error lists the columns that exist.
func smiColumn(b []byte, field string) ([]correct.Reading, string, error) {
	log, err := smilog.Parse(bytes.NewReader(b), 0)
	if err != nil {
		return nil, "", err
	}
	best, list := log.Best()
	if field != "" {
		best = smilog.Field(strings.TrimPrefix(field, cli.SmiPrefix))
		if list = log.Columns[best]; len(list) == 0 {
			have := lists.Map(slices.Sorted(maps.Keys(log.Columns)), func(f smilog.Field) string { return string(f) })
			return nil, "", fmt.Errorf("no column %q with readings: there are %s", field, strings.Join(have, ", "))
		}
	}
	out := lists.Map(list, func(r smilog.Reading) correct.Reading {
		return correct.Reading{At: measure.SecondsOf(r.At.Sub(list[0].At)), Power: r.Power}
	})
	return correct.Tidy(out), string(best), nil
}

// taskReadings returns the stored readings of a task's sensor, in seconds since origin,
// with their field. Without a field it takes the first with readings of instant, usage,
// average and the columns of nvidia-smi.
func taskReadings(ctx context.Context, db *store.DB, id store.TaskID, field string,
	origin time.Time,
) ([]correct.Reading, string, error) {
	all, err := db.Readings(ctx, id)
	if err != nil {
		return nil, "", err
	}
	by := map[string][]correct.Reading{}
	for _, r := range all {
		by[r.Method] = append(by[r.Method],
			correct.Reading{At: measure.SecondsOf(r.At.Sub(origin)), Power: measure.Watt(r.Value)})
	}
	fields := []string{ // in order of preference
		"instant", "usage", "average", string(smilog.Instant), string(smilog.Draw), string(smilog.Average),
	}
	short := strings.TrimPrefix(field, cli.SmiPrefix)
	if field != "" && !slices.Contains(fields, short) {
		return nil, "", cli.Usagef("--field %q: want one of %s", field, strings.Join(fields, ", "))
	}
	for _, f := range fields {
		stored := map[bool]string{true: cli.SmiPrefix, false: "nvml."}[strings.HasPrefix(f, "power.")] + f
		if len(by[stored]) > 0 && (field == "" || f == short) {
			return correct.Tidy(by[stored]), cmp.Or(field, f), nil
		}
	}
	if field != "" {
		return nil, "", fmt.Errorf("task %d has no readings of %s", id, field)
	}
	return nil, "", fmt.Errorf("task %d has no readings of the GPU's own sensor: measure without --no-nvml, or "+
		"take in a log with wattmark import nvidia-smi", id)
}
