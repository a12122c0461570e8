package sensor

import (
	"fmt"
	"math"
	"strings"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// Results returns each method's energy over a span, in the order of Methods; NaN, with the
// reason in Note, where a method has no result. It is for after Run.
func (w *Watcher) Results(of gpu.Span) []store.MethodResult {
	s := span{of.Start.UnixNano(), of.End.UnixNano()}
	var out []store.MethodResult
	for _, m := range Methods() {
		a, c := w.answer(m, s)
		out = append(out, store.MethodResult{
			Method: string(m), From: of.Start, To: of.End,
			Energy: a.energy, Mean: measure.Watt(float64(a.energy) / s.seconds()), Readings: a.n,
			Call: c.call.timing(), Alone: c.alone.timing(), Beside: c.beside.timing(),
			Note: strings.Join(append(a.notes, c.notes()...), "; "),
		})
	}
	return out
}

// answer is a method's result over a span.
type answer struct {
	energy measure.Joule
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
	case SMA:
		return w.answerSMA(s), &w.sma
	case MTSM:
		return answerMTSM(&w.mtsm.trace, s), &w.mtsm
	case PAPI:
		return answerPAPI(&w.papi.trace, s), &w.papi
	case AverageField:
		return answerField(&w.average, s), &w.fields
	case InstantField:
		return answerField(&w.instant, s), &w.fields
	}
	if w.o.CounterPause < 0 {
		return silent("the energy counter was not read"), &w.counter
	}
	if m == Counter {
		return answerCounter(&w.counter.trace, s), &w.counter
	}
	return answerEnds(&w.counter.trace, s), &w.counter
}

// answerSMA is ΣP times the beat: a beat that falls beside the work, or was
// missed, costs its whole share.
func (w *Watcher) answerSMA(s span) answer {
	sum, n := w.sma.sum(s)
	if n == 0 {
		return w.sma.nothing(s)
	}
	a := answer{energy: measure.Joule(sum * w.o.SMAEvery.Seconds()), n: n}
	if w.missed > 0 {
		a.notes = append(a.notes, fmt.Sprintf("beats missed: %d", w.missed))
	}
	return a
}

// answerMTSM is T/N·ΣP.
func answerMTSM(t *trace, s span) answer {
	sum, n := t.sum(s)
	if n == 0 {
		return t.nothing(s)
	}
	return answer{energy: measure.Joule(s.seconds() / float64(n) * sum), n: n}
}

// answerPAPI takes the first reading after the work.
func answerPAPI(t *trace, s span) answer {
	for _, r := range t.runs {
		if r.last >= s.to {
			return answer{energy: measure.Joule(r.v * s.seconds()), n: 1}
		}
	}
	return t.nothing(span{s.to, math.MaxInt64})
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

// answerCounter is the counter's slope times T.
func answerCounter(t *trace, s span) answer {
	if len(t.runs) == 0 {
		return silent("the GPU has no energy counter")
	}
	p, changes := t.slope(s)
	if changes < 2 {
		return silent("the counter moved %d times in %v: its slope needs two", changes, measure.Seconds(s.seconds()))
	}
	return answer{energy: measure.Joule(float64(p) * s.seconds()), n: uint64(changes)}
}

// answerEnds is the counter after the work less the counter before it.
func answerEnds(t *trace, s span) answer {
	if len(t.runs) == 0 {
		return silent("the GPU has no energy counter")
	}
	before, after := t.around(s)
	if math.IsNaN(before) || math.IsNaN(after) {
		return silent("the counter was not read on both sides of the work")
	}
	a := answer{energy: measure.Joule(after - before), n: 2}
	if after == before {
		a.notes = append(a.notes, "the counter did not move")
	}
	return a
}

// nothing is the answer of a trace without a reading in a span.
func (t *trace) nothing(s span) answer {
	if len(t.runs) == 0 {
		return silent("the GPU gave no reading")
	}
	return silent("no reading fell into %v", measure.Seconds(s.seconds()))
}

// notes describe failed calls.
func (c *channel) notes() []string {
	if c.failed == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d calls failed: %v", c.failed, c.call.n, c.err)}
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
	out := all[:0]
	for _, t := range all {
		if len(t.Points) > 0 {
			out = append(out, t)
		}
	}
	return out
}
