package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store/internal/data"
	"github.com/wattmark/wattmark/store/internal/fold"
)

// shape is the part of a setup by which chunks are checked and read.
type shape struct {
	tb       measure.Timebase
	channels int
}

// The statements of AppendChunks. The first two walk the primary key (task_id, chunk_no): one step each,
// however long the task.
const (
	findChunk  = `SELECT crc FROM chunk WHERE task_id=? AND chunk_no=?`
	neighbours = `SELECT (SELECT first_scan+n FROM chunk WHERE task_id=?1 AND chunk_no<?2 ORDER BY chunk_no DESC LIMIT 1),
		(SELECT first_scan FROM chunk WHERE task_id=?1 AND chunk_no>?2 ORDER BY chunk_no LIMIT 1)`
	putChunk  = `INSERT INTO chunk(task_id,chunk_no,first_scan,n,first_tick,crc) VALUES(?,?,?,?,?,?)`
	putColumn = `INSERT INTO chunk_column(task_id,chunk_no,col,dir,data) VALUES(?,?,?,?,?)`
	// The counts in the row of task spare every list a count over chunk.
	addCounts = `UPDATE task SET chunks=chunks+?2, scans=scans+?3 WHERE task_id=?1`
)

// putEvent inserts an event; the same event again is no error and no second row.
// All columns but exact are the primary key of event.
const putEvent = `INSERT INTO event(task_id,first_scan,kind,scans,exact,channel,detail) VALUES(?,?,?,?,?,?,?)
	ON CONFLICT DO NOTHING`

// Of the calibration in use: another calibration of the same capture has the same timebase and
// channels, since AddResult changes gains alone.
const shapeSQL = `SELECT c.tick_hz, c.u_tick_rel, c.ticks_per_scan, c.stamped, c.channels
	FROM task t LEFT JOIN calibration c USING(calibration_id) WHERE t.task_id=?`

// shapeOf returns the shape of a task's chunks, under a further condition on the task. Errors wrap
// ErrNotFound or ErrNoHeader.
func (s *session) shapeOf(id TaskID, condition string) (sh shape) {
	// All columns are NULL for a task without a calibration.
	var hz, u, tps sql.NullFloat64
	var stamped sql.NullBool
	var channels sql.NullInt64
	switch found := s.row(shapeSQL+condition, id).found(&hz, &u, &tps, &stamped, &channels); {
	case !found:
		s.fail(ErrNotFound)
	case !channels.Valid:
		s.fail(fmt.Errorf("%w: call PutHeader first", ErrNoHeader))
	}
	return shape{measure.Timebase{
		TickHz: measure.Hertz(hz.Float64), UTickHz: u.Float64, TicksPerScan: tps.Float64, Stamped: stamped.Bool,
	}, int(channels.Int64)}
}

// AppendChunks stores chunks and events in one transaction that is on disk when the call
// returns. A chunk that is there already is skipped; the same number with another checksum, or
// scans that overlap a neighbour's, are ErrConflict. A chunk that does not pass its own checks
// is ErrCorrupt, samples before PutHeader are ErrNoHeader. On an error nothing of the call is
// stored. The chunks are borrowed until the call returns.
//
// The chunks are folded into the task's pyramid on another goroutine while they are written; the pages that
// became complete by the call before are stored with them, so that the disk is never waited for with
// folding still to be done. write may run the function twice, on a server or when a file is locked: all
// effects outside of the transaction (the folding) are undone at the begin of a second try.
func (d *DB) AppendChunks(ctx context.Context, id TaskID, chunks []*chunk.Chunk, events []measure.Event) error {
	again, folded := false, func() {}
	err := d.write(ctx, fmt.Sprintf("store chunks of task %d", id), func(s *session) {
		if again { // the pages that went with the try before are not stored
			folded()
			d.keepFolding(id, nil)
		}
		again = true
		sh := s.shapeOf(id, "")
		// All chunks pass before the first is folded or inserted.
		for _, c := range chunks {
			if s.err == nil {
				s.failed(c.Validate(sh.tb, sh.channels), "%w", ErrCorrupt)
			}
		}
		if s.err != nil {
			return
		}
		var pages []fold.Page
		// From here on the chunks are folded beside the inserts below; folded waits for that.
		pages, folded = d.foldBeside(ctx, id, chunks)
		var stored, scans int64
		for _, c := range chunks {
			if appendChunk(s, id, c) {
				stored, scans = stored+1, scans+int64(c.Scans)
			}
		}
		putEvents(s, id, events)
		putPages(s, id, pages)
		s.exec(addCounts, id, stored, scans)
	})
	folded()        // the chunks are lent
	if err != nil { // the folded chunks are not stored
		d.keepFolding(id, nil)
	}
	return err
}

// appendChunk inserts one chunk unless it is there. Another checksum under its number and scans that
// overlap a neighbour's are ErrConflict.
func appendChunk(s *session, id TaskID, c *chunk.Chunk) (stored bool) {
	if s.err != nil {
		return false
	}
	defer func() { s.note("chunk %d", c.No) }()
	no := int64(c.No)
	var crc int64
	// The checksum decides: a host that lost the connection sends chunks again that were stored.
	if s.row(findChunk, id, no).found(&crc) {
		if uint32(crc) != c.CRC {
			s.fail(fmt.Errorf("%w: checksum %08x is stored under this number, not %08x", ErrConflict, uint32(crc), c.CRC))
		}
		return false
	}
	// Chunks may come out of order, as after a repair of a transfer: both neighbours count.
	var end, next sql.NullInt64
	s.row(neighbours, id, no).into(&end, &next)
	first, stop := int64(c.FirstScan), int64(c.FirstScan)+int64(c.Scans)
	if end.Valid && first < end.Int64 || next.Valid && stop > next.Int64 {
		s.fail(fmt.Errorf("%w: scans %d to %d overlap those of a neighbouring chunk", ErrConflict, first, stop-1))
	}
	s.exec(putChunk, id, no, first, c.Scans, c.FirstTick, int64(c.CRC))
	if c.Sums != nil { // of a task that comes from elsewhere
		putSums(s, id, c)
	}
	// Column i of the chunk is channel i; a stamped instrument's last column holds time residuals.
	for i, col := range c.Columns {
		s.exec(putColumn, id, no, i, col.Dir, col.Data)
	}
	return true
}

// putEvents inserts events; those that are there are left.
func putEvents(s *session, id TaskID, events []measure.Event) {
	for _, e := range events {
		s.exec(putEvent, id, int64(e.FirstScan), e.Kind, int64(e.Scans), e.Exact, e.Channel, e.Detail)
	}
}

// PutEvents stores events of a task, also before it has a header.
func (d *DB) PutEvents(ctx context.Context, id TaskID, events []measure.Event) error {
	return d.write(ctx, fmt.Sprintf("store events of task %d", id), func(s *session) { putEvents(s, id, events) })
}

// NextChunk returns the number of the chunk to ask for next; any is false when no chunk is stored yet.
func (d *DB) NextChunk(ctx context.Context, id TaskID) (no uint64, any bool, err error) {
	s := d.reading(ctx)
	var last sql.NullInt64
	// max(chunk_no) is one step to the end of the primary key. The outer SELECT parts a task without
	// chunks, NULL, from no task, no row.
	if !s.row(`SELECT (SELECT max(chunk_no) FROM chunk WHERE task_id=?1) FROM task WHERE task_id=?1`, id).found(&last) {
		s.fail(ErrNotFound)
	}
	if last.Valid {
		no = uint64(last.Int64) + 1
	}
	return no, last.Valid, wrap(fmt.Sprintf("next chunk of task %d", id), s.err)
}

// Chunks yields the stored chunks from a number on, in order, each checked against its checksum. A chunk is
// valid until the next one is asked for. Every chunk is read on its own, so a slow reader holds nothing
// open. The sequence ends after the first error.
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
		s := d.reading(ctx)
		sh := s.shapeOf(id, "")
		if errors.Is(s.err, ErrNoHeader) {
			return // a task without a header has no chunks
		}
		err := s.err
		// The next number is asked for from the one that was read: gaps in the numbering are skipped.
		for next := from; err == nil; next = c.No + 1 {
			if err = readChunk(ctx, d.reader, id, next, sh, c); err == nil && !yield(c, nil) {
				return
			}
		}
		// No chunk is left; a task that was deleted meanwhile must not pass as one that ended here.
		if errors.Is(err, errNoMore) {
			s.shapeOf(id, "")
			if err = s.err; err == nil {
				return
			}
		}
		yield(nil, wrap(op, err))
	}
}

var errNoMore = errors.New("no more chunks")

// readChunk reads the first chunk whose number is at least from, and checks it.
func readChunk(ctx context.Context, q querier, id TaskID, from uint64, sh shape, c *chunk.Chunk) error {
	if err := loadChunk(ctx, q, id, from, sh, c); err != nil {
		return err
	}
	if err := c.Validate(sh.tb, sh.channels); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// misread returns the error of a row that cannot be scanned: a column of another type is damage,
// rows that end with the context are not.
func misread(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// loadChunk reads the first chunk whose number is at least from, as it is stored, into the memory
// of c. A header without columns is a chunk without columns.
func loadChunk(ctx context.Context, q querier, id TaskID, from uint64, sh shape, c *chunk.Chunk) error {
	c.Columns, c.Sums = c.Columns[:0], nil
	// One query for the head and all columns; RawBytes are valid until the next row, so they are copied
	// into the memory of c.
	rows, err := q.QueryContext(ctx, `SELECT h.chunk_no, h.first_scan, h.n, h.first_tick, h.crc, c.dir, c.data
		FROM chunk h LEFT JOIN chunk_column c ON c.task_id=h.task_id AND c.chunk_no=h.chunk_no
		WHERE h.task_id=?1 AND h.chunk_no=
			(SELECT chunk_no FROM chunk WHERE task_id=?1 AND chunk_no>=?2 ORDER BY chunk_no LIMIT 1)
		ORDER BY c.col`, id, int64(from))
	if err != nil {
		return err
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		var dir, data sql.RawBytes
		if err := rows.Scan(&c.No, &c.FirstScan, &c.Scans, &c.FirstTick, &c.CRC, &dir, &data); err != nil {
			return misread(ctx, err)
		}
		// The LEFT JOIN gave NULL: no columns, so the chunk is packed or damaged.
		if found = true; dir == nil {
			break
		}
		n := len(c.Columns)
		c.Columns = slices.Grow(c.Columns, 1)[:n+1] // where there was a column, its memory is used again
		c.Columns[n].Dir = append(c.Columns[n].Dir[:0], dir...)
		c.Columns[n].Data = append(c.Columns[n].Data[:0], data...)
	}
	switch {
	case rows.Err() != nil:
		return rows.Err()
	case !found:
		return errNoMore
	case len(c.Columns) > 0:
		return nil
	}
	rows.Close() // the pool may have no other connection
	list, err := column[[]byte](ctx, q, `SELECT data FROM chunk_cold WHERE task_id=? AND chunk_no=?`, id, int64(c.No))
	if err != nil || len(list) == 0 {
		return err
	}
	n := sh.channels
	if sh.tb.Stamped {
		n++
	}
	if err := data.Unpack(c, n, list[0]); err != nil {
		return fmt.Errorf("%w: chunk %d: %w", ErrCorrupt, c.No, err)
	}
	return nil
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
