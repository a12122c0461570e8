package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"wattmark/measure"
	"wattmark/measure/chunk"
)

// shape is what is needed to check and read a task's chunks.
type shape struct {
	tb       measure.Timebase
	channels int
}

// statements are prepared once for the writing connection.
type statements struct {
	shape, find, neighbours, chunk, column, event, count, page *sql.Stmt
}

func (s *statements) prepare(ctx context.Context, db *sql.DB) error {
	for _, p := range []struct {
		to  **sql.Stmt
		sql string
	}{
		{&s.shape, shapeSQL},
		{&s.find, `SELECT crc FROM chunk WHERE task_id=? AND chunk_no=?`},
		{&s.neighbours, `SELECT
			(SELECT first_scan+n FROM chunk WHERE task_id=?1 AND chunk_no<?2 ORDER BY chunk_no DESC LIMIT 1),
			(SELECT first_scan FROM chunk WHERE task_id=?1 AND chunk_no>?2 ORDER BY chunk_no LIMIT 1)`},
		{&s.chunk, `INSERT INTO chunk(task_id,chunk_no,first_scan,n,first_tick,crc) VALUES(?,?,?,?,?,?)`},
		{&s.column, `INSERT INTO chunk_column(task_id,chunk_no,col,dir,data) VALUES(?,?,?,?,?)`},
		{&s.event, `INSERT OR IGNORE INTO event(task_id,first_scan,kind,scans,exact,channel,detail) VALUES(?,?,?,?,?,?,?)`},
		{&s.page, `INSERT OR REPLACE INTO pyramid(task_id, level, page, data) VALUES(?,?,?,?)`},
		{&s.count, `UPDATE task SET chunks=chunks+?2, scans=scans+?3 WHERE task_id=?1`},
	} {
		var err error
		if *p.to, err = db.PrepareContext(ctx, p.sql); err != nil {
			return err
		}
	}
	return nil
}

func (s *statements) close() {
	for _, st := range []*sql.Stmt{s.shape, s.find, s.neighbours, s.chunk, s.column, s.event, s.count, s.page} {
		if st != nil {
			st.Close()
		}
	}
}

const shapeSQL = `SELECT c.tick_hz, c.u_tick_rel, c.ticks_per_scan, c.stamped, c.channels
	FROM task t LEFT JOIN calibration c USING(calibration_id) WHERE t.task_id=?`

func scanShape(row *sql.Row) (shape, error) {
	var hz, u, tps sql.NullFloat64
	var stamped sql.NullBool
	var channels sql.NullInt64
	if err := row.Scan(&hz, &u, &tps, &stamped, &channels); errors.Is(err, sql.ErrNoRows) {
		return shape{}, ErrNotFound
	} else if err != nil {
		return shape{}, err
	}
	if !channels.Valid {
		return shape{}, fmt.Errorf("%w: call PutHeader first", ErrNoHeader)
	}
	tb := measure.Timebase{TickHz: measure.Hertz(hz.Float64), UTickHz: u.Float64, TicksPerScan: tps.Float64, Stamped: stamped.Bool}
	return shape{tb, int(channels.Int64)}, nil
}

// AppendChunks stores chunks and events in one transaction that is on disk when
// the call returns. A chunk that is there already is skipped; the same number
// with another checksum, or scans that overlap a neighbour's, are ErrConflict.
// A chunk that does not pass its own checks is ErrCorrupt. On an error nothing
// of the call is stored. The chunks are borrowed until the call returns.
func (d *DB) AppendChunks(ctx context.Context, id TaskID, chunks []*chunk.Chunk, events []measure.Event) error {
	again, folded := false, func() {}
	err := d.write(ctx, fmt.Sprintf("store chunks of task %d", id), func(tx *sql.Tx) error {
		if again { // the pages that went with the try before are not stored
			folded()
			d.keepFolding(id, nil)
		}
		again = true
		sh, err := scanShape(tx.StmtContext(ctx, d.st.shape).QueryRowContext(ctx, int64(id)))
		if err != nil {
			return err
		}
		for _, c := range chunks {
			if err := c.Validate(sh.tb, sh.channels); err != nil {
				return fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
		}
		var pages []pyramidRow
		pages, folded = d.foldBeside(ctx, id, chunks)
		a := appender{tx: tx, st: &d.st, id: int64(id)}
		for _, c := range chunks {
			if err := a.chunk(ctx, c); err != nil {
				return fmt.Errorf("chunk %d: %w", c.No, err)
			}
		}
		if err := a.events(ctx, events); err != nil {
			return err
		}
		if err := d.putPages(ctx, tx, id, pages); err != nil {
			return err
		}
		_, err = tx.StmtContext(ctx, d.st.count).ExecContext(ctx, a.id, a.chunks, a.scans)
		return err
	})
	folded()        // the chunks are lent
	if err != nil { // what was folded is not stored
		d.keepFolding(id, nil)
	}
	return err
}

// appender is one AppendChunks under way.
type appender struct {
	tx            *sql.Tx
	st            *statements
	id            int64
	chunks, scans int64 // stored so far by this call
}

func (a *appender) chunk(ctx context.Context, c *chunk.Chunk) error {
	no := int64(c.No)
	var crc int64
	err := a.tx.StmtContext(ctx, a.st.find).QueryRowContext(ctx, a.id, no).Scan(&crc)
	switch {
	case err == nil && uint32(crc) == c.CRC:
		return nil
	case err == nil:
		return fmt.Errorf("%w: checksum %08x is stored under this number, not %08x", ErrConflict, uint32(crc), c.CRC)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	var end, next sql.NullInt64
	if err := a.tx.StmtContext(ctx, a.st.neighbours).QueryRowContext(ctx, a.id, no).Scan(&end, &next); err != nil {
		return err
	}
	first, stop := int64(c.FirstScan), int64(c.FirstScan)+int64(c.Scans)
	if end.Valid && first < end.Int64 || next.Valid && stop > next.Int64 {
		return fmt.Errorf("%w: scans %d to %d overlap those of a neighbouring chunk", ErrConflict, first, stop-1)
	}
	if _, err := a.tx.StmtContext(ctx, a.st.chunk).ExecContext(ctx, a.id, no, first, c.Scans, c.FirstTick, int64(c.CRC)); err != nil {
		return err
	}
	insert := a.tx.StmtContext(ctx, a.st.column)
	for i, col := range c.Columns {
		if _, err := insert.ExecContext(ctx, a.id, no, i, col.Dir, col.Data); err != nil {
			return err
		}
	}
	a.chunks++
	a.scans += int64(c.Scans)
	return nil
}

func (a *appender) events(ctx context.Context, events []measure.Event) error {
	insert := a.tx.StmtContext(ctx, a.st.event)
	for _, e := range events {
		_, err := insert.ExecContext(ctx, a.id, int64(e.FirstScan), e.Kind, int64(e.Scans), e.Exact, e.Channel, e.Detail)
		if err != nil {
			return fmt.Errorf("event %v at scan %d: %w", e.Kind, e.FirstScan, err)
		}
	}
	return nil
}

// PutEvents stores events of a task, also before it has a header.
func (d *DB) PutEvents(ctx context.Context, id TaskID, events []measure.Event) error {
	return d.write(ctx, fmt.Sprintf("store events of task %d", id), func(tx *sql.Tx) error {
		a := appender{tx: tx, st: &d.st, id: int64(id)}
		return a.events(ctx, events)
	})
}

// NextChunk returns the number of the chunk to ask for next; any is false when
// no chunk is stored yet.
func (d *DB) NextChunk(ctx context.Context, id TaskID) (no uint64, any bool, err error) {
	op := fmt.Sprintf("next chunk of task %d", id)
	var last sql.NullInt64
	err = d.reader.QueryRowContext(ctx, `SELECT (SELECT max(chunk_no) FROM chunk WHERE task_id=?1) FROM task WHERE task_id=?1`, int64(id)).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, fmt.Errorf("%s: %w", op, ErrNotFound)
	}
	if err != nil || !last.Valid {
		return 0, false, wrap(op, err)
	}
	return uint64(last.Int64) + 1, true, nil
}

// Chunks yields the stored chunks from a number on, in order, each checked
// against its checksum. A chunk is valid until the next one is asked for. Every
// chunk is read on its own, so a slow reader holds nothing open. The sequence
// ends after the first error.
func (d *DB) Chunks(ctx context.Context, id TaskID, from uint64) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) {
		if err := d.shown(ctx, id); err != nil {
			yield(nil, wrap(fmt.Sprintf("read chunks of task %d", id), err))
			return
		}
		d.chunksInto(ctx, id, from, &chunk.Chunk{})(yield)
	}
}

// chunksInto is Chunks, also of Partial tasks, in the memory of c.
func (d *DB) chunksInto(ctx context.Context, id TaskID, from uint64, c *chunk.Chunk) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) {
		op := fmt.Sprintf("read chunks of task %d", id)
		sh, err := scanShape(d.reader.QueryRowContext(ctx, shapeSQL, int64(id)))
		if errors.Is(err, ErrNoHeader) {
			return // a task without a header has no chunks
		}
		for next := from; err == nil; next = c.No + 1 {
			if err = d.readChunk(ctx, id, next, sh, c); err == nil && !yield(c, nil) {
				return
			}
		}
		if errors.Is(err, errNoMore) {
			if _, err = scanShape(d.reader.QueryRowContext(ctx, shapeSQL, int64(id))); err == nil {
				return
			}
		}
		yield(nil, wrap(op, err))
	}
}
