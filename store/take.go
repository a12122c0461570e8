package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"wattmark/measure/chunk"
)

// Arriving are the samples of a task that come by other means than its other rows.
type Arriving struct {
	// CRCs are the checksums of the task's chunks, in order of their numbers.
	CRCs []uint32
	// Chunks yields the chunks from a number on, in order, each lent until the next.
	Chunks func(ctx context.Context, from uint64) iter.Seq2[*chunk.Chunk, error]
}

// TakeTask stores a task of which from has all but the samples, as an import with
// NoSamples wrote it. A task is known as CopyTask knows it: one that is here whole is
// left as it is, and one whose taking was interrupted is finished. Until all chunks
// are here, read back and found to be those of CRCs, the task is Partial. Errors wrap
// ErrConflict or ErrCorrupt where the samples are not what they should be: nothing of the
// task stays then.
func (d *DB) TakeTask(ctx context.Context, from *DB, id TaskID, a Arriving) (CopiedTask, error) {
	op := fmt.Sprintf("take task %d", id)
	if d.writer == nil {
		return CopiedTask{}, fmt.Errorf("%s: %w", op, ErrReadOnly)
	}
	c := copier{from: from, to: d, id: int64(id), told: func(uint64) {}}
	c.done.From = id
	err := c.take(ctx, a)
	return c.done, wrap(op, err)
}

func (c *copier) take(ctx context.Context, a Arriving) error {
	login, err := c.look(ctx)
	if err != nil {
		return err
	}
	err = c.unlessKnown(
		ctx,
		func(ctx context.Context) error { return c.begin(ctx, login) },
		func(ctx context.Context) error { return c.takeSamples(ctx, a) },
		func(ctx context.Context) error { return c.checksums(ctx, a.CRCs) },
		c.concludeTaken,
	)
	c.done.To = TaskID(c.new)
	return c.to.discardWrong(ctx, c.done.To, err)
}

// takenBytes is about how much one transaction takes: enough that the wait for the
// disk does not count.
const takenBytes = 8 << 20

// takeSamples stores the chunks behind those that are here.
func (c *copier) takeSamples(ctx context.Context, a Arriving) error {
	id := TaskID(c.new)
	from, _, err := c.to.NextChunk(ctx, id)
	if err != nil {
		return err
	}
	var batch []*chunk.Chunk
	size := 0
	for x, err := range a.Chunks(ctx, from) {
		if err != nil {
			return err
		}
		batch = append(batch, x.Clone())
		if size += chunk.PayloadSize(x); size < takenBytes {
			continue
		}
		if err := c.to.AppendChunks(ctx, id, batch, nil); err != nil {
			return err
		}
		batch, size = batch[:0], 0
	}
	if len(batch) == 0 {
		return nil
	}
	return c.to.AppendChunks(ctx, id, batch, nil)
}

// concludeTaken gives the task the state that it has at its source. A pyramid that
// cannot be made now is made from the chunks when it is wanted.
func (c *copier) concludeTaken(ctx context.Context) error {
	err := c.to.write(ctx, "end the taking", func(tx *sql.Tx) error {
		if err := mustExist(tx.ExecContext(ctx, `UPDATE task SET chunks=?, scans=? WHERE task_id=?`, int64(c.done.Chunks), int64(c.done.Scans), c.new)); err != nil {
			return err
		}
		c.task["cold"] = int64(0) // the chunks came unpacked
		return publishTask(ctx, tx, c.new, c.task, c.task["state"], c.task["reason"], nanos(time.Now()))
	})
	if err == nil {
		_ = c.to.finishPyramid(ctx, TaskID(c.new))
		c.to.emptyLog(ctx)
	}
	return err
}

// TagHeld says which monitor keeps a task's capture until the task is replicated.
const TagHeld = "held"

// Untagged returns the tasks that have ended and do not bear a tag, oldest number
// first, at most so many.
func (d *DB) Untagged(ctx context.Context, key string, most int) ([]TaskID, error) {
	ids, err := collect(ctx, d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan((*int64)(id)) },
		`SELECT t.task_id FROM task t WHERE t.state<>? AND `+published+` AND NOT EXISTS (SELECT 1 FROM task_tag g WHERE g.task_id=t.task_id AND g.key=?)
		ORDER BY t.task_id LIMIT ?`, Running, key, most)
	return ids, wrap("list tasks without tag "+key, err)
}

// Tagged returns the tasks that bear a tag, with its value.
func (d *DB) Tagged(ctx context.Context, key string) (map[TaskID]string, error) {
	type tagged struct {
		id    int64
		value string
	}
	list, err := collect(ctx, d.reader, func(rows *sql.Rows, t *tagged) error { return rows.Scan(&t.id, &t.value) },
		`SELECT g.task_id, g.value FROM task_tag g JOIN task t ON t.task_id=g.task_id WHERE g.key=? AND `+published, key)
	out := map[TaskID]string{}
	for _, t := range list {
		out[TaskID(t.id)] = t.value
	}
	return out, wrap("list tasks with tag "+key, err)
}

// OfCapture returns the task of a monitor's capture; ErrNotFound where there is none.
func (d *DB) OfCapture(ctx context.Context, monitor, capture string) (id TaskID, err error) {
	err = d.reader.QueryRowContext(ctx, `SELECT task_id FROM task t WHERE capture_id=? AND monitor=? AND `+published+` ORDER BY task_id DESC LIMIT 1`, capture, monitor).Scan((*int64)(&id))
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return id, wrap("find the task of capture "+capture, err)
}

// OfBenchCapture returns the tasks of a capture of a bench, by whatever address its monitor
// was known.
func (d *DB) OfBenchCapture(ctx context.Context, bench, capture string) (out []Task, err error) {
	ids, err := collect(ctx, d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan((*int64)(id)) },
		`SELECT task_id FROM task WHERE capture_id=? ORDER BY task_id`, capture)
	if err != nil {
		return nil, wrap("find the tasks of capture "+capture, err)
	}
	for _, id := range ids {
		t, err := d.Task(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue // it was deleted meanwhile
		} else if err != nil {
			return nil, err
		}
		if t.Bench == bench {
			out = append(out, t)
		}
	}
	return out, nil
}

// Identity is what a task is known by wherever it is stored.
type Identity struct {
	Monitor, CaptureID string
	Launched           time.Time
	GPUUUID            string
	User, Name         string
}

// Whole returns the task of an identity, and whether it is here with all that belongs
// to it. ErrNotFound where there is none.
func (d *DB) Whole(ctx context.Context, i Identity) (id TaskID, whole bool, err error) {
	c := copier{to: d, task: copiedRow{
		"capture_id": i.CaptureID, "monitor": i.Monitor, "gpu_uuid": i.GPUUUID, "name": i.Name, "launched_ns": nanos(i.Launched),
	}}
	if err = c.find(ctx, d.reader, i.User); err == nil && c.new == 0 {
		err = ErrNotFound
	}
	return TaskID(c.new), c.done.Known, wrap("look for a task", err)
}
