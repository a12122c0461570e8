package predict

import (
	"cmp"
	"fmt"
	"math"
	"sort"

	"github.com/wattmark/wattmark/measure"
)

// Forecast is a time and an energy, each with the half widths of two intervals around it:
// the one of confidence holds the true mean, the one of prediction one new measurement.
// Both rest on the scatter of the points alone; neither covers an error of the model.
type Forecast struct {
	Time             measure.Seconds `json:"time_s"`
	TimeConfidence   measure.Seconds `json:"time_confidence_s"`
	TimePrediction   measure.Seconds `json:"time_prediction_s"`
	Energy           measure.Joule   `json:"energy_j"`
	EnergyConfidence measure.Joule   `json:"energy_confidence_j"`
	EnergyPrediction measure.Joule   `json:"energy_prediction_j"`
}

// Prediction is a model's time and energy of one number of blocks, in three ways.
type Prediction struct {
	Blocks uint64 `json:"blocks"`
	Rounds uint64 `json:"rounds"` // of ByRounds
	// Linear is by Eqs. 1 and 3, ByRounds by Eqs. 4 and 6.
	Linear   Forecast `json:"linear"`
	ByRounds Forecast `json:"by_rounds"`
	// Mixed is not the paper's: the dynamic energy of the actual blocks, and the idle
	// power for the rounds' time. A last round that is not full then costs its whole
	// time, and only its own blocks.
	Mixed Forecast `json:"mixed"`
	// Warnings are reasons for an error beyond the bands.
	Warnings []string `json:"warnings,omitempty"`
}

// Target is the GPU that is predicted; zero values are the calibration's own.
type Target struct {
	SMs, Resident uint64
}

// target replaces zeros by the calibration's own values. Errors wrap ErrInput.
func (m *Model) target(t Target) (Target, error) {
	t.SMs, t.Resident = cmp.Or(t.SMs, m.o.SMs), cmp.Or(t.Resident, m.o.Resident)
	if t.SMs > mostSMs || t.Resident > mostResident {
		return t, fmt.Errorf("%w: %d multiprocessors with %d resident blocks each: at most %d and %d", ErrInput, t.SMs,
			t.Resident, mostSMs, mostResident)
	}
	return t, nil
}

// At predicts. Another number of multiprocessors keeps the time of a round: each
// then works as those of the calibration did, and the idle power is the same.
func (m *Model) At(blocks uint64, t Target) (Prediction, error) {
	t, err := m.target(t)
	if err != nil {
		return Prediction{}, err
	}
	if blocks == 0 || blocks > MostBlocks {
		return Prediction{}, fmt.Errorf("%w: %d blocks: a launch has 1 to %d", ErrInput, blocks, uint64(MostBlocks))
	}
	p := Prediction{Blocks: blocks, Rounds: Rounds(blocks, t.SMs, t.Resident), Warnings: m.warnings(blocks, t)}
	// The coefficients of the points' times in each time, so that their scatter propagates
	// exactly. A block's share of the time stretches where fewer multiprocessors share it.
	x, k := float64(blocks), float64(p.Rounds)
	stretch := float64(m.o.SMs) / float64(t.SMs)
	wide, many := float64(m.o.SMs*t.Resident), float64(t.SMs*t.Resident)
	line := func(i int) float64 { return x*stretch*m.time.slopeOf[i] + m.time.interceptOf[i] }
	rounds := func(i int) float64 { return k * wide * m.time.slopeOf[i] }
	p.Linear, p.ByRounds, p.Mixed = m.forecast(x, line, x), m.forecast(x, rounds, k*many), m.forecast(x, rounds, x)
	return p, nil
}

// spread is the variance of a value: those of its parts in time and energy, twice their
// covariance in shared, and that of the idle power, which is stated.
type spread struct{ ofEnergy, ofTime, shared, stated float64 }

// variance returns the sum of the parts with their covariance, never negative.
func (s spread) variance() float64 {
	return max(s.ofEnergy+s.ofTime+2*s.shared, 0) + s.stated
}

// combine carries the points' scatter, and the idle power's uncertainty, into
// Σ e·E + P_s·Σ t·T over the points, with of giving e and t.
func (m *Model) combine(of func(i int) (e, t float64)) (value float64, s spread) {
	var byIdle float64
	idle := float64(m.o.Idle)
	for i, p := range m.points {
		e, t := of(i)
		value += e*float64(p.Energy) + idle*t*float64(p.Time)
		byIdle += t * float64(p.Time)
		de := e * m.energy.scale * m.energy.sigma[i]
		dt := idle * t * m.time.scale * m.time.sigma[i]
		s.ofEnergy, s.ofTime, s.shared = s.ofEnergy+de*de, s.ofTime+dt*dt, s.shared+m.share*de*dt
	}
	s.stated = byIdle * byIdle * float64(m.o.UIdle) * float64(m.o.UIdle)
	return value, s
}

// factor returns the coverage factor of a spread. A part estimated from few residuals
// has few degrees of freedom, a stated part infinitely many; the sum has those of Welch
// and Satterthwaite (GUM G.4), for two quantities with correlated residuals ν·(tr
// ΣM)²/tr (ΣM)².
func (m *Model) factor(s spread) float64 {
	if m.dof == 0 || s.variance() == 0 {
		return quantile(m.o.Level, m.dof)
	}
	// Σ holds the (co)variances of the residuals, M the coefficients of the value's variance.
	// M is scaled such that the variances in Σ are one: Σ = (1 ρ; ρ 1).
	rho, c := m.share, s.shared
	if rho != 0 {
		c /= rho
	}
	a11, a12 := s.ofEnergy+rho*c, c+rho*s.ofTime
	a21, a22 := rho*s.ofEnergy+c, rho*c+s.ofTime
	square := a11*a11 + 2*a12*a21 + a22*a22
	if square <= 0 {
		return quantile(m.o.Level, m.dof)
	}
	v := s.variance()
	return quantile(m.o.Level, max(m.dof, m.dof*v*v/square))
}

// forecast returns time and energy at x blocks with their intervals. time returns the
// coefficient of a point's time in the time; the energy is the dynamic one of a number of
// blocks and the idle power's over that time.
func (m *Model) forecast(x float64, time func(i int) float64, blocks float64) (f Forecast) {
	var value, variance float64
	for i, p := range m.points {
		c := time(i)
		value += c * float64(p.Time)
		variance += math.Pow(c*m.time.scale*m.time.sigma[i], 2)
	}
	k, d, sd := quantile(m.o.Level, m.dof), m.time.scale*m.scatter(&m.time, x, value), math.Sqrt(variance)
	f.Time, f.TimeConfidence = measure.Seconds(value), measure.Seconds(k*sd)
	f.TimePrediction = measure.Seconds(k * math.Hypot(sd, d))

	value, mean := m.combine(func(i int) (e, t float64) {
		e = blocks * m.energy.slopeOf[i]
		return e, time(i) - e
	})
	one := mean // and the scatter of one new measurement
	d = m.energy.scale * m.scatter(&m.energy, x, value)
	one.ofEnergy += d * d
	f.Energy, f.EnergyConfidence = measure.Joule(value), measure.Joule(m.factor(mean)*math.Sqrt(mean.variance()))
	f.EnergyPrediction = measure.Joule(m.factor(one) * math.Sqrt(one.variance()))
	return f
}

// scatter is the standard deviation of one new measurement, up to the line's
// scale: between points of stated uncertainty it goes straight from the one to
// the other, above the last it grows with the blocks.
func (m *Model) scatter(l *line, x, value float64) float64 {
	switch m.o.Weights {
	case Relative:
		return math.Abs(value)
	case Equal:
		return 1
	}
	last := len(m.x) - 1
	switch {
	case x <= m.x[0]:
		return l.sigma[0]
	case x >= m.x[last]:
		return l.sigma[last] * x / m.x[last]
	}
	i := sort.SearchFloat64s(m.x, x)
	if m.x[i] == x {
		return l.sigma[i]
	}
	f := (x - m.x[i-1]) / (m.x[i] - m.x[i-1])
	return l.sigma[i-1] + f*(l.sigma[i]-l.sigma[i-1])
}

// warnings names the known weaknesses of the model at a number of blocks.
func (m *Model) warnings(blocks uint64, t Target) (out []string) {
	first, last := m.points[0].Blocks, m.points[len(m.points)-1].Blocks
	if blocks < first {
		out = append(out, fmt.Sprintf("below the calibration's %d blocks: the model is weak at few blocks", first))
	}
	if blocks > 10*last {
		out = append(out, fmt.Sprintf("more than ten times the calibration's %d blocks", last))
	}
	if t.SMs != m.o.SMs {
		out = append(out, fmt.Sprintf("%d multiprocessors instead of %d: right for kernels that compute, too good "+
			"for those that wait for a memory which they share", t.SMs, m.o.SMs))
	}
	return out
}

// Score holds a model's errors over points that it was not fitted to.
type Score struct {
	Time      Errors `json:"time"`
	Energy    Errors `json:"energy"`
	TimeHit   int    `json:"time_in_band"` // points inside of the band of prediction
	EnergyHit int    `json:"energy_in_band"`
}

// Scored is one such point.
type Scored struct {
	Point      `json:"measured"`
	Prediction `json:"predicted"`
}

// Evaluation is a model held against points.
type Evaluation struct {
	Points   []Scored `json:"points"`
	Linear   Score    `json:"linear"`
	ByRounds Score    `json:"by_rounds"`
	Mixed    Score    `json:"mixed"`
}

// Evaluate predicts points, all of which should be new to the model.
func (m *Model) Evaluate(points []Point) (Evaluation, error) {
	var out Evaluation
	if err := validate(points); err != nil {
		return out, err
	}
	for _, p := range points {
		q, _ := m.At(p.Blocks, Target{}) // the blocks of a valid point are none that it refuses
		out.Points = append(out.Points, Scored{p, q})
	}
	var err1, err2, err3 error
	out.Linear, err1 = score(out.Points, func(p Prediction) Forecast { return p.Linear })
	out.ByRounds, err2 = score(out.Points, func(p Prediction) Forecast { return p.ByRounds })
	out.Mixed, err3 = score(out.Points, func(p Prediction) Forecast { return p.Mixed })
	return out, cmp.Or(err1, err2, err3)
}

// score compares one of the three predictions with the points.
func score(points []Scored, of func(Prediction) Forecast) (s Score, err error) {
	// Measured and predicted values side by side.
	var t, tp []measure.Seconds
	var e, ep []measure.Joule
	for _, p := range points {
		f := of(p.Prediction)
		t, tp = append(t, p.Time), append(tp, f.Time)
		e, ep = append(e, p.Energy), append(ep, f.Energy)
		if math.Abs(float64(p.Time-f.Time)) <= float64(f.TimePrediction) {
			s.TimeHit++
		}
		if math.Abs(float64(p.Energy-f.Energy)) <= float64(f.EnergyPrediction) {
			s.EnergyHit++
		}
	}
	if s.Time, err = RelativeErrors(t, tp); err != nil {
		return s, err
	}
	s.Energy, err = RelativeErrors(e, ep)
	return s, err
}

// Errors are relative errors of predictions in percent, after Eq. 8.
//
// Eq. 8 as printed is a sum of signed errors, without 1/n: errors of both signs
// would cancel, and more data would make it worse. The figures of the paper's
// tables cannot come from that. Average is the mean of the absolute values.
type Errors struct {
	Published
	// Mean is the mean of the signed errors: the bias.
	Mean float64 `json:"mean_signed_pct"`
	N    int     `json:"n"`
}

// RelativeErrors compares predictions with measured values, all positive. Errors wrap
// ErrInput.
func RelativeErrors[T ~float64](measured, predicted []T) (Errors, error) {
	if len(measured) != len(predicted) || len(measured) == 0 {
		return Errors{}, fmt.Errorf("%w: %d measured and %d predicted values to compare", ErrInput, len(measured),
			len(predicted))
	}
	out := Errors{Published: Published{Best: math.Inf(1)}, N: len(measured)}
	for i := range measured {
		y, p := float64(measured[i]), float64(predicted[i])
		e := 100 * (p - y) / y
		if !(y > 0) || math.IsNaN(e) || math.IsInf(e, 0) {
			return Errors{}, fmt.Errorf("%w: predicted %v where %v was measured: no relative error", ErrInput, p, y)
		}
		out.Mean += e / float64(len(measured))
		e = math.Abs(e)
		out.Average += e / float64(len(measured))
		out.Worst, out.Best = max(out.Worst, e), min(out.Best, e)
	}
	return out, nil
}
