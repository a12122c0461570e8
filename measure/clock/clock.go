// Package clock relates the host's clock to the meter's: t_meter = a + b·t_host,
// fitted robustly to chip edges seen by both.
package clock

import (
	"math"

	"wattmark/measure"
)

// Obs is one edge seen on both clocks. Host is counted from Fit's origin.
type Obs struct {
	Host  measure.Seconds
	Meter measure.Seconds
	U     measure.Seconds // standard uncertainty of Meter
}

// Prior is what is known before the first observation.
type Prior struct {
	// Origin is the host instant that Obs.Host counts from, on whatever scale the
	// caller uses; it is only copied to the fit. Seconds since 1970 leave a
	// float64 no more than a quarter of a microsecond: subtract before converting.
	Origin measure.Seconds
	// URate is the relative standard uncertainty of the two clocks' rates against
	// each other, around B = 1: the meter's Timebase.UTickHz is part of it. Zero
	// stands for DefaultURate. A fit whose B lies several URate from 1 says that
	// the meter's nominal tick rate is wrong, and every joule with it.
	URate float64
	// UOffset is the standard uncertainty of a delay common to all observations
	// (power follows the kernel's time stamp late): it does not average out.
	UOffset measure.Seconds
}

// DefaultURate is two ordinary quartz clocks at 100 ppm each, with some room.
const DefaultURate = 200e-6

// Fit is t_meter = A + B·(t_host − Origin) with its covariance.
type Fit struct {
	Origin   measure.Seconds
	A        measure.Seconds
	B        float64
	VarA     float64 // s²
	VarB     float64
	CovAB    float64 // s
	RMS      measure.Seconds
	Used     int
	Rejected int
}

// Meter maps a host time, counted from Origin, to device time with its
// standard uncertainty.
func (f Fit) Meter(host measure.Seconds) (t, u measure.Seconds) {
	return f.A + measure.Seconds(f.B)*host, measure.Seconds(math.Sqrt(f.covariance(host, host)))
}

// Host maps a device time back to the host's, counted from Origin, with its
// standard uncertainty. It is the inverse of Meter.
func (f Fit) Host(meter measure.Seconds) (t, u measure.Seconds) {
	t = (meter - f.A) / measure.Seconds(f.B)
	return t, measure.Seconds(math.Sqrt(f.covariance(t, t)) / f.B)
}

// Edges returns the uncertainty of a window's ends, given as host times counted
// from Origin, with their correlation.
func (f Fit) Edges(from, to measure.Seconds) measure.Edges {
	vf, vt := f.covariance(from, from), f.covariance(to, to)
	e := measure.Edges{UFrom: measure.Seconds(math.Sqrt(vf)), UTo: measure.Seconds(math.Sqrt(vt))}
	if vf > 0 && vt > 0 {
		e.Correlation = max(-1, min(1, f.covariance(from, to)/math.Sqrt(vf*vt)))
	}
	return e
}

// covariance of the device times of two host times, in s².
func (f Fit) covariance(s, t measure.Seconds) float64 {
	x, y := float64(s), float64(t)
	c := f.VarA + f.CovAB*(x+y) + f.VarB*x*y
	if s == t {
		return max(c, 0) // rounding may leave a trace below zero
	}
	return c
}
