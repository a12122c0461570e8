package nidaqmx

import (
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// maxCoefficients bounds a scaling polynomial; real ones have two to four.
const maxCoefficients = 16

// checkScale refuses coefficients that are no scale of a converter of 16 bits with at
// least a range in volts: of finer ones two bytes are not a whole code.
func checkScale(c []float64, rng float64) error {
	if len(c) < 2 || len(c) > maxCoefficients {
		return fmt.Errorf("%d scaling coefficients: want 2 to %d", len(c), maxCoefficients)
	}
	for _, v := range c {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("scaling coefficients %v: they must be finite", c)
		}
	}
	if c[1] == 0 {
		return fmt.Errorf("scaling coefficients %v: every code would read the same", c)
	}
	if spans := math.Abs(c[1]) * halfScale; spans < 0.9*rng {
		return fmt.Errorf("%w: codes of 16 bits span ±%.3g V of a range of ±%.3g V: its codes are longer, and this driver knows converters of 16 bits", instrument.ErrIdentity, spans, rng)
	}
	return nil
}

// linear makes a channel of an input's polynomial. A Channel is a straight line:
// it takes the first two coefficients, and the most that the others would add
// anywhere in the range goes into the zero's uncertainty, as a rectangle. On a
// USB-6259 that is some ten ppm of the range.
func linear(c []float64, i Input, o Options) measure.Channel {
	per := math.Abs(i.PerVolt)
	// The device may have taken a larger range than was asked for.
	rng := max(i.Range, math.Abs(c[1])*halfScale/overRange)
	volts := math.Hypot(o.UOffset*rng+offFloor, bend(c, rng)/math.Sqrt(3))
	return measure.Channel{
		Name: i.Name, Unit: units[i.Unit], Gain: c[1] * i.PerVolt, Offset: c[0] * i.PerVolt,
		UGain: o.UGain, UOffset: volts * per, Noise: math.Hypot(noiseRel*rng, noiseFloor) * per,
		MinCount: -halfScale, MaxCount: halfScale - 1,
	}
}

// bend is the most that a polynomial's higher terms add, in volts, where the
// straight line lies within the range.
func bend(c []float64, rng float64) (most float64) {
	const steps = 256
	for k := -steps; k <= steps; k++ {
		x := float64(halfScale) * float64(k) / steps
		if math.Abs(c[0]+c[1]*x) > rng {
			continue
		}
		v := 0.0
		for p := len(c) - 1; p >= 2; p-- {
			v = (v + c[p]) * x
		}
		most = max(most, math.Abs(v*x))
	}
	return most
}
