package calib

import (
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
)

// Sentinel errors of a run that cannot serve, wrapped with the figures and what
// to do.
var (
	// ErrRestless: the input did not rest.
	ErrRestless = errors.New("the input does not rest")
	// ErrNotZero: the input is not zero.
	ErrNotZero = errors.New("the input is not zero")
	// ErrOverRange: the converter is at an end of its range.
	ErrOverRange = errors.New("the converter is at an end of its range")
	// ErrFar: the reading lies too far from the value that is said to be applied.
	ErrFar = errors.New("the reading is far from the value")
	// ErrFew: too few readings came.
	ErrFew = errors.New("too few readings")
)

// least is the number of readings that a mean and its scatter need.
const least = 64

// rests refuses a run whose mean means nothing.
func (s Stat) rests(c measure.Channel) error {
	switch {
	case s.Samples < least:
		return fmt.Errorf("%s: %w: %d, at least %d are needed: measure for longer (--for)", c.Name, ErrFew, s.Samples, least)
	case s.OverRange > 0:
		return fmt.Errorf("%s: %w in %d of %d readings, which cuts off what the mean needs: leave it out, or calibrate it by gain at two values within its range",
			c.Name, ErrOverRange, s.OverRange, s.Samples)
	case s.Restless > 1:
		g := math.Abs(c.Gain)
		return fmt.Errorf("%s: %w: it drifts by %.3g %s over the run, where its noise is %.3g %s a reading: switch off what draws power, wait until it is warm, then try again",
			c.Name, ErrRestless, s.Drift*g, c.Unit, s.Std*g, c.Unit)
	}
	return nil
}

// zeroLimit is how far from zero a reading may be taken for zero, in standard
// uncertainties of the nominal zero.
const zeroLimit = 6

// ZeroOf makes a channel's entry of a zero record: c is the channel as it is in
// force, nominal as the instrument and the bench file have it.
func ZeroOf(c, nominal measure.Channel, basis string, s Stat) (Channel, error) {
	if err := s.rests(c); err != nil {
		return Channel{}, err
	}
	reading, limit := nominal.Offset+nominal.Gain*s.Mean, zeroLimit*nominal.UOffset
	if limit == 0 {
		limit = 0.01 * math.Abs(nominal.Gain) * float64(int64(nominal.MaxCount)-int64(nominal.MinCount))
	}
	if math.Abs(reading) > limit && limit > 0 {
		return Channel{}, fmt.Errorf("%s: %w: it reads %.4g %s, and its zero is off by at most %.2g %s: unplug it, take the wire out of the clamp or short the input; or leave the channel out (--channel names those wanted)",
			c.Name, ErrNotZero, reading, c.Unit, limit, c.Unit)
	}
	g := math.Abs(c.Gain)
	scale := ScaleOf(c)
	scale.Offset, scale.UOffset, scale.Noise = -c.Gain*s.Mean, g*s.U, g*s.Std
	return entry(c, nominal, basis, scale, Point{
		Reading: c.Offset + c.Gain*s.Mean, UReading: g * s.U, MeanCount: s.Mean, StdCount: s.Std, Samples: s.Samples,
	}), nil
}

// PointOf makes a point of a run at a known value.
func PointOf(c measure.Channel, value, u float64, s Stat) (Point, error) {
	if err := s.rests(c); err != nil {
		return Point{}, err
	}
	g := math.Abs(c.Gain)
	p := Point{
		Value: value, U: u, Reading: c.Offset + c.Gain*s.Mean, UReading: g * s.U, MeanCount: s.Mean, StdCount: s.Std, Samples: s.Samples,
	}
	limit := 0.2*math.Abs(value) + zeroLimit*c.UOffset
	if d := p.Reading - value; math.Abs(d) > limit {
		return Point{}, fmt.Errorf("%s: %w: it reads %.5g %s where %.5g %s is said to be applied: check the reference, the polarity and the channel",
			c.Name, ErrFar, p.Reading, c.Unit, value, c.Unit)
	}
	return p, nil
}

// GainOf makes a channel's entry of a gain or import record.
func GainOf(c, nominal measure.Channel, basis string, points []Point) (Channel, error) {
	line, err := Fit(c, points)
	if err != nil {
		return Channel{}, fmt.Errorf("%s: %w", c.Name, err)
	}
	if line.B < 0.8 || line.B > 1.25 {
		return Channel{}, fmt.Errorf("%s: %w: the gain would change by %+.1f %%: check reference, unit and range", c.Name, ErrFit, 100*(line.B-1))
	}
	return entry(c, nominal, basis, line.Scale(c, points), points...), nil
}

func entry(c, nominal measure.Channel, basis string, s Scale, points ...Point) Channel {
	was := ScaleOf(nominal)
	return Channel{Name: c.Name, Unit: c.Unit, Scale: &s, Nominal: &was, Basis: basis, Points: points}
}
