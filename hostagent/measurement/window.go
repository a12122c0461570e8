package measurement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// span is the time from the first kernel's begin to the last one's end.
func span(kernels []store.Kernel) (from, to time.Time, ok bool) {
	if len(kernels) == 0 {
		return from, to, false
	}
	from, to = kernels[0].Start, kernels[0].End
	for _, k := range kernels[1:] {
		from, to = lists.Earliest(from, k.Start), lists.Latest(to, k.End)
	}
	return from, to, from.Before(to)
}

// pick is a chosen window, with the uncertainty of its ends.
type pick struct {
	Window
	edges measure.Edges
	note  string // why it is not the work's own interval
}

// bounds are the markers that bound a task.
type bounds struct{ start, stop *marker.Found }

// bound picks the markers that the monitor trims by.
func bound(found []marker.Found) (b bounds) {
	b.start, b.stop = marker.Pair(found)
	return b
}

// timed returns the markers whose edges are known to be the ones played: a plain pattern
// (Fallback) only resembles another code.
func (b bounds) timed(spec marker.Spec, found []marker.Found) []marker.Found {
	var out []marker.Found
	for _, f := range []*marker.Found{b.start, b.stop} {
		if f != nil && (!f.Fallback || spec.Code == marker.UpDown) {
			out = append(out, *f)
		}
	}
	// Markers around single kernels bound nothing, but relate the clocks too.
	for i := range found {
		if f := &found[i]; f != b.start && f != b.stop && f.TagOK && !f.Fallback {
			out = append(out, *f)
		}
	}
	return out
}

// grossly is how much longer work must have taken than there is between its markers for no meter's
// clock to be off that far.
const grossly = 1.05

// choose maps the work's interval to device time through the clock fit. Without a fit, or
// where that interval leaves the markers, it takes the time between the markers, with a
// note; it is an error where the window cannot be had either way, or where the work took longer
// than there is between the markers: then they are another run's, whose tag was the same by chance.
// estimated: a gap between the markers has an estimated length, so that they may be closer together than the work is
// long.
func choose(fit *clock.Fit, fitErr error, kernels []store.Kernel, b bounds, estimated bool) (*pick, error) {
	start, stop := b.start, b.stop
	from, to, some := span(kernels)
	why := fitErr
	switch {
	case start == nil && stop == nil && fit == nil:
		return nil, errors.New("no marker was found in the trace")
	case fit != nil && !some:
		why = errors.New("it is not known when the work ran")
	case fit != nil:
		// The fit may be wrong, as where the host's clock was set: the work must lie between
		// the markers that bound it.
		p := &pick{}
		p.Window, p.edges = Carry(fit, gpu.Span{Start: from, End: to})
		if (start == nil || p.From >= start.T) && (stop == nil || p.To <= stop.End) {
			return p, nil
		}
		why = fmt.Errorf("the clock fit puts the work at %v to %v, outside the markers", p.From, p.To)
		if start != nil && stop != nil {
			took, between := measure.Seconds(to.Sub(from).Seconds()), stop.End-start.T
			if took > grossly*between && !estimated {
				return nil, fmt.Errorf("the work took %v, and the markers found are %v apart: they are another run's, "+
					"or the host's clock was set", took, between)
			}
		}
	}
	if start == nil || stop == nil || start.End >= stop.Begin {
		return nil, why
	}
	return &pick{
		Window: Window{From: start.End, To: stop.Begin},
		edges:  measure.Edges{UFrom: start.U, UTo: stop.U},
		note:   fmt.Sprintf("the window is what lies between the markers, guards included: %v", why),
	}, nil
}

// eachBlock hands the blocks of a task's stored chunks to f, in order of time, until f has had
// enough of them. Those of deleted samples are among them (measure.Block.Thinned).
func eachBlock(ctx context.Context, db Store, t *store.Task, f func(*measure.Block) (enough bool, err error)) error {
	for b, err := range chunk.DecodeAllSums(db.Chunks(ctx, t.ID, 0), &t.Setup) {
		enough := false
		if err == nil {
			enough, err = f(b)
		}
		if err != nil || enough {
			return err
		}
	}
	return nil
}

// Integrate computes the result of a window from a task's stored chunks, by its setup; e are the
// uncertainties of the window's ends. The card rests outside of the markers that bound the
// task, if it has them.
func Integrate(ctx context.Context, db Store, t *store.Task, w Window, e measure.Edges) (*measure.Result, error) {
	g, err := measure.NewIntegrator(&t.Setup, w.From, w.To)
	if err != nil {
		return nil, err
	}
	marker.Inform(g, t.Marker, t.Markers)
	err = eachBlock(ctx, db, t, func(b *measure.Block) (bool, error) {
		err := g.Add(b)
		return g.Done(), err
	})
	if err != nil {
		return nil, err
	}
	r, err := g.Result(e)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// guessed is the effect of gaps of an estimated length: while a meter was away, the scans
// lost were counted by the clock. The markers' line then runs over a jump of the device's
// time, and the fit's apparent rate error is the error of the estimate: the energy within
// the gaps is off by that much of its time.
type guessed struct {
	error measure.Seconds // of the gaps' length together, positive where they were taken for too long
	inside, before,
	behind bool // where such gaps lie, of the window
}

// guess looks at a task's gaps between its markers.
func guess(t *store.Task, b bounds, f *clock.Fit, w Window) (g guessed) {
	if f == nil || b.start == nil || b.stop == nil {
		return g
	}
	tb := t.Setup.Timebase
	for _, e := range t.Events {
		at := tb.Seconds(float64(e.FirstScan) * tb.TicksPerScan)
		switch {
		case e.Kind != measure.EventGap || e.Exact || at < b.start.T || at > b.stop.End:
		case at < w.From:
			g.before = true
		case at < w.To:
			g.inside = true
		default:
			g.behind = true
		}
	}
	if g.any() {
		g.error = measure.Seconds(f.B-1) * (b.stop.T - b.start.T)
	}
	return g
}

func (g guessed) any() bool { return g.inside || g.before || g.behind }

// edges adds the uncertainty of the gaps' length to the edges' own.
func (g guessed) edges(e measure.Edges) measure.Edges {
	u := math.Abs(float64(g.error))
	if g.inside {
		e.Gaps = measure.Seconds(u)
	}
	if g.before {
		e.UFrom = measure.Seconds(math.Hypot(float64(e.UFrom), u))
	}
	if g.behind {
		e.UTo = measure.Seconds(math.Hypot(float64(e.UTo), u))
	}
	return e
}

// note words the error of the gaps' length for a task's reason.
func (g guessed) note() string {
	than := "longer"
	if g.error < 0 {
		than = "shorter"
	}
	return fmt.Sprintf("what was lost was counted by the clock, and taken for %.3g ms %s than the markers say: the "+
		"budget holds it", 1e3*math.Abs(float64(g.error)), than)
}

// ErrNoClock: a task's markers did not relate the meter's clock to the host's.
var ErrNoClock = errors.New("the clocks are not related")

// Means returns the mean power in watts that the meter saw over each of the spans of a task's
// host time, through its clock fit: NaN where scans are missing. The spans may be in any
// order; the stored trace is read once. It is ErrNoClock for a task without a clock fit.
func Means(ctx context.Context, db Store, id store.TaskID, spans []gpu.Span) ([]measure.Watt, error) {
	task, err := db.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	if task.Clock == nil {
		return nil, fmt.Errorf("task %d: %w: %s", id, ErrNoClock, task.Reason)
	}
	// The integrators want the windows in the order of their ends, and none that is empty.
	out, all, order := make([]measure.Watt, len(spans)), make([]Window, len(spans)), []int{}
	for n, s := range spans {
		out[n] = measure.Watt(math.NaN())
		if all[n], _ = Carry(task.Clock, s); all[n].From < all[n].To {
			order = append(order, n)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(all[a].To, all[b].To) })
	windows := lists.Map(order, func(n int) Window { return all[n] })
	ws, err := measure.NewWindows(&task.Setup, windows)
	if err != nil {
		return nil, err
	}
	if err := ws.AddAll(chunk.DecodeAllSums(db.Chunks(ctx, id, 0), &task.Setup)); err != nil {
		return nil, err
	}
	for i, g := range ws.Integrators() {
		if r, err := g.Result(measure.Edges{}); err == nil && r.Gaps == 0 {
			out[order[i]] = r.Mean
		}
	}
	return out, nil
}
