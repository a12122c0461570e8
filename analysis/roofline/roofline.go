// Package roofline fits the roofline model of energy (J. W. Choi, D. Bedard, R.
// Fowler, R. Vuduc: A roofline model of energy, IPDPS 2013) to measured work: the
// shares of a device's time and energy by arithmetic intensity. Points are fitted by
// Fit to a Model, whose Figures carry expanded uncertainties (95 %).
//
// Work of W flop that moves Q bytes takes
//
//	T = max(W τ_flop, Q τ_mem)           (time overlaps)
//	E = W ε_flop + Q ε_mem + π₀ T        (energy does not)
//
// with I = W/Q its intensity, τ the inverse of the device's best rates, ε the energy
// of one flop and one byte, and π₀ the constant power: that of everything that
// costs time, not work. The balance of time is B_τ = τ_mem/τ_flop, that of energy
// B_ε = ε_mem/ε_flop. With ε̂ = ε_flop + π₀ τ_flop and η = ε_flop/ε̂ the energy is
//
//	E = W ε̂ (1 + B̂(I)/I),  B̂(I) = η B_ε + (1 − η) max(0, B_τ − I)
//
// and half of the best flops a joule is reached where I = B̂(I).
package roofline

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
)

// ErrFit: the points do not determine the model.
var ErrFit = errors.New("the points do not determine an energy roofline")

// Level is the confidence of intervals.
const Level = 0.95

// Point is measured work.
type Point struct {
	Name        string
	Flop, Bytes float64 // that were done and moved; 0 for none
	Energy      measure.Joule
	Time        measure.Seconds
	// U is the relative standard uncertainty of the energy by the point's own errors:
	// noise and window. It is used where there are just as many points as unknowns.
	U float64
	// Throttled: the device lowered its clocks, and with them the energy of a flop.
	Throttled bool
}

// Intensity is in flop a byte, +Inf for work that moves nothing.
func (p Point) Intensity() float64 { return p.Flop / p.Bytes }

// Power is the point's mean power.
func (p Point) Power() measure.Watt { return measure.Watt(float64(p.Energy) / float64(p.Time)) }

// Common are the meter's errors that all points share, as standard uncertainties.
type Common struct {
	Gain   float64      // relative
	Offset measure.Watt // of the power
}

// Peaks are the best rates, a second. A zero is taken from the points.
type Peaks struct {
	Flops float64 `json:"peak_flop_per_s"`
	Bytes float64 `json:"peak_byte_per_s"`
}

// Figure is a value with the half-width of its interval at Level.
type Figure struct {
	Value float64 `json:"value"`
	U     float64 `json:"u"`
}

// Model is a device's roofline of energy.
type Model struct {
	Flop     Figure `json:"energy_per_flop_j"`
	Byte     Figure `json:"energy_per_byte_j"`
	Constant Figure `json:"constant_power_w"`
	Peaks
	// TimeBalance is B_τ, Gap is B_ε, EnergyBalance where half of the best flops a joule
	// is reached, all in flop a byte; BestFlop is the energy of a flop with all the
	// constant power on it, ε̂, in J.
	TimeBalance   float64 `json:"time_balance_flop_per_byte"`
	EnergyBalance Figure  `json:"energy_balance_flop_per_byte"`
	Gap           Figure  `json:"byte_over_flop_energy"`
	BestFlop      Figure  `json:"energy_per_flop_at_best_j"`
	// Scatter is the points' relative standard deviation around the model, DoF its
	// degrees of freedom; with none it is NaN.
	Scatter measure.Ratio `json:"scatter_pct"`
	DoF     int           `json:"dof"`
	// Throttled: points that were throttled are in the fit, for too few are left
	// without them.
	Throttled bool     `json:"-"`
	Cautions  []string `json:"cautions,omitempty"`
}

// Fitted reports whether a point is one that the model was fitted to.
func (m *Model) Fitted(p Point) bool { return m.Throttled || !p.Throttled }

// Time is how long work takes at the best rates.
func (m *Model) Time(flop, bytes float64) measure.Seconds {
	return measure.Seconds(math.Max(flop/m.Peaks.Flops, bytes/m.Peaks.Bytes))
}

// Energy returns the energy of work that takes a time.
func (m *Model) Energy(flop, bytes float64, t measure.Seconds) measure.Joule {
	return measure.Joule(flop*m.Flop.Value + bytes*m.Byte.Value + m.Constant.Value*float64(t))
}

// At is the model at an intensity: flop a second, flop a joule, and watts.
func (m *Model) At(intensity float64) (perSecond, perJoule float64, power measure.Watt) {
	t := m.Time(intensity, 1)
	e := m.Energy(intensity, 1, t)
	return intensity / float64(t), intensity / float64(e), measure.Watt(float64(e) / float64(t))
}

// check refuses points that no model can be fitted to.
func check(points []Point, given Peaks) error {
	if len(points) < unknowns {
		return fmt.Errorf("%w: %d points: want three or more, of different intensities", ErrFit, len(points))
	}
	for _, p := range points {
		for _, v := range []float64{float64(p.Energy), float64(p.Time)} {
			if !(v > 0) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: %s: energy %v in %v: both must be positive", ErrFit, p.Name, p.Energy, p.Time)
			}
		}
		if !(p.Flop >= 0) || !(p.Bytes >= 0) || math.IsInf(p.Flop+p.Bytes, 0) || !(p.U >= 0) {
			return fmt.Errorf("%w: %s: %v flop, %v bytes, u %v: none may be negative", ErrFit, p.Name, p.Flop, p.Bytes,
				p.U)
		}
	}
	if given.Flops < 0 || given.Bytes < 0 || math.IsNaN(given.Flops+given.Bytes) || math.IsInf(given.Flops+given.Bytes,
		0) {
		return fmt.Errorf("%w: peaks of %v flop/s and %v byte/s: must be positive", ErrFit, given.Flops, given.Bytes)
	}
	return nil
}

// peaks are the best rates of the points, where none are given.
func peaks(points []Point, given Peaks) (Peaks, error) {
	out := given
	for _, p := range points {
		if given.Flops == 0 {
			out.Flops = max(out.Flops, p.Flop/float64(p.Time))
		}
		if given.Bytes == 0 {
			out.Bytes = max(out.Bytes, p.Bytes/float64(p.Time))
		}
	}
	if !(out.Flops > 0) || !(out.Bytes > 0) {
		return out, fmt.Errorf("%w: no point does arithmetic, or none moves data", ErrFit)
	}
	return out, nil
}

// Work is the work of a task, in flop and in bytes moved; zero for none.
type Work struct {
	Flop  float64 `json:"flop"`
	Bytes float64 `json:"byte"`
}

// ParseTaskWork reads a task's number and its work: TASK:flop=W,byte=Q. The number is
// positive; amounts are finite, not negative and given at most once each.
func ParseTaskWork(s string) (task int64, w Work, err error) {
	bad := func() (int64, Work, error) {
		return 0, Work{}, fmt.Errorf("%q: want a task's number and its work, as in 3:flop=4.4e12,byte=1e11", s)
	}
	number, list, ok := strings.Cut(s, ":")
	task, e := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if !ok || e != nil || task < 1 {
		return bad()
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(list, ",") {
		unit, amount, _ := strings.Cut(part, "=")
		v, e := strconv.ParseFloat(strings.TrimSpace(amount), 64)
		unit = strings.TrimSpace(unit)
		if e != nil || !(v >= 0) || math.IsInf(v, 0) || seen[unit] {
			return bad()
		}
		seen[unit] = true
		switch unit {
		case "flop":
			w.Flop = v
		case "byte":
			w.Bytes = v
		default:
			return bad()
		}
	}
	return task, w, nil
}
