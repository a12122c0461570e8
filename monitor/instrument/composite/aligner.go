package composite

import (
	"math"
	"time"
)

// aligner keeps the placing of one member against the base.
type aligner struct {
	shared bool    // one oscillator: rates are equal
	moved  float64 // a known delay, in whole scans of the base
	place  place
	// anchor is where the offset is known: at the base's time at, it is d ± u.
	anchor struct {
		at, d, u float64
		known    bool
	}
	slope float64 // of the member's clock against the base's, as applied
	u     float64 // standard uncertainty of the offset now
}

// anchorAt says that the offset is d ± u at a base's time, and jumps there.
func (a *aligner) anchorAt(at, d, u float64) {
	a.anchor.at, a.anchor.d, a.anchor.u, a.anchor.known = at, d, u, true
	a.u = u
	a.place = place{at: at, d: d, slope: a.slope}
}

// significant is how many standard uncertainties a difference of rates must have
// before readings are moved for it.
const significant = 3

// track follows the clocks through their arrivals. now is the base's time.
func (a *aligner) track(base, member line, now float64, clockU float64) {
	slope, uSlope := member.slope-base.slope, math.Hypot(member.uSlope, base.uSlope)
	scatter := math.Hypot(member.rms, base.rms)
	known := base.n >= 4 && member.n >= 4 && math.Abs(slope) > significant*uSlope && !a.shared
	if !known {
		slope = 0
	}
	a.slope = slope
	if a.anchor.known {
		a.u = a.anchor.u
		if !a.shared {
			a.u = math.Hypot(a.u, scatter)
		}
		a.place = a.place.steer(now, a.anchor.d+slope*(now-a.anchor.at), slope)
		return
	}
	a.u = math.Hypot(clockU, scatter)
	a.place = a.place.steer(now, a.byClock(base, member, now), slope)
}

// byClock is the offset that arrivals tell at a base's time. A reading that lies
// moved seconds late by its delay is looked for that much earlier.
func (a *aligner) byClock(base, member line, now float64) float64 {
	host := now - base.at(now-base.lead)
	return member.at(host) - base.at(host) - a.moved
}

// settle begins a placing by clock.
func (a *aligner) settle(base, member line, now, clockU float64) {
	a.u = math.Hypot(clockU, math.Hypot(member.rms, base.rms))
	a.place = place{at: now, d: a.byClock(base, member, now)}
}

func seconds(s float64) string {
	return time.Duration(math.Round(s * 1e9)).Round(10 * time.Nanosecond).String()
}
