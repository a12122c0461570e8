package clocksync

import (
	"fmt"
	"math"
	"slices"

	"wattmark/analysis/validate"
	"wattmark/measure"
)

const (
	// reach is the most that is looked at on either side of an edge.
	reach = 60e-3
	// share of the distance to the next edge that belongs to an edge's window.
	share = 0.45
	// minWindow is the fewest samples to either side in which an edge can be seen.
	minWindow = 5
	// maxEdges are measured: more would not make the clock any better known.
	maxEdges = 4096
	// recent is how many edges say where the next one is to be expected.
	recent = 5
	// wild is the scatter, as a share of where edges were looked for, beyond which they
	// are no edges: chance alone makes 0.58.
	wild = 0.2
	// leastSlack is how far an edge may lie from where its neighbours say.
	leastSlack = 1.5e-3
)

// window is a stretch of the trace in which an edge is looked for.
type window struct {
	host measure.Seconds
	half measure.Seconds
	end  bool
}

// windows lays a window around each edge that has room; unseen counts the others.
func windows(spans []validate.Span, interval measure.Seconds) (out []window, unseen int) {
	keep := (2*len(spans) + maxEdges - 1) / maxEdges
	for i, s := range spans {
		before, after := measure.Seconds(reach/share), measure.Seconds(reach/share)
		if i > 0 {
			before = s.From - spans[i-1].To
		}
		if i+1 < len(spans) {
			after = spans[i+1].From - s.To
		}
		if keep > 1 && i%keep != 0 && i+1 < len(spans) {
			continue
		}
		for _, w := range []window{
			{s.From, min(reach, share*min(before, s.Length())), false},
			{s.To, min(reach, share*min(after, s.Length())), true},
		} {
			if w.half < minWindow*interval {
				unseen++
				continue
			}
			out = append(out, w)
		}
	}
	return out, unseen
}

// finely measures the edges around a lag and fits the clock to them.
func finely(trace Trace, spans []validate.Span, l lag, c *coarse, o Options) (*Fit, error) {
	ws, unseen := windows(spans, c.interval)
	if len(ws) == 0 {
		return nil, fmt.Errorf("%w: no stretch of work or rest lasts ten of the meter's samples, %.2g s each", ErrActivity, float64(c.interval))
	}
	t := tracker{lag: l, ref: spans[0].From, interval: float64(c.interval), uRate: o.URate}
	if err := t.run(trace, ws); err != nil {
		return nil, err
	}
	f := &Fit{Edges: t.edges, Unseen: unseen + t.unseen, interval: c.interval}
	if err := f.solve(spans[0].From, o); err != nil {
		return nil, err
	}
	var halves []float64
	for _, w := range ws {
		halves = append(halves, float64(w.half))
	}
	if f.Used >= shaped && float64(f.Scatter) > wild*median(halves) {
		return nil, fmt.Errorf("%w: %d edges scatter by %.2g ms around any line, as far as they were looked for", ErrActivity, f.Used, 1e3*float64(f.Scatter))
	}
	return f, nil
}

// tracker follows the edges through the trace.
type tracker struct {
	lag      lag
	ref      measure.Seconds
	interval float64
	uRate    float64
	late     []float64 // of the last edges against the lag
	edges    []Edge
	unseen   int
	last     measure.Seconds // host time of the last edge
	work     float64         // W, the highest departure so far
	t, p     []float64       // samples of the present window
}

// expect returns where on the meter's clock a host time should be.
func (t *tracker) expect(host measure.Seconds) float64 {
	m := float64(host-t.lag.by) + t.lag.rate*float64(host-t.ref)
	if n := len(t.late); n > 0 {
		m += median(slices.Clone(t.late[max(0, n-recent):]))
	}
	return m
}

// slack is how far from where it is expected an edge may be, so far as is known
// from the edges before it.
func (t *tracker) slack(host measure.Seconds) float64 {
	if len(t.late) == 0 {
		return math.Inf(1)
	}
	return leastSlack + 3*t.uRate*float64(host-t.last)
}

func (t *tracker) run(trace Trace, ws []window) error {
	from := t.expect(ws[0].host) - float64(ws[0].half)
	for s, err := range trace() {
		if err != nil {
			return err
		}
		at := float64(s.At)
		for at > from+2*float64(ws[0].half) {
			t.look(ws[0])
			if ws = ws[1:]; len(ws) == 0 {
				return nil
			}
			from = t.expect(ws[0].host) - float64(ws[0].half)
		}
		if at >= from {
			t.t, t.p = append(t.t, at), append(t.p, float64(s.Power))
		}
	}
	for _, w := range ws { // what the trace ended in
		t.look(w)
	}
	return nil
}

// look measures the edge in the present window and clears it.
func (t *tracker) look(w window) {
	expected := t.expect(w.host)
	d, ok := t.departure(w.end, expected, t.slack(w.host))
	t.t, t.p = t.t[:0], t.p[:0]
	if !ok || math.Abs(d.mid-expected) > float64(w.half) {
		t.unseen++
		return
	}
	t.late = append(t.late, d.mid-float64(w.host-t.lag.by)-t.lag.rate*float64(w.host-t.ref))
	if len(t.late) > 4*recent {
		t.late = t.late[:copy(t.late, t.late[len(t.late)-recent:])]
	}
	t.last, t.work = w.host, max(t.work, d.step)
	t.edges = append(t.edges, Edge{
		Host: w.host, Meter: measure.Seconds(d.onset), U: measure.Seconds(d.u), End: w.end,
		Step: measure.Watt(d.step), Rise: measure.Seconds(d.rise),
		middle: measure.Seconds(d.mid),
	})
}

// departure finds where the power leaves rest. An end of work is one in reversed
// time: there the power comes back to rest, whatever it did on the way.
func (t *tracker) departure(end bool, expected, slack float64) (departure, bool) {
	if len(t.t) < 2*minWindow-1 {
		return departure{}, false
	}
	if end {
		slices.Reverse(t.t)
		slices.Reverse(t.p)
		for i := range t.t {
			t.t[i] = -t.t[i]
		}
	}
	if end {
		expected = -expected
	}
	d, ok := depart(t.t, t.p, t.interval, expected, slack, t.work)
	if end {
		d.onset, d.mid = -d.onset, -d.mid
	}
	return d, ok
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
