package measurement

import (
	"context"
	"errors"
	"fmt"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// sweepTasks is how many of the newest tasks are looked at for captures that
// their monitors still keep.
const sweepTasks = 100

// sweep releases the captures of tasks that have ended, where the host died, or
// the line broke, between the outcome and the release: nobody else would. A
// capture that the monitor has more of than this side stays.
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
	var errs []error
	for address, tasks := range at {
		if err := sweepAt(ctx, db, dial, address, tasks); err != nil && !away(err) {
			errs = append(errs, fmt.Errorf("recover: captures left on %s: %w", address, err))
		}
	}
	return errors.Join(errs...)
}

// away tells of a monitor that does not answer now; it is asked again next time.
func away(err error) bool {
	return errors.Is(err, monitorclient.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
}

func sweepAt(ctx context.Context, db Store, dial Dial, address string, tasks []store.Row) error {
	m, closeConn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer closeConn()
	l, ok := m.(interface {
		Captures(ctx context.Context) ([]monitorclient.Capture, error)
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
			if tasks[i].CaptureID == c.ID && c.State.Ended() && !held(ctx, db, tasks[i].ID) && stored(ctx, db, m, &tasks[i]) {
				errs = append(errs, m.Release(ctx, c.ID))
			}
		}
	}
	return errors.Join(errs...)
}

// held tells whether a task's capture is kept until the task is replicated: who publishes
// it releases the capture.
func held(ctx context.Context, db Store, id store.TaskID) bool {
	t, err := db.Task(ctx, id)
	return err != nil || t.Tags[store.TagHeld] != ""
}

// stored tells whether a task has all that its capture's stream has: a task that
// is complete or untrimmed was held against the trailer before it ended, any other is now.
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
	return err == nil && in.tally.check(trailer) == nil || errors.Is(err, monitorclient.ErrPastEnd)
}

// nothingMore is the sink of a stream that is to have no chunk.
type nothingMore struct{}

var errMore = errors.New("the monitor has more")

func (nothingMore) Header(store.Header, uint64) error { return nil }
func (nothingMore) Chunk(*chunk.Chunk) error          { return errMore }
func (nothingMore) Event(measure.Event) error         { return nil }
