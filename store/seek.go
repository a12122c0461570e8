package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
)

// chunkAt returns the number of the last chunk that begins at or before a scan; 0
// where none does. Chunks' scans grow with their numbers.
func (d *DB) chunkAt(ctx context.Context, id TaskID, scan uint64) (uint64, error) {
	return d.lastChunk(ctx, id, func(first uint64, _ int64) bool { return first <= scan })
}

// lastChunk returns the number of the last chunk that before holds of, by halving.
func (d *DB) lastChunk(ctx context.Context, id TaskID, before func(firstScan uint64, firstTick int64) bool) (uint64, error) {
	var lo, hi sql.NullInt64
	if err := d.reader.QueryRowContext(ctx, `SELECT min(chunk_no), max(chunk_no) FROM chunk WHERE task_id=?`, int64(id)).Scan(&lo, &hi); err != nil || !lo.Valid {
		return 0, err
	}
	best := lo.Int64
	for a, b := lo.Int64, hi.Int64; a <= b; {
		mid := a + (b-a)/2
		var no, first, tick int64
		if err := d.reader.QueryRowContext(ctx, `SELECT chunk_no, first_scan, first_tick FROM chunk WHERE task_id=? AND chunk_no>=?
			ORDER BY chunk_no LIMIT 1`, int64(id), mid).Scan(&no, &first, &tick); err != nil {
			return 0, err
		}
		if before(uint64(first), tick) {
			best, a = no, max(no, mid)+1
		} else {
			b = mid - 1
		}
	}
	return uint64(best), nil
}

// scanAt returns the number of the scan at a device time, as near as ticks at an
// even distance up to the next chunk tell; before the first chunk it is that one's first.
func (d *DB) scanAt(ctx context.Context, id TaskID, tb measure.Timebase, at measure.Seconds) (uint64, error) {
	tick := tb.Ticks(at)
	no, err := d.lastChunk(ctx, id, func(_ uint64, first int64) bool { return float64(first) <= tick })
	if err != nil {
		return 0, err
	}
	var first, n, start int64
	err = d.reader.QueryRowContext(ctx, `SELECT first_scan, coalesce((SELECT first_scan FROM chunk WHERE task_id=?1 AND chunk_no>?2
		ORDER BY chunk_no LIMIT 1)-first_scan, n), first_tick FROM chunk WHERE task_id=?1 AND chunk_no=?2`, int64(id), int64(no)).Scan(&first, &n, &start)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil // no chunks
	}
	if err != nil {
		return 0, err
	}
	in := math.Ceil((tick - float64(start)) / tb.TicksPerScan)
	return uint64(first) + uint64(min(max(in, 0), float64(n))), nil
}

// Extent returns the span of device time in which a task has samples; both are 0
// where it has none. Errors wrap ErrNotFound or ErrNoHeader.
func (d *DB) Extent(ctx context.Context, id TaskID) (from, to measure.Seconds, err error) {
	op := fmt.Sprintf("read the extent of task %d", id)
	sh, err := scanShape(d.reader.QueryRowContext(ctx, shapeSQL+d.unlessMine(id), int64(id)))
	if err != nil {
		return 0, 0, wrap(op, err)
	}
	var first, last, n int64
	err = d.reader.QueryRowContext(ctx, `SELECT a.first_tick, b.first_tick, b.n FROM
		(SELECT first_tick FROM chunk WHERE task_id=?1 ORDER BY chunk_no LIMIT 1) a,
		(SELECT first_tick, n FROM chunk WHERE task_id=?1 ORDER BY chunk_no DESC LIMIT 1) b`, int64(id)).Scan(&first, &last, &n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil
	}
	return sh.tb.Seconds(float64(first)), sh.tb.Seconds(float64(last) + float64(n)*sh.tb.TicksPerScan), wrap(op, err)
}
