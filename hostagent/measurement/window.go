package measurement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
	"wattmark/store"
)

// span is the time from the first kernel's begin to the last one's end.
func span(kernels []store.Kernel) (from, to time.Time, ok bool) {
	for i, k := range kernels {
		if i == 0 || k.Start.Before(from) {
			from = k.Start
		}
		if i == 0 || k.End.After(to) {
			to = k.End
		}
	}
	return from, to, len(kernels) > 0 && from.Before(to)
}

// pick is a window that was chosen, with what the result needs of it.
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

// timed returns those of the markers whose edges are the ones that were
// played: the plain pattern only resembles another code.
func (b bounds) timed(spec marker.Spec, found []marker.Found) []marker.Found {
	var out []marker.Found
	for _, f := range []*marker.Found{b.start, b.stop} {
		if f != nil && (!f.Fallback || spec.Code == marker.UpDown) {
			out = append(out, *f)
		}
	}
	// Markers around single kernels bound nothing, but they tell the time too.
	for i := range found {
		if f := &found[i]; f != b.start && f != b.stop && f.TagOK && !f.Fallback {
			out = append(out, *f)
		}
	}
	return out
}

// choose maps the work's interval to device time. Where the clocks cannot be
// related it takes what lies between the markers; an error when there is neither.
func choose(fit *clock.Fit, fitErr error, kernels []store.Kernel, b bounds) (*pick, error) {
	start, stop := b.start, b.stop
	from, to, some := span(kernels)
	why := fitErr
	switch {
	case start == nil && stop == nil:
		return nil, errors.New("no marker was found in the trace")
	case fit != nil && !some:
		why = errors.New("it is not known when the work ran")
	case fit != nil:
		a, b := HostSeconds(*fit, from), HostSeconds(*fit, to)
		p := &pick{edges: fit.Edges(a, b)}
		p.From, _ = fit.Meter(a)
		p.To, _ = fit.Meter(b)
		if (start == nil || p.From >= start.T) && (stop == nil || p.To <= stop.End) {
			return p, nil
		}
		why = fmt.Errorf("the clock fit puts the work at %v to %v, outside the markers", p.From, p.To)
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

// integrate computes a result from the stored chunks.
func integrate(ctx context.Context, db Store, id store.TaskID, setup *measure.Setup, w Window, e measure.Edges) (*measure.Result, error) {
	g, err := measure.NewIntegrator(setup, w.From, w.To)
	if err != nil {
		return nil, err
	}
	for b, err := range chunk.DecodeAll(db.Chunks(ctx, id, 0), setup) {
		if err != nil {
			return nil, err
		}
		if err := g.Add(b); err != nil {
			return nil, err
		}
		// Chunks behind the window add nothing.
		if _, last, ok := g.Covered(); ok && last > w.To {
			break
		}
	}
	r, err := g.Result(e)
	if err != nil {
		return nil, err
	}
	return &r, nil
}
