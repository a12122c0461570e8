package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store/internal/data"
)

// DeleteOptions bound a deletion.
type DeleteOptions struct {
	// Pinned tasks go too; without it they stay.
	Pinned bool
}

// Deleted is the outcome of a deletion.
type Deleted struct {
	Tasks  uint64   // that are gone
	Pinned []TaskID // that stay
}

// DeleteTask deletes one task with all that belongs to it. The file keeps its
// size; new tasks use the room. Errors wrap ErrPinned or ErrNotFound.
func (d *DB) DeleteTask(ctx context.Context, id TaskID) error {
	return d.DeleteTasks(ctx, []TaskID{id}, DeleteOptions{})
}

// DeleteTasks deletes all of the tasks in one transaction, or none of them: one that is
// not there is ErrNotFound, one that is pinned ErrPinned, and the error names them.
func (d *DB) DeleteTasks(ctx context.Context, ids []TaskID, o DeleteOptions) error {
	op := "delete " + taskList(ids)
	const listed = `task_id IN (SELECT value FROM json_each(?))`
	return d.write(ctx, op, func(s *session) {
		text := s.json(ids)
		there, pinned := chosen(s, listed, text)
		missing := slices.DeleteFunc(slices.Clone(ids), func(id TaskID) bool { return slices.Contains(there, id) })
		refuse := func(which []TaskID, why error) {
			if len(which) > 0 && len(ids) > 1 {
				s.fail(fmt.Errorf("%s: %w, and nothing was deleted", taskList(which), why))
			} else if len(which) > 0 {
				s.fail(why)
			}
		}
		if refuse(missing, ErrNotFound); !o.Pinned {
			refuse(pinned, ErrPinned)
		}
		remove(s, listed, text)
	})
}

// taskList names tasks by number.
func taskList(ids []TaskID) string {
	words := lists.Map(ids, func(id TaskID) string { return fmt.Sprint(id) })
	if len(ids) == 1 {
		return "task " + words[0]
	}
	return "tasks " + strings.Join(words, ", ")
}

// DeleteByName deletes all tasks of exactly this name, but for pinned ones.
func (d *DB) DeleteByName(ctx context.Context, name string, o DeleteOptions) (Deleted, error) {
	return d.deleteAll(ctx, "delete tasks named "+name, "state<>6 AND name=?", name, o)
}

// DeleteByUser deletes all tasks of this user, but for pinned ones.
func (d *DB) DeleteByUser(ctx context.Context, user string, o DeleteOptions) (Deleted, error) {
	return d.deleteAll(ctx, "delete tasks of "+user,
		"state<>6 AND user_id=(SELECT user_id FROM \"user\" WHERE login=?)", user, o)
}

// deleteAll deletes the tasks that the condition selects, but for pinned ones, all in one transaction.
func (d *DB) deleteAll(ctx context.Context, op, where string, arg any, o DeleteOptions) (out Deleted, err error) {
	err = d.write(ctx, op, func(s *session) {
		out = Deleted{}
		if o.Pinned {
			out.Tasks = remove(s, where, arg)
			return
		}
		_, out.Pinned = chosen(s, where, arg)
		out.Tasks = remove(s, where+" AND pinned=0", arg)
	})
	return out, err
}

// chosen returns the tasks that the condition selects, and those of them that are pinned.
func chosen(s *session, where string, args ...any) (all, pinned []TaskID) {
	// #nosec G202 -- where is a condition of this package
	for rows := range s.rows("SELECT task_id, pinned FROM task WHERE "+where+" ORDER BY task_id", args...) {
		var id TaskID
		var pin bool
		s.fail(rows.Scan(&id, &pin))
		if all = append(all, id); pin {
			pinned = append(pinned, id)
		}
	}
	return all, pinned
}

// remove deletes the tasks that the condition selects, and users without tasks. Calibrations
// stay: they are records of the bench.
func remove(s *session, where string, args ...any) uint64 {
	// The members of their groups record that the task was deleted: the foreign key would set task_id to NULL
	// on its own, and the reason must name the task before that.
	selected := `task_id IN (SELECT task_id FROM task WHERE ` + where + `)`
	groups := values[GroupID](s, `SELECT DISTINCT group_id FROM group_member WHERE `+selected, args...)
	if len(groups) > 0 {
		// #nosec G202 -- selected is a condition of this package
		s.exec(`UPDATE group_member SET reason='task ' || task_id || ' was deleted' WHERE `+selected, args...)
	}
	n := s.exec("DELETE FROM task WHERE "+where, args...) // #nosec G202 -- as above
	if n > 0 {
		dropEmpty(s, groups)
		s.exec(`DELETE FROM "user" AS u WHERE NOT EXISTS (SELECT 1 FROM task WHERE task.user_id=u.user_id)`)
	}
	return uint64(n)
}

// RetainOptions bound age and size of the kept tasks.
type RetainOptions struct {
	// Before: tasks that came into this database earlier go; zero for none of these. When
	// they were launched does not count: a recording may be old when it is imported.
	Before time.Time
	// KeepBytes is how much the tasks may take; when it is more, the oldest go. 0 for no bound.
	KeepBytes int64
}

// Retired is a task that retention takes.
type Retired struct {
	Task     TaskID    `json:"task_id"`
	Name     string    `json:"name"`
	User     string    `json:"user"`
	Launched time.Time `json:"launched,omitzero"`
	Stored   time.Time `json:"stored,omitzero"` // when it came into this database; zero where that is not known
	Bytes    int64     `json:"bytes"`           // estimate of its size in the file
	Aged     bool      `json:"-"`               // for its age; else for the room
}

// Retention lists the tasks that retention takes.
type Retention struct {
	Tasks []Retired // first stored first
	// Used are the bytes that are in use now, Free those that these tasks give back;
	// the file keeps its size, and new tasks use the room.
	Used, Free int64
	// Kept are the tasks that were passed over because they are pinned or run.
	Kept int
}

// taskBytes estimates the size of a task: its samples to the byte, other rows by their number.
// SQLite finds a blob's length without reading it.
const taskBytes = `(SELECT coalesce(sum(length(dir)+length(data)+40),0) FROM chunk_column c WHERE c.task_id=t.task_id)
	+(SELECT coalesce(sum(length(data)+24),0) FROM chunk_cold c WHERE c.task_id=t.task_id)
	+(SELECT coalesce(sum(length(data)+24),0) FROM pyramid p WHERE p.task_id=t.task_id)
	+(SELECT 40*count(*) FROM reading r WHERE r.task_id=t.task_id)+(SELECT 70*count(*) FROM launch l
		WHERE l.task_id=t.task_id)+4096`

// Retention lists the tasks that Retain would delete: first those stored before o.Before, then
// the first stored until the rest fits into o.KeepBytes. Pinned and running tasks stay.
func (d *DB) Retention(ctx context.Context, o RetainOptions) (*Retention, error) {
	var out Retention
	err := d.view(ctx, "retention", func(s *session) {
		out.Used = one[int64](s, "PRAGMA main.page_size") *
			(one[int64](s, "PRAGMA main.page_count") - one[int64](s, "PRAGMA main.freelist_count"))
		for rows := range s.rows(`SELECT task_id, name, login, launched_ns, stored_ns, pinned OR state=1,
			CASE WHEN pinned OR state=1 THEN 0 ELSE ` + taskBytes + ` END FROM task t JOIN "user" USING(user_id)
			WHERE ` + published + ` ORDER BY stored_ns, task_id`) {
			var r Retired
			var stays bool
			s.fail(rows.Scan(&r.Task, (*text)(&r.Name), (*text)(&r.User), (*moment)(&r.Launched),
				(*moment)(&r.Stored), &stays,
				&r.Bytes))
			known := !r.Stored.IsZero()
			r.Aged = known && !o.Before.IsZero() && r.Stored.Before(o.Before)
			crowded := o.KeepBytes > 0 && out.Used-out.Free > o.KeepBytes
			switch {
			case !r.Aged && !crowded && known:
				return // those behind are newer
			case !r.Aged && !crowded:
				// its age is not known
			case stays:
				out.Kept++
			default:
				out.Tasks, out.Free = append(out.Tasks, r), out.Free+r.Bytes
			}
		}
	})
	return &out, err
}

// Retain deletes the tasks of Retention, one at a time, and returns them. A task that was pinned
// meanwhile stays. Unfinished tasks of processes that are gone are swept first.
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
		// The task is Partial from the first of the transactions on that its deletion takes: Sweep goes on
		// with one that is interrupted. One that was pinned meanwhile, or runs, is not found.
		err := d.write(ctx, fmt.Sprintf("delete task %d for its age", r.Task), func(s *session) {
			s.must(`UPDATE task SET state=?, cold=?, owner=?, reason='it is being deleted for its age'
				WHERE task_id=? AND pinned=0 AND state NOT IN (1,6)`, Partial, partialCold, thisProcess(), r.Task)
		})
		if errors.Is(err, ErrNotFound) {
			done.Kept++
			continue
		}
		if err == nil {
			err = d.discard(ctx, r.Task, thisProcess())
		}
		if err != nil {
			return &done, err
		}
		done.Tasks, done.Free = append(done.Tasks, r), done.Free+r.Bytes
	}
	return &done, nil
}

// retireBatch is the number of chunks deleted at a time, which bounds the wait of a program that
// stores samples meanwhile.
const retireBatch = 64

// Cold returns the tasks that have ended, came into this database before a moment, and are not packed yet.
func (d *DB) Cold(ctx context.Context, before time.Time) ([]TaskID, error) {
	return collect(ctx, d, "list cold tasks", value[TaskID], `SELECT task_id FROM task WHERE stored_ns<?
		AND state NOT IN (1,6) AND cold=0 ORDER BY task_id DESC`, before.UnixNano())
}

// Packed counts the chunks that Compact or Expand turned over.
type Packed struct {
	Chunks uint64 `json:"chunks"`
	Scans  uint64 `json:"samples"`
	// Before and After are the bytes of the chunks' columns.
	Before int64 `json:"bytes_before"`
	After  int64 `json:"bytes"`
}

// packBatch is how many chunks one transaction turns over.
// Few enough that a reader's transaction, or the log between two checkpoints, stays small.
const packBatch = 16

// Compact packs a task's samples tighter. This program reads it as before; other programs find
// one row without values in the view data, and a message in the view cold. It can be interrupted
// and called again. Errors wrap ErrConflict for a running task, and ErrCorrupt at a damaged
// chunk: the chunks before it stay packed.
func (d *DB) Compact(ctx context.Context, id TaskID) (Packed, error) {
	op := fmt.Sprintf("pack task %d", id)
	return d.repack(ctx, id, op, true, func(s *session, c *chunk.Chunk) (before, after int64) {
		before = int64(chunk.PayloadSize(c))
		if c.Sums != nil {
			return before, before
		}
		data, err := data.Pack(c)
		s.fail(err)
		if int64(len(data)) >= before {
			return before, before // one that does not shrink stays as it is
		}
		// The packed row is written before the columns are deleted, in one transaction: a chunk is stored
		// in one form or the other at any moment.
		s.exec(upsert("chunk_cold", "task_id,chunk_no", "data"), id, int64(c.No), data)
		s.exec(`DELETE FROM chunk_column WHERE task_id=? AND chunk_no=?`, id, int64(c.No))
		return before, int64(len(data))
	})
}

// Expand undoes Compact. A task whose samples were thinned stays cold: measure.ErrThinned.
func (d *DB) Expand(ctx context.Context, id TaskID) (Packed, error) {
	op := fmt.Sprintf("expand task %d", id)
	return d.repack(ctx, id, op, false, func(s *session, c *chunk.Chunk) (before, after int64) {
		before = one[int64](s, `SELECT coalesce(max(length(data)),0) FROM chunk_cold WHERE task_id=? AND chunk_no=?`, id,
			int64(c.No))
		after = int64(chunk.PayloadSize(c))
		if before == 0 {
			return after, after // it was never packed
		}
		for i, col := range c.Columns {
			s.exec(upsert("chunk_column", "task_id,chunk_no,col", "dir,data"), id, int64(c.No), i, col.Dir, col.Data)
		}
		s.exec(`DELETE FROM chunk_cold WHERE task_id=? AND chunk_no=?`, id, int64(c.No))
		return before, after
	})
}

// repack turns a task's chunks over, some a transaction. While it is half done the
// task counts as cold: the plain view must not show half of it.
func (d *DB) repack(ctx context.Context, id TaskID, op string, cold bool,
	turn func(*session, *chunk.Chunk) (before, after int64),
) (out Packed, err error) {
	s := d.reading(ctx)
	sh := s.shapeOf(id, d.unlessMine(id))
	if s.err != nil {
		return out, wrap(op, s.err)
	}
	// Order of steps: the task is marked as cold, then its chunks are turned over in batches, and only
	// an expansion takes the mark away at its end. An interruption leaves a cold task of mixed chunks,
	// which this program reads, and which a second call completes.
	err = d.write(ctx, op, func(s *session) {
		if !cold {
			wholeSamples(s, id)
		}
		s.must(`UPDATE task SET cold=1 WHERE task_id=? AND state<>6`, id)
		if one[State](s, `SELECT state FROM task WHERE task_id=?`, id) == Running {
			s.fail(fmt.Errorf("%w: the task still runs", ErrConflict))
		}
	})
	var c chunk.Chunk
	for next, more := uint64(0), true; more && err == nil; {
		err = d.write(ctx, op, func(s *session) {
			// Through the same transaction: no other program may turn it over meanwhile. A damaged chunk is
			// not packed: its damage would be sealed in.
			for range packBatch {
				err := readChunk(ctx, s.on, id, next, sh, &c)
				if more = !errors.Is(err, errNoMore); more {
					s.fail(err)
				}
				if err != nil {
					return
				}
				before, after := turn(s, &c)
				if s.note("chunk %d", c.No); s.err != nil {
					return
				}
				next = c.No + 1
				out.Chunks, out.Scans = out.Chunks+1, out.Scans+uint64(c.Scans)
				out.Before, out.After = out.Before+before, out.After+after
			}
		})
	}
	if err == nil && !cold {
		err = d.write(ctx, op, func(s *session) { s.must(`UPDATE task SET cold=0 WHERE task_id=?`, id) })
	}
	return out, err
}

// published is the condition that a task t is not Partial. SQL of other programs: the view
// data leaves such tasks out by their value of cold, which is partialCold.
const (
	published   = "t.state<>6"
	partialCold = 2
)

// partialTasks are the conditions that a task is Partial; the first has an index. hiddenTask
// is true of those that this program has made so: BeginTask, a copier and Retain set all
// three columns. In another the state alone was changed: that is damage, and nothing deletes it.
const (
	partialTasks = "state<>2 AND state=6"
	hiddenTask   = "state=6 AND cold=2 AND coalesce(owner,'')<>''"
)

// thisProcess names this process, read once. It is never empty: "unknown" where the system does
// not reveal enough.
var thisProcess = sync.OnceValue(func() string { return cmp.Or(Owner(), "unknown") })

// resumable reports whether a copy that stopped is continued by copying again. Versions
// before Partial left such tasks Incomplete.
func resumable(reason string) bool { return reason == importing || reason == unfinishedCopy }

// publishTask gives a Partial task its final state. The rest is as in the row of its source; stored is when
// it came into the database. One that is published already, as by another copier of it, stays as it is.
func publishTask(s *session, id TaskID, source map[string]any, state, reason, stored any) {
	s.exec(`UPDATE task SET state=?, reason=?, cold=coalesce(?,0), owner=?, stored_ns=? WHERE task_id=? AND state=?`, state,
		reason, source["cold"], source["owner"], stored, id, Partial)
}

// shown fails with ErrNotFound for a task that is not there, and for a Partial one that this
// handle has not begun.
func (d *DB) shown(s *session, id TaskID) {
	if one[int](s, `SELECT count(*) FROM task t WHERE t.task_id=?`+d.unlessMine(id), id) == 0 {
		s.fail(ErrNotFound)
	}
}

// unlessMine is a further condition on a task t that is read by its number.
func (d *DB) unlessMine(id TaskID) string {
	if _, mine := d.mine.Load(id); mine {
		return ""
	}
	return " AND " + published
}

// leftover is a Partial task whose process is gone.
type leftover struct {
	id            TaskID
	reason, owner string
	stored        time.Time
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
	s := d.reading(ctx)
	list := all(s, func(rows *sql.Rows, l *leftover) error {
		return rows.Scan(&l.id, (*text)(&l.reason), &l.owner, (*moment)(&l.stored), &l.chunks)
	}, `SELECT task_id, reason, owner, stored_ns, (SELECT count(*) FROM chunk c WHERE c.task_id=task.task_id) FROM task
		WHERE `+partialTasks+` AND `+hiddenTask+` ORDER BY task_id`)
	var out []leftover
	for _, l := range list {
		age := time.Since(l.stored)
		if life, _ := Lives(l.owner); life == Alive || life == LivenessUnknown && age < keepUnknown {
			continue
		}
		l.kept = resumable(l.reason) && age < keepResumable
		out = append(out, l)
	}
	return out, s.err
}

// unfinished names the Partial tasks whose process is gone.
func (c *checker) unfinished(s *session) {
	list, err := c.d.leftovers(s.ctx)
	for _, l := range list {
		f := c.found(Unfinished, l.id,
			"db repair deletes it, as the next import, copy, retention or start of a host does",
			"a program that is gone left it with %s", measure.Plural(l.chunks, "chunk"))
		if l.kept {
			f.Remedy = "copy again, which goes on with it; db repair deletes it, as does who writes a day after"
		}
		if l.reason != "" {
			f.What += ": " + measure.Printable(l.reason)
		}
	}
	for _, id := range values[TaskID](s,
		`SELECT task_id FROM task WHERE `+partialTasks+` AND NOT (`+hiddenTask+`) ORDER BY task_id`) {
		f := c.found(BadState, id, "",
			"task.state is 6 (partial), which no program has set: those set cold=2 and an owner with it")
		f.Mendable, f.Remedy = false, fmt.Sprintf("it is hidden, and nothing deletes it: take it from a backup, or "+
			"show it again with the state that it had, as UPDATE task SET state=2 WHERE task_id=%d (2 complete, "+
			"3 incomplete, 4 untrimmed, 5 failed), and run db check", id)
	}
	s.fail(err)
}

// Sweep deletes unfinished tasks of processes that are gone, and returns their number. A copy that can be
// continued stays for a day. It deletes some chunks at a time, so that others can write meanwhile.
func (d *DB) Sweep(ctx context.Context) (n int, err error) {
	return d.sweep(ctx, func(l *leftover) bool { return !l.kept })
}

// sweep deletes the leftovers that want selects.
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
		err := d.write(ctx, op, func(s *session) {
			more = retireBatch == s.exec(`DELETE FROM chunk WHERE task_id=?1
				AND EXISTS (SELECT 1 FROM task WHERE task_id=?1 AND `+hiddenTask+` AND owner=?2)
				AND chunk_no IN (SELECT chunk_no FROM chunk WHERE task_id=?1 ORDER BY chunk_no DESC LIMIT ?3)`,
				id, owner, retireBatch)
		})
		if err != nil {
			return err
		}
	}
	d.folds.Delete(id)
	d.mine.Delete(id)
	return d.write(ctx, op, func(s *session) { remove(s, "task_id=?1 AND "+hiddenTask+" AND owner=?2", id, owner) })
}
