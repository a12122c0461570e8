package measurement

import (
	"context"
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/measure/calib"
	"wattmark/store"
)

// ErrNoResult: the task has no result that could be computed anew.
var ErrNoResult = errors.New("no result to recalculate")

// Recalculate computes a task's result under another calibration, from the
// stored counts and over the same window, and puts it in use; the earlier
// results stay. It returns the result's number; added is false where the task
// had one under that calibration already. A calibration of other channels is
// refused with what differs (calib.ErrMismatch).
func Recalculate(ctx context.Context, db Store, id store.TaskID, s measure.Setup) (no int, added bool, err error) {
	t, err := db.Task(ctx, id)
	if err != nil {
		return 0, false, fmt.Errorf("recalculate: %w", err)
	}
	if t.Result == nil || t.State == store.Running {
		return 0, false, fmt.Errorf("recalculate: task %d: %w: it has no window (wattmark trim sets one), or still runs", id, ErrNoResult)
	}
	if s, err = calib.Under(t.Setup, s); err != nil {
		return 0, false, fmt.Errorf("recalculate: task %d: %w", id, err)
	}
	e, err := edgesOf(ctx, db, &t)
	if err != nil {
		return 0, false, fmt.Errorf("recalculate: task %d: %w", id, err)
	}
	r, err := integrate(ctx, db, id, &s, Window{From: t.Result.From, To: t.Result.To}, e)
	if err != nil {
		return 0, false, fmt.Errorf("recalculate: task %d: %w", id, err)
	}
	no, added, err = db.AddResult(ctx, id, s, r)
	if err != nil {
		return 0, false, fmt.Errorf("recalculate: %w", err)
	}
	return no, added, nil
}

// Recompute computes all results of a task anew over the windows that they have,
// as after samples were lost from the database. State and reason stay; a task
// without a result stays without.
func Recompute(ctx context.Context, db Store, id store.TaskID) error {
	t, err := db.Task(ctx, id)
	if err != nil || t.Result == nil {
		return err
	}
	setups, err := setupsOf(ctx, db, &t)
	if err != nil {
		return fmt.Errorf("recompute: %w", err)
	}
	original, some := setups[1]
	if !some {
		original = t.Setup
	}
	e, err := edgesOf(ctx, db, &t)
	if err != nil {
		return fmt.Errorf("recompute: %w", err)
	}
	r, err := integrate(ctx, db, id, &original, Window{From: t.Result.From, To: t.Result.To}, e)
	if err != nil {
		return fmt.Errorf("recompute: task %d: %w", id, err)
	}
	o := store.Outcome{State: t.State, Reason: t.Reason, Markers: t.Markers, Clock: t.Clock, NVML: t.NVML, NVMLMethod: t.NVMLMethod, Result: r}
	if err := db.Finish(ctx, id, o); err != nil {
		return fmt.Errorf("recompute: %w", err)
	}
	if err := again(ctx, db, &t, setups); err != nil {
		return fmt.Errorf("recompute: %w", err)
	}
	return nil
}

// edgesOf returns the uncertainty of the ends of a task's window as it was when
// the window was chosen: by the clock fit, by the markers, or by hand.
func edgesOf(ctx context.Context, db Store, t *store.Task) (measure.Edges, error) {
	is := func(from, to measure.Seconds) bool {
		const same = 1e-9 // a nanosecond is lost nowhere
		return math.Abs(float64(from-t.Result.From)) < same && math.Abs(float64(to-t.Result.To)) < same
	}
	kernels, err := db.Kernels(ctx, t.ID)
	if err != nil {
		return measure.Edges{}, err
	}
	if from, to, some := span(kernels); some && t.Clock != nil {
		a, b := HostSeconds(*t.Clock, from), HostSeconds(*t.Clock, to)
		f, _ := t.Clock.Meter(a)
		g, _ := t.Clock.Meter(b)
		if is(f, g) {
			w := Window{From: f, To: g}
			return guess(t, bound(t.Markers), t.Clock, w).edges(t.Clock.Edges(a, b)), nil
		}
	}
	if m := bound(t.Markers); m.start != nil && m.stop != nil && is(m.start.End, m.stop.Begin) {
		return measure.Edges{UFrom: m.start.U, UTo: m.stop.U}, nil
	}
	return measure.Edges{}, nil
}

// again computes the results of a task whose window was changed anew: the
// original is there already, the one in use comes last.
func again(ctx context.Context, db Store, before *store.Task, setups map[int]measure.Setup) error {
	for _, r := range before.Results {
		if r.Number > 1 && !r.InUse {
			if _, _, err := Recalculate(ctx, db, before.ID, setups[r.Number]); err != nil {
				return err
			}
		}
	}
	if before.ResultNumber > 0 && len(before.Results) > 1 {
		_, _, err := Recalculate(ctx, db, before.ID, setups[before.ResultNumber])
		return err
	}
	return nil
}

// setupsOf returns the setups of a task's results by number.
func setupsOf(ctx context.Context, db Store, t *store.Task) (map[int]measure.Setup, error) {
	out := map[int]measure.Setup{}
	for _, r := range t.Results {
		x, err := db.TaskResult(ctx, t.ID, r.Number)
		if err != nil {
			return nil, err
		}
		out[r.Number] = x.Setup
	}
	return out, nil
}
