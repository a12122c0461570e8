package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// RetainOptions say what is kept.
type RetainOptions struct {
	// Before: tasks that came into this database earlier go; zero for none of these. When
	// they were launched does not count: a recording may be old when it is imported.
	Before time.Time
	// KeepBytes is how much the tasks may take; when it is more, the oldest go. 0 for
	// no bound.
	KeepBytes int64
}

// Retired is a task that retention takes.
type Retired struct {
	Task       TaskID
	Name, User string
	Launched   time.Time
	Stored     time.Time // when it came into this database; zero where that is not known
	Bytes      int64     // about what it takes in the file
	Aged       bool      // for its age; else for the room
}

// Retention is what retention takes, and what stays.
type Retention struct {
	Tasks []Retired // first stored first
	// Used are the bytes that are in use now, Free those that these tasks give back;
	// the file keeps its size, and what comes next uses the room.
	Used, Free int64
	// Kept are the tasks that were passed over because they are pinned or run.
	Kept int
}

// taskBytes is about what a task takes: its samples to the byte, the rest by the
// row. SQLite finds a blob's length without reading it.
const taskBytes = `(SELECT coalesce(sum(length(dir)+length(data)+40),0) FROM chunk_column c WHERE c.task_id=t.task_id)
	+(SELECT coalesce(sum(length(data)+24),0) FROM chunk_cold c WHERE c.task_id=t.task_id)
	+(SELECT coalesce(sum(length(data)+24),0) FROM pyramid p WHERE p.task_id=t.task_id)
	+(SELECT 40*count(*) FROM reading r WHERE r.task_id=t.task_id)+(SELECT 70*count(*) FROM launch l WHERE l.task_id=t.task_id)+4096`

// Retention works out what Retain would delete: what was stored too long ago, and then what
// was stored first until the rest fits. Pinned tasks and those that run stay.
func (d *DB) Retention(ctx context.Context, o RetainOptions) (*Retention, error) {
	const op = "retention"
	tx, err := d.reader.BeginTx(ctx, nil)
	if err != nil {
		return nil, wrap(op, err)
	}
	defer tx.Rollback() // it only read
	var out Retention
	var page, pages, free int64
	for pragma, to := range map[string]*int64{"page_size": &page, "page_count": &pages, "freelist_count": &free} {
		if err := tx.QueryRowContext(ctx, "PRAGMA main."+pragma).Scan(to); err != nil {
			return nil, wrap(op, err)
		}
	}
	out.Used = page * (pages - free)
	rows, err := tx.QueryContext(ctx, `SELECT task_id, name, login, launched_ns, stored_ns, pinned OR state=1,
		CASE WHEN pinned OR state=1 THEN 0 ELSE `+taskBytes+` END FROM task t JOIN user USING(user_id) WHERE `+published+` ORDER BY stored_ns, task_id`)
	if err != nil {
		return nil, wrap(op, err)
	}
	defer rows.Close()
	for rows.Next() {
		var r Retired
		var launched, stored sql.NullInt64
		var stays bool
		if err := rows.Scan(&r.Task, textTo(&r.Name), textTo(&r.User), &launched, &stored, &stays, &r.Bytes); err != nil {
			return nil, wrap(op, err)
		}
		r.Launched, r.Stored = fromNanos(launched), fromNanos(stored)
		r.Aged = stored.Valid && !o.Before.IsZero() && r.Stored.Before(o.Before)
		crowded := o.KeepBytes > 0 && out.Used-out.Free > o.KeepBytes
		switch {
		case !r.Aged && !crowded && stored.Valid:
			return &out, wrap(op, rows.Err()) // those behind are newer
		case !r.Aged && !crowded:
			// its age is not known
		case stays:
			out.Kept++
		default:
			out.Free += r.Bytes
			out.Tasks = append(out.Tasks, r)
		}
	}
	return &out, wrap(op, rows.Err())
}

// Retain deletes what Retention finds, a task at a time, and returns it. A task that
// was pinned meanwhile stays.
func (d *DB) Retain(ctx context.Context, o RetainOptions) (*Retention, error) {
	if _, err := d.Sweep(ctx); err != nil {
		return nil, err
	}
	plan, err := d.Retention(ctx, o)
	if err != nil {
		return nil, err
	}
	done := *plan
	done.Tasks, done.Free = nil, 0
	for _, r := range plan.Tasks {
		gone, err := d.retire(ctx, r.Task)
		if err != nil {
			return &done, err
		}
		if !gone {
			done.Kept++
			continue
		}
		done.Tasks, done.Free = append(done.Tasks, r), done.Free+r.Bytes
	}
	return &done, nil
}

// retireBatch is how many chunks are deleted at a time: whoever stores samples
// meanwhile waits for no more.
const retireBatch = 64

// retire deletes a task unless it is pinned or runs: it is Partial from the first of the
// transactions on that this takes. Sweep goes on with one that is interrupted.
func (d *DB) retire(ctx context.Context, id TaskID) (gone bool, err error) {
	err = d.write(ctx, fmt.Sprintf("delete task %d for its age", id), func(tx *sql.Tx) error {
		return mustExist(tx.ExecContext(ctx, `UPDATE task SET state=?, cold=?, owner=?, reason='it is being deleted for its age'
			WHERE task_id=? AND pinned=0 AND state NOT IN (1,6)`, Partial, partialCold, thisProcess(), int64(id)))
	})
	if errors.Is(err, ErrNotFound) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, d.discard(ctx, id, thisProcess())
}

// Cold returns the tasks that have ended, came into this database before a moment, and are
// not packed yet.
func (d *DB) Cold(ctx context.Context, before time.Time) ([]TaskID, error) {
	out, err := collect(ctx, d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan(id) },
		`SELECT task_id FROM task WHERE stored_ns<? AND state NOT IN (1,6) AND cold=0 ORDER BY task_id DESC`, before.UnixNano())
	return out, wrap("list cold tasks", err)
}
