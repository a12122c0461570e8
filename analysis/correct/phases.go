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

// Phases labels readings, as [Check] wants them, given the same corrected and what
// [Work] found in those. sigma is the corrected readings' standard deviation.
func Phases(rs, corrected []Reading, work []Span, l Level, sigma measure.Watt) []Phase {
	p := phaser{rs: rs, corrected: corrected, l: l, tolerance: max(0.02*float64(l.Threshold-l.Idle), 0.2)}
	p.margin = max(6*float64(sigma), 0.1*float64(l.Active-l.Idle))
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
	rs, corrected []Reading
	l             Level
	tolerance     float64 // of readings
	margin        float64 // of corrected power, below which it has left the active idle
	out           []Phase
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

// tail labels what follows a kernel, and returns where idle begins. The reading has
// decayed when a tenth is left of what it was off by.
func (p *phaser) tail(from, end measure.Seconds) measure.Seconds {
	level, idle := float64(p.l.Active), float64(p.l.Idle)
	rest := max(p.tolerance, 0.1*math.Abs(p.power(from)-level))
	t3 := end
	if level-idle > 2*p.tolerance {
		settle := from + 4*Spacing(p.rs) // the fall itself may swing below
		t3 = first(p.corrected, settle, end, func(w float64) bool { return w < level-p.margin })
	}
	shown := first(p.rs, from, t3, func(w float64) bool { return math.Abs(w-level) <= rest })
	p.put(Decay, from, shown)
	if level-idle <= 2*p.tolerance {
		return shown
	}
	p.put(ActiveIdle, shown, t3)
	t4 := first(p.rs, t3, end, func(w float64) bool { return w <= idle+p.tolerance })
	p.put(Steps, t3, t4)
	return t4
}

// first is the instant of the first reading in a span of which f holds; the span's
// end if there is none.
func first(rs []Reading, from, end measure.Seconds, f func(float64) bool) measure.Seconds {
	for _, r := range rs {
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
