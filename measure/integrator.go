package measure

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
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
//
// Where a rail's two channels are read one after another they are brought
// together first (see aligner), and every rail is integrated over the window as
// its readings saw it.
type Integrator struct {
	setup    Setup
	meter    *PowerMeter
	from, to Seconds
	running
	plain *summer[Count]
	// align and late take the place of plain where readings must be aligned.
	align *aligner
	late  *summer[float64]

	anchored   bool
	anchorScan uint64 // uniform timebase: where scan times are counted from
	anchorTick float64
	nextIn     uint64 // the scan expected next
	noise      []noiseMeter
	lone       []loneMeter
	rest       rest
	steps      []stepped
	stride     int  // distance of independent readings, in scans
	thins      bool // it is a Thinned's
}

// running holds the sums so far.
type running struct {
	meters []railMeter
	lo, hi float64 // the window in ticks

	seen                 bool
	next                 uint64 // the scan expected next
	firstTick, lastTick  float64
	samples, firstSample uint64
	gaps, lost           uint64

	rails  []railSums
	skewed []int    // rails whose readings are of two instants
	total  railSums // only pp, peak and step2
	folds  bool     // a load near a multiple of the scan rate may be read as a slow one
	beats  beats    // where it folds
	one    Sum      // length integrated, in ticks
	one2   Sum      // sum of squared intervals, in ticks²
	gap1   float64  // sum of lengths of gaps, in ticks
	gap2   float64  // sum of squared lengths of gaps, in ticks²
	ends   [2]edge

	weights, power, totals [groupScans]float64
}

// NewIntegrator prepares the integration of [from, to] in device time (zero is
// the first scan of the capture). A window that cannot be is ErrWindow.
func NewIntegrator(s *Setup, from, to Seconds) (*Integrator, error) {
	if !(from < to) || math.IsInf(float64(from), 0) || math.IsInf(float64(to), 0) {
		return nil, fmt.Errorf("integrate from %v to %v: %w: the end must lie after the start, both finite", from, to,
			ErrWindow)
	}
	return newIntegrator(s, from, to)
}

// newIntegrator is NewIntegrator, of all time too.
func newIntegrator(s *Setup, from, to Seconds) (*Integrator, error) {
	m, err := NewPowerMeter(s)
	if err != nil {
		return nil, fmt.Errorf("integrate: %w", err)
	}
	if err := s.checkSkew(); err != nil {
		return nil, fmt.Errorf("integrate: %w", err)
	}
	g := &Integrator{
		setup: *s, meter: m, from: from, to: to,
		noise: make([]noiseMeter, len(s.Channels)), lone: make([]loneMeter, len(s.Channels)), stride: holdScans(s),
	}
	g.setup.Channels, g.setup.Rails = slices.Clone(s.Channels), slices.Clone(s.Rails)
	g.begin()
	if g.align = newAligner(&g.setup); g.align != nil {
		g.late = newSummer[float64](&g.running, len(s.Channels))
	} else {
		g.plain = newSummer[Count](&g.running, len(s.Channels))
	}
	return g, nil
}

// begin prepares the sums.
func (g *Integrator) begin() {
	tb, rails := g.setup.Timebase, g.setup.Rails
	g.running = running{
		meters: g.meter.rails, lo: tb.Ticks(g.from), hi: tb.Ticks(g.to), rails: make([]railSums, len(rails)),
		folds: !tb.Stamped && g.setup.Response.Window < tb.Seconds(tb.TicksPerScan),
	}
	shift, most := make([]float64, len(rails)), 0.0
	for r := range rails {
		g.rails[r].peak = math.Inf(-1)
		shift[r] = tb.Ticks(g.setup.Instant(rails[r].X))
		most = max(most, math.Abs(shift[r]))
		if g.setup.lag(rails[r]) != 0 {
			g.skewed = append(g.skewed, r)
		}
	}
	g.total.peak = math.Inf(-1)
	scans := edgeScans + int(math.Ceil(most/tb.TicksPerScan))
	for i, at := range []float64{g.lo, g.hi} {
		g.ends[i] = edge{at: at, rails: g.meter.rails, shift: shift, scans: scans}
	}
}

// Covered returns the span of device time of the scans added up so far; ok is
// false before the first. Once last lies behind the window no later block bears
// on its energy: last lags the added scans by those that wait to be
// aligned, and by the time that a rail's readings are older than their scans.
func (g *Integrator) Covered() (first, last Seconds, ok bool) {
	tb, older := g.setup.Timebase, 0.0
	for _, shift := range g.ends[0].shift {
		older = max(older, -shift)
	}
	return tb.Seconds(g.firstTick), tb.Seconds(g.lastTick - older), g.seen
}

// Moments returns the integrals of rail r over the part of the window that was
// covered so far.
func (g *Integrator) Moments(r int) Moments {
	// d is the change of the sums when the window is moved by minus the readings' instant, to the ticks that show it.
	var d groupSums
	if shift := g.ends[0].shift[r]; shift != 0 && g.seen {
		if g.lastTick >= g.lo {
			d = g.ends[0].span(r, g.lo-shift, g.lo)
		}
		if g.lastTick >= g.hi-g.setup.Timebase.TicksPerScan {
			d = d.plus(g.ends[1].span(r, g.hi-shift, g.hi), -1)
		}
	}
	m, k := g.sums(r), 1/float64(g.setup.Timebase.TickHz)
	return Moments{m.One, m.X + k*d.x, m.Y + k*d.y, m.XX + k*d.xx, m.XY + k*d.xy, m.YY + k*d.yy}
}

// sums returns the integrals over the scans as they came, whenever their readings were taken.
func (g *Integrator) sums(r int) Moments {
	s, k := &g.rails[r], 1/float64(g.setup.Timebase.TickHz)
	return Moments{
		Seconds(k * g.one.Value()), k * s.x.Value(), k * s.y.Value(), k * s.xx.Value(), k * s.xy.Value(), k * s.yy.Value(),
	}
}

// Add takes the next block. Blocks come in order of time and may lie wholly or
// partly outside of the window, but a scan at or before its start and one at
// or after its end must come by. The block is not kept. Errors wrap ErrShape or
// ErrOrder; after one the integrator is of no use.
func (g *Integrator) Add(b *Block) error {
	if b.thinned != nil {
		return g.skip(b)
	}
	if err := b.Validate(g.setup.Timebase, len(g.setup.Channels)); err != nil {
		return fmt.Errorf("integrate: scan %d: %w", b.FirstScan, err)
	}
	n := b.Scans()
	if n == 0 {
		return nil
	}
	if g.anchored && b.FirstScan < g.nextIn {
		return fmt.Errorf("integrate: scan %d after scan %d: %w", b.FirstScan, g.nextIn-1, ErrOrder)
	}
	s := stretch[Count]{
		cols: b.Counts, ticks: b.Ticks, start: g.start(b), step: g.setup.Timebase.TicksPerScan, n: n,
		first: b.FirstScan,
	}
	g.anchored, g.nextIn = true, b.FirstScan+uint64(n)
	g.listen(&s)
	g.rest.observe(&s)
	for i := range g.steps {
		g.steps[i].observe(&s)
	}
	var err error
	if g.align != nil {
		err = g.align.add(&s, g.late.add)
	} else {
		err = g.plain.add(&s)
	}
	if err != nil {
		return fmt.Errorf("integrate: %w", err)
	}
	return nil
}

// listenScans is how many readings the scatter is looked for in, at least: a
// window of fewer is looked at with its surroundings.
const listenScans = 64

// listen looks at the scatter of the readings within the window.
func (g *Integrator) listen(s *stretch[Count]) {
	around := max(listenScans*s.step-(g.hi-g.lo), 0) / 2
	lo := s.find(func(t float64) bool { return t >= g.lo-around })
	hi := s.find(func(t float64) bool { return t > g.hi+around })
	for from := lo; from < hi; from += groupScans {
		for c := range g.noise {
			g.noise[c].observe(s.cols[c][from:min(from+groupScans, hi)], g.stride)
		}
	}
	lo = s.find(func(t float64) bool { return t >= g.lo })
	hi = s.find(func(t float64) bool { return t > g.hi })
	for c := range g.lone {
		known := 0.0 // a Thinned keeps all: what it holds is judged by the whole window's scatter
		if !g.thins && g.noise[c][0].total >= noiseEnough {
			known = g.noise[c].sigma(0)
		}
		g.lone[c].observe(s.cols[c][lo:hi], g.stride, known)
	}
}

// flushed returns the integrator as if the data ended here: itself, where no
// scan waits for those behind it.
func (g *Integrator) flushed() (*Integrator, error) {
	if g.align == nil || !g.align.running {
		return g, nil
	}
	end := *g
	end.rails = slices.Clone(g.rails)
	for i := range end.ends { // nothing that changes is shared
		e := &end.ends[i]
		e.ticks, e.readings = slices.Clone(e.ticks), slices.Clone(e.readings)
	}
	late := newSummer[float64](&end.running, len(g.noise))
	for c := range late.prev {
		late.prev[c][0] = g.late.prev[c][0]
	}
	align := g.align.clone()
	if err := align.flush(late.add); err != nil {
		return nil, err
	}
	return &end, nil
}

// start returns the tick of the block's first scan. On a uniform timebase a
// whole tick is too coarse where TicksPerScan is not whole, so times are
// counted from an anchor as long as the blocks agree with it.
func (g *Integrator) start(b *Block) float64 {
	tb := g.setup.Timebase
	if tb.Stamped {
		return float64(b.Ticks[0])
	}
	if g.anchored {
		want := g.anchorTick + float64(b.FirstScan-g.anchorScan)*tb.TicksPerScan
		if math.Abs(want-float64(b.FirstTick)) < 1 {
			return want
		}
	}
	g.anchorScan, g.anchorTick = b.FirstScan, float64(b.FirstTick)
	return g.anchorTick
}

// Windows integrates several windows of one capture in a single pass over its
// blocks: each block goes to the windows that it bears on alone. It is not safe
// for concurrent use.
type Windows struct {
	tb   Timebase
	gs   []*Integrator
	next int // windows before it are done
	// around is how much before a window its readings are wanted, in ticks.
	around float64
}

// NewWindows prepares the integration of windows, which must be in the order of
// their ends.
func NewWindows(s *Setup, windows []Window) (*Windows, error) {
	w := &Windows{tb: s.Timebase}
	for i, x := range windows {
		if i > 0 && x.To < windows[i-1].To {
			return nil, fmt.Errorf("integrate: window %d ends before the one before it: %w", i+1, ErrOrder)
		}
		g, err := NewIntegrator(s, x.From, x.To)
		if err != nil {
			return nil, fmt.Errorf("window %d: %w", i+1, err)
		}
		w.around = float64(g.ends[0].scans+2*listenScans) * s.Timebase.TicksPerScan
		w.gs = append(w.gs, g)
	}
	return w, nil
}

// Add takes the next block. Errors are those of Integrator.Add.
func (w *Windows) Add(b *Block) error {
	n := b.Scans()
	if n == 0 {
		return nil
	}
	last := b.TickAt(w.tb, n-1)
	for w.next < len(w.gs) {
		// As many scans as an edge remembers behind the window are still wanted.
		if _, t, ok := w.gs[w.next].Covered(); !ok || w.tb.Ticks(t) <= w.gs[w.next].hi+w.around {
			break
		}
		w.next++
	}
	for i := w.next; i < len(w.gs); i++ {
		if last+w.around < w.gs[i].lo {
			continue
		}
		if err := w.gs[i].Add(b); err != nil {
			return err
		}
	}
	return nil
}

// AddAll takes blocks until no later one bears on any window. Errors are the blocks' own, or Add's.
func (w *Windows) AddAll(blocks iter.Seq2[*Block, error]) error {
	for b, err := range blocks {
		if err == nil {
			err = w.Add(b)
		}
		if err != nil || w.Done() {
			return err
		}
	}
	return nil
}

// Done reports whether no later block bears on any window.
func (w *Windows) Done() bool { return w.next == len(w.gs) }

// Integrators returns the integrators of the windows, in their order.
func (w *Windows) Integrators() []*Integrator { return w.gs }
