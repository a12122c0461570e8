package correct

import (
	"math"
	"math/rand/v2"

	"github.com/wattmark/wattmark/measure"
)

// Model is a K20 and its sensor in software, after Burtscher et al.: it lags until t3,
// at which the card leaves its active idle, and shows the steps after it at once. It
// demonstrates the mechanism where no such card is at hand.
type Model struct {
	Tau        measure.Seconds
	Idle       measure.Watt
	Active     measure.Watt    // the active idle
	ActiveFor  measure.Seconds // from a kernel's end to t3
	Steps      []measure.Watt  // from t3 on, a second each, then idle
	Kernels    []ModelKernel   // in order of time
	End        measure.Seconds // of the recording, which begins at 0
	Noise      measure.Watt    // standard deviation of a look of the sensor
	Resolution measure.Watt    // of the register; zero for none
	Seed       uint64
	// SlowPoll is the duration of a call while the card steps down; each step delays one
	// call by StepStall.
	SlowPoll, StepStall measure.Seconds
}

// ModelKernel draws a steady power.
type ModelKernel struct {
	Span
	Power measure.Watt
}

// K20 is the model with the paper's constants, whose figure 1 it was fitted to
// (docs/sensor.md): a kernel of 5.346 s from 2 s on.
func K20() Model {
	return Model{
		Tau: 0.833333, Idle: 20.02, Active: 52.5, ActiveFor: 2.31, Steps: []measure.Watt{44, 36, 28, 22},
		Kernels: []ModelKernel{{Span{From: 2, To: 7.346}, 158.47}}, End: 18, SlowPoll: 0.000666,
		StepStall: 0.130, Resolution: 0.001,
	}
}

// The paper's polling: 38 calls of 0.283 ms repeat a look, then one of 4.7 ms brings
// the next (section 4.3).
const (
	pollRepeats                 = 38
	pollShort   measure.Seconds = 0.000283
	pollLong    measure.Seconds = 0.0047
)

// T3 returns the instant at which the card leaves the active idle after its last kernel.
func (m Model) T3() measure.Seconds { return m.Kernels[len(m.Kernels)-1].To + m.ActiveFor }

// T4 returns the instant at which the card is idle: T3 and one second a step.
func (m Model) T4() measure.Seconds { return m.T3() + measure.Seconds(len(m.Steps)) }

// Power returns the true power at an instant.
func (m Model) Power(t measure.Seconds) measure.Watt {
	p := m.Idle
	for _, k := range m.Kernels {
		switch {
		case t >= k.From && t < k.To:
			return k.Power
		case t >= k.To && t < k.To+m.ActiveFor:
			p = m.Active
		}
	}
	if s := int(math.Floor(float64(t - m.T3()))); s >= 0 && s < len(m.Steps) {
		p = m.Steps[s]
	}
	return p
}

// Energy returns the true energy of the kernels.
func (m Model) Energy() (e measure.Joule) {
	for _, k := range m.Kernels {
		e += measure.Joule(float64(k.Power) * float64(k.Length()))
	}
	return e
}

// changes returns the instants before t3 at which the power steps.
func (m Model) changes() (out []measure.Seconds) {
	for i, k := range m.Kernels {
		if i > 0 && m.Kernels[i-1].To+m.ActiveFor < k.From {
			out = append(out, m.Kernels[i-1].To+m.ActiveFor)
		}
		out = append(out, k.From, k.To)
	}
	return out
}

// Lagging returns the value of a sensor without noise at an instant.
func (m Model) Lagging(t measure.Seconds) measure.Watt {
	if t >= m.T3() {
		return m.Power(t)
	}
	// Exact for a power that is constant between changes: y ← p + (y − p)·e^(−Δt/τ).
	y, last := m.Idle, measure.Seconds(0)
	for _, c := range append(m.changes(), t) {
		c = min(c, t)
		p := m.Power(last)
		y, last = p+(y-p)*measure.Watt(math.Exp(-float64((c-last)/m.Tau))), c
	}
	return y
}

// Readings polls the model without pause, as the paper did.
func (m Model) Readings() []Reading {
	rng := rand.New(rand.NewPCG(m.Seed, 20))
	var out []Reading
	look := func(t measure.Seconds) measure.Watt {
		w := m.Lagging(t) + m.Noise*measure.Watt(rng.NormFloat64())
		if m.Resolution > 0 {
			w = m.Resolution * measure.Watt(math.Round(float64(w/m.Resolution)))
		}
		return w
	}
	step := func(t measure.Seconds) float64 { return math.Floor(float64(t - m.T3())) }
	shown, looked, before := look(0), measure.Seconds(0), measure.Seconds(0)
	for t, calls := measure.Seconds(0), 0; t < m.End; calls++ {
		out = append(out, Reading{At: t, Power: shown})
		call, may := pollShort, false // may: the register may be renewed by the next poll
		switch {
		case t >= m.T3() && t < m.T4() && step(t) != step(before):
			call, may = m.StepStall, true
		case t >= m.T3() && t < m.T4():
			call, may = m.SlowPoll, true
		case calls%(pollRepeats+1) == pollRepeats:
			call, may = pollLong, true
		}
		before, t = t, t+call
		if may && t-looked >= K20Period {
			shown, looked = look(t), t
		}
	}
	return out
}
