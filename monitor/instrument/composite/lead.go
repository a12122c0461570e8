package composite

import (
	"math"
)

// lead follows how far a member's time runs ahead of the host's: its device time
// less the host's. A line only ever delays, so the greatest lead of a window is
// nearest to the truth.
type lead struct {
	width float64 // of a window, in seconds
	since float64
	begun bool
	// firstSeen and lastSeen are the host's times of the first and latest arrival.
	firstSeen, lastSeen float64
	best                sight
	seen                []sight // the best of each whole window
	fit                 line
	fresh               bool // fit is of all that was seen
}

// sight is a lead at a host's instant.
type sight struct{ host, lead float64 }

const (
	leadWindow = 0.5 // seconds, to begin with
	maxSights  = 256 // then windows are made twice as wide
)

// observe takes the arrival of readings up to a device time. It tells whether a
// window ended.
func (l *lead) observe(host, device float64) bool {
	if !l.begun {
		*l = lead{begun: true, since: host, firstSeen: host, width: leadWindow, best: sight{host, math.Inf(-1)}, seen: make([]sight, 0, maxSights)}
	}
	l.lastSeen = host
	if v := device - host; v > l.best.lead {
		l.best = sight{host, v}
	}
	if host-l.since < l.width {
		return false
	}
	l.seen = append(l.seen, l.best)
	l.best, l.since, l.fresh = sight{host, math.Inf(-1)}, host, false
	if len(l.seen) == maxSights {
		l.widen()
	}
	return true
}

// widen makes one window of two.
func (l *lead) widen() {
	for i := range maxSights / 2 {
		a, b := l.seen[2*i], l.seen[2*i+1]
		if b.lead > a.lead {
			a = b
		}
		l.seen[i] = a
	}
	l.seen, l.width = l.seen[:maxSights/2], 2*l.width
}

// line is a straight line through sights.
type line struct {
	n           int
	host, lead  float64 // their centre
	slope       float64
	uSlope, rms float64 // standard uncertainty of the slope; scatter about the line
}

func (l line) at(host float64) float64 { return l.lead + l.slope*(host-l.host) }

// floor is a scatter below which no operating system's clock is trusted.
const floor = 1e-6

// line fits what was seen. Before two windows it is the best lead yet, and flat.
func (l *lead) line() line {
	if l.fresh {
		return l.fit
	}
	if len(l.seen) < 2 {
		best := l.best
		if len(l.seen) == 1 && l.seen[0].lead > best.lead {
			best = l.seen[0]
		}
		return line{n: len(l.seen), host: best.host, lead: best.lead}
	}
	f := line{n: len(l.seen)}
	n := float64(f.n)
	for _, s := range l.seen {
		f.host += s.host / n
		f.lead += s.lead / n
	}
	var xx, xy, rr float64
	for _, s := range l.seen {
		x := s.host - f.host
		xx += x * x
		xy += x * (s.lead - f.lead)
	}
	f.slope = xy / xx
	for _, s := range l.seen {
		r := s.lead - f.at(s.host)
		rr += r * r
	}
	f.rms = math.Max(math.Sqrt(rr/math.Max(n-2, 1)), floor)
	f.uSlope = f.rms / math.Sqrt(xx)
	l.fit, l.fresh = f, true
	return f
}

// place maps the base's time to a member's: base + d + slope·(base − at).
type place struct {
	at, d, slope float64
}

func (p place) of(base float64) float64 { return base + p.offset(base) }

func (p place) offset(base float64) float64 { return p.d + p.slope*(base-p.at) }

// maxSlew is how fast a placing is moved to where the clocks tell it to be.
const maxSlew = 500e-6

// steer makes a placing that goes on where the old one is and reaches what the
// clocks tell a second later, or as far as maxSlew beside their own slope lets it.
func (p place) steer(base, wanted, slope float64) place {
	d := p.offset(base)
	lead := wanted + slope - d // over the next second
	return place{at: base, d: d, slope: min(max(lead, slope-maxSlew), slope+maxSlew)}
}
