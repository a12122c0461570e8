package board

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
)

// Energy is the energy that the board has drawn, in total and rail by rail in the order
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
	e, ok := b.integral(from, to)
	switch {
	case !ok || to < from:
		return measure.Watt(math.NaN())
	case from == to:
		return measure.Watt(b.power(b.find(from), from))
	}
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

// Find returns the index of the rail of a name, or an error that names the rails.
func (b *Board) Find(name string) (int, error) {
	names := lists.Map(b.cfg.Rails, func(r RailConfig) string { return r.Name })
	if i := slices.Index(names, name); i >= 0 {
		return i, nil
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
	if first := b.segs[0]; !first.forever && from < first.start {
		return 0, false
	}
	sum := 0.0
	for _, l := range b.lines { // the ripple's exact integral
		// sin b − sin a as a product: the difference of two near sines would lose digits.
		begin, end := from.Seconds(), to.Seconds()
		mid, half := l.omega*(begin+end)/2+l.phase, l.omega*(end-begin)/2
		sum += l.amp / l.omega * 2 * math.Cos(mid) * math.Sin(half)
	}
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

// Observe records that a meter has read up to t: the loads before can no longer be changed.
func (b *Board) Observe(t time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observe(t)
}

// segment is a stretch of constant load. Its times are seconds since start.
type segment struct {
	start   time.Duration
	target  float64 // watts that the load settles at, cool
	forever bool    // it began before all times: no transient is left in it

	// edge is the shape of the change to target, nil for first-order slew, and leg the number of its
	// straight part that this segment is. begin is the power at which the change began.
	edge  Edge
	leg   int
	begin float64

	p0, theta0 float64 // load power and its thermal average at start, W
	// P(t) = c0 + c1·e^(−t/tau) + c2·e^(−t/heat) + c3·t
	c0, c1, c2, c3 float64
	tau, heat      float64
	// θ(t) = θ₀ + thetaC·e^(−t/tau) + thetaD·e^(−t/heat) + slope·t, with θ₀ the target, or p0 − slope·heat
	// in a straight part.
	thetaC, thetaD float64
	slope          float64 // of the load power, W/s
}

// steady is the segment of a level that has lasted for ever.
func (b *Board) steady(level float64) segment {
	s := segment{start: math.MinInt64, target: level, forever: true, p0: level, theta0: level}
	b.solve(&s)
	return s
}

// solve works out the exponentials from the state at the segment's start:
// p' = (target − p)/τ, or a straight line, θ' = (p − θ)/τθ, and the leakage is Drift·(θ − idle).
func (b *Board) solve(s *segment) {
	s.tau, s.heat = b.cfg.TauUp.Seconds(), b.cfg.TauThermal.Seconds()
	if s.edge != nil {
		s.slope = 0
		if from, to := s.edge.leg(s.leg); to.After > from.After {
			s.slope = (s.target - s.begin) * (to.Part - from.Part) / (to.After - from.After).Seconds()
		}
		k, lag := b.cfg.Drift, s.slope*s.heat
		s.thetaC, s.thetaD = 0, s.theta0-s.p0+lag
		s.c0, s.c1, s.c2, s.c3 = s.p0+k*(s.p0-lag-float64(b.cfg.Levels.Idle)), 0, k*s.thetaD, s.slope*(1+k)
		return
	}
	if s.target < s.p0 {
		s.tau = b.cfg.TauDown.Seconds()
	}
	a := s.p0 - s.target
	s.thetaC = -a * s.tau / (s.heat - s.tau)
	s.thetaD = s.theta0 - s.target - s.thetaC
	k := b.cfg.Drift
	s.c0 = s.target + k*(s.target-float64(b.cfg.Levels.Idle))
	s.c1 = a + k*s.thetaC
	s.c2 = k * s.thetaD
}

// relink carries the state over from segment i−1 to i and on to the last.
func (b *Board) relink(i int) {
	// Each segment begins where the one before it ends, so that all behind a change are solved anew.
	for ; i < len(b.segs); i++ {
		s := &b.segs[i]
		if i > 0 {
			before := &b.segs[i-1]
			if s.p0, s.theta0 = before.state(s.start); s.leg == 0 {
				s.begin = s.p0
			} else {
				s.begin = before.begin
			}
		} else if s.forever {
			*s = b.steady(s.target)
			continue
		}
		b.solve(s)
	}
}

// state returns the load power and its thermal average at an instant.
func (s *segment) state(at time.Duration) (p, theta float64) {
	if s.forever {
		return s.target, s.target
	}
	t := (at - s.start).Seconds()
	e1, e2 := math.Exp(-t/s.tau), math.Exp(-t/s.heat)
	if s.edge != nil {
		p = s.p0 + s.slope*t
		return p, p - s.slope*s.heat + s.thetaD*e2
	}
	return s.target + (s.p0-s.target)*e1, s.target + s.thetaC*e1 + s.thetaD*e2
}

// power returns the total power, t seconds after the segment's start.
func (s *segment) power(t float64) float64 {
	if s.forever {
		return s.c0
	}
	return s.c0 + s.c1*math.Exp(-t/s.tau) + s.c2*math.Exp(-t/s.heat) + s.c3*t
}

// energy returns the integral of the power over [from, from+d] seconds after
// the segment's start. Expm1 keeps the digits of short spans.
func (s *segment) energy(from, d float64) float64 {
	if s.forever {
		return s.c0 * d
	}
	part := func(c, tau float64) float64 {
		return -c * tau * math.Exp(-from/tau) * math.Expm1(-d/tau)
	}
	return s.c0*d + part(s.c1, s.tau) + part(s.c2, s.heat) + s.c3*d*(from+d/2)
}

// line is one sine of the ripple: amp·cos(omega·t + phase).
type line struct{ amp, omega, phase float64 }

// ripple is the supply's periodic part of the power at an instant, for loads that are never quite steady.
func (b *Board) ripple(t float64) float64 {
	sum := 0.0
	for _, l := range b.lines {
		sum += l.amp * math.Cos(l.omega*t+l.phase)
	}
	return sum
}

// Live is a board on a wall clock, for a simulated GPU and a demo. It is safe for concurrent use.
type Live struct {
	*Board
	// Epoch is the wall clock's time at the board's time zero.
	Epoch time.Time
}

// NewLive puts a board on a wall clock.
func NewLive(b *Board, epoch time.Time) *Live { return &Live{Board: b, Epoch: epoch} }

// Time returns the wall clock's time of a board instant.
func (l *Live) Time(t time.Duration) time.Time { return l.Epoch.Add(t) }

// Since returns the board instant of a wall clock's time.
func (l *Live) Since(t time.Time) time.Duration { return t.Sub(l.Epoch) }

// SetLoad is Board.SetLoad at a time of day. It returns when the load really
// changed, which is later than at where a meter had already read on.
func (l *Live) SetLoad(at time.Time, to load.State) (time.Time, error) {
	t, err := l.Board.SetLoad(l.Since(at), to)
	return l.Time(t), err
}

// SetLevel is Board.SetLevel at a time of day.
func (l *Live) SetLevel(at time.Time, w measure.Watt) (time.Time, error) {
	t, err := l.Board.SetLevel(l.Since(at), w)
	return l.Time(t), err
}

// Cancel is Board.Cancel at a time of day.
func (l *Live) Cancel(after time.Time) { l.Board.Cancel(l.Since(after)) }

// Energy is Board.Energy between two times of day.
func (l *Live) Energy(from, to time.Time) (Energy, error) {
	return l.Board.Energy(l.Since(from), l.Since(to))
}

// MeanPower is Board.MeanPower between two times of day.
func (l *Live) MeanPower(from, to time.Time) measure.Watt {
	return l.Board.MeanPower(l.Since(from), l.Since(to))
}

// SetSteps lays steps down one after another from a time of day on. It returns
// when the first really began; the load of the last stays, though it may last no time.
func (l *Live) SetSteps(at time.Time, steps []load.Step) (time.Time, error) {
	changes := make([]Change, 0, len(steps))
	t := l.Since(at)
	for i, s := range steps {
		w := s.Level
		if w <= 0 {
			var err error
			if w, err = l.Level(s.Load); err != nil {
				return at, err
			}
		}
		if s.For < 0 {
			return at, fmt.Errorf("board: step %d lasts %v", i+1, s.For)
		}
		changes = append(changes, Change{At: t, Level: w})
		t += s.For
	}
	begin, err := l.SetLevels(changes)
	return l.Time(begin), err
}
