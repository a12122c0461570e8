// Package clock relates the host's clock to the meter's: t_meter = a + b·t_host,
// fitted robustly to chip edges seen by both.
package clock

import (
	"errors"

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
	// caller uses; it is only copied to the fit.
	Origin measure.Seconds
	// URate is the relative standard uncertainty of the two clocks' rates against
	// each other, around B = 1. Zero stands for DefaultURate.
	URate float64
	// UOffset is the standard uncertainty of a delay common to all observations
	// (the power follows the kernel's time stamp late): it does not average out.
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

// ErrObservations is wrapped by errors about observations that cannot be fitted.
var ErrObservations = errors.New("cannot fit the clocks")

// FitClock fits the meter's clock to the host's by robust weighted least squares.
func FitClock(obs []Obs, prior Prior) (Fit, error) {
	return Fit{}, errors.New("clock: not built yet")
}

// Meter maps a host time, counted from Origin, to device time with its
// standard uncertainty.
func (f Fit) Meter(host measure.Seconds) (t, u measure.Seconds) { return 0, 0 }

// Host maps a device time back to the host's, counted from Origin, with its
// standard uncertainty.
func (f Fit) Host(meter measure.Seconds) (t, u measure.Seconds) { return 0, 0 }

// Edges returns the uncertainty of a window's ends, given as host times counted
// from Origin, with their correlation.
func (f Fit) Edges(from, to measure.Seconds) measure.Edges { return measure.Edges{} }
