package composite

import (
	"math"

	"wattmark/measure"
)

// track is what is at hand of one member: a queue of its blocks, and the reading
// that is shown now. Times are seconds of the member's own clock.
type track struct {
	name    string
	tb      measure.Timebase
	period  float64
	first   int // index of its first channel in the whole
	packets []*packet
	release func(*packet)
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
	last        bool // no reading behind it is known yet: until is open
	unshown     uint64
	// gaps is what the member itself told of losses that are not reached yet.
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
	t.p, t.i, t.valid, t.shown, t.last = p, i, true, false, true
	t.time = t.at(p, i)
	t.until = t.time
}

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
	t.last = false
	after := t.at(p, i)
	if a, b := &t.packets[t.p].block, &t.packets[p].block; b.FirstScan+uint64(i) == a.FirstScan+uint64(t.i)+1 {
		t.until = (t.time+after)/2 - edge
		return t.until, true
	}
	t.until = min(t.time+t.period/2, after) - edge
	return max(after-t.period/2-edge, t.until), true
}

// state is what a track knows of an instant.
type state uint8

const (
	hit     state = iota // the reading shown stands there
	missing              // no reading stands there, and none will
	later                // more must come before that can be told
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
		switch {
		case at < t.from:
			return missing
		case at < t.until:
			t.shown, t.quiet = true, false
			return hit
		}
		from, ok := t.end()
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

// trim gives back what lies behind.
func (t *track) trim() {
	n := 0
	for n < t.p && t.end1(n) < t.time-t.keep {
		t.release(t.packets[n])
		n++
	}
	if n > 0 {
		t.packets = t.packets[:copy(t.packets, t.packets[n:])]
		t.p -= n
	}
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

// show copies the reading shown into scan k of the whole.
func (t *track) show(out [][]measure.Count, k int) {
	for c, col := range t.packets[t.p].block.Counts {
		out[t.first+c][k] = col[t.i]
	}
}

// loss is what the member told of the gap before the reading that is shown, or at
// its end; empty where it told nothing.
func (t *track) loss(end bool) (why string) {
	scan := t.packets[t.p].block.FirstScan + uint64(t.i)
	for len(t.gaps) > 0 && (end || t.gaps[0].FirstScan < scan) {
		why, t.gaps = t.gaps[0].Detail, t.gaps[1:]
	}
	return why
}
