package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/analysis/clocksync"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sys/unix"
)

// PowerRelation is how the steps of the power were matched with the begins and ends of a trace's work.
type PowerRelation struct {
	Shift       measure.Seconds `json:"shift_s"`
	U           measure.Seconds `json:"shift_u_s"` // at k = 2
	Edges       int             `json:"edges"`
	Correlation float64         `json:"correlation"`
	Alone       bool            `json:"alone,omitempty"` // the trace does not name its clock
	// Unconfirmed: the trace was placed by this machine's clock since its start, which the power does not show.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
}

// sinceBoot moves a trace on CLOCK_BOOTTIME, the clock of rocprofv3, to the host's where all of its work then lies in
// the task's samples: it ran on this machine since the machine's last start. It returns the shift, zero where it did
// not.
func sinceBoot(ctx context.Context, db *store.DB, t *store.Task, trace *attribute.Trace) (measure.Seconds, error) {
	var at unix.Timespec
	if t.Clock == nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) != nil {
		return 0, nil
	}
	boot := time.Now().UnixNano() - at.Nano()
	from, to, err := db.Extent(ctx, t.ID)
	if err != nil {
		return 0, err
	}
	host := func(s measure.Seconds) int64 {
		h, _ := t.Clock.Host(s)
		return measurement.HostTime(*t.Clock, h).UnixNano()
	}
	if slices.ContainsFunc(trace.Kernels, func(k attribute.Profiled) bool {
		return boot+k.Start < host(from) || boot+k.End > host(to)
	}) {
		return 0, nil
	}
	trace.Move(boot)
	trace.HostClock = true
	return measure.Seconds(boot) * 1e-9, nil
}

// clockEnough is the standard uncertainty of a task's clock up to which kernels are placed by it, as all markers allow.
const clockEnough measure.Seconds = 1e-3

// fewestEdges of work must be among the power's steps, and half of all: fewer fit anything somewhere.
const fewestEdges = 4

// byPower moves a trace to the host's clock as the task has it, by the steps of the task's power: one that does not
// name its clock, and one of a task without markers, whose clock is known to a part of a second. Nil for a trace that
// needs none. boot: the trace was moved by sinceBoot, and a fit of the power must agree. A trace whose clock is known
// and does not fit is measurement.ErrAnother.
func byPower(
	ctx context.Context, db *store.DB, t *store.Task, trace *attribute.Trace, boot bool,
) (*PowerRelation, error) {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil || t.Clock == nil || t.Result == nil {
		return nil, err // Annotate refuses a task without them
	}
	_, u := t.Clock.Host((t.Result.From + t.Result.To) / 2)
	if len(tables.Names) > 0 || trace.HostClock && !boot && u <= clockEnough { // by the launches, or the clocks
		return nil, nil
	}
	slices.SortFunc(trace.Kernels, func(a, b attribute.Profiled) int { return cmp.Compare(a.Start, b.Start) })
	first := trace.Kernels[0].Start
	fit, err := fitPower(ctx, db, t, trace.Kernels)
	switch {
	case errors.Is(err, clocksync.ErrClocks) && trace.HostClock: // the clocks alone place it
		if boot {
			return &PowerRelation{Unconfirmed: true}, nil
		}
		return nil, nil
	case errors.Is(err, clocksync.ErrClocks):
		return nil, fmt.Errorf("%w: it does not name its clock, and %w", measurement.ErrAnother, err)
	case err != nil:
		return nil, err
	}
	// The meter's time in the middle of the work: there an error of its rate weighs least.
	from, to := fit.Edges[0].Meter, fit.Edges[len(fit.Edges)-1].Meter
	host, _ := t.Clock.Host((from + to) / 2)
	ns := measurement.HostTime(*t.Clock, host).UnixNano() - first - fit.Host((from+to)/2).Duration().Nanoseconds()
	out := &PowerRelation{
		Shift: measure.Seconds(ns) * 1e-9, U: fit.OffsetU, Edges: fit.Used, Correlation: fit.Correlation,
		Alone: !trace.HostClock,
	}
	if trace.HostClock && math.Abs(float64(out.Shift)) > float64(4*u+out.U) {
		return nil, fmt.Errorf("%w: its work fits the power %v away from where the clocks have it, which are known to %v",
			measurement.ErrAnother, out.Shift, 2*u)
	}
	// A wrong match of work that repeats itself reaches out of the window, in which all of it ran.
	if slack := u + out.U; from < t.Result.From-slack || to > t.Result.To+slack {
		return nil, fmt.Errorf("%w: its work fits the power from %.3f to %.3f s of the meter, and the task's ran from %.3f to "+
			"%.3f s", measurement.ErrAnother, from, to, t.Result.From, t.Result.To)
	}
	if trace.HostClock && u <= clockEnough { // the clocks are better than the power
		out.Shift = 0
		return out, nil
	}
	trace.Move(ns)
	trace.HostClock = true
	return out, nil
}

// fitPower matches the begins and ends of the kernels, in order, with the steps of the task's power. The fit's host
// time counts from the first kernel. Errors that wrap clocksync.ErrClocks: the power does not show it.
func fitPower(
	ctx context.Context, db *store.DB, t *store.Task, kernels []attribute.Profiled,
) (*clocksync.Fit, error) {
	if r := t.Setup.Response; r.Seen() < r.Update { // steps lie elsewhere than the work's
		return nil, fmt.Errorf("%w: the meter %s", clocksync.ErrClocks, r.Sees())
	}
	seconds := func(ns int64) measure.Seconds { return measure.Seconds(ns-kernels[0].Start) * 1e-9 }
	work := lists.Map(kernels, func(k attribute.Profiled) validate.Kernel {
		return validate.Kernel{Span: validate.Span{From: seconds(k.Start), To: seconds(k.End)}}
	})
	fit, err := clocksync.Find(func() iter.Seq2[validate.Sample, error] { return besideMarkers(ctx, db, t) }, work)
	if err != nil {
		return nil, err
	}
	if all := fit.Used + fit.Rejected + fit.Unseen; fit.Used < fewestEdges || 2*fit.Used < all {
		return nil, fmt.Errorf("%w: only %d of its %d edges are among the power's steps", clocksync.ErrActivity,
			fit.Used, all)
	}
	return fit, nil
}

// besideMarkers yields a task's power in device time without the markers before and behind the work.
func besideMarkers(ctx context.Context, db *store.DB, t *store.Task) iter.Seq2[validate.Sample, error] {
	from, to := measure.Seconds(math.Inf(-1)), measure.Seconds(math.Inf(1))
	start, stop := marker.Pair(t.Markers)
	if start != nil {
		from = start.End
	}
	if stop != nil {
		to = stop.Begin
	}
	return func(yield func(validate.Sample, error) bool) {
		for s, err := range report.TaskTruth(ctx, db, t, nil) {
			if (err != nil || s.At > from && s.At < to) && !yield(s, err) {
				return
			}
		}
	}
}
