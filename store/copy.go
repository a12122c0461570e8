package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CopiedTask is what CopyTask did.
type CopiedTask struct {
	From, To TaskID
	// Known: the task was there already, whole. Resumed: a copy that was
	// interrupted was finished.
	Known, Resumed bool
	// Differs is what of a known task was not as here: "tags", "notes", "pin", "state",
	// "results", "provenance", "measurement", "samples". Updated: it is as here now.
	Differs       []string
	Updated       bool
	Chunks, Scans uint64 // that the task has
	Rows          uint64 // of all tables, that were compared by their number
}

// unfinishedCopy is the reason of a task whose samples are still being copied.
const unfinishedCopy = "its copy from another database is not complete: copy again"

// ErrRunning: the task is still being measured.
var ErrRunning = errors.New("task still runs")

// CopyTask copies a task with all that belongs to it to another database, of
// whatever kind the two are. A task is known by its monitor, capture, launch,
// GPU, user and name: one that is there is compared and not copied again, and one
// whose copy was interrupted is finished. With o.Update what differs is made as it is
// here, but for samples. At last both sides' rows are counted, and each
// chunk that was copied is read back and checked against its checksum and the
// source's. Errors wrap ErrNotFound, ErrRunning, or ErrCorrupt where the copy is not the same.
func (d *DB) CopyTask(ctx context.Context, to *DB, id TaskID, o CopyOptions) (CopiedTask, error) {
	op := fmt.Sprintf("copy task %d to %s", id, to.path)
	if to.writer == nil {
		return CopiedTask{}, fmt.Errorf("%s: %w", op, ErrReadOnly)
	}
	c := copier{from: d, to: to, id: int64(id), told: o.Samples}
	if c.told == nil {
		c.told = func(uint64) {}
	}
	c.done.From = id
	err := c.run(ctx)
	if err == nil && c.done.Known {
		err = c.renew(ctx, o.Update)
	}
	return c.done, wrap(op, err)
}

// CopyOptions change how a task is copied.
type CopyOptions struct {
	// Update makes a task that is there already, and differs, as it is here.
	Update bool
	// Samples is told of scans as they are stored; nil for silence.
	Samples func(scans uint64)
}

// renew compares a task that is known, and updates it where that is wanted. One whose
// samples differ is another measurement, and is left alone.
func (c *copier) renew(ctx context.Context, update bool) error {
	if err := c.compare(ctx); err != nil {
		return err
	}
	if !update || len(c.done.Differs) == 0 || slices.Contains(c.done.Differs, "samples") {
		return nil
	}
	c.done.Updated = true
	return c.update(ctx)
}

// copier is one CopyTask.
type copier struct {
	from, to *DB
	id, new  int64
	task     copiedRow
	tables   []copiedTable // of the task, those that others refer to first
	told     func(uint64)
	done     CopiedTask
}

// copiedRow is a row by columns.
type copiedRow map[string]any

// copiedTable is a table whose rows belong to tasks, with the columns to copy.
type copiedTable struct {
	name    string
	columns []string
}

// sampled are the tables that hold samples, or what follows from them.
func (t copiedTable) sampled() bool {
	return strings.HasPrefix(t.name, "chunk") || strings.HasPrefix(t.name, "pyramid")
}

func (c *copier) run(ctx context.Context) error {
	login, err := c.look(ctx)
	if err != nil {
		return err
	}
	err = c.unlessKnown(ctx, func(ctx context.Context) error { return c.begin(ctx, login) }, c.samples, c.verify, c.conclude)
	c.done.To = TaskID(c.new)
	return c.to.discardWrong(ctx, c.done.To, err)
}

// unlessKnown goes through the steps until the task is known to be there whole, as it
// is when another copier was faster.
func (c *copier) unlessKnown(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if c.done.Known {
			return nil
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look reads the task, and finds out what of it is there already.
func (c *copier) look(ctx context.Context) (login string, err error) {
	if c.task, err = copiedOne(ctx, c.from.reader, "task", "task_id=?", c.id); err != nil {
		return "", err
	}
	switch c.task["state"] {
	case int64(Running):
		return "", ErrRunning
	case int64(Partial):
		return "", ErrNotFound
	}
	if err := c.from.reader.QueryRowContext(ctx, `SELECT login FROM user WHERE user_id=?`, c.task["user_id"]).Scan(&login); err != nil {
		return "", err
	}
	if c.tables, err = copiedTables(ctx, c.from, c.to); err != nil {
		return "", err
	}
	return login, c.find(ctx, c.to.writer, login)
}

// rowQuerier asks for one row.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// find looks for the task where it is to go.
func (c *copier) find(ctx context.Context, q rowQuerier, login string) error {
	var reason string
	t := c.task
	c.new, c.done.Known, c.done.Resumed = 0, false, false
	err := q.QueryRowContext(ctx, `SELECT t.task_id, t.reason FROM task t JOIN user u USING(user_id)
		WHERE t.capture_id=? AND t.monitor=? AND t.gpu_uuid=? AND u.login=? AND t.name=? AND t.launched_ns IS NOT DISTINCT FROM ?
		AND (`+published+` OR t.reason IN (?,?)) ORDER BY t.task_id LIMIT 1`,
		t["capture_id"], t["monitor"], t["gpu_uuid"], login, t["name"], t["launched_ns"], importing, unfinishedCopy).Scan(&c.new, &reason)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	c.done.Resumed = resumable(reason)
	c.done.Known = err == nil && !c.done.Resumed
	return err
}

// alone makes sure that of several copiers of the same task one begins it; the others
// go on with what that one began. Where transactions do not wait for each other, both
// change the user's row, and the later one is run again.
func (c *copier) alone(ctx context.Context, tx *sql.Tx, login string) (there bool, err error) {
	if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO user(login) VALUES(?)`, login); err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE user SET login=login WHERE login=?`, login); err != nil {
		return false, err
	}
	err = c.find(ctx, tx, login)
	return c.new != 0, err
}

// begin copies all but the samples, as a Partial task, unless one is there.
func (c *copier) begin(ctx context.Context, login string) error {
	return c.to.write(ctx, "begin the copy", func(tx *sql.Tx) error {
		there, err := c.alone(ctx, tx, login)
		if there && c.done.Resumed && err == nil {
			err = adopt(ctx, tx, c.new)
		}
		if there || err != nil {
			return err
		}
		row := copiedRow{}
		for k, v := range c.task {
			row[k] = v
		}
		delete(row, "task_id")
		hide(row, unfinishedCopy)
		row["stored_ns"] = nanos(time.Now())
		var user int64
		if err := tx.QueryRowContext(ctx, `SELECT user_id FROM user WHERE login=?`, login).Scan(&user); err != nil {
			return err
		}
		row["user_id"] = user
		if row["calibration_id"], err = c.calibration(ctx, tx, row["calibration_id"]); err != nil {
			return err
		}
		if c.new, err = row.insert(ctx, tx, "task", "task_id"); err != nil {
			return err
		}
		for _, t := range c.tables {
			if t.sampled() {
				continue
			}
			if err := c.rows(ctx, tx, t, "task_id=?", c.id); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
		}
		return c.group(ctx, tx)
	})
}

// rows copies rows of a table under the task's new number.
func (c *copier) rows(ctx context.Context, tx *sql.Tx, t copiedTable, where string, args ...any) error {
	put, err := tx.PrepareContext(ctx, copiedInsert(t.name, t.columns))
	if err != nil {
		return err
	}
	defer put.Close()
	task, cal := slices.Index(t.columns, "task_id"), slices.Index(t.columns, "calibration_id")
	return eachCopied(ctx, c.from.reader, t, where, func(v []any) error {
		v[task] = c.new
		if cal >= 0 {
			if v[cal], err = c.calibration(ctx, tx, v[cal]); err != nil {
				return err
			}
		}
		_, err := put.ExecContext(ctx, v...)
		return err
	}, args...)
}
