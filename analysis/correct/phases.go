package correct

import (
	"math"

	"wattmark/measure"
)

// PhaseKind names what a GPU and its sensor do between two of the paper's instants.
type PhaseKind string

// The phases, in the order in which they follow each other (Burtscher et al.,
// figure 1). The reading lags in the first two.
const (
	AtWork     PhaseKind = "kernel"      // t1 to t2
	Decay      PhaseKind = "decay"       // from t2 on, until the reading shows the active idle
	ActiveIdle PhaseKind = "active idle" // to t3: about 3.5 s on a K20
	Steps      PhaseKind = "steps"       // t3 to t4: down by steps of about a second
	Idle       PhaseKind = "idle"
)

// Phase is a labelled stretch of the readings.
type Phase struct {
	Kind PhaseKind
	Span
	Raw measure.Joule // what the readings, uncorrected, integrate to
}

// Phases labels the readings, given what [Work] found in them and the level. They
// are not corrected, and as [Check] wants them.
func Phases(rs []Reading, work []Span, l Level, noise measure.Watt) []Phase {
	p := phaser{rs: rs, l: l, tolerance: max(6*float64(noise), 0.02*float64(l.Threshold-l.Idle), 0.2)}
	at := rs[0].At
	for i, w := range work {
		if w.From > at {
			p.put(Idle, at, w.From)
		}
		p.put(AtWork, w.From, w.To)
		end := rs[len(rs)-1].At
		if i+1 < len(work) {
			end = work[i+1].From
		}
		at = p.tail(w.To, end)
	}
	p.put(Idle, at, rs[len(rs)-1].At)
	return p.out
}

type phaser struct {
	rs        []Reading
	l         Level
	tolerance float64
	out       []Phase
}

func (p *phaser) put(k PhaseKind, from, to measure.Seconds) {
	if !(from < to) {
		return
	}
	e, err := Integrate(p.rs, Span{From: from, To: to})
	if err != nil {
		e = measure.Joule(math.NaN())
	}
	p.out = append(p.out, Phase{k, Span{From: from, To: to}, e})
}

// tail labels what follows a kernel, and returns where idle begins.
func (p *phaser) tail(from, end measure.Seconds) measure.Seconds {
	level := float64(p.l.Active)
	near := max(p.tolerance, 0.02*math.Abs(p.power(from)-level))
	shown := p.first(from, end, func(w float64) bool { return math.Abs(w-level) <= near })
	p.put(Decay, from, shown)
	if p.l.Active-p.l.Idle <= measure.Watt(2*p.tolerance) {
		return shown
	}
	t3 := p.first(shown, end, func(w float64) bool { return w < level-2*near })
	p.put(ActiveIdle, shown, t3)
	t4 := p.first(t3, end, func(w float64) bool { return w <= float64(p.l.Idle)+p.tolerance })
	p.put(Steps, t3, t4)
	return t4
}

// first is the instant of the first reading in a span of which f holds; the span's
// end if there is none.
func (p *phaser) first(from, end measure.Seconds, f func(float64) bool) measure.Seconds {
	for _, r := range p.rs {
		if r.At >= end {
			break
		}
		if r.At >= from && f(float64(r.Power)) {
			return r.At
		}
	}
	return end
}

// power is the reading at an instant or after it.
func (p *phaser) power(at measure.Seconds) float64 {
	for _, r := range p.rs {
		if r.At >= at {
			return float64(r.Power)
		}
	}
	return math.NaN()
}
