package measurement

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// Recover finishes the tasks that an earlier process left unfinished: it fetches the rest of
// their samples and computes their results. It returns the tasks that it ended, and the
// errors of the others. By the task's situation:
//
//	monitor does not answer       stays as it is
//	its process lives             left to it
//	its process is gone           capture stopped, task ended
//	its process is unknown        left while the capture runs; then ended, until that process
//	                              stores its own outcome
//	monitor has no such capture   ended incomplete, with the samples that are stored
//
// Captures of tasks that have ended are released where that was left undone. It may run
// beside measurements and beside another Recover.
func Recover(ctx context.Context, db Store, dial Dial) ([]store.TaskID, error) {
	done, err := recoverAll(ctx, db, dial, func(l store.Liveness) bool { return l != store.Alive })
	if ctx.Err() != nil {
		return done, err
	}
	return done, errors.Join(err, sweep(ctx, db, dial))
}

// RecoverGone is Recover for the tasks whose process is known to be gone; it releases no
// capture of others.
func RecoverGone(ctx context.Context, db Store, dial Dial) ([]store.TaskID, error) {
	return recoverAll(ctx, db, dial, func(l store.Liveness) bool { return l == store.Gone })
}

// measuring holds the captures that this process measures now. A task of this process
// without an entry was given up, as where the database failed at its end.
var measuring sync.Map

// recoverAll recovers the unfinished tasks whose process is in a wanted state, one by one. It
// returns those that it ended, also those of which something failed.
func recoverAll(
	ctx context.Context, db Store, dial Dial, want func(store.Liveness) bool,
) (done []store.TaskID, err error) {
	open, err := db.Unfinished(ctx)
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	var errs []error
	for _, row := range open {
		t, err := db.Task(ctx, row.ID)
		life, pid := store.Lives(t.Owner)
		if _, some := measuring.Load(t.CaptureID); life == store.Alive && pid == os.Getpid() && !some {
			life = store.Gone
		}
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

// recoverTask fetches the rest of a task's samples and ends it. A capture that still runs is
// stopped only where its process is gone.
func recoverTask(ctx context.Context, db Store, dial Dial, t store.Row, life store.Liveness) error {
	m, closeConn, err := dial(ctx, t.Monitor)
	if err != nil {
		return err
	}
	defer closeConn()
	// A capture that runs is somebody's measurement, unless its process is known to be gone.
	b, err := m.GetBench(ctx)
	if err != nil || b.CaptureID == t.CaptureID && life != store.Gone {
		return err
	}
	v, err := interruption(ctx, db, t, life)
	if err != nil {
		return err
	}
	// Stop of a capture that has ended does nothing, and finds out whether it is still kept.
	var got arrival
	if _, got.err = m.Stop(ctx, t.CaptureID); got.err == nil {
		got.trailer, got.err = Transfer(ctx, db, m, t.ID,
			monitorclient.ReadOptions{CaptureID: t.CaptureID, Follow: true}, new(Counters))
	}
	if errors.Is(got.err, monitorclient.ErrGone) {
		next, _, err := db.NextChunk(ctx, t.ID)
		if err != nil {
			return err
		}
		v.incomplete("the measurement was recovered, and the monitor no longer has capture %s: chunks from %d on are "+
			"missing", t.CaptureID, next)
		return giveUp(ctx, db, t.ID, &session.Summary{}, v)
	}
	return end(ctx, db, m, t.ID, t.CaptureID, got, v)
}

// unheard is the reason of a task that is ended in place of a process that is not known.
const unheard = "the capture has ended, and its process, which this machine does not know, has not stored when the " +
	"work ran"

// interruption returns the reasons for which a task lacks its process's part: the kernels
// are stored when the work has ended. A process that is not known to be gone may yet store
// its outcome, which then replaces this one. Reasons for the task's being open are dropped.
func interruption(ctx context.Context, db Store, t store.Row, life store.Liveness) (verdict, error) {
	v := verdict{recovered: true}
	// Reasons that hold once the rest has been fetched stay.
	reason, _, _ := strings.Cut(t.Reason, notStopped)
	reason, _, _ = strings.Cut(reason, transferStopped)
	v.note("%s", strings.TrimSuffix(reason, "; "))
	kernels, err := db.Kernels(ctx, t.ID)
	if err != nil {
		return v, err
	}
	switch {
	case len(kernels) > 0:
	case t.Reason != "":
		v.incomplete("when the work ran was not stored")
	case life == store.Gone:
		v.incomplete("the process that measured was gone before it had stored when the work ran: it was killed, lost " +
			"its power, or had nowhere to store it")
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
	o := store.Outcome{State: store.Complete, Reason: byHand, Markers: t.Markers, Clock: t.Clock}
	switch {
	case t.Failure != nil:
		o.State, o.Reason = store.Failed, withWindow(t.Reason)
	case t.State == store.Incomplete || t.State == store.Running:
		o.State, o.Reason = store.Incomplete, withWindow(t.Reason)
	}
	if o.NVML, o.NVMLMethod, err = Sensed(ctx, db, &t, w); err == nil {
		err = rework(ctx, db, &t, w, measure.Edges{}, o)
	}
	if err != nil {
		return fmt.Errorf("retrim: task %d: %w", id, err)
	}
	return nil
}

// byHand is the first reason of a task whose window was set by hand.
const byHand = "window set by hand"

// withWindow returns the reason of a task after its window was set by hand: without the note that it has none.
func withWindow(reason string) string {
	before, rest, _ := strings.Cut(reason, noWindow)
	_, after, _ := strings.Cut(rest, setOne)
	before = strings.TrimPrefix(strings.TrimPrefix(before, byHand), "; ")
	return strings.TrimSuffix(byHand+"; "+before+strings.TrimPrefix(after, "; "), "; ")
}

// sweepTasks is how many of the newest tasks are looked at for captures that
// their monitors still keep.
const sweepTasks = 100

// sweep releases the captures of tasks that have ended, where the host died, or the line
// broke, between the outcome and the release. A capture that has more than the task stays. A
// monitor that does not answer now is asked again by the next sweep.
func sweep(ctx context.Context, db Store, dial Dial) error {
	tasks, err := db.Tasks(ctx, store.Query{Limit: sweepTasks})
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	at := map[string][]store.Row{}
	for _, t := range tasks {
		if t.State != store.Running && t.Monitor != "" && t.CaptureID != "" {
			at[t.Monitor] = append(at[t.Monitor], t)
		}
	}
	// One connection a monitor, whatever the number of its tasks.
	var errs []error
	for address, tasks := range at {
		err := sweepAt(ctx, db, dial, address, tasks)
		if err != nil && !errors.Is(err, monitorclient.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) {
			errs = append(errs, fmt.Errorf("recover: captures left on %s: %w", address, err))
		}
	}
	return errors.Join(errs...)
}

// sweepAt releases the captures of ended tasks on one monitor, but for those held until a
// task is replicated: the publisher releases that.
func sweepAt(ctx context.Context, db Store, dial Dial, address string, tasks []store.Row) error {
	m, closeConn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer closeConn()
	l, ok := m.(interface {
		Captures(ctx context.Context) ([]session.Capture, error)
	})
	if !ok {
		return nil
	}
	kept, err := l.Captures(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range kept {
		for i := range tasks {
			if tasks[i].CaptureID != c.ID || !c.State.Ended() {
				continue
			}
			t, err := db.Task(ctx, tasks[i].ID)
			if err == nil && t.Tags[store.TagHeld] == "" && stored(ctx, db, m, &tasks[i]) {
				errs = append(errs, m.Release(ctx, c.ID))
			}
		}
	}
	return errors.Join(errs...)
}

// stored reports whether a task has all of its capture's stream: a complete or untrimmed
// task was checked against the trailer before it ended, any other is checked now.
func stored(ctx context.Context, db Store, m Monitor, t *store.Row) bool {
	if t.State == store.Complete || t.State == store.Untrimmed {
		return true
	}
	in := &ingest{db: db, id: t.ID, n: new(Counters)}
	o := monitorclient.ReadOptions{CaptureID: t.CaptureID}
	if err := in.resume(ctx, &o); err != nil {
		return false
	}
	trailer, err := m.Read(ctx, o, nothingMore{})
	if err == nil {
		if err = in.tally.check(trailer); err != nil {
			_, err = in.holdsAll(ctx, m, o, trailer, err)
		}
	}
	return err == nil || errors.Is(err, monitorclient.ErrPastEnd)
}

// nothingMore is the sink of a stream that is to have no chunk.
type nothingMore struct{}

var errMore = errors.New("the monitor has more")

func (nothingMore) Header(store.Header, uint64) error { return nil }
func (nothingMore) Chunk(*chunk.Chunk) error          { return errMore }
func (nothingMore) Event(measure.Event) error         { return nil }

// Held is a monitor that keeps its captures at Release: each is noted with its task, and the
// daemon or relay of the database releases it once the task is published to a cluster.
type Held struct {
	Monitor
	DB *store.DB
}

// Release notes that the monitor keeps a capture. One that became no task is released.
func (h Held) Release(ctx context.Context, capture string) error {
	id, err := h.DB.OfCapture(ctx, h.Address(), capture)
	if errors.Is(err, store.ErrNotFound) {
		return h.Monitor.Release(ctx, capture)
	}
	if err != nil {
		return err
	}
	return h.DB.SetTags(ctx, id, map[string]string{store.TagHeld: h.Address()}, nil)
}
