package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/pyramid"
	"github.com/wattmark/wattmark/store/internal/data"
)

// A thinned task has chunks of sums in place of chunks that were deleted (chunk.Thinning), each with an event of its
// scans. It counts as cold, so that the plain view shows no part of it.

// thinLeast is how many scans are deleted together at least: the sums of fewer would take more room than they.
const thinLeast = 1 << 14

// Thin deletes samples of a running task, in whole chunks from a number on: those that end before a device time, touch no
// window of keep, which are in order and apart, and are in the pyramid. The sums that take their place are written in the same transactions. It
// returns the chunk to go on with. A task of a meter whose channels need their neighbours is refused.
func (d *DB) Thin(ctx context.Context, id TaskID, from uint64, before measure.Seconds, keep []measure.Window,
) (next uint64, err error) {
	op := fmt.Sprintf("thin task %d", id)
	setup, _, err := d.setupOf(ctx, id)
	if err == nil {
		_, err = measure.NewThinned(setup)
	}
	if err != nil {
		return from, wrap(op, err)
	}
	t := rolling{d: d, ctx: ctx, op: op, id: id, setup: setup, next: from}
	s, tb := d.reading(ctx), setup.Timebase
	// Of the pages that are stored, the last one may not be full.
	folded := pyramid.PageScans(0) * one[uint64](s, `SELECT coalesce(max(page),0) FROM pyramid WHERE task_id=? AND level=0`, id)
	heads := all(s, func(rows *sql.Rows, h *head) error { return rows.Scan(&h.no, &h.first, &h.n, &h.tick) },
		`SELECT chunk_no, first_scan, n, first_tick FROM chunk WHERE task_id=? AND chunk_no>=? ORDER BY chunk_no`, id, int64(from))
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
	read := func(no int64) (c *chunk.Chunk) {
		c = &chunk.Chunk{}
		s.fail(readChunk(t.ctx, s.on, t.id, uint64(no), sh, c))
		return c
	}
	first, last := part[0], part[len(part)-1]
	var behind *chunk.Chunk
	var no sql.NullInt64
	s.row(`SELECT max(chunk_no) FROM chunk WHERE task_id=? AND chunk_no<?`, t.id, first.no).into(&no)
	if no.Valid {
		behind = read(no.Int64)
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
		from, gone = int64(behind.No), gone+1
		s.exec(`DELETE FROM event WHERE task_id=? AND kind=? AND first_scan=?`, t.id, measure.EventThinned, int64(c.FirstScan))
	}
	s.exec(`DELETE FROM chunk WHERE task_id=? AND chunk_no BETWEEN ? AND ?`, t.id, from, last.no) // with its columns
	s.exec(putChunk, t.id, int64(c.No), int64(c.FirstScan), c.Scans, c.FirstTick, int64(c.CRC))
	putSums(s, t.id, c)
	putEvents(s, t.id, []measure.Event{{
		Kind: measure.EventThinned, FirstScan: c.FirstScan, Scans: uint64(c.Scans), Exact: true, Channel: -1,
		Detail: "samples deleted while the capture ran (--keep): their sums are left",
	}})
	s.must(`UPDATE task SET chunks=chunks+? WHERE task_id=? AND state=?`, 1-gone, t.id, Running)
	return s.err == nil
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
