package composite

import (
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
)

// aligner keeps the placing of one member against the base.
type aligner struct {
	shared bool    // one oscillator: rates are equal
	moved  float64 // a known delay, in whole scans of the base
	place  *place  // the merger's
	// anchor is where the offset is known: at the base's time at, it is d ± u.
	anchor struct {
		at, d, u float64
		known    bool
	}
	slope float64 // of the member's clock against the base's, as applied
	u     float64 // standard uncertainty of the offset now
}

// anchorAt reports that the offset is d ± u at a base's time, and jumps there.
func (a *aligner) anchorAt(at, d, u float64) {
	a.anchor.at, a.anchor.d, a.anchor.u, a.anchor.known = at, d, u, true
	a.u = u
	*a.place = place{at: at, d: d, slope: a.slope}
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
		*a.place = a.place.steer(now, a.anchor.d+slope*(now-a.anchor.at), slope)
		return
	}
	a.u = math.Hypot(clockU, scatter)
	*a.place = a.place.steer(now, a.byClock(base, member, now), slope)
}

// byClock is the offset by times of arrival, at a base's time. A reading that lies
// moved seconds late by its delay is looked for that much earlier.
func (a *aligner) byClock(base, member line, now float64) float64 {
	host := now - base.at(now-base.lead)
	return member.at(host) - base.at(host) - a.moved
}

// settle begins a placing by clock.
func (a *aligner) settle(base, member line, now, clockU float64) {
	a.u = math.Hypot(clockU, math.Hypot(member.rms, base.rms))
	*a.place = place{at: now, d: a.byClock(base, member, now)}
}

// seconds writes a time for a note, to 10 ns.
func seconds(s float64) string {
	return time.Duration(math.Round(s * 1e9)).Round(10 * time.Nanosecond).String()
}

// anchor aligns members by their start markers as they are seen, and gives up on
// those that show none in time.
func (l *live) anchor() {
	base := l.start[l.m.base]
	missing, latest := 0, math.Inf(-1)
	for i, f := range l.start {
		t := &l.align[i]
		switch {
		case !l.marked(i):
		case i == l.m.base && f != nil:
			latest = max(latest, float64(f.T))
		case f == nil:
			missing++
		case base == nil:
			latest = max(latest, float64(f.T)-t.place.offset(float64(f.T)))
		case !t.anchor.known:
			l.move(i, f, base)
		}
	}
	if missing == 0 {
		l.awaiting = false
		return
	}
	if l.m.newest() < latest+l.wait || math.IsInf(latest, 0) {
		return
	}
	l.awaiting = false
	for i := range l.align {
		if i == l.m.base || l.align[i].anchor.known || !l.marked(i) {
			continue
		}
		blind := l.m.names[i]
		if l.start[i] != nil {
			blind = l.m.names[l.m.base]
		}
		l.m.note("no start marker was seen in the power of %s: %s is aligned with %s by the host's clock, "+
			"within %s (k = 1)", blind, l.m.names[i], l.m.names[l.m.base], seconds(l.align[i].u))
	}
}

// move places a member by its start marker and the base's.
func (l *live) move(i int, f, base *marker.Found) {
	a := &l.align[i]
	was := a.place.offset(float64(base.T))
	d, u := float64(f.T-base.T), math.Hypot(float64(f.U), float64(base.U))
	l.hidden[i] = d - was
	a.anchorAt(float64(base.T), d, math.Hypot(u, float64(period(l.m.tb))/math.Sqrt(12)))
	l.m.tracks[i].rewind()
	// Behind the marker, so that it stays with a capture that is trimmed to it.
	l.m.noteAt(float64(base.End), "%s is aligned with %s by the start marker, within %s (k = 1); the host's clock "+
		"had it %s off", l.m.names[i], l.m.names[l.m.base], seconds(a.u), seconds(d-was))
}

// check compares the stop markers, once all are seen, with where the placing has
// them, and reports how the clocks ran.
func (l *live) check() (done bool) {
	base := l.stop[l.m.base]
	for i, f := range l.stop {
		if f == nil && (l.marked(i) || i == l.m.base) {
			return false
		}
	}
	for i, f := range l.stop {
		if i == l.m.base || f == nil {
			continue
		}
		off := float64(f.T-base.T) - l.align[i].place.offset(float64(base.T))
		l.m.note("at the stop marker %s lies %s ± %s (k = 1) off %s; %s", l.m.names[i], seconds(off),
			seconds(math.Hypot(float64(f.U), float64(base.U))), l.m.names[l.m.base], l.rates(i))
	}
	clear(l.stop)
	return true
}

// rates words how a member's clock ran against the base's.
func (l *live) rates(i int) string {
	b, m := l.leads[l.m.base].line(), l.leads[i].line()
	if b.n < 4 || m.n < 4 {
		return fmt.Sprintf("their clocks were compared for too short a time; %d of its readings were shown by no scan",
			l.m.tracks[i].unshown)
	}
	return fmt.Sprintf("its clock ran %+.1f ± %.1f ppm by the host's; %d of its readings were shown by no scan",
		1e6*(m.slope-b.slope), 1e6*math.Hypot(m.uSlope, b.uSlope), l.m.tracks[i].unshown)
}

// track holds one member's data: a queue of its blocks, and the reading
// that is shown now. Times are seconds of the member's own clock.
type track struct {
	name    string
	tb      measure.Timebase
	period  float64
	first   int // index of its first channel in the whole
	wall    int // of its own channels the one of the machine's supply, -1 for none
	packets []*packet
	done    bool // no more will come
	// keep is for how long readings stay behind the one that is shown, so that a
	// new alignment can go back to them.
	keep float64

	p, i        int     // the reading shown: packet and scan within
	valid       bool    // there is one
	time        float64 // of the reading shown
	from, until float64 // where it stands
	shown       bool
	quiet       bool // on the way back from a new alignment: nothing is counted
	unshown     uint64
	// gaps are the member's own reports of losses that are not reached yet.
	gaps []measure.Event
}

// edge makes the ends of a reading's stand half-open whatever the last digit of a
// sum is: the base's scans may lie on them.
const edge = 1e-9

// add takes a block.
func (t *track) add(p *packet) {
	t.packets = append(t.packets, p)
	if !t.valid {
		t.set(len(t.packets)-1, 0)
		t.from = t.time - t.period/2 - edge
	}
}

// set makes a reading the one that is shown, as far as its end is known.
func (t *track) set(p, i int) {
	t.p, t.i, t.valid, t.shown = p, i, true, false
	t.time = t.at(p, i)
	t.until = t.time
}

// at is the member's time at which a packet's reading was taken, in seconds.
func (t *track) at(p, i int) float64 {
	return t.packets[p].block.TickAt(t.tb, i) / float64(t.tb.TickHz)
}

// next is the place of the reading behind the one that is shown.
func (t *track) next() (p, i int, ok bool) {
	if t.i+1 < t.packets[t.p].block.Scans() {
		return t.p, t.i + 1, true
	}
	return t.p + 1, 0, t.p+1 < len(t.packets)
}

// end works out where the reading that is shown ends and the next one begins.
func (t *track) end() (from float64, ok bool) {
	p, i, ok := t.next()
	if !ok {
		if t.done {
			t.until = t.time + t.period/2 - edge
		}
		return 0, false
	}
	after := t.at(p, i)
	if a, b := &t.packets[t.p].block, &t.packets[p].block; b.FirstScan+uint64(i) == a.FirstScan+uint64(t.i)+1 {
		t.until = (t.time+after)/2 - edge
		return t.until, true
	}
	t.until = min(t.time+t.period/2, after) - edge
	return max(after-t.period/2-edge, t.until), true
}

// state is a track's knowledge of an instant.
type state uint8

const (
	hit     state = iota // the reading shown stands there
	missing              // no reading stands there, and none will
	later                // more must come before that is known
	over                 // the member has ended
)

// seek moves on to the reading that stands at an instant.
func (t *track) seek(at float64) state {
	if !t.valid {
		if t.done {
			return over
		}
		return later
	}
	for {
		if at < t.from {
			return missing
		}
		from, ok := t.from, true
		if at >= t.until {
			from, ok = t.end()
		}
		switch {
		case at < t.until:
			t.shown, t.quiet = true, false
			return hit
		case !ok && t.done:
			return over
		case !ok:
			return later
		}
		if !t.shown && !t.quiet {
			t.unshown++
		}
		p, i, _ := t.next()
		t.set(p, i)
		t.from = from
	}
}

// rewind goes back to the oldest reading that is kept, for a new alignment.
func (t *track) rewind() {
	if len(t.packets) == 0 {
		return
	}
	t.set(0, 0)
	t.from, t.quiet = t.time-t.period/2-edge, true
}

// end1 is the time of a packet's last reading.
func (t *track) end1(p int) float64 { return t.at(p, t.packets[p].block.Scans()-1) }

// newest is the time of the newest reading, −∞ before the first.
func (t *track) newest() float64 {
	if len(t.packets) == 0 {
		return math.Inf(-1)
	}
	return t.end1(len(t.packets) - 1)
}

// loss is the member's own report of the gap before the reading that is shown, or at
// its end; empty where there is none.
func (t *track) loss(end bool) (why string) {
	scan := t.packets[t.p].block.FirstScan + uint64(t.i)
	for len(t.gaps) > 0 && (end || t.gaps[0].FirstScan < scan) {
		why, t.gaps = t.gaps[0].Detail, t.gaps[1:]
	}
	return why
}

// place maps the base's time to a member's: base + d + slope·(base − at).
type place struct {
	at, d, slope float64
}

// of is the member's time at a time of the base, in seconds.
func (p place) of(base float64) float64 { return base + p.offset(base) }

// offset is the member's time less the base's, in seconds.
func (p place) offset(base float64) float64 { return p.d + p.slope*(base-p.at) }

// maxSlew is how fast a placing is moved to its place by the clocks.
const maxSlew = 500e-6

// steer makes a placing that goes on where the old one is and reaches the clocks'
// place a second later, or as far as maxSlew beside their own slope lets it.
func (p place) steer(base, wanted, slope float64) place {
	d := p.offset(base)
	lead := wanted + slope - d // over the next second
	return place{at: base, d: d, slope: min(max(lead, slope-maxSlew), slope+maxSlew)}
}
