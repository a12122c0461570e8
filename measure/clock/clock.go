// Package clock relates the host's clock to the meter's: t_meter = a + b·t_host,
// fitted robustly to chip edges seen by both.
package clock

import "wattmark/measure"

// Obs is one edge seen on both clocks. Host is counted from Fit's origin.
type Obs struct {
	Host  measure.Seconds
	Meter measure.Seconds
	U     measure.Seconds // standard uncertainty of Meter
}

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
