package measure

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Sentinel errors of the integrator, wrapped with the figures and a hint.
var (
	// ErrWindow: the window's ends are not finite, or it is empty or reversed.
	ErrWindow = errors.New("not a window")
	// ErrNoData: the samples do not reach over the whole window.
	ErrNoData = errors.New("window outside the data")
	// ErrOrder: a block, or a time stamp in it, came before its predecessor.
	ErrOrder = errors.New("blocks out of order")
)

// Integrator integrates the rails' power over a window of device time by the
// trapezoid rule, with the power at the window's ends interpolated linearly.
// It is not safe for concurrent use; its memory does not grow with the data.
//
// A gap between two blocks is bridged by the straight line from the last scan
// before it to the first one after it, counted, and given a line of its own in
// the budget (see gapVariance).
type Integrator struct {
	setup    Setup
	meter    *PowerMeter
	from, to Seconds
	lo, hi   float64 // the window in ticks

	// What was added so far. prev holds one scan, planar.
	seen                 bool
	next                 uint64 // the scan expected next
	firstTick, lastTick  float64
	prev                 [][]Count
	anchorScan           uint64 // uniform timebase: where scan times are counted from
	anchorTick           float64
	samples, firstSample uint64
	gaps, lost           uint64

	rails  []railSums
	total  railSums // only pp, peak and step2
	one    sum      // length integrated, in ticks
	one2   sum      // sum of squared intervals, in ticks²
	gap2   float64  // sum of squared lengths of gaps, in ticks²
	noise  []noiseMeter
	stride int // distance of independent readings, in scans
	ends   [2]edge

	weights, power [groupScans]float64
}

// NewIntegrator prepares the integration of [from, to] in device time (zero is
// the first scan of the capture). A window that cannot be is ErrWindow.
func NewIntegrator(s *Setup, from, to Seconds) (*Integrator, error) {
	m, err := NewPowerMeter(s)
	if err != nil {
		return nil, fmt.Errorf("integrate: %w", err)
	}
	if !(from < to) || math.IsInf(float64(from), 0) || math.IsInf(float64(to), 0) {
		return nil, fmt.Errorf("integrate from %v to %v: %w: the end must lie after the start, both finite", from, to, ErrWindow)
	}
	g := &Integrator{
		setup: *s, meter: m, from: from, to: to,
		lo: s.Timebase.Ticks(from), hi: s.Timebase.Ticks(to),
		prev: make([][]Count, len(s.Channels)), rails: make([]railSums, len(s.Rails)),
		noise: make([]noiseMeter, len(s.Channels)), stride: holdScans(s),
	}
	g.setup.Channels, g.setup.Rails = slices.Clone(s.Channels), slices.Clone(s.Rails)
	for c := range g.prev {
		g.prev[c] = make([]Count, 1)
	}
	for i := range g.rails {
		g.rails[i].peak = math.Inf(-1)
	}
	g.total.peak = math.Inf(-1)
	g.ends[0], g.ends[1] = newEdge(g.lo, len(s.Rails)), newEdge(g.hi, len(s.Rails))
	return g, nil
}

// Covered returns the span of device time of the scans added so far; ok is
// false before the first.
func (g *Integrator) Covered() (first, last Seconds, ok bool) {
	tb := g.setup.Timebase
	return tb.Seconds(g.firstTick), tb.Seconds(g.lastTick), g.seen
}

// Moments returns the integrals of rail r over the part of the window that was
// covered so far.
func (g *Integrator) Moments(r int) Moments {
	s, k := &g.rails[r], 1/float64(g.setup.Timebase.TickHz)
	return Moments{
		One: Seconds(k * g.one.value()),
		X:   k * s.x.value(), Y: k * s.y.value(),
		XX: k * s.xx.value(), XY: k * s.xy.value(), YY: k * s.yy.value(),
	}
}

// Add takes the next block. Blocks come in order of time and may lie wholly or
// partly outside of the window, but a scan at or before its start and one at
// or after its end must come by. The block is not kept. Errors wrap ErrShape or
// ErrOrder; after one the integrator is of no use.
func (g *Integrator) Add(b *Block) error {
	if err := b.Validate(g.setup.Timebase, len(g.setup.Channels)); err != nil {
		return fmt.Errorf("integrate: scan %d: %w", b.FirstScan, err)
	}
	n := b.Scans()
	if n == 0 {
		return nil
	}
	if g.seen && b.FirstScan < g.next {
		return fmt.Errorf("integrate: scan %d after scan %d: %w", b.FirstScan, g.next-1, ErrOrder)
	}
	s := stretch{cols: b.Counts, ticks: b.Ticks, start: g.start(b), step: g.setup.Timebase.TicksPerScan, n: n}
	if first, last := s.at(0), s.at(n-1); last < first || (g.seen && first < g.lastTick) {
		return fmt.Errorf("integrate: scan %d: tick %v after tick %v: %w", b.FirstScan, first, g.lastTick, ErrOrder)
	}
	if g.seen {
		g.bridge(&s, b.FirstScan-g.next)
	} else {
		g.firstTick = s.at(0)
	}
	for i := range g.ends {
		g.ends[i].observe(&s, g.meter.rails)
	}
	if err := g.inside(&s, b.FirstScan); err != nil {
		return fmt.Errorf("integrate: %w", err)
	}
	for c := range g.prev {
		g.prev[c][0] = b.Counts[c][n-1]
	}
	g.seen, g.next, g.lastTick = true, b.FirstScan+uint64(n), s.at(n-1)
	return nil
}

// start returns the tick of the block's first scan. On a uniform timebase a
// whole tick is too coarse where TicksPerScan is not whole, so times are
// counted from an anchor as long as the blocks agree with it.
func (g *Integrator) start(b *Block) float64 {
	tb := g.setup.Timebase
	if tb.Stamped {
		return float64(b.Ticks[0])
	}
	if g.seen {
		want := g.anchorTick + float64(b.FirstScan-g.anchorScan)*tb.TicksPerScan
		if math.Abs(want-float64(b.FirstTick)) < 1 {
			return want
		}
	}
	g.anchorScan, g.anchorTick = b.FirstScan, float64(b.FirstTick)
	return g.anchorTick
}

// stretch is a block with its times.
type stretch struct {
	cols  [][]Count
	ticks []int64
	start float64
	step  float64
	n     int
}

// at returns the tick of scan i.
func (s *stretch) at(i int) float64 {
	if s.ticks != nil {
		return float64(s.ticks[i])
	}
	return s.start + float64(i)*s.step
}

// find returns the first scan for which past is true of its tick.
func (s *stretch) find(past func(tick float64) bool) int {
	return sort.Search(s.n, func(i int) bool { return past(s.at(i)) })
}
