package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/measure/calib"
)

func (a *app) calibrateGainCmd() *cobra.Command {
	var f calibrateFlags
	var channels, values, us []string
	c := &cobra.Command{
		Use: "gain", Short: "Hold channels against known values", Args: cobra.NoArgs,
		Long: `Hold channels against known values of a reference, and record the straight line
through them. --channel, --value and --u go together, in their order; one channel
or one u serves all values. Different channels are measured at once; when a
channel comes again, the next value is to be set first, and is asked for.

u is the reference's standard uncertainty (k = 1), in the channel's unit or in
percent of the value: half of what a certificate states with k = 2. The zero in
force takes part as a point: a single value gives the gain, two give both.`,
		Example: `  wattmark calibrate gain --bench bench.yaml --channel eps1.current --value 5.000A --u 0.005
  wattmark calibrate gain --bench bench.yaml --channel eps1.current --value 2A --value 5A --value 10A --u 0.1%
  wattmark calibrate gain --monitor 127.0.0.1:7551 --bench bench.yaml --reference "5520A no. 17, certificate 4711" \
      --channel eps1.current --value 5A --u 5mA --channel eps1.voltage --value 12V --u 2mV`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			steps, err := gainSteps(channels, values, us)
			if err != nil {
				return withCode(exitUsage, err)
			}
			return a.withRig(cmd.Context(), &f, func(ctx context.Context, r *calRig) error { return a.gain(ctx, &f, r, steps) })
		},
	}
	f.flags(a, c, true)
	fl := c.Flags()
	fl.StringArrayVar(&channels, "channel", nil, "channel (repeatable)")
	fl.StringArrayVar(&values, "value", nil, "known value: 5.000A, 12V, 50mV (repeatable)")
	fl.StringArrayVar(&us, "u", nil, "its standard uncertainty: 0.005, 5mA, 0.1% (repeatable)")
	fl.StringVar(&f.reference, "reference", "", "what the value comes from, with its certificate")
	return c
}

// known is a value that is applied to a channel. Its unit is the channel's.
type known struct{ channel, value, u string }

// gainSteps puts the flags together: each step is measured at once.
func gainSteps(channels, values, us []string) (steps [][]known, err error) {
	if len(values) == 0 || len(channels) == 0 || len(us) == 0 {
		return nil, errors.New("name a channel, its known value and that value's uncertainty: --channel X --value 5A --u 0.005")
	}
	pick := func(flag string, list []string, i int) (string, error) {
		switch {
		case len(list) == 1:
			return list[0], nil
		case len(list) == len(values):
			return list[i], nil
		}
		return "", fmt.Errorf("%d of --%s for %d of --value: want one, or as many", len(list), flag, len(values))
	}
	seen := map[string]bool{}
	for i, v := range values {
		k := known{value: v}
		var err1, err2 error
		k.channel, err1 = pick("channel", channels, i)
		k.u, err2 = pick("u", us, i)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if len(steps) == 0 || seen[k.channel] {
			clear(seen)
			steps = append(steps, nil)
		}
		seen[k.channel] = true
		steps[len(steps)-1] = append(steps[len(steps)-1], k)
	}
	return steps, nil
}

func (a *app) gain(ctx context.Context, f *calibrateFlags, r *calRig, steps [][]known) error {
	points := map[string][]calib.Point{}
	var order []string
	var inForce measure.Setup
	for i, step := range steps {
		if i > 0 {
			if err := a.nextStep(step); err != nil {
				return err
			}
		}
		if err := a.measureFor(ctx, r, "gain", f.length); err != nil {
			return err
		}
		if i == 0 {
			inForce = r.setup
		} else if inForce.CalibrationID() != r.setup.CalibrationID() {
			return errors.New("nothing was written: the calibration was changed by somebody else meanwhile; begin again")
		}
		for _, k := range step {
			p, err := r.point(k)
			if err != nil {
				return fmt.Errorf("nothing was written: %w", err)
			}
			if points[k.channel] == nil {
				order = append(order, k.channel)
			}
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
	return a.writeRecord(ctx, f, r, rec)
}

// nextStep waits until the next values are applied.
func (a *app) nextStep(step []known) error {
	var what []string
	for _, k := range step {
		what = append(what, k.value+" to "+k.channel)
	}
	fmt.Fprintf(a.dialog(), "Apply %s, let it settle, then press Enter: ", strings.Join(what, ", "))
	if _, err := a.line(); err != nil {
		fmt.Fprintln(a.dialog())
		return withCode(exitUsage, errors.New("nobody answers, and nothing was written: several values of a channel need somebody who sets them"))
	}
	return nil
}

// point makes a point of what was just measured.
func (r *calRig) point(k known) (calib.Point, error) {
	i, err := r.index(k.channel)
	if err != nil {
		return calib.Point{}, err
	}
	c := r.setup.Channels[i]
	v, err := parseQuantity(k.value, c.Unit)
	if err != nil {
		return calib.Point{}, withCode(exitUsage, fmt.Errorf("%s: %w", c.Name, err))
	}
	u, err := parseUncertainty(k.u, v, c.Unit)
	if err != nil {
		return calib.Point{}, withCode(exitUsage, fmt.Errorf("%s: %w", c.Name, err))
	}
	return calib.PointOf(c, v, u, r.meter.Stat(i))
}

var quantity = regexp.MustCompile(`^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([numµk]?)([VAW]?)$`)

var prefixOf = map[string]float64{"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1, "k": 1e3}

// parseQuantity reads 5.000A, 50 mV, or a number in the unit.
func parseQuantity(s string, unit measure.Unit) (float64, error) {
	m := quantity.FindStringSubmatch(strings.TrimSpace(s))
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

// parseUncertainty reads a standard uncertainty, absolute or in percent.
func parseUncertainty(s string, value float64, unit measure.Unit) (float64, error) {
	var u float64
	var err error
	if p, ok := strings.CutSuffix(strings.TrimSpace(s), "%"); ok {
		u, err = strconv.ParseFloat(strings.TrimSpace(p), 64)
		u *= max(value, -value) / 100
	} else {
		u, err = parseQuantity(s, unit)
	}
	if err != nil || !(u > 0) {
		return 0, fmt.Errorf("an uncertainty of %q: want one above 0, such as 0.005, 5m%s or 0.1%%", s, unit)
	}
	return u, nil
}

// atDay is a date as people read it.
func atDay(t time.Time) string { return t.Local().Format("2006-01-02") }
