package board

import (
	"fmt"
	"math"
	"strings"
	"time"

	"wattmark/measure"
)

// Energy is what the board has drawn, in total and rail by rail in the order
// of Rails. The rails add up to the total.
type Energy struct {
	Total measure.Joule
	Rails []measure.Joule
}

// Reading is one rail at one instant, on the card's side of any shunt.
type Reading struct {
	V measure.Volt
	I measure.Ampere
	P measure.Watt
}

// Energy returns the energy drawn between two instants, exact to rounding. It
// fails with ErrForgotten where from lies before the kept history.
func (b *Board) Energy(from, to time.Duration) (Energy, error) {
	if to < from {
		return Energy{}, fmt.Errorf("board: energy from %v to %v: the end lies before the begin", from, to)
	}
	b.mu.Lock()
	total, ok := b.integral(from, to)
	b.mu.Unlock()
	if !ok {
		return Energy{}, fmt.Errorf("board: energy from %v: %w (it keeps %v)", from, ErrForgotten, b.cfg.Keep)
	}
	d := (to - from).Seconds()
	e := Energy{Total: measure.Joule(total), Rails: make([]measure.Joule, len(b.rails))}
	for i, r := range b.rails {
		e.Rails[i] = measure.Joule(r.base*d + r.share*(total-b.base*d))
	}
	return e, nil
}

// MeanPower returns the mean total power between two instants, as a software
// sensor averages it; the power at the instant where both are the same. It is
// NaN where the past is forgotten.
func (b *Board) MeanPower(from, to time.Duration) measure.Watt {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.remembers(from) || to < from {
		return measure.Watt(math.NaN())
	}
	if from == to {
		return measure.Watt(b.power(b.find(from), from))
	}
	e, _ := b.integral(from, to)
	return measure.Watt(e / (to - from).Seconds())
}

// At returns every rail at an instant. It does not count as a meter's reading.
func (b *Board) At(t time.Duration) []Reading {
	b.mu.Lock()
	p := b.power(b.find(t), t)
	b.mu.Unlock()
	out := make([]Reading, len(b.rails))
	for i := range b.rails {
		out[i] = b.Rail(i, measure.Watt(p))
	}
	return out
}

// Find returns the index of the rail of a name, or an error that names what
// there is.
func (b *Board) Find(name string) (int, error) {
	var names []string
	for i, r := range b.cfg.Rails {
		if r.Name == name {
			return i, nil
		}
		names = append(names, r.Name)
	}
	return 0, fmt.Errorf("board: no rail %q: it has %s", name, strings.Join(names, ", "))
}

// Rail returns rail i when the whole board draws total. The load is one of
// constant power: P = V·I with V = open − source·I.
func (b *Board) Rail(i int, total measure.Watt) Reading {
	if s := b.sources.Load(); s != nil && (*s)[i] != nil {
		return *(*s)[i]
	}
	r := &b.rails[i]
	p := r.base + r.share*(float64(total)-b.base)
	v := r.open
	if r.source > 0 {
		v = (r.open + math.Sqrt(max(0, r.open*r.open-4*r.source*p))) / 2
	}
	return Reading{V: measure.Volt(v), I: measure.Ampere(p / v), P: measure.Watt(p)}
}

// Trace fills dst with the total power at start, start+step, start+2·step …;
// step in nanoseconds may be fractional. It counts as a meter's reading: the
// load at these instants can no longer be changed.
func (b *Board) Trace(dst []measure.Watt, start time.Duration, step float64) {
	if len(dst) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.find(start)
	for n := range dst {
		// Offsets from start stay small, so a fractional step does not lose digits.
		off := float64(n) * step
		at := start + time.Duration(math.Round(off))
		for i+1 < len(b.segs) && at >= b.segs[i+1].start {
			i++
		}
		dst[n] = measure.Watt(b.power(i, at))
	}
	b.observe(start + time.Duration(math.Ceil(float64(len(dst)-1)*step)))
}

// power returns the total at an instant that segment i holds.
func (b *Board) power(i int, at time.Duration) float64 {
	s := &b.segs[i]
	p := s.power((at - s.start).Seconds())
	if b.lines != nil {
		p += b.ripple(at.Seconds())
	}
	return p
}

// integral returns the total energy, and false where the past is forgotten.
func (b *Board) integral(from, to time.Duration) (float64, bool) {
	if !b.remembers(from) {
		return 0, false
	}
	sum := b.rippleEnergy(from.Seconds(), to.Seconds())
	for i := b.find(from); i < len(b.segs); i++ {
		s := &b.segs[i]
		end := to
		if i+1 < len(b.segs) {
			end = min(end, b.segs[i+1].start)
		}
		if end > from {
			sum += s.energy((from - s.start).Seconds(), (end - from).Seconds())
			from = end
		}
		if end == to {
			break
		}
	}
	return sum, true
}

// Observe tells the board that a meter has read up to t: what came before can
// no longer be changed.
func (b *Board) Observe(t time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observe(t)
}
