package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
)

// calibrateFlags are the flags that the subcommands of calibrate share: the bench, the
// record's facts, and the length of the measurement. valid is a duration such as 365d.
type calibrateFlags struct {
	bench                                 session.BenchFlags
	monitor, by, remark, reference, valid string
	celsius, within                       float64
	drift                                 []string
	length                                time.Duration
	yes, hasCelsius, hasWithin            bool
}

// flags adds the flags of commands that write a record; measures adds --for.
func (f *calibrateFlags) flags(a *cli.App, c *cobra.Command, measures bool) {
	f.where(c)
	fl := c.Flags()
	login, _ := cli.Whoami()
	fl.StringVar(&f.by, "by", login, "who calibrates")
	fl.StringVar(&f.remark, "remark", "", "something to remember: the clamp's position, the cable")
	fl.StringVar(&f.valid, "valid", "", "for how long, such as 365d; after that the nominal uncertainty counts again")
	fl.Float64Var(&f.celsius, "temperature", 0, "of the room, in °C")
	fl.Float64Var(&f.within, "within", 5, "by how many kelvins it may differ when measuring")
	fl.StringSliceVar(&f.drift, "drift", nil, "limits of the data sheet, such as gain=0.1%/year,offset=2mA/year,gain=50ppm/K")
	fl.BoolVar(&f.yes, "yes", false, "write the record without asking")
	a.JSONFlag(c)
	if measures {
		fl.DurationVar(&f.length, "for", 10*time.Second, "how long to measure")
	}
	// Runs after parsing, when it is known which flags were given.
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		f.hasCelsius, f.hasWithin = c.Flags().Changed("temperature"), c.Flags().Changed("within")
		if _, err := ParseDrift(f.drift, ""); err != nil {
			return err
		}
		if a.JSON && !f.yes {
			return cli.Usagef("--json prints the record and asks nothing: add --yes")
		}
		return nil
	}
}

// where adds the flags that choose the bench.
func (f *calibrateFlags) where(c *cobra.Command) {
	fl := c.Flags()
	f.bench.AddTo(fl)
	fl.StringVar(&f.monitor, "monitor", "", "address of a monitor that runs here, to measure through it")
}

// record returns a new record with the facts of the flags, dated now, without channels. It
// fails with ExitUsage for a --valid that does not parse.
func (f *calibrateFlags) record(done calib.Act, r *calRig) (*calib.Record, error) {
	rec := &calib.Record{
		Done: done, At: time.Now(), By: f.by, Remark: f.remark,
		Instrument: calib.Instrument{Kind: r.bench.Instrument.Kind, Serial: r.bench.Instrument.Serial},
		Conditions: calib.Conditions{Reference: f.reference},
	}
	if f.hasCelsius {
		rec.Conditions.TemperatureC = &f.celsius
	}
	if f.hasWithin {
		rec.Conditions.WithinK = &f.within
	}
	if f.valid == "" {
		return rec, nil
	}
	d, err := cli.ParseAge(f.valid)
	if err != nil {
		return nil, cli.Usagef("--valid %q: want a time such as 365d or 720h", f.valid)
	}
	rec.ValidUntil = rec.At.Add(d)
	return rec, nil
}

// recordOn captures briefly to learn the setup in force, lets fill complete a new record,
// and writes it (writeRecord).
func recordOn(ctx context.Context, a *cli.App, f *calibrateFlags, done calib.Act,
	fill func(*calRig, *calib.Record) error,
) error {
	return withRig(ctx, a, f, func(ctx context.Context, r *calRig) error {
		if err := r.measure(ctx, "look", briefly); err != nil {
			return err
		}
		rec, err := f.record(done, r)
		if err == nil {
			err = fill(r, rec)
		}
		if err != nil {
			return err
		}
		return writeRecord(ctx, a, f, r, rec)
	})
}

// writeRecord shows the change, asks for consent unless --yes, and adds the record to the
// folder: one file for each instrument that owns channels of it. With --monitor it then
// checks that the monitor follows the files. A refusal is not an error.
func writeRecord(ctx context.Context, a *cli.App, f *calibrateFlags, r *calRig, rec *calib.Record) error {
	if err := f.drifts(rec); err != nil {
		return err
	}
	if !a.JSON {
		showChange(a, r, rec)
	}
	if !f.yes {
		ok, err := a.Ask("Write this record to " + string(r.folder) + "? [y/N] ")
		if err != nil {
			return err
		}
		if !ok {
			fmt.Fprintln(a.Out, "Nothing was written.")
			return nil
		}
	}
	var ids []string
	written := calib.History{}
	for _, part := range r.owners().Split(&r.setup, *rec) {
		path, err := r.folder.Add(&part)
		if err != nil {
			return err
		}
		a.Textf("Record %s: %s\n", part.ID, path)
		written = append(written, part)
		ids = append(ids, part.ID)
	}
	if f.monitor != "" {
		if err := r.follows(ctx, ids); err != nil {
			return err
		}
	}
	if a.JSON {
		return a.PrintJSON(map[string]any{"records": written})
	}
	return nil
}

// showChange prints each channel's scale before and after, the points that were measured,
// and shunts.
func showChange(a *cli.App, r *calRig, rec *calib.Record) {
	if len(rec.Channels) > 0 && rec.Done != calib.Note {
		gain, u := "gain (a count)", "u, relative"
		if rec.Done == calib.Zero { // it leaves them as they are
			gain, u = "-"+gain, "-"+u
		}
		t := out.NewTable(a.Out, "channel", "", gain, u, "zero (at count 0)", "u of zero", "--noise")
		for _, c := range rec.Channels {
			i, _ := r.index(c.Name) // the record is of channels that are there
			now := calib.ScaleOf(r.setup.Channels[i])
			for _, s := range []struct {
				name, when string
				calib.Scale
			}{{c.Name, "before", now}, {"", "after", *c.Scale}} {
				t.AppendRow([]any{
					s.name, s.when, fmt.Sprintf("%.7g %s", s.Gain, c.Unit), fmt.Sprintf("%.2g %%", 100*s.UGain),
					fmt.Sprintf("%.6g %s", s.Offset, c.Unit), fmt.Sprintf("%.2g %s", s.UOffset, c.Unit),
					fmt.Sprintf("%.2g %s", s.Noise, c.Unit),
				})
			}
		}
		t.Render()
	}
	for _, c := range rec.Channels {
		for _, p := range c.Points {
			at := fmt.Sprintf("%.6g %s", p.Value, c.Unit)
			if p.U > 0 {
				at += fmt.Sprintf(" (u %.2g)", p.U)
			}
			fmt.Fprintf(a.Out, "  %s at %s: read %.6g %s (u %.2g)", c.Name, at, p.Reading, c.Unit, p.UReading)
			if p.Samples > 0 {
				fmt.Fprintf(a.Out, ": %.3f counts, σ %.2f, %s", p.MeanCount, p.StdCount, measure.Plural(p.Samples, "reading"))
			}
			fmt.Fprintln(a.Out)
		}
	}
	for _, x := range rec.Rails {
		fmt.Fprintf(a.Out, "  shunt of %s: %.6g Ω (u %.2g %%), was %.6g Ω (u %.2g %%)\n", x.Name, x.Ohm, 100*x.URel,
			x.NominalOhm, 100*x.NominalURel)
	}
}

// calibrateZeroCmd returns calibrate zero, which measures the named channels, or all, and
// records their means as zeros. It judges all channels before it writes: one that does not
// rest, or lies beyond the tolerance of its zero, fails the whole record.
func calibrateZeroCmd(a *cli.App) *cobra.Command {
	var f calibrateFlags
	var channels []string
	c := cli.Command("zero", "Measure the zeros, with nothing at the inputs", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			return withRig(ctx, a, &f, func(ctx context.Context, r *calRig) error { return zero(ctx, a, &f, r, channels) })
		})
	f.flags(a, c, true)
	c.Flags().StringSliceVar(&channels, "channel", nil, "only these channels (repeatable; default: all)")
	return c
}

// zero measures the zeros of the named channels, of all where none is, and records them if all channels rest at zero.
func zero(ctx context.Context, a *cli.App, f *calibrateFlags, r *calRig, channels []string) error {
	err := r.check(ctx, lists.Map(channels, func(name string) known { return known{channel: name} }))
	if err == nil {
		err = measureFor(ctx, a, r, "zero", f.length)
	}
	if err != nil {
		return err
	}
	if len(channels) == 0 {
		channels = lists.Map(r.setup.Channels, func(c measure.Channel) string { return c.Name })
	}
	rec, err := f.record(calib.Zero, r)
	if err != nil {
		return err
	}
	// Collect the faults of all channels, so that one run shows them all.
	var faults, pass []string
	for _, name := range channels {
		i, err := r.index(name)
		if err != nil {
			return err
		}
		c, err := calib.ZeroOf(r.setup.Channels[i], r.bench.Nominal.Channels[i], r.basis(name), r.meter.Stat(i))
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		pass = append(pass, name)
		rec.Channels = append(rec.Channels, c)
	}
	if len(faults) > 0 {
		return refused(faults, pass)
	}
	return writeRecord(ctx, a, f, r, rec)
}

// refused is the error of channels without a zero, each remedy once behind its channels, and the channels that pass.
func refused(faults, pass []string) error {
	var remedies []string
	of := map[string]string{}
	for _, fault := range faults {
		remedy := ""
		if at := strings.LastIndex(fault, ": "); at >= 0 {
			fault, remedy = fault[:at], fault[at+2:]
		}
		remedies = lists.AddNew(remedies, remedy)
		of[remedy] += fault + "\n"
	}
	text := "nothing was written:\n"
	for _, remedy := range remedies {
		text += of[remedy] + "  " + remedy + "\n"
	}
	if len(pass) > 0 {
		text += "The others pass: --channel " + strings.Join(pass, ",")
	}
	return errors.New(strings.TrimSuffix(text, "\n"))
}

// calibrateGainCmd returns calibrate gain: a straight line through known values at the inputs, one step after another.
func calibrateGainCmd(a *cli.App) *cobra.Command {
	var f calibrateFlags
	var channels, values, us []string
	c := cli.Command("gain", "Hold channels against known values", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			steps, err := gainSteps(channels, values, us)
			if err != nil {
				return cli.WithCode(cli.ExitUsage, err)
			}
			return withRig(ctx, a, &f, func(ctx context.Context, r *calRig) error {
				return gain(ctx, a, &f, r, steps)
			})
		})
	f.flags(a, c, true)
	fl := c.Flags()
	fl.StringArrayVar(&channels, "channel", nil, "channel (repeatable)")
	fl.StringArrayVar(&values, "value", nil, "known value: 5.000A, 12V, 50mV (repeatable)")
	fl.StringArrayVar(&us, "u", nil, "its standard uncertainty: 0.005, 5mA, 0.1% (repeatable)")
	fl.StringVar(&f.reference, "reference", "", "what the value comes from, with its certificate")
	return c
}

// known is a reference value applied to a channel, and its standard uncertainty, as typed:
// they are parsed when the channel's unit is known.
type known struct{ channel, value, u string }

// gainSteps combines the flags into steps; the values of one step are applied to different
// channels and measured at once. A channel that comes again begins a new step. One channel
// or one u serves all values.
func gainSteps(channels, values, us []string) (steps [][]known, err error) {
	if len(values) == 0 || len(channels) == 0 || len(us) == 0 {
		return nil, errors.New("name a channel, its known value and that value's uncertainty: --channel X --value " +
			"5A --u 0.005")
	}
	each := func(flag string, list []string) ([]string, error) {
		switch len(list) {
		case 1:
			return slices.Repeat(list, len(values)), nil
		case len(values):
			return list, nil
		}
		return nil, fmt.Errorf("%d of --%s for %d of --value: want one, or as many", len(list), flag, len(values))
	}
	channels, err1 := each("channel", channels)
	us, err2 := each("u", us)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	for i, v := range values {
		last := len(steps) - 1
		if last < 0 || slices.ContainsFunc(steps[last], func(k known) bool { return k.channel == channels[i] }) {
			last, steps = last+1, append(steps, nil)
		}
		steps[last] = append(steps[last], known{channels[i], v, us[i]})
	}
	return steps, nil
}

// gain measures all steps, fits a straight line through the points of each channel, and
// records it. Between steps it asks for the next values to be applied.
func gain(ctx context.Context, a *cli.App, f *calibrateFlags, r *calRig, steps [][]known) error {
	points := map[string][]calib.Point{}
	var order []string
	var inForce string
	if err := r.check(ctx, slices.Concat(steps...)); err != nil {
		return err
	}
	for i, step := range steps {
		if i > 0 {
			if err := nextStep(a, step); err != nil {
				return err
			}
		}
		if err := measureFor(ctx, a, r, "gain", f.length); err != nil {
			return err
		}
		// Points of different calibrations would not lie on one line: another calibration
		// between two steps makes the measurement void.
		if inForce = cmp.Or(inForce, r.setup.CalibrationID()); inForce != r.setup.CalibrationID() {
			return errors.New("nothing was written: the calibration was changed by somebody else meanwhile; begin again")
		}
		for _, k := range step {
			p, err := r.point(k)
			if err != nil {
				return fmt.Errorf("nothing was written: %w", err)
			}
			order = lists.AddNew(order, k.channel)
			points[k.channel] = append(points[k.channel], p)
		}
	}
	rec, err := f.record(calib.Gain, r)
	if err != nil {
		return err
	}
	for _, name := range order {
		i, _ := r.index(name)
		c, err := calib.GainOf(r.setup.Channels[i], r.bench.Nominal.Channels[i], r.basis(name), points[name])
		if err != nil {
			return fmt.Errorf("nothing was written: %w", err)
		}
		rec.Channels = append(rec.Channels, c)
	}
	return writeRecord(ctx, a, f, r, rec)
}

// nextStep blocks until Enter is pressed. It fails with ExitUsage at the end of the input.
func nextStep(a *cli.App, step []known) error {
	what := lists.Map(step, func(k known) string { return k.value + " to " + k.channel })
	fmt.Fprintf(a.Dialog(), "Apply %s, let it settle, then press Enter: ", strings.Join(what, ", "))
	if _, err := a.Line(); err != nil {
		fmt.Fprintln(a.Dialog())
		return cli.Usagef("nobody answers, and nothing was written: several values of a " +
			"channel need somebody who sets them")
	}
	return nil
}

// applied returns a channel's index, its known value and that value's uncertainty. It fails with
// ExitUsage for quantities in another unit than the channel's.
func (r *calRig) applied(k known) (i int, v, u float64, err error) {
	if i, err = r.index(k.channel); err != nil {
		return i, v, u, err
	}
	unit := r.setup.Channels[i].Unit
	if v, err = ParseQuantity(k.value, unit); err == nil {
		u, err = ParseUncertainty(k.u, v, unit)
	}
	if err != nil {
		err = cli.Usagef("%s: %w", k.channel, err)
	}
	return i, v, u, err
}

// point returns the newest measurement of a channel beside its known value.
func (r *calRig) point(k known) (calib.Point, error) {
	i, v, u, err := r.applied(k)
	if err != nil {
		return calib.Point{}, err
	}
	return calib.PointOf(r.setup.Channels[i], v, u, r.meter.Stat(i))
}

// quantity matches a number, an SI prefix (n, u, µ, m, k or none) and a unit (or none).
var quantity = lazy.Regexp(`^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([numµk]?)([VAW]?)$`)

// prefixOf are the factors of the prefixes.
var prefixOf = map[string]float64{"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1, "k": 1e3}

// ParseQuantity parses a value such as 5.000A or 50 mV and returns it in unit; a bare
// number is in unit already.
func ParseQuantity(s string, unit measure.Unit) (float64, error) {
	m := quantity().FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, fmt.Errorf("%q is no quantity: write 5.000%s or 50m%s", s, unit, unit)
	}
	if m[3] != "" && m[3] != string(unit) {
		return 0, fmt.Errorf("%q is in %s, where %s are wanted", s, m[3], unit)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", s, err)
	}
	return v * prefixOf[m[2]], nil
}

// ParseUncertainty parses a positive standard uncertainty and returns it in unit. A percent
// sign makes it relative to the magnitude of value.
func ParseUncertainty(s string, value float64, unit measure.Unit) (float64, error) {
	var u float64
	var err error
	if p, ok := strings.CutSuffix(strings.TrimSpace(s), "%"); ok {
		u, err = strconv.ParseFloat(strings.TrimSpace(p), 64)
		u *= max(value, -value) / 100
	} else {
		u, err = ParseQuantity(s, unit)
	}
	if err != nil || !(u > 0) {
		return 0, fmt.Errorf("an uncertainty of %q: want one above 0, such as 0.005, 5m%s or 0.1%%", s, unit)
	}
	return u, nil
}
