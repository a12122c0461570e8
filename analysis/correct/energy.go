package correct

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"wattmark/measure"
)

// Lag is what is known of a sensor that follows the power as a capacitor does, and
// of the static line between its readings and the truth. Every U is expanded, at
// 95 % (k = 2).
type Lag struct {
	C, U  measure.Seconds // the constant
	Slope Slope
	// Noise is a reading's standard deviation; zero to find it out from the readings.
	Noise measure.Watt
	// Gain and Offset: reading = gain · truth + offset. A gain of zero means 1.
	Gain, UGain     float64
	Offset, UOffset measure.Watt
}

func (l Lag) gain() float64 {
	if l.Gain == 0 {
		return 1
	}
	return l.Gain
}

// Energy is a corrected energy with what it rests on.
type Energy struct {
	Span
	Energy, U measure.Joule // U expanded, k = 2
	// Raw is the same integral of the readings as they are, without the static line.
	Raw      measure.Joule
	Budget   []measure.Contribution // standard uncertainties, k = 1
	Readings int                    // within the span
}

// Mean is the corrected mean power.
func (e Energy) Mean() measure.Watt {
	return measure.Watt(float64(e.Energy) / float64(e.Length()))
}

// ErrSpan is wrapped where readings do not cover a span.
var ErrSpan = errors.New("the readings do not cover the span")

// Integrate integrates readings over a span by the trapezoid rule on their time
// stamps, with the ends interpolated. Readings are as [Check] wants them.
func Integrate(rs []Reading, s Span) (measure.Joule, error) {
	u, first, err := trapezoid(rs, s)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for j, w := range u {
		sum += w * float64(rs[first+j].Power)
	}
	return measure.Joule(sum), nil
}

// Energy corrects readings and integrates them over a span.
//
// Trapezoids over the corrected power telescope: but for the ends, the integral is
// that of the readings plus C times what they rose by. So noise within the span
// cancels, and what is left comes from its two ends.
func (l Lag) Energy(rs []Reading, s Span) (Energy, error) {
	if err := Check(rs); err != nil {
		return Energy{}, err
	}
	u, first, err := trapezoid(rs, s)
	if err != nil {
		return Energy{}, err
	}
	e := Energy{Span: s}
	v := map[int]float64{} // energy = Σ v·reading; most of the inner slopes cancel
	var byC float64
	var w []float64
	for j, weight := range u {
		i := first + j
		v[i] += weight
		e.Raw += measure.Joule(weight * float64(rs[i].Power))
		if rs[i].At >= s.From && rs[i].At <= s.To {
			e.Readings++
		}
		var lo int
		lo, w = l.Slope.weights(rs, i, w)
		for k, x := range w {
			v[lo+k] += float64(l.C) * weight * x
			byC += weight * x * float64(rs[lo+k].Power)
		}
	}
	g, length := l.gain(), float64(s.Length())
	sum := float64(e.Raw) + float64(l.C)*byC
	e.Energy = measure.Joule((sum - float64(l.Offset)*length) / g)
	noise := l.Noise
	if noise == 0 {
		noise = Noise(rs)
	}
	squares := 0.0
	for _, i := range slices.Sorted(maps.Keys(v)) { // in order: sums come out the same each time
		squares += v[i] * v[i]
	}
	e.budget([]measure.Contribution{
		{Source: "readings' noise", U: measure.Joule(float64(noise) * math.Sqrt(squares) / g)},
		{Source: "constant C", U: measure.Joule(math.Abs(byC) * float64(l.U) / 2 / g), Systematic: true},
		{Source: "gain", U: measure.Joule(math.Abs(float64(e.Energy)) * l.UGain / 2 / g), Systematic: true},
		{Source: "offset", U: measure.Joule(length * float64(l.UOffset) / 2 / g), Systematic: true},
		{Source: "steps between readings", U: measure.Joule((l.bend(rs, s.From) + l.bend(rs, s.To)) / g), Systematic: true},
	})
	return e, nil
}

// budget keeps what contributes, and adds it up.
func (e *Energy) budget(list []measure.Contribution) {
	e.Budget = nil
	sum := 0.0
	for _, c := range list {
		if c.U > 0 {
			e.Budget = append(e.Budget, c)
			sum += float64(c.U) * float64(c.U)
		}
	}
	e.U = measure.Joule(2 * math.Sqrt(sum))
}

// bend is what a step of the power between two readings does to an integral that
// ends there: a share f into an interval Δt the line between the readings is off
// by ΔP·Δt·f·(1−f) of C times the slope, at most a quarter; taken as rectangular.
func (l Lag) bend(rs []Reading, at measure.Seconds) float64 {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].At > at })
	if i == 0 || i == len(rs) || rs[i-1].At == at {
		return 0
	}
	n := l.Slope.reach()
	true0 := l.at(rs, max(i-1-n, 0))
	true1 := l.at(rs, min(i+n, len(rs)-1))
	return math.Abs(true1-true0) * float64(rs[i].At-rs[i-1].At) / 4 / math.Sqrt(3)
}

// at is the corrected power at one reading, before the static line.
func (l Lag) at(rs []Reading, i int) float64 {
	lo, w := l.Slope.weights(rs, i, nil)
	p := float64(rs[i].Power)
	for k, x := range w {
		p += float64(l.C) * x * float64(rs[lo+k].Power)
	}
	return p
}

// True is the corrected power at the readings' instants, on the true side of the
// static line.
func (l Lag) True(rs []Reading) []Reading {
	out := True(rs, l.C, l.Slope)
	for i := range out {
		out[i].Power = measure.Watt(float64(out[i].Power-l.Offset) / l.gain())
	}
	return out
}

// trapezoid returns the weights in seconds of the readings from first on whose sum
// is the integral over a span.
func trapezoid(rs []Reading, s Span) (u []float64, first int, err error) {
	if len(rs) < 2 || !(s.From < s.To) || rs[0].At > s.From || rs[len(rs)-1].At < s.To {
		err = fmt.Errorf("correct: %w: %.6f s to %.6f s", ErrSpan, float64(s.From), float64(s.To))
		if len(rs) > 0 {
			err = fmt.Errorf("%w; they go from %.6f s to %.6f s", err, float64(rs[0].At), float64(rs[len(rs)-1].At))
		}
		return nil, 0, err
	}
	first = sort.Search(len(rs), func(i int) bool { return rs[i].At > s.From }) - 1
	for i := first; i+1 < len(rs) && rs[i].At < s.To; i++ {
		a, b := rs[i].At, rs[i+1].At
		lo, hi := max(a, s.From), min(b, s.To)
		mid := float64((lo+hi)/2-a) / float64(b-a)
		if len(u) == 0 {
			u = append(u, 0)
		}
		u[len(u)-1] += float64(hi-lo) * (1 - mid)
		u = append(u, float64(hi-lo)*mid)
	}
	return u, first, nil
}
