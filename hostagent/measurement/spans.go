package measurement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"wattmark/hostagent"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// ErrNoClock: a task's markers did not relate the meter's clock to the host's.
var ErrNoClock = errors.New("the clocks are not related")

// Means tells the mean power that the meter saw over each of many spans of a
// task's host time, through its clock fit: NaN where scans are missing. The spans
// may be in any order. The trace is read once. Without a clock fit it is
// ErrNoClock.
func Means(ctx context.Context, db Store, id store.TaskID, spans []hostagent.Span) ([]measure.Watt, error) {
	task, err := db.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	if task.Clock == nil {
		return nil, fmt.Errorf("task %d: %w: %s", id, ErrNoClock, task.Reason)
	}
	out := make([]measure.Watt, len(spans))
	var wait []*spanned
	for n, s := range spans {
		out[n] = measure.Watt(math.NaN())
		from, _ := task.Clock.Meter(HostSeconds(*task.Clock, s.Start))
		to, _ := task.Clock.Meter(HostSeconds(*task.Clock, s.End))
		g, err := measure.NewIntegrator(&task.Setup, from, to)
		if err != nil {
			continue // an empty span
		}
		wait = append(wait, &spanned{n, from, to, g})
	}
	slices.SortFunc(wait, func(a, b *spanned) int { return cmp.Compare(a.from, b.from) })
	tb := task.Setup.Timebase
	for b, err := range chunk.DecodeAll(db.Chunks(ctx, id, 0), &task.Setup) {
		if err != nil {
			return nil, err
		}
		last := tb.Seconds(b.TickAt(tb, b.Scans()-1))
		if wait, err = feed(wait, b, last, tb, out); err != nil || len(wait) == 0 {
			return out, err
		}
	}
	for _, s := range wait {
		s.finish(out)
	}
	return out, nil
}

// spanned is one span that is being integrated.
type spanned struct {
	n        int
	from, to measure.Seconds
	g        *measure.Integrator
}

// before is how many scans ahead of a span its integrator is shown: it draws the
// line to the span's begin, and looks at the noise there.
const before = 1000

// feed gives a block, which ends at last, to the spans that it concerns, and drops
// those that are complete.
func feed(wait []*spanned, b *measure.Block, last measure.Seconds, tb measure.Timebase, out []measure.Watt) ([]*spanned, error) {
	lead := tb.Seconds(before * tb.TicksPerScan)
	left := wait[:0]
	for _, s := range wait {
		if s.from-lead > last {
			left = append(left, s)
			continue
		}
		if err := s.g.Add(b); err != nil {
			return nil, err
		}
		if last > s.to+lead {
			s.finish(out)
		} else {
			left = append(left, s)
		}
	}
	return left, nil
}

// finish notes the mean of a span that is wholly covered.
func (s *spanned) finish(out []measure.Watt) {
	if r, err := s.g.Result(measure.Edges{}); err == nil && r.Gaps == 0 {
		out[s.n] = r.Mean
	}
}
