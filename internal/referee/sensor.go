// Package referee is a card's own sensor under a load of known energy, to test the uncertainty that wattmark
// states. It imports the standard library only, so that it shares no model with what it judges; that of meters is
// beside the tests of hostagent/measurement. Powers are in W, times in s, unless stated.
package referee

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Load is a power of steady levels, with its integral.
type Load struct{ at, w, energy []float64 }

// RandomLoad returns a load at rest up to from and after to, and between them at levels of
// low to high that hold for 15 to 415 ms each. Without rests the levels go on at either side.
func RandomLoad(rng *rand.Rand, from, to, low, high float64, rests bool) *Load {
	l := &Load{at: []float64{from - 10}, w: []float64{low}, energy: []float64{0}}
	begin, end := from, to
	if !rests {
		begin, end = from-5, to+5
	}
	for t := begin; t < end; t += 0.015 + 0.4*rng.Float64() {
		l.add(t, low+(high-low)*rng.Float64())
	}
	l.add(end, low)
	return l
}

// SteadyLoad returns a load of a power within a span, and of rest around it.
func SteadyLoad(from, to, rest, power float64) *Load {
	l := &Load{at: []float64{from - 10}, w: []float64{rest}, energy: []float64{0}}
	l.add(from, power)
	l.add(to, rest)
	return l
}

func (l *Load) add(at, w float64) {
	k := len(l.at) - 1
	l.energy = append(l.energy, l.energy[k]+l.w[k]*(at-l.at[k]))
	l.at, l.w = append(l.at, at), append(l.w, w)
}

// Power returns the power at an instant, and Energy its integral up to there.
func (l *Load) Power(t float64) float64 { return l.w[l.level(t)] }

// Energy returns the energy up to an instant.
func (l *Load) Energy(t float64) float64 {
	k := l.level(t)
	return l.energy[k] + l.w[k]*(t-l.at[k])
}

func (l *Load) level(t float64) int {
	return max(0, sort.Search(len(l.at), func(i int) bool { return l.at[i] > t })-1)
}

// Sensor is the power register of a card: every Update it takes the mean of the power over
// Window that ended Delay ago, or for a Tau the answer of a first-order low-pass; it is polled
// every Poll, up to Jitter late.
type Sensor struct{ Update, Window, Delay, Tau, Gain, Noise, Poll, Jitter float64 }

// Read returns the polled times and powers.
func (s Sensor) Read(rng *rand.Rand, l *Load, from, to float64) (at, w []float64) {
	phase, last, value := s.Update*rng.Float64(), math.Inf(-1), 0.0
	for t := from; t < to; t += s.Poll {
		now := t + s.Jitter*rng.Float64()
		if k := math.Floor((now - phase) / s.Update); k > last {
			value = s.Gain*s.shows(l, k*s.Update+phase-s.Delay) + s.Noise*rng.NormFloat64()
			last = k
		}
		at, w = append(at, now), append(w, value)
	}
	return at, w
}

func (s Sensor) shows(l *Load, t float64) float64 {
	if s.Tau == 0 {
		return (l.Energy(t) - l.Energy(t-s.Window)) / s.Window
	}
	y := l.w[0]
	for k := 0; k < len(l.at) && l.at[k] < t; k++ {
		end := t
		if k+1 < len(l.at) {
			end = min(t, l.at[k+1])
		}
		y = l.w[k] + (y-l.w[k])*math.Exp(-(end-l.at[k])/s.Tau)
	}
	return y
}

// Counter returns a counter of the energy at the polled times: the sum of what the register
// showed over Update each, in steps of quantum joules.
func (s Sensor) Counter(rng *rand.Rand, l *Load, from, to, quantum float64) (at, joules []float64) {
	phase, sum, last := s.Update*rng.Float64(), 1e4*rng.Float64(), math.Floor((from-1)/s.Update)
	for t := from; t < to; t += s.Poll {
		now := t + s.Jitter*rng.Float64()
		for ; last < math.Floor((now-phase)/s.Update); last++ {
			sum += s.Gain * s.Update * s.shows(l, (last+1)*s.Update+phase-s.Delay)
		}
		at, joules = append(at, now), append(joules, math.Floor(sum/quantum)*quantum)
	}
	return at, joules
}
