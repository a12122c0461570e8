package measurement

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
	"wattmark/store"
)

// settle is how long the calls that end a task may take in all, beside the analysis.
const settle = 2 * time.Minute

// finish concludes a task whose transfer has ended, and releases its capture.
func (s *session) finish(ctx context.Context, got arrival, v verdict) error {
	s.enter(PhaseAnalysis)
	err := end(ctx, s.cfg.DB, s.cfg.Monitor, s.id, s.capture, got, v)
	s.enter(PhaseDone)
	return err
}

// Notes of a task that is open only because of what they say. They come last of its
// reasons, and whoever recovers the task takes them off (see lasting).
const (
	notStopped      = "the capture could not be stopped: "
	transferStopped = "the transfer stopped: "
)

// lasting returns the reasons of an open task that hold once its rest has been fetched.
func lasting(reason string) string {
	for _, passing := range []string{notStopped, transferStopped} {
		reason, _, _ = strings.Cut(reason, passing)
	}
	return strings.TrimSuffix(reason, "; ")
}

// end gives a task its outcome. The capture is released only once the outcome
// is on disk, and kept where the monitor has something that this side lacks.
func end(ctx context.Context, db Store, m Monitor, id store.TaskID, capture string, got arrival, v verdict) error {
	switch {
	case got.err == nil:
	case errors.Is(got.err, monitorclient.ErrPastEnd):
		// Nothing more is to be had there.
		v.incomplete("the monitor's disk lost samples that had arrived here, and what was to follow them: %v", got.err)
		if err := giveUp(ctx, db, id, &got.trailer.Summary, v); err != nil {
			return errors.Join(got.err, err)
		}
		return errors.Join(got.err, release(ctx, m, capture))
	case errors.Is(got.err, monitorclient.ErrGone) && v.owner != "":
		return endRecovered(ctx, db, id, got, v)
	case lost(got.err):
		v.incomplete("%v", got.err)
		return errors.Join(got.err, giveUp(ctx, db, id, &got.trailer.Summary, v))
	default:
		// The monitor still has the rest: the task stays open, to be recovered.
		v.note(transferStopped+"%v; the monitor keeps the rest until this host fetches it", got.err)
		o := store.Outcome{State: store.Running, Reason: strings.Join(v.reasons, "; ")}
		return errors.Join(got.err, endOnce(ctx, db, id, o, v))
	}
	if err := settled(ctx, db, id, &got.trailer.Summary, v); err != nil {
		return err
	}
	return release(ctx, m, capture)
}

func release(ctx context.Context, m Monitor, capture string) error {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	ctx, done := step(ctx, "release")
	err := m.Release(ctx, capture)
	if errors.Is(err, monitorclient.ErrGone) {
		err = nil // by a recovery, which has had all of it
	}
	done(err)
	return err
}

// endRecovered ends a task whose capture is gone. Where a recovery had it before, which
// ended the task with all of its samples, what this process knows of the work is added.
func endRecovered(ctx context.Context, db Store, id store.TaskID, got arrival, v verdict) error {
	t, err := db.Task(ctx, id)
	switch {
	case err != nil:
		return errors.Join(got.err, err)
	case t.State == store.Running:
		v.incomplete("%v", got.err)
		return errors.Join(got.err, giveUp(ctx, db, id, &got.trailer.Summary, v))
	case t.State == store.Incomplete:
		v.incomplete("the samples were fetched by a recovery: %s", strings.TrimPrefix(t.Reason, unheard+"; "))
	}
	return giveUp(ctx, db, id, &monitorclient.Summary{Markers: t.Markers}, v)
}

// settled works out the outcome and stores it.
func settled(ctx context.Context, db Store, id store.TaskID, s *monitorclient.Summary, v verdict) (err error) {
	ctx, done := step(ctx, "analysis")
	defer func() { done(err) }()
	o, err := conclude(ctx, db, id, s, v)
	if err != nil {
		return fmt.Errorf("analysis: %w", err)
	}
	return endOnce(ctx, db, id, o, v)
}

// lost reports whether a transfer's error is final.
func lost(err error) bool {
	return errors.Is(err, monitorclient.ErrMismatch) || errors.Is(err, monitorclient.ErrDamaged) || errors.Is(err, monitorclient.ErrGone) || errors.Is(err, store.ErrConflict)
}

// giveUp ends a task whose samples cannot be completed with what there is. The
// markers, which the monitor would have told at the end, are looked for here.
func giveUp(ctx context.Context, db Store, id store.TaskID, s *monitorclient.Summary, v verdict) error {
	if len(s.Markers) == 0 {
		// Without markers the task still ends; its reasons are there already.
		s.Markers, _ = detect(ctx, db, id)
	}
	o, err := conclude(ctx, db, id, s, v)
	if err != nil {
		o = store.Outcome{State: store.Incomplete, Reason: strings.Join(v.reasons, "; ")}
	}
	return errors.Join(err, endOnce(ctx, db, id, o, v))
}

// endOnce ends a task that nobody has ended before, or a recovery in the place of the
// process that measured. Where two recoveries meet on one task, the first to end it has had
// all of it, and the other finds its capture gone: that says nothing against the task.
func endOnce(ctx context.Context, db Store, id store.TaskID, o store.Outcome, v verdict) error {
	o.Once, o.Owner, o.Recovered = true, v.owner, v.recovered
	if err := db.Finish(ctx, id, o); !errors.Is(err, store.ErrEnded) {
		return err
	}
	return nil
}

// detect looks for the task's markers in the stored chunks.
func detect(ctx context.Context, db Store, id store.TaskID) ([]marker.Found, error) {
	t, err := db.Task(ctx, id)
	if err != nil || t.Chunks == 0 {
		return nil, err
	}
	d, err := marker.NewDetector(t.Marker, &t.Setup)
	if err != nil {
		return nil, err
	}
	for b, err := range chunk.DecodeAll(db.Chunks(ctx, id, 0), &t.Setup) {
		if err != nil {
			return nil, err
		}
		if err := d.Push(b); err != nil {
			return nil, err
		}
	}
	if err := d.Finish(); err != nil {
		return nil, err
	}
	return d.Found(), nil
}
