package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

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
	defer c.to.emptyLog(ctx)
	return c.to.write(ctx, "end the copy", func(tx *sql.Tx) error {
		for _, t := range c.tables {
			if !strings.HasPrefix(t.name, "pyramid") {
				continue
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+quotedName(t.name)+` WHERE task_id=?`, c.new); err != nil { // #nosec G202 -- the name is quoted
				return err
			}
			if err := c.rows(ctx, tx, t, "task_id=?", c.id); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
		}
		if err := mustExist(tx.ExecContext(ctx, `UPDATE task SET chunks=?, scans=? WHERE task_id=?`, c.task["chunks"], c.task["scans"], c.new)); err != nil {
			return err
		}
		return publishTask(ctx, tx, c.new, c.task, c.task["state"], c.task["reason"], nanos(time.Now()))
	})
}
