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
	"github.com/wattmark/wattmark/measure/pyramid"
	"github.com/wattmark/wattmark/store/internal/data"
	"github.com/wattmark/wattmark/store/internal/fold"
)

// shape is the part of a setup by which chunks are checked and read.
type shape struct {
	tb       measure.Timebase
	channels int
}

// columns is how many a chunk must have. A stamped instrument's chunks have one more, the residuals of the time stamps.
func (sh shape) columns() int64 {
	if sh.tb.Stamped {
		return int64(sh.channels) + 1
	}
	return int64(sh.channels)
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
const shapeSQL = `SELECT coalesce(c.tick_hz,0), coalesce(c.u_tick_rel,0), coalesce(c.ticks_per_scan,0),
	coalesce(c.stamped,0), coalesce(c.channels,-1)
	FROM task t LEFT JOIN calibration c USING(calibration_id) WHERE t.task_id=?`

// shapeOf returns the shape of a task's chunks, under a further condition on the task. Errors wrap
// ErrNotFound or ErrNoHeader.
func (s *session) shapeOf(id TaskID, condition string) (sh shape) {
	row, tb := s.row(shapeSQL+condition, id), &sh.tb
	switch found := row.found(&tb.TickHz, &tb.UTickHz, &tb.TicksPerScan, &tb.Stamped, &sh.channels); {
	case !found:
		s.fail(ErrNotFound)
	case sh.channels < 0: // a task without a calibration
		s.fail(fmt.Errorf("%w: call PutHeader first", ErrNoHeader))
	}
	return sh
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
			d.folds.Delete(id)
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
		d.folds.Delete(id)
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
		s.exec(putEvent, id, e.FirstScan, e.Kind, e.Scans, e.Exact, e.Channel, e.Detail)
	}
}

// PutEvents stores events of a task, also before it has a header.
func (d *DB) PutEvents(ctx context.Context, id TaskID, events []measure.Event) error {
	return d.write(ctx, fmt.Sprintf("store events of task %d", id), func(s *session) { putEvents(s, id, events) })
}

// NextChunk returns the number of the chunk to ask for next; any is false when no chunk is stored yet.
func (d *DB) NextChunk(ctx context.Context, id TaskID) (no uint64, any bool, err error) {
	s, last := d.reading(ctx), int64(-1)
	// max(chunk_no) is one step to the end of the primary key. The outer SELECT parts a task without
	// chunks from no task, no row.
	if !s.row(`SELECT coalesce((SELECT max(chunk_no) FROM chunk WHERE task_id=?1),-1) FROM task WHERE task_id=?1`, id).
		found(&last) {
		s.fail(ErrNotFound)
	}
	return uint64(last + 1), last >= 0, wrap(fmt.Sprintf("next chunk of task %d", id), s.err)
}

// Chunks yields the stored chunks from a number on, in order, each checked against its checksum. A chunk is
// valid until the next one is asked for. Every chunk is read on its own, so a slow reader holds nothing
// open. The sequence ends after the first error.
func (d *DB) Chunks(ctx context.Context, id TaskID, from uint64) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) {
		s := d.reading(ctx)
		if d.shown(s, id); s.err != nil {
			yield(nil, wrap(fmt.Sprintf("read chunks of task %d", id), s.err))
			return
		}
		d.chunksInto(ctx, id, from, &chunk.Chunk{})(yield)
	}
}

// chunksInto is Chunks, also of Partial tasks, in the memory of c.
func (d *DB) chunksInto(ctx context.Context, id TaskID, from uint64, c *chunk.Chunk) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) {
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
		yield(nil, wrap(fmt.Sprintf("read chunks of task %d", id), err))
	}
}

var errNoMore = errors.New("no more chunks")

// misread returns the error of a row that cannot be scanned: a column of another type is damage,
// rows that end with the context are not.
func misread(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// readChunk reads the first chunk whose number is at least from, into the memory of c, and checks it. A header
// without columns is a chunk without columns.
func readChunk(ctx context.Context, on executor, id TaskID, from uint64, sh shape, c *chunk.Chunk) error {
	s := &session{ctx: ctx, on: on}
	c.Columns, c.Sums = c.Columns[:0], nil
	// One query for the head and all columns; RawBytes are valid until the next row, so they are copied
	// into the memory of c.
	found := false
	for rows := range s.rows(`SELECT h.chunk_no, h.first_scan, h.n, h.first_tick, h.crc, c.dir, c.data
		FROM chunk h LEFT JOIN chunk_column c ON c.task_id=h.task_id AND c.chunk_no=h.chunk_no
		WHERE h.task_id=?1 AND h.chunk_no=
			(SELECT chunk_no FROM chunk WHERE task_id=?1 AND chunk_no>=?2 ORDER BY chunk_no LIMIT 1)
		ORDER BY c.col`, id, int64(from)) {
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
	if s.err == nil && !found {
		return errNoMore
	}
	if len(c.Columns) == 0 {
		for _, packed := range values[[]byte](s, `SELECT data FROM chunk_cold WHERE task_id=? AND chunk_no=?`, id, c.No) {
			s.failed(data.Unpack(c, int(sh.columns()), packed), "%w: chunk %d", ErrCorrupt, c.No)
		}
	}
	if s.err == nil {
		s.failed(c.Validate(sh.tb, sh.channels), "%w", ErrCorrupt)
	}
	return s.err
}

// A thinned task has chunks of sums in place of chunks that were deleted (chunk.Thinning), each with an event of its
// scans. It counts as cold, so that the plain view shows no part of it.

// thinLeast is how many scans are deleted together at least: the sums of fewer would take more room than they.
const thinLeast = 1 << 14

// Thin deletes samples of a running task, in whole chunks from a number on: those that end before a device time, touch
// no window of keep, which are in order and apart, and are in the pyramid. The sums that take their place are written
// in the same transactions. It returns the chunk to go on with. A task of a meter whose channels need their neighbours
// is refused.
func (d *DB) Thin(ctx context.Context, id TaskID, from uint64, before measure.Seconds, keep []measure.Window,
) (next uint64, err error) {
	op := fmt.Sprintf("thin task %d", id)
	setup, _, err := d.setupOf(ctx, id, "")
	if err == nil {
		_, err = measure.NewThinned(setup)
	}
	if err != nil {
		return from, wrap(op, err)
	}
	t := rolling{d: d, ctx: ctx, op: op, id: id, setup: setup, next: from}
	s, tb := d.reading(ctx), setup.Timebase
	// Of the pages that are stored, the last one may not be full.
	folded := pyramid.PageScans(0) * one[uint64](s,
		`SELECT coalesce(max(page),0) FROM pyramid WHERE task_id=? AND level=0`, id)
	heads := all(s, func(rows *sql.Rows, h *head) error { return rows.Scan(&h.no, &h.first, &h.n, &h.tick) },
		`SELECT chunk_no, first_scan, n, first_tick FROM chunk WHERE task_id=? AND chunk_no>=? ORDER BY chunk_no`,
		id, int64(from))
	if s.err != nil {
		return from, wrap(op, s.err)
	}
	var run []head
	for _, h := range heads {
		begin := tb.Seconds(float64(h.tick))
		end := begin + tb.Seconds(float64(h.n)*tb.TicksPerScan)
		if end > before || uint64(h.end()) > folded {
			return t.end(run, false)
		}
		for len(keep) > 0 && keep[0].To <= begin {
			keep = keep[1:]
		}
		wanted := len(keep) > 0 && keep[0].From < end
		if n := len(run); n > 0 && (wanted || run[n-1].end() != h.first) {
			if _, err := t.end(run, true); err != nil {
				return t.next, err
			}
			run = run[:0]
		}
		if wanted {
			t.next = uint64(h.no) + 1
		} else {
			run = append(run, h)
		}
	}
	return t.end(run, false)
}

// rolling is one Thin.
type rolling struct {
	d     *DB
	ctx   context.Context
	op    string
	id    TaskID
	setup *measure.Setup
	next  uint64
}

// end deletes a run of chunks, some a transaction. One that is too short stays: for good where it is whole, and
// until there is more of it otherwise.
func (t *rolling) end(run []head, whole bool) (next uint64, err error) {
	for part := range slices.Chunk(run, retireBatch) {
		done := false
		err := t.d.write(t.ctx, t.op, func(s *session) { done = t.thin(s, part, run) })
		if err != nil {
			return t.next, err
		}
		if !done && !whole {
			return t.next, nil
		}
		t.next = uint64(part[len(part)-1].no) + 1
	}
	return t.next, nil
}

// thin puts the sums of chunks in their place, or adds them to those before; false where the run is too short.
func (t *rolling) thin(s *session, part, run []head) bool {
	sh := shape{t.setup.Timebase, len(t.setup.Channels)}
	read := func(no ChunkNo) (c *chunk.Chunk) {
		c = &chunk.Chunk{}
		s.fail(readChunk(t.ctx, s.on, t.id, uint64(no), sh, c))
		return c
	}
	first, last := part[0], part[len(part)-1]
	var behind *chunk.Chunk
	var no sql.NullInt64
	s.row(`SELECT max(chunk_no) FROM chunk WHERE task_id=? AND chunk_no<?`, t.id, first.no).into(&no)
	if no.Valid {
		behind = read(ChunkNo(no.Int64))
	}
	scans := last.end() - first.first
	switch {
	case s.err != nil:
		return false
	case behind != nil && (behind.Sums == nil || int64(behind.FirstScan)+int64(behind.Scans) != first.first ||
		int64(behind.Scans)+scans > chunk.MaxThinned):
		behind = nil
	}
	if behind == nil && run[len(run)-1].end()-first.first < thinLeast {
		return false
	}
	sums, err := chunk.NewThinning(t.setup, behind)
	s.fail(err)
	for i := 0; i < len(part) && s.err == nil; i++ {
		if c := read(part[i].no); s.err == nil {
			s.fail(sums.Add(c))
		}
	}
	if s.err != nil {
		return false
	}
	c, err := sums.Chunk()
	s.fail(err)
	from, gone := first.no, int64(len(part))
	if behind != nil {
		from, gone = ChunkNo(behind.No), gone+1
		s.exec(`DELETE FROM event WHERE task_id=? AND kind=? AND first_scan=?`,
			t.id, measure.EventThinned, int64(c.FirstScan))
	}
	s.exec(`DELETE FROM chunk WHERE task_id=? AND chunk_no BETWEEN ? AND ?`, t.id, from, last.no) // with its columns
	s.exec(putChunk, t.id, c.No, c.FirstScan, c.Scans, c.FirstTick, c.CRC)
	putSums(s, t.id, c)
	dropFinePages(s, t.id, c)
	putEvents(s, t.id, []measure.Event{{
		Kind: measure.EventThinned, FirstScan: c.FirstScan, Scans: uint64(c.Scans), Exact: true, Channel: -1,
		Detail: "samples deleted while the capture ran (--keep): their sums are left",
	}})
	s.must(`UPDATE task SET chunks=chunks+? WHERE task_id=? AND state=?`, 1-gone, t.id, Running)
	return s.err == nil
}

// dropFinePages deletes the finest bins of deleted scans, where those of the next level are complete: plots need no
// finer ones. Those that a fold would read to go on stay.
func dropFinePages(s *session, id TaskID, c *chunk.Chunk) {
	n := pyramid.PageScans(0)
	first, end := (c.FirstScan+n-1)/n, (c.FirstScan+uint64(c.Scans))/n
	above := one[uint64](s, `SELECT coalesce(max(page),0) FROM pyramid WHERE task_id=? AND level=1`, id)
	s.exec(`DELETE FROM pyramid WHERE task_id=? AND level=0 AND page>=? AND page<?`, id, first,
		min(end, above*pyramid.Ratio))
}

// putSums stores what stands in place of a chunk's columns.
func putSums(s *session, id TaskID, c *chunk.Chunk) {
	packed, err := data.Pack(c)
	s.fail(err)
	s.exec(`INSERT INTO chunk_cold(task_id,chunk_no,data) VALUES(?,?,?)`, id, int64(c.No), packed)
	s.exec(`UPDATE task SET cold=1 WHERE task_id=? AND cold=0`, id)
}

// wholeSamples fails with measure.ErrThinned where samples of a task were deleted while it ran.
func wholeSamples(s *session, id TaskID) {
	if one[bool](s, `SELECT count(*)>0 FROM event WHERE task_id=? AND kind=?`, id, measure.EventThinned) {
		s.fail(measure.ErrThinned)
	}
}
