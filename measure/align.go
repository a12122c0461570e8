package measure

import (
	"math"
	"slices"
)

// alignScans is how many scans are interpolated at a time.
const alignScans = 2048

// aligner brings the second readings of rails to the instants of their first
// ones, on a uniform timebase. It keeps as many scans as the taps reach and
// hands a scan on when the readings behind it have come: what goes in comes out
// some scans later.
//
// At the begin and the end of a run (a gap, a jump of the device's time, the
// end of the data) there are no readings beyond: the first and the last one
// stand for them, so that nothing leaks across. Its memory does not grow.
type aligner struct {
	step         float64
	delays       []delay // by channel
	back, ahead  int     // scans needed before and behind the one handed on
	buf          [][]float64
	ticks        []float64 // of the scans in buf
	n            int       // scans in buf, those that stand for missing ones included
	running      bool
	next         uint64 // scan expected next; it would be buf[n]
	interpolated [][]float64
	cols, cut    [][]float64
	piece        stretch[float64]
}

// delay says where a channel's output is read: whole scans behind, and the
// share of a scan where there are taps.
type delay struct {
	whole int
	taps  *fractional
}

// newAligner prepares the setup's rails; nil where nothing is to be aligned.
func newAligner(s *Setup) *aligner {
	if !s.needsAligner() {
		return nil
	}
	a := &aligner{
		step: s.Timebase.TicksPerScan, delays: make([]delay, len(s.Channels)),
		buf: make([][]float64, len(s.Channels)), cols: make([][]float64, len(s.Channels)),
		interpolated: make([][]float64, len(s.Channels)), cut: make([][]float64, len(s.Channels)),
	}
	for _, r := range s.Rails {
		if !s.aligns(r) {
			continue
		}
		whole, share := splitLag(s.Timebase, s.lag(r))
		d := &a.delays[r.Y]
		d.whole = whole
		before, behind := -whole, whole
		if share > 0 {
			f := newFractional(share)
			d.taps = &f
			before, behind = before+fdHalf-1, behind+fdHalf
		}
		a.back, a.ahead = max(a.back, before), max(a.ahead, behind)
	}
	size := a.back + 2*a.ahead + alignScans
	for c := range a.buf {
		a.buf[c] = make([]float64, size)
		if a.delays[c].taps != nil {
			a.interpolated[c] = make([]float64, max(alignScans, a.ahead))
		}
	}
	a.ticks = make([]float64, size)
	return a
}

// add takes a stretch of counts and hands on what is complete.
func (a *aligner) add(s *stretch[Count], out func(*stretch[float64]) error) error {
	if a.running && (s.first != a.next || math.Abs(s.start-a.ticks[a.n-1]-a.step) > a.step/2) {
		if err := a.flush(out); err != nil {
			return err
		}
	}
	if !a.running {
		a.begin(s)
	}
	for from := 0; from < s.n; {
		m := min(s.n-from, alignScans)
		for c, col := range s.cols {
			dst := a.buf[c][a.n : a.n+m]
			for i, v := range col[from : from+m] {
				dst[i] = float64(v)
			}
		}
		for i := range m {
			a.ticks[a.n+i] = s.at(from + i)
		}
		a.n, a.next, from = a.n+m, a.next+uint64(m), from+m
		if err := a.emit(out); err != nil {
			return err
		}
	}
	return nil
}

// begin starts a run: its first reading stands for those before.
func (a *aligner) begin(s *stretch[Count]) {
	a.running, a.n, a.next = true, a.back, s.first
	for c, col := range s.cols {
		for i := range a.back {
			a.buf[c][i] = float64(col[0])
		}
	}
}

// flush hands on the rest of a run; its last reading stands for those behind.
func (a *aligner) flush(out func(*stretch[float64]) error) error {
	if !a.running {
		return nil
	}
	a.running = false
	for c := range a.buf {
		for i := range a.ahead {
			a.buf[c][a.n+i] = a.buf[c][a.n-1]
		}
	}
	a.n, a.next = a.n+a.ahead, a.next+uint64(a.ahead)
	return a.emit(out)
}

// emit hands on the scans in buf that have all neighbours they need, and keeps
// what the next ones will.
func (a *aligner) emit(out func(*stretch[float64]) error) error {
	n := a.n - a.back - a.ahead
	if n <= 0 {
		return nil
	}
	for c := range a.cols {
		d, x := a.delays[c], a.buf[c]
		at := a.back + d.whole
		if d.taps == nil {
			a.cols[c] = x[at : at+n]
			continue
		}
		a.cols[c] = a.interpolated[c][:n]
		d.taps.run(a.cols[c], x[at-fdHalf+1:at+n+fdHalf])
	}
	first := a.next - uint64(a.n-a.back)
	if err := a.pieces(first, n, out); err != nil {
		return err
	}
	for c := range a.buf {
		copy(a.buf[c], a.buf[c][n:a.n])
	}
	copy(a.ticks, a.ticks[n:a.n])
	a.n -= n
	return nil
}

// pieces hands n scans on, cut where the device's time says more than the step.
func (a *aligner) pieces(first uint64, n int, out func(*stretch[float64]) error) error {
	ticks := a.ticks[a.back : a.back+n]
	for from := 0; from < n; {
		to := from + 1
		for to < n && math.Abs(ticks[to]-ticks[to-1]-a.step) < 1e-3*a.step {
			to++
		}
		for c := range a.cut {
			a.cut[c] = a.cols[c][from:to]
		}
		a.piece = stretch[float64]{cols: a.cut, start: ticks[from], step: a.step, n: to - from, first: first + uint64(from)}
		if err := out(&a.piece); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// clone returns a copy that shares nothing that changes.
func (a *aligner) clone() *aligner {
	c := *a
	c.ticks = slices.Clone(a.ticks)
	c.buf, c.interpolated = make([][]float64, len(a.buf)), make([][]float64, len(a.buf))
	c.cols, c.cut = make([][]float64, len(a.buf)), make([][]float64, len(a.buf))
	for i := range a.buf {
		c.buf[i], c.interpolated[i] = slices.Clone(a.buf[i]), slices.Clone(a.interpolated[i])
	}
	return &c
}
