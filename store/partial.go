package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// published is the condition that a task t is not Partial. SQL of other programs: the view
// data leaves such tasks out by their value of cold, which is partialCold.
const (
	published   = "t.state<>6"
	partialCold = 2
)

// partialTasks are the conditions that a task is Partial; the first has an index. hiddenTask
// is true of those that this program has made so: hide, adopt, BeginTask and retire set all
// three columns. In another the state alone was changed: that is damage, and nothing deletes it.
const (
	partialTasks = "state<>2 AND state=6"
	hiddenTask   = "state=6 AND cold=2 AND coalesce(owner,'')<>''"
)

// thisProcess is read once. It is never empty, and of a process that nothing is known of
// where the system does not tell enough.
var thisProcess = sync.OnceValue(func() string { return cmp.Or(Owner(), "unknown") })

// resumable reports whether a copy that stopped is continued by copying again. Versions
// before Partial left such tasks Incomplete.
func resumable(reason string) bool { return reason == importing || reason == unfinishedCopy }

// hide sets the columns of a new task's row that make it Partial, and this process's.
func hide(row map[string]any, reason string) {
	row["state"], row["reason"], row["cold"], row["owner"] = int64(Partial), reason, int64(partialCold), thisProcess()
	row["chunks"], row["scans"] = int64(0), int64(0)
}

// adopt makes a copy that was interrupted this process's.
func adopt(ctx context.Context, tx *sql.Tx, id int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE task SET state=?, cold=?, owner=? WHERE task_id=?`, Partial, partialCold, thisProcess(), id)
	return err
}

// publishTask gives a Partial task its final state. The rest is as in the row of its
// source; stored is when it came into the database. One that is published already, as by
// another copier of it, stays as it is.
func publishTask(ctx context.Context, tx *sql.Tx, id int64, source map[string]any, state, reason, stored any) error {
	cold := source["cold"]
	if cold == nil {
		cold = int64(0)
	}
	_, err := tx.ExecContext(ctx, `UPDATE task SET state=?, reason=?, cold=?, owner=?, stored_ns=? WHERE task_id=? AND state=?`,
		state, reason, cold, source["owner"], stored, id, Partial)
	return err
}

// shown returns ErrNotFound for a task that is not there, and for a Partial one that this
// handle has not begun.
func (d *DB) shown(ctx context.Context, id TaskID) error {
	var there bool
	err := d.reader.QueryRowContext(ctx, `SELECT count(*) FROM task t WHERE t.task_id=?`+d.unlessMine(id), int64(id)).Scan(&there)
	if err == nil && !there {
		err = ErrNotFound
	}
	return err
}

// unlessMine is a further condition on a task t that is read by its number.
func (d *DB) unlessMine(id TaskID) string {
	if _, mine := d.mine.Load(id); mine {
		return ""
	}
	return " AND " + published
}

// leftover is a Partial task that nobody completes any more.
type leftover struct {
	id            TaskID
	reason, owner string
	chunks        int64
	// kept: a copy that can be continued, for a day.
	kept bool
}

// How long an interrupted copy is kept for being continued, and a Partial task whose
// process is of another machine or container.
const (
	keepResumable = 24 * time.Hour
	keepUnknown   = 7 * 24 * time.Hour
)

// leftovers lists the Partial tasks of processes that are gone.
func (d *DB) leftovers(ctx context.Context) ([]leftover, error) {
	type partial struct {
		leftover
		stored sql.NullInt64
	}
	list, err := collect(ctx, d.reader, func(rows *sql.Rows, p *partial) error {
		return rows.Scan(&p.id, textTo(&p.reason), &p.owner, &p.stored, &p.chunks)
	}, `SELECT task_id, reason, owner, stored_ns, (SELECT count(*) FROM chunk c WHERE c.task_id=task.task_id) FROM task WHERE `+partialTasks+` AND `+hiddenTask+` ORDER BY task_id`)
	var out []leftover
	for _, p := range list {
		age := time.Since(fromNanos(p.stored))
		switch life, _ := Lives(p.owner); {
		case life == Alive, life == LivenessUnknown && age < keepUnknown:
			continue
		}
		p.kept = resumable(p.reason) && age < keepResumable
		out = append(out, p.leftover)
	}
	return out, err
}

// unfinished names the Partial tasks whose process is gone.
func (c *checker) unfinished(ctx context.Context) error {
	list, err := c.d.leftovers(ctx)
	for _, l := range list {
		f := Finding{Kind: Unfinished, Task: l.id, Chunk: NoChunk, Mendable: true, Remedy: "db repair deletes it, as the next import, copy, retention or start of a host does"}
		f.What = fmt.Sprintf("a program that is gone left it with %d chunks", l.chunks)
		if l.kept {
			f.Remedy = "copy again, which goes on with it; db repair deletes it, as does who writes a day after"
		}
		if l.reason != "" {
			f.What += ": " + l.reason
		}
		c.add(f)
	}
	changed, more := collect(ctx, c.d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan(id) },
		`SELECT task_id FROM task WHERE `+partialTasks+` AND NOT (`+hiddenTask+`) ORDER BY task_id`)
	for _, id := range changed {
		c.add(Finding{
			Kind: BadState, Task: id, Chunk: NoChunk,
			What:   "task.state is 6 (partial), which no program has set: those set cold=2 and an owner with it",
			Remedy: fmt.Sprintf("it is hidden, and nothing deletes it: take it from a backup, or show it again with the state that it had, as UPDATE task SET state=2 WHERE task_id=%d (2 complete, 3 incomplete, 4 untrimmed, 5 failed), and run db check", id),
		})
	}
	return errors.Join(err, more)
}

// Sweep deletes what processes that are gone left of tasks that they stored or deleted in
// parts, and returns their number. A copy that can be continued stays for a day. It
// deletes some chunks at a time, so that others can write meanwhile.
func (d *DB) Sweep(ctx context.Context) (n int, err error) {
	return d.sweep(ctx, func(l *leftover) bool { return !l.kept })
}

func (d *DB) sweep(ctx context.Context, want func(*leftover) bool) (n int, err error) {
	list, err := d.leftovers(ctx)
	if err != nil {
		return 0, wrap("look for unfinished tasks", err)
	}
	for _, l := range list {
		if !want(&l) {
			continue
		}
		if err := d.discard(ctx, l.id, l.owner); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// discard deletes a Partial task of an owner, unless another process has adopted it.
func (d *DB) discard(ctx context.Context, id TaskID, owner string) error {
	op := fmt.Sprintf("delete unfinished task %d", id)
	for more := true; more; {
		err := d.write(ctx, op, func(tx *sql.Tx) error {
			r, err := tx.ExecContext(ctx, `DELETE FROM chunk WHERE task_id=?1 AND EXISTS (SELECT 1 FROM task WHERE task_id=?1 AND `+hiddenTask+` AND owner=?2)
				AND chunk_no IN (SELECT chunk_no FROM chunk WHERE task_id=?1 ORDER BY chunk_no DESC LIMIT ?3)`, int64(id), owner, retireBatch)
			if err != nil {
				return err
			}
			n, err := r.RowsAffected()
			more = n == retireBatch
			return err
		})
		if err != nil {
			return err
		}
	}
	d.keepFolding(id, nil)
	d.mine.Delete(id)
	return d.write(ctx, op, func(tx *sql.Tx) error {
		_, err := remove(ctx, tx, "task_id=?1 AND "+hiddenTask+" AND owner=?2", int64(id), owner)
		return err
	})
}

// discardWrong deletes a copy whose samples are not its source's: to continue it would
// find the same again. It returns err.
func (d *DB) discardWrong(ctx context.Context, id TaskID, err error) error {
	if id != 0 && (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrConflict)) {
		return errors.Join(err, d.discard(context.WithoutCancel(ctx), id, thisProcess()))
	}
	return err
}
