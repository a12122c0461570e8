package measurement

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/store"
)

// Recover finishes the tasks that an earlier run of this host left unfinished:
// the rest of their samples is fetched, and their results are computed. A task
// whose monitor no longer has the capture ends incomplete with what was stored.
// A task whose monitor does not answer stays as it is. So does one whose capture
// still runs: somebody may be measuring right now, and where nobody is, the
// capture's lease ends it. One whose process is known to run is left to it, and of one
// whose process is known to be gone the capture is stopped. The outcome of one whose
// process is not known holds until that process stores its own. It returns the tasks that it ended, and the errors of
// the others. Captures of tasks that have ended are released where that was left
// undone.
func Recover(ctx context.Context, db Store, dial Dial) ([]store.TaskID, error) {
	done, err := recoverAll(ctx, db, dial, func(l store.Liveness) bool { return l != store.Alive })
	if ctx.Err() != nil {
		return done, err
	}
	return done, errors.Join(err, sweep(ctx, db, dial))
}

// RecoverGone is Recover of the tasks alone whose process is known to be gone, and
// releases nothing of others.
func RecoverGone(ctx context.Context, db Store, dial Dial) ([]store.TaskID, error) {
	return recoverAll(ctx, db, dial, func(l store.Liveness) bool { return l == store.Gone })
}

// measuring has the captures that this process measures now. A task of this process
// whose capture is not there was given up, as where the database failed at its end.
var measuring sync.Map

// lifeOf tells whether whoever measures a task still does.
func lifeOf(t *store.Task) store.Liveness {
	life, pid := store.Lives(t.Owner)
	if _, some := measuring.Load(t.CaptureID); life == store.Alive && pid == os.Getpid() && !some {
		return store.Gone
	}
	return life
}

func recoverAll(ctx context.Context, db Store, dial Dial, want func(store.Liveness) bool) (done []store.TaskID, err error) {
	open, err := db.Unfinished(ctx)
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	var errs []error
	for _, row := range open {
		t, err := db.Task(ctx, row.ID)
		life := lifeOf(&t)
		if err == nil && want(life) {
			err = recoverTask(ctx, db, dial, row, life)
			if now, err := db.Task(ctx, row.ID); err == nil && now.State != store.Running {
				done = append(done, row.ID)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("recover: task %d: %w", row.ID, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return done, errors.Join(errs...)
}

func recoverTask(ctx context.Context, db Store, dial Dial, t store.Row, life store.Liveness) error {
	m, closeConn, err := dial(ctx, t.Monitor)
	if err != nil {
		return err
	}
	defer closeConn()
	b, err := m.GetBench(ctx)
	if err != nil || b.CaptureID == t.CaptureID && life != store.Gone {
		return err
	}
	v, err := interruption(ctx, db, t, life)
	if err != nil {
		return err
	}
	var got arrival
	if _, got.err = m.Stop(ctx, t.CaptureID); got.err == nil {
		got.trailer, got.err = Transfer(ctx, db, m, t.ID, monitorclient.ReadOptions{CaptureID: t.CaptureID, Follow: true}, nil)
	}
	if errors.Is(got.err, monitorclient.ErrGone) {
		next, _, err := db.NextChunk(ctx, t.ID)
		if err != nil {
			return err
		}
		v.incomplete("the measurement was recovered, and the monitor no longer has capture %s: chunks from %d on are missing", t.CaptureID, next)
		return giveUp(ctx, db, t.ID, &monitorclient.Summary{}, v)
	}
	return end(ctx, db, m, t.ID, t.CaptureID, got, v)
}

// unheard is said of a task that is ended in place of its process.
const unheard = "the capture has ended, and its process, which this machine does not know, has not stored when the work ran"

// interruption says what is missing because the process that measured did not store it:
// the kernels are stored when the work has ended. A process that is not known to be gone
// may yet say so itself, and its outcome then replaces this one. What the task said of its
// being open is over when it ends.
func interruption(ctx context.Context, db Store, t store.Row, life store.Liveness) (verdict, error) {
	v := verdict{recovered: true}
	if reason := lasting(t.Reason); reason != "" {
		v.note("%s", reason)
	}
	kernels, err := db.Kernels(ctx, t.ID)
	if err != nil {
		return v, err
	}
	switch {
	case len(kernels) > 0:
	case t.Reason != "":
		v.incomplete("when the work ran was not stored")
	case life == store.Gone:
		v.incomplete("the process that measured was gone before it had stored when the work ran: it was killed, lost its power, or had nowhere to store it")
	default:
		v.incomplete(unheard)
	}
	return v, nil
}

// Retrim gives a task a window by hand, in device time, and computes its
// results anew, under each calibration that it has one of. A hand-set window has no uncertainty of its own. A window
// outside of the stored samples is refused (measure.ErrNoData, measure.ErrWindow).
func Retrim(ctx context.Context, db Store, id store.TaskID, w Window) error {
	t, err := db.Task(ctx, id)
	if err != nil {
		return fmt.Errorf("retrim: %w", err)
	}
	if t.Chunks == 0 {
		return fmt.Errorf("retrim: task %d: %w: it has no samples", id, measure.ErrNoData)
	}
	setups, err := setupsOf(ctx, db, &t)
	if err != nil {
		return fmt.Errorf("retrim: %w", err)
	}
	original, some := setups[1]
	if !some {
		original = t.Setup
	}
	r, err := integrate(ctx, db, id, &original, w, measure.Edges{})
	if err != nil {
		return fmt.Errorf("retrim: task %d: %w", id, err)
	}
	o := store.Outcome{
		State: store.Complete, Reason: "window set by hand", Markers: t.Markers, Clock: t.Clock, Result: r,
	}
	switch {
	case t.Failure != nil:
		o.State, o.Reason = store.Failed, "window set by hand; "+t.Reason
	case t.State == store.Incomplete || t.State == store.Running:
		o.State, o.Reason = store.Incomplete, "window set by hand; "+t.Reason
	}
	if t.Clock != nil {
		said, err := overSensor(ctx, db, id, t.Clock, nil, w)
		if err != nil {
			return fmt.Errorf("retrim: task %d: %w", id, err)
		}
		o.NVML, o.NVMLMethod = said.energy, said.method
	}
	if err := db.Finish(ctx, id, o); err != nil {
		return fmt.Errorf("retrim: %w", err)
	}
	if err := again(ctx, db, &t, setups); err != nil {
		return fmt.Errorf("retrim: %w", err)
	}
	return nil
}
