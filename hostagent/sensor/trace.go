package sensor

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// mostRuns bounds a trace's memory (48 MiB). A sensor of today makes ten runs a
// second; beyond the bound neighbours are merged.
const mostRuns = 1 << 20

// run is a row of equal readings, on the wall clock in ns.
type run struct {
	since       int64 // when the value came: the middle between the last reading of the old value and the first of this
	first, last int64
	n           uint64
	v           float64
}

// trace keeps readings as runs: a register is read far more often than it changes.
type trace struct {
	runs []run
	// steps: the values are a counter's, and must not be averaged.
	steps bool
	bound int   // mostRuns when zero
	step  int64 // the last distance of two readings, ns
}

// add keeps a reading. One that is no number is left out, and one that goes back
// in time too: the clock was set.
func (t *trace) add(at time.Time, v float64) {
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
		// Where readings are missing before this one a run ends: its readings are taken as evenly spaced.
		const least = int64(5 * time.Millisecond) // a busy machine
		step := ns - old.last
		hole := t.step > 0 && step > max(least, 5*t.step/2)
		if !hole {
			t.step = step
		}
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

// halve merges runs by twos. ΣP and N stay the same; a counter keeps every second of its
// values.
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

// span is an interval of the wall clock in ns.
type span struct{ from, to int64 }

// seconds is the span's length.
func (s span) seconds() float64 { return float64(s.to-s.from) / 1e9 }

// atNanos is the inverse of time.Time.UnixNano, in UTC.
func atNanos(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// reach is how far a window's end may lie from the nearest reading.
const reach = 250 * time.Millisecond

// ErrReadings: there are too few readings, or none near an end of the window.
var ErrReadings = errors.New("the readings do not cover the window")

// Integrate integrates watts over a window by trapezoids between the readings'
// time stamps, with the ends interpolated, as a user of the sensor would do.
// Readings must be in order of time. Where the window reaches past the first or
// the last reading, by at most a quarter of a second, that reading is held.
func Integrate(r []Point, from, to time.Time) (measure.Joule, error) {
	if len(r) < 2 || !from.Before(to) {
		return 0, fmt.Errorf("%w: %s from %v to %v: too few", ErrReadings, measure.Plural(len(r), "reading"), from, to)
	}
	if d := max(r[0].At.Sub(from), to.Sub(r[len(r)-1].At)); d > reach {
		return 0, fmt.Errorf("%w: the readings miss %v of the window", ErrReadings, d)
	}
	sum, at, v := 0.0, from, valueAt(r, from)
	first := sort.Search(len(r), func(i int) bool { return r[i].At.After(from) })
	for _, x := range r[first:] {
		if !x.At.Before(to) {
			break
		}
		sum += (v + x.Value) / 2 * x.At.Sub(at).Seconds()
		at, v = x.At, x.Value
	}
	sum += (v + valueAt(r, to)) / 2 * to.Sub(at).Seconds()
	return measure.Joule(sum), nil
}

// valueAt interpolates sorted readings at an instant and holds their ends.
func valueAt(r []Point, t time.Time) float64 {
	i := sort.Search(len(r), func(i int) bool { return r[i].At.After(t) })
	switch {
	case i == 0:
		return r[0].Value
	case i == len(r):
		return r[len(r)-1].Value
	}
	a, b := r[i-1], r[i]
	f := t.Sub(a.At).Seconds() / b.At.Sub(a.At).Seconds()
	return a.Value + f*(b.Value-a.Value)
}

// histogram counts durations in flat memory: sixteen buckets an octave, so that a quantile
// is exact to 6 %.
type histogram struct {
	n       uint64
	max     time.Duration
	buckets [64 << 4]uint64
}

// add counts a duration; a negative one, of a clock that was set, counts as zero.
func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.n++
	h.max = max(h.max, d)
	h.buckets[bucket(uint64(d))]++
}

// bucket numbers durations below 16 ns one by one, and octaves by sixteenths.
func bucket(ns uint64) int {
	if ns < 16 {
		return int(ns)
	}
	octave := bits.Len64(ns) - 5
	return octave<<4 + int(ns>>octave)
}

// middle is the duration in the middle of a bucket.
func middle(b int) float64 {
	if b < 32 {
		return float64(b)
	}
	octave := b>>4 - 1
	return math.Ldexp(float64(b&15|16)+0.5, octave)
}

// quantile is NaN for nothing, and never more than the longest.
func (h *histogram) quantile(q float64) measure.Seconds {
	if h.n == 0 {
		return measure.Seconds(math.NaN())
	}
	left := uint64(math.Ceil(q * float64(h.n)))
	for b, n := range h.buckets {
		if n >= left {
			return measure.Seconds(min(middle(b), float64(h.max)) / 1e9)
		}
		left -= n
	}
	return measure.SecondsOf(h.max)
}

// timing returns the stored form: count, median, 99th percentile and longest.
func (h *histogram) timing() store.Timing {
	longest := measure.Seconds(math.NaN())
	if h.n > 0 {
		longest = measure.SecondsOf(h.max)
	}
	return store.Timing{N: h.n, P50: h.quantile(0.5), P99: h.quantile(0.99), Max: longest}
}

// Results returns each method's energy over a span, in the order of Methods; NaN, with the
// reason in Note, where a method has no result. It is for after Run.
func (w *Watcher) Results(of gpu.Span) []store.MethodResult {
	s := span{of.Start.UnixNano(), of.End.UnixNano()}
	var out []store.MethodResult
	for _, m := range Methods() {
		a, c := w.answer(m, s)
		if c.failed > 0 {
			a.notes = append(a.notes, fmt.Sprintf("%d of %d calls failed: %v", c.failed, c.call.n, c.err))
		}
		out = append(out, store.MethodResult{
			Method: string(m), From: of.Start, To: of.End,
			Energy: a.energy, U: a.u, Mean: measure.Watt(float64(a.energy) / s.seconds()), Readings: a.n,
			Call: c.call.timing(), Alone: c.alone.timing(), Beside: c.beside.timing(),
			Note: strings.Join(a.notes, "; "),
		})
	}
	return out
}

// answer is a method's result over a span.
type answer struct {
	energy measure.Joule
	u      measure.Joule // expanded (k = 2), of a counter's updates alone; 0 for none
	n      uint64
	notes  []string
}

// silent is the answer of a method without a result, with the reason.
func silent(format string, a ...any) answer {
	return answer{energy: measure.Joule(math.NaN()), notes: []string{fmt.Sprintf(format, a...)}}
}

// answer returns a method's result over a span, and the channel whose calls it rests on.
func (w *Watcher) answer(m Method, s span) (answer, *channel) {
	switch m {
	case SMA: // ΣP times the beat: one that falls beside the work, or was missed, costs its whole share
		sum, n := w.sma.sum(s)
		if n == 0 {
			return w.sma.nothing(s), &w.sma
		}
		a := answer{energy: measure.Joule(sum * w.o.SMAEvery.Seconds()), n: n}
		if w.missed > 0 {
			a.notes = append(a.notes, fmt.Sprintf("beats missed: %d", w.missed))
		}
		return a, &w.sma
	case MTSM: // T/N·ΣP
		sum, n := w.mtsm.sum(s)
		if n == 0 {
			return w.mtsm.nothing(s), &w.mtsm
		}
		return answer{energy: measure.Joule(s.seconds() / float64(n) * sum), n: n}, &w.mtsm
	case PAPI: // the first reading after the work
		for _, r := range w.papi.runs {
			if r.last >= s.to {
				return answer{energy: measure.Joule(r.v * s.seconds()), n: 1}, &w.papi
			}
		}
		return w.papi.nothing(span{s.to, math.MaxInt64}), &w.papi
	case AverageField:
		return answerField(&w.average, s), &w.fields
	case InstantField:
		return answerField(&w.instant, s), &w.fields
	}
	switch c := &w.counter; {
	case w.o.CounterPause < 0:
		return silent("the energy counter was not read"), c
	case len(c.runs) == 0:
		return silent("the GPU has no energy counter"), c
	case m == Counter:
		return answerSlope(&c.trace, s), c
	default:
		return answerEnds(&c.trace, s), c
	}
}

// answerField integrates a field over its time stamps.
func answerField(t *trace, s span) answer {
	points := t.points()
	if len(points) == 0 {
		return t.nothing(s)
	}
	e, err := Integrate(points, atNanos(s.from), atNanos(s.to))
	if err != nil {
		return silent("%v", err)
	}
	_, n := t.sum(s)
	return answer{energy: e, n: n}
}

// answerSlope is a counter's slope times T, with its U (k = 2): by the instants of the first and
// the last change, each rectangular between two readings; by the time before and behind them,
// whose power spreads as that between the changes does, with Student's t; and by the quantum.
func answerSlope(t *trace, s span) answer {
	in := t.changes(s)
	if len(in) < 2 {
		return silent("the counter moved %d times in %v: its slope needs two", len(in), measure.Seconds(s.seconds()))
	}
	first, last := in[0], in[len(in)-1]
	length := float64(last.since-first.since) / 1e9
	p := (last.v - first.v) / length
	a := answer{energy: measure.Joule(p * s.seconds()), n: uint64(len(in))}
	instants := math.Hypot(first.late(), last.late()) / length * float64(a.energy)
	// A single interval shows no spread: up to the mean power itself, rectangular.
	spread, wider := p/math.Sqrt(3), 1.0
	if dof := float64(len(in) - 2); dof > 0 {
		spread = stat.StdDev(powersOf(in), nil)
		wider = distuv.StudentsT{Sigma: 1, Nu: dof}.Quantile(0.975) / 2
	}
	beside, update := s.seconds()-length, length/float64(len(in)-1)
	ends := wider * spread * math.Sqrt(beside*max(beside, update))
	a.u = measure.Joule(2 * math.Hypot(math.Hypot(instants, ends), t.quantum()))
	return a
}

// answerEnds is the counter after the work less the counter before it, as a caller would have
// read them: last before the span began, first after it ended. Both values are up to an update
// τ old, x rectangular from 0 to τ, at powers p₀ before the work and p₁ before its end: the mean
// square of p₁x₁ − p₀x₀ is τ²(p₀²/3 + p₁²/3 − p₀p₁/2). Each power is one of those between the
// changes around it; U (k = 2) is that of the worst, with the quantum.
func answerEnds(t *trace, s span) answer {
	before, after := -1, -1
	for i, r := range t.runs {
		if r.first <= s.from {
			before = i
		}
		if r.last >= s.to {
			after = i
			break
		}
	}
	if before < 0 || after < 0 {
		return silent("the counter was not read on both sides of the work")
	}
	a := answer{energy: measure.Joule(t.runs[after].v - t.runs[before].v), n: 2}
	if a.energy == 0 {
		a.notes = append(a.notes, "the counter did not move")
	}
	// The power up to the first change is not known: the one behind it stands for it.
	around := func(i int) []float64 {
		first := max(1, i-1)
		return powersOf(t.runs[first:min(len(t.runs), max(i, first)+2)])
	}
	all := t.changes(span{math.MinInt64, math.MaxInt64})
	if len(all) < 2 {
		return a
	}
	var apart []float64
	for i := range all[1:] {
		apart = append(apart, float64(all[i+1].since-all[i].since)/1e9)
	}
	slices.Sort(apart)
	update := stat.Quantile(0.5, stat.Empirical, apart, nil)
	worst := 0.0
	for _, p := range around(before) {
		for _, q := range around(after) {
			worst = max(worst, p*p/3+q*q/3-p*q/2)
		}
	}
	a.u = measure.Joule(2 * math.Hypot(update*math.Sqrt(worst), t.quantum()))
	return a
}

// changes are the runs of a counter whose values came within a span; when the very first came
// is not known.
func (t *trace) changes(s span) (out []run) {
	for _, r := range t.runs[min(1, len(t.runs)):] {
		if r.since >= s.from && r.since <= s.to {
			out = append(out, r)
		}
	}
	return out
}

// late is the standard uncertainty of the instant at which a value came, in seconds.
func (r run) late() float64 { return 2 * float64(r.first-r.since) / 1e9 / math.Sqrt(12) }

// powersOf are a counter's mean powers between its changes, in watts.
func powersOf(list []run) (out []float64) {
	for i := 1; i < len(list); i++ {
		out = append(out, (list[i].v-list[i-1].v)/(float64(list[i].since-list[i-1].since)/1e9))
	}
	return out
}

// quantum is the standard uncertainty in joules of a difference of two values by the counter's
// step: the greatest common divisor of its increments, in units of NVML's 1 mJ.
func (t *trace) quantum() float64 {
	var step int64
	for i := 1; i < len(t.runs); i++ {
		for b := int64(math.Round(1e3 * (t.runs[i].v - t.runs[i-1].v))); b != 0; {
			step, b = b, step%b
		}
	}
	return math.Abs(float64(step)) / 1e3 / math.Sqrt(6)
}

// nothing is the answer of a trace without a reading in a span.
func (t *trace) nothing(s span) answer {
	if len(t.runs) == 0 {
		return silent("the GPU gave no reading")
	}
	return silent("no reading fell into %v", measure.Seconds(s.seconds()))
}

// Traces returns the readings for a plot: watts, joules for the counter. It is for after Run.
func (w *Watcher) Traces() []Trace {
	all := []Trace{
		{SMA, w.sma.points()},
		{MTSM, w.mtsm.points()},
		{PAPI, w.papi.points()},
		{AverageField, w.average.points()},
		{InstantField, w.instant.points()},
		{Counter, w.counter.points()},
	}
	return slices.DeleteFunc(all, func(t Trace) bool { return len(t.Points) == 0 })
}
