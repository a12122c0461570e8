package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CopiedTask is what CopyTask did.
type CopiedTask struct {
	From, To TaskID
	// Known: the task was there already, whole. Resumed: a copy that was
	// interrupted was finished.
	Known, Resumed bool
	Chunks, Scans  uint64 // that the task has
	Rows           uint64 // of all tables, that were compared by their number
}

// unfinishedCopy is the reason of a task whose samples are still being copied.
const unfinishedCopy = "its copy from another database is not complete: copy again"

// ErrRunning: the task is still being measured.
var ErrRunning = errors.New("task still runs")

// CopyTask copies a task with all that belongs to it to another database, of
// whatever kind the two are. A task is known by its monitor, capture, launch,
// GPU, user and name: one that is there is not copied again, and one whose copy
// was interrupted is finished. At last both sides' rows are counted, and each
// chunk that was copied is read back and checked against its checksum and the
// source's. samples is told of scans as they are stored; nil for silence. Errors
// wrap ErrNotFound, ErrRunning, or ErrCorrupt where the copy is not the same.
func (d *DB) CopyTask(ctx context.Context, to *DB, id TaskID, samples func(scans uint64)) (CopiedTask, error) {
	op := fmt.Sprintf("copy task %d to %s", id, to.path)
	if to.writer == nil {
		return CopiedTask{}, fmt.Errorf("%s: %w", op, ErrReadOnly)
	}
	c := copier{from: d, to: to, id: int64(id), told: samples}
	if c.told == nil {
		c.told = func(uint64) {}
	}
	c.done.From = id
	err := c.run(ctx)
	return c.done, wrap(op, err)
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
	var login string
	var err error
	if c.task, err = copiedOne(ctx, c.from.reader, "task", "task_id=?", c.id); err != nil {
		return err
	}
	if c.task["state"] == int64(Running) {
		return ErrRunning
	}
	if err := c.from.reader.QueryRowContext(ctx, `SELECT login FROM user WHERE user_id=?`, c.task["user_id"]).Scan(&login); err != nil {
		return err
	}
	if c.tables, err = copiedTables(ctx, c.from, c.to); err != nil {
		return err
	}
	if err := c.find(ctx, login); err != nil {
		return err
	}
	if !c.done.Known {
		if c.new == 0 {
			err = c.begin(ctx, login)
		}
		if err == nil {
			err = c.samples(ctx)
		}
		if err == nil {
			err = c.verify(ctx)
		}
		if err == nil {
			err = c.conclude(ctx)
		}
	}
	c.done.To = TaskID(c.new)
	return err
}

// find looks for the task where it is to go.
func (c *copier) find(ctx context.Context, login string) error {
	var reason string
	t := c.task
	err := c.to.writer.QueryRowContext(ctx, `SELECT t.task_id, t.reason FROM task t JOIN user u USING(user_id)
		WHERE t.capture_id=? AND t.monitor=? AND t.gpu_uuid=? AND u.login=? AND t.name=? AND t.launched_ns IS NOT DISTINCT FROM ? ORDER BY t.task_id LIMIT 1`,
		t["capture_id"], t["monitor"], t["gpu_uuid"], login, t["name"], t["launched_ns"]).Scan(&c.new, &reason)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	c.done.Resumed = reason == unfinishedCopy
	c.done.Known = err == nil && !c.done.Resumed
	return err
}

// begin copies all but the samples, as a task that is not complete.
func (c *copier) begin(ctx context.Context, login string) error {
	return c.to.write(ctx, "begin the copy", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO user(login) VALUES(?)`, login); err != nil {
			return err
		}
		row := copiedRow{}
		for k, v := range c.task {
			row[k] = v
		}
		delete(row, "task_id")
		row["state"], row["reason"], row["chunks"], row["scans"] = int64(Incomplete), unfinishedCopy, int64(0), int64(0)
		var user int64
		if err := tx.QueryRowContext(ctx, `SELECT user_id FROM user WHERE login=?`, login).Scan(&user); err != nil {
			return err
		}
		row["user_id"] = user
		var err error
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

// copyScans is about how many scans one transaction copies: enough that the wait
// for the disk does not count.
const copyScans = 4 << 20

// samples copies the chunks behind those that are there, in transactions of their
// own, and the pyramid.
func (c *copier) samples(ctx context.Context) error {
	var last int64
	if err := c.to.writer.QueryRowContext(ctx, `SELECT coalesce(max(chunk_no),-1) FROM chunk WHERE task_id=?`, c.new).Scan(&last); err != nil {
		return err
	}
	for {
		until, scans, err := c.batch(ctx, last)
		if err != nil || scans == 0 {
			return err
		}
		err = c.to.write(ctx, "copy samples", func(tx *sql.Tx) error {
			for _, t := range c.tables {
				if !strings.HasPrefix(t.name, "chunk") {
					continue
				}
				if err := c.rows(ctx, tx, t, "task_id=? AND chunk_no>? AND chunk_no<=?", c.id, last, until); err != nil {
					return fmt.Errorf("table %s: %w", t.name, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.told(uint64(scans))
		last = until
	}
}

// batch returns the last chunk of the next transaction.
func (c *copier) batch(ctx context.Context, after int64) (until, scans int64, err error) {
	rows, err := c.from.reader.QueryContext(ctx, `SELECT chunk_no, n FROM chunk WHERE task_id=? AND chunk_no>? ORDER BY chunk_no LIMIT 1024`, c.id, after)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	for scans < copyScans && rows.Next() {
		var n int64
		if err := rows.Scan(&until, &n); err != nil {
			return 0, 0, err
		}
		scans += n
	}
	return until, scans, rows.Err()
}

// conclude copies the pyramid and gives the task the state that it has.
func (c *copier) conclude(ctx context.Context) error {
	return c.to.write(ctx, "end the copy", func(tx *sql.Tx) error {
		for _, t := range c.tables {
			if !strings.HasPrefix(t.name, "pyramid") {
				continue
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+t.name+` WHERE task_id=?`, c.new); err != nil {
				return err
			}
			if err := c.rows(ctx, tx, t, "task_id=?", c.id); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
		}
		return mustExist(tx.ExecContext(ctx, `UPDATE task SET state=?, reason=?, chunks=?, scans=? WHERE task_id=?`,
			c.task["state"], c.task["reason"], c.task["chunks"], c.task["scans"], c.new))
	})
}

// verify counts both sides' rows and reads every chunk back.
func (c *copier) verify(ctx context.Context) error {
	for _, t := range c.tables {
		if strings.HasPrefix(t.name, "pyramid") {
			continue
		}
		var here, there int64
		q := `SELECT count(*) FROM ` + t.name + ` WHERE task_id=?`
		if err := c.from.reader.QueryRowContext(ctx, q, c.id).Scan(&here); err != nil {
			return err
		}
		if err := c.to.reader.QueryRowContext(ctx, q, c.new).Scan(&there); err != nil {
			return err
		}
		if here != there {
			return fmt.Errorf("%w: table %s has %d rows of the task, the copy %d", ErrCorrupt, t.name, here, there)
		}
		c.done.Rows += uint64(here)
	}
	return c.checksums(ctx)
}

func (c *copier) checksums(ctx context.Context) error {
	want, err := collect(ctx, c.from.reader, func(rows *sql.Rows, crc *int64) error { return rows.Scan(crc) },
		`SELECT crc FROM chunk WHERE task_id=? ORDER BY chunk_no`, c.id)
	if err != nil {
		return err
	}
	for x, err := range c.to.Chunks(ctx, TaskID(c.new), 0) {
		if err != nil {
			return err
		}
		if i := c.done.Chunks; i >= uint64(len(want)) || uint32(want[i]) != x.CRC {
			return fmt.Errorf("%w: chunk %d is not the source's", ErrCorrupt, x.No)
		}
		c.done.Chunks++
		c.done.Scans += uint64(x.Scans)
	}
	if c.done.Chunks != uint64(len(want)) {
		return fmt.Errorf("%w: %d of %d chunks can be read back", ErrCorrupt, c.done.Chunks, len(want))
	}
	return nil
}
