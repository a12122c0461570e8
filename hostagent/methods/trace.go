package methods

import (
	"math"
	"time"

	"wattmark/measure"
)

// mostRuns bounds a trace's memory (48 MiB). A sensor of today makes ten runs a
// second; beyond the bound neighbours are merged.
const mostRuns = 1 << 20

// run is readings in a row that said the same, on the wall clock in ns.
type run struct {
	since       int64 // when the value came, as far as the readings tell
	first, last int64
	n           uint64
	v           float64
}

// trace keeps readings as runs: a register is read far more often than it changes.
type trace struct {
	runs []run
	// steps: the values are a counter's, and must not be averaged.
	steps bool
	bound int                       // mostRuns when zero
	step  int64                     // the last distance of two readings, ns
	line  func(time.Time) time.Time // Options.Line
}

// add keeps a reading. One that is no number is left out, and one that goes back
// in time too: the clock was set.
func (t *trace) add(at time.Time, v float64) {
	if t.line != nil {
		at = t.line(at)
	}
	ns := at.UnixNano()
	if math.IsNaN(v) {
		return
	}
	r := run{since: ns, first: ns, last: ns, n: 1, v: v}
	if k := len(t.runs); k > 0 {
		old := &t.runs[k-1]
		if ns < old.last {
			return
		}
		hole := t.hole(ns, old.last)
		if old.v == v && (t.steps || !hole) {
			old.last, old.n = ns, old.n+1
			return
		}
		r.since = old.last + (ns-old.last)/2
	}
	if t.bound == 0 {
		t.bound = mostRuns
	}
	if len(t.runs) >= t.bound {
		t.halve()
	}
	t.runs = append(t.runs, r)
}

// hole reports whether readings are missing before an instant: those of a run are
// taken as evenly spaced.
func (t *trace) hole(ns, last int64) bool {
	const least = int64(5 * time.Millisecond) // a busy machine
	step := ns - last
	if t.step > 0 && step > max(least, 5*t.step/2) {
		return true
	}
	t.step = step
	return false
}

// halve merges runs by twos. Sums stay what they are; a counter keeps every
// second of its values.
func (t *trace) halve() {
	out := t.runs[:0]
	for i := 0; i+1 < len(t.runs); i += 2 {
		a, b := t.runs[i], t.runs[i+1]
		if !t.steps {
			n := a.n + b.n
			b.v = (a.v*float64(a.n) + b.v*float64(b.n)) / float64(n)
			b.since, b.first, b.n = a.since, a.first, n
		}
		out = append(out, b)
	}
	if len(t.runs)%2 == 1 {
		out = append(out, t.runs[len(t.runs)-1])
	}
	t.runs = out
}

// sum is ΣP and N of the readings within a span, ends included.
func (t *trace) sum(s span) (sum float64, n uint64) {
	for _, r := range t.runs {
		k := r.within(s)
		sum += float64(k) * r.v
		n += k
	}
	return sum, n
}

// within counts a run's readings in a span; they are taken as evenly spaced.
func (r run) within(s span) uint64 {
	switch {
	case r.last < s.from || r.first > s.to:
		return 0
	case r.first >= s.from && r.last <= s.to:
		return r.n
	}
	step := float64(r.last-r.first) / float64(r.n-1) // a single reading is in or out
	lo, hi := 0.0, float64(r.n-1)
	if r.first < s.from {
		lo = math.Ceil(float64(s.from-r.first) / step)
	}
	if r.last > s.to {
		hi = math.Floor(float64(s.to-r.first) / step)
	}
	return uint64(max(hi-lo+1, 0))
}

// points are the corners of a trace.
func (t *trace) points() []Point {
	var out []Point
	for _, r := range t.runs {
		out = append(out, Point{atNanos(r.first), r.v})
		if r.last > r.first {
			out = append(out, Point{atNanos(r.last), r.v})
		}
	}
	return out
}

// slope is a counter's growth between its first and its last change in a span,
// and the number of changes; NaN with fewer than two.
func (t *trace) slope(s span) (measure.Watt, int) {
	var first, last *run
	changes := 0
	for i := 1; i < len(t.runs); i++ { // when the first value came is not known
		r := &t.runs[i]
		if r.since < s.from || r.since > s.to {
			continue
		}
		if first == nil {
			first = r
		}
		last = r
		changes++
	}
	if changes < 2 {
		return measure.Watt(math.NaN()), changes
	}
	return measure.Watt((last.v - first.v) / (float64(last.since-first.since) / 1e9)), changes
}

// around are a counter's values as a caller would have read them: last before
// the span began, first after it ended.
func (t *trace) around(s span) (before, after float64) {
	before, after = math.NaN(), math.NaN()
	for _, r := range t.runs {
		if r.first <= s.from {
			before = r.v
		}
		if r.last >= s.to {
			return before, r.v
		}
	}
	return before, after
}

// span is an interval of the wall clock in ns.
type span struct{ from, to int64 }

func (s span) seconds() float64 { return float64(s.to-s.from) / 1e9 }

func atNanos(ns int64) time.Time { return time.Unix(0, ns).UTC() }
