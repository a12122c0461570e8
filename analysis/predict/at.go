package predict

import (
	"fmt"
	"math"
	"sort"

	"wattmark/measure"
)

// Band is a value with the half widths of two intervals around it: Confidence
// holds the true mean, Prediction one new measurement. Both tell how the points
// scatter; neither knows whether the model is the right one.
type Band[T ~float64] struct {
	Value, Confidence, Prediction T
}

// Within reports whether a new measurement lies inside.
func (b Band[T]) Within(v T) bool {
	return math.Abs(float64(v-b.Value)) <= float64(b.Prediction)
}

// Forecast is a time and an energy.
type Forecast struct {
	Time   Band[measure.Seconds]
	Energy Band[measure.Joule]
}

// Prediction is what a model says of one number of blocks.
type Prediction struct {
	Blocks uint64
	// Linear is by Eqs. 1 and 3.
	Linear Forecast
	// ByRounds is by Eqs. 4 and 6, of so many Rounds.
	Rounds   uint64
	ByRounds Forecast
	// Mixed is not the paper's: the dynamic energy of the blocks that there are, and
	// the idle power for the rounds' time. A last round that is not full then costs
	// its whole time, and only its own blocks.
	Mixed Forecast
	// Warnings say why it may be further off than the bands.
	Warnings []string
}

// Target is the GPU that is predicted; zero values are the calibration's own.
type Target struct {
	SMs, Resident uint64
}

func (m *Model) target(t Target) (Target, error) {
	if t.SMs == 0 {
		t.SMs = m.o.SMs
	}
	if t.Resident == 0 {
		t.Resident = m.o.Resident
	}
	if t.SMs > mostSMs || t.Resident > mostResident {
		return t, fmt.Errorf("%w: %d multiprocessors with %d resident blocks each: at most %d and %d", ErrInput, t.SMs, t.Resident, mostSMs, mostResident)
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
	x := float64(blocks)
	p := Prediction{Blocks: blocks, Rounds: Rounds(blocks, t.SMs, t.Resident), Warnings: m.warnings(blocks, t)}
	stretch := float64(m.o.SMs) / float64(t.SMs) // of a block's share of the time
	p.Linear.Time = m.timeBand(x, func(i int) float64 { return x*stretch*m.time.slopeOf[i] + m.time.interceptOf[i] })
	p.Linear.Energy = m.energyBand(x, func(i int) (float64, float64) {
		e := x * m.energy.slopeOf[i]
		return e, x*stretch*m.time.slopeOf[i] + m.time.interceptOf[i] - e
	})
	wide, many := float64(m.o.SMs*t.Resident), float64(t.SMs*t.Resident)
	k := float64(p.Rounds)
	p.ByRounds.Time = m.timeBand(x, func(i int) float64 { return k * wide * m.time.slopeOf[i] })
	p.ByRounds.Energy = m.energyBand(x, func(i int) (float64, float64) {
		e := k * many * m.energy.slopeOf[i]
		return e, k*wide*m.time.slopeOf[i] - e
	})
	p.Mixed.Time = p.ByRounds.Time
	p.Mixed.Energy = m.energyBand(x, func(i int) (float64, float64) {
		e := x * m.energy.slopeOf[i]
		return e, k*wide*m.time.slopeOf[i] - e
	})
	return p, nil
}

// spread is what a value scatters by: the variances of its parts in time and
// energy, what the two share, and that of the idle power, which is stated.
type spread struct{ ofEnergy, ofTime, shared, stated float64 }

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

// factor is the quantile that makes an interval of a spread. What was seen in
// few residuals has few degrees of freedom, a stated part has none to lose: the
// sum's are those of Welch and Satterthwaite (GUM G.4), for two quantities whose
// residuals are correlated ν·(tr ΣM)²/tr (ΣM)².
func (m *Model) factor(s spread) float64 {
	if m.dof == 0 || s.variance() == 0 {
		return quantile(m.o.Level, m.dof)
	}
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

func (m *Model) energyBand(x float64, of func(i int) (e, t float64)) Band[measure.Joule] {
	value, mean := m.combine(of)
	one := mean
	d := m.energy.scale * m.scatter(&m.energy, x, value)
	one.ofEnergy += d * d
	return Band[measure.Joule]{
		measure.Joule(value), measure.Joule(m.factor(mean) * math.Sqrt(mean.variance())),
		measure.Joule(m.factor(one) * math.Sqrt(one.variance())),
	}
}

func (m *Model) timeBand(x float64, of func(i int) float64) Band[measure.Seconds] {
	var value, variance float64
	for i, p := range m.points {
		c := of(i)
		value += c * float64(p.Time)
		d := c * m.time.scale * m.time.sigma[i]
		variance += d * d
	}
	k, d := quantile(m.o.Level, m.dof), m.time.scale*m.scatter(&m.time, x, value)
	return Band[measure.Seconds]{measure.Seconds(value), measure.Seconds(k * math.Sqrt(variance)), measure.Seconds(k * math.Hypot(math.Sqrt(variance), d))}
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

// warnings tell where the model is known to be weak.
func (m *Model) warnings(blocks uint64, t Target) (out []string) {
	first, last := m.points[0].Blocks, m.points[len(m.points)-1].Blocks
	if blocks < first {
		out = append(out, fmt.Sprintf("below the calibration's %d blocks: the model is weak at few blocks", first))
	}
	if blocks > 10*last {
		out = append(out, fmt.Sprintf("more than ten times the calibration's %d blocks", last))
	}
	if t.SMs != m.o.SMs {
		out = append(out, fmt.Sprintf("%d multiprocessors instead of %d: right for kernels that compute, too good for those that wait for a memory which they share", t.SMs, m.o.SMs))
	}
	return out
}
