package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/measure/pyramid"
)

// Envelope is a stretch of a task as columns to draw: what each series' power did
// within each.
type Envelope struct {
	// Series names them: the rails, and "total" behind them where there are several.
	Series []string
	// First is the first scan; column c covers Scans·c/Columns to Scans·(c+1)/Columns
	// of those from it on, to within a bin.
	First, Scans uint64
	// From and To are its bounds in device time: those asked for, as far as there are
	// samples.
	From, To measure.Seconds
	// BinScans is how many scans the finest bin that was looked at covers; 1 for
	// single scans.
	BinScans uint64
	Columns  [][]pyramid.Bin // by series
}

// Total names the series that is the sum of the rails.
const Total = "total"

// Envelope reads what a task's power did from one device time to another, in so
// many columns. It takes a few thousand bins of the task's pyramid, however long the
// stretch is; where that is missing, the scans themselves. Scans at the ends belong
// to the nearest column. Errors wrap ErrNotFound or ErrNoHeader.
func (d *DB) Envelope(ctx context.Context, id TaskID, from, to measure.Seconds, columns int) (*Envelope, error) {
	op := fmt.Sprintf("read the envelope of task %d", id)
	if columns < 1 || columns > 1<<16 || !(from < to) {
		return nil, fmt.Errorf("%s: %d columns from %v to %v: want 1 to 65536 columns and an end after the begin", op, columns, from, to)
	}
	setup, cal, err := d.setupOf(ctx, id)
	if err != nil {
		return nil, wrap(op, err)
	}
	e := &enveloper{ctx: ctx, d: d, id: id, setup: setup, out: Envelope{From: from, To: to}}
	if err := errors.Join(e.bounds(from, to), e.clip()); err != nil {
		return nil, wrap(op, err)
	}
	e.shape(columns)
	err = d.reader.QueryRowContext(ctx, `SELECT w.scans=t.scans AND w.calibration_id=?2, w.calibration_id<>?2
		FROM pyramid_whole w JOIN task t USING(task_id) WHERE w.task_id=?1`, int64(id), cal).Scan(&e.whole, &e.stale)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, wrap(op, err)
	}
	if err := e.read(columns); err != nil {
		return nil, wrap(op, err)
	}
	return &e.out, nil
}

// enveloper is one Envelope.
type enveloper struct {
	ctx   context.Context
	d     *DB
	id    TaskID
	setup *measure.Setup
	whole bool // what has no page has no scans
	stale bool // the pages are of another calibration
	out   Envelope
}

func (e *enveloper) shape(columns int) {
	for _, r := range e.setup.Rails {
		e.out.Series = append(e.out.Series, r.Name)
	}
	if len(e.setup.Rails) > 1 {
		e.out.Series = append(e.out.Series, Total)
	}
	nan := measure.Watt(math.NaN())
	e.out.Columns = make([][]pyramid.Bin, len(e.out.Series))
	for s := range e.out.Columns {
		e.out.Columns[s] = make([]pyramid.Bin, columns)
		for c := range e.out.Columns[s] {
			e.out.Columns[s][c] = pyramid.Bin{Min: nan, Max: nan}
		}
	}
}

// bounds turns device times to scans.
func (e *enveloper) bounds(from, to measure.Seconds) error {
	first, err := e.d.scanAt(e.ctx, e.id, e.setup.Timebase, from)
	if err != nil {
		return err
	}
	end, err := e.d.scanAt(e.ctx, e.id, e.setup.Timebase, to)
	if err != nil {
		return err
	}
	e.out.First, e.out.Scans = first, max(end, first+1)-first
	return nil
}

// clip takes off what reaches beyond the first and the last scan: columns share out
// the scans that there are, and would stand at wrong times.
func (e *enveloper) clip() error {
	lo, hi, err := e.d.Extent(e.ctx, e.id)
	if err != nil || !(lo < e.out.To && e.out.From < hi) {
		return err
	}
	e.out.From, e.out.To = max(e.out.From, lo), min(e.out.To, hi)
	return nil
}

// read chooses the coarsest level whose bins are still finer than the columns.
func (e *enveloper) read(columns int) error {
	per := e.out.Scans / uint64(columns)
	level := -1
	for level+1 < pyramid.Levels && pyramid.BinScans(level+1) <= per {
		level++
	}
	if level < 0 || e.stale {
		e.out.BinScans = 1
		return e.scans(e.out.First, e.out.First+e.out.Scans)
	}
	e.out.BinScans = pyramid.BinScans(level)
	n := pyramid.PageScans(level)
	return e.pages(level, e.out.First/n, (e.out.First+e.out.Scans-1)/n)
}

// add puts a bin into the column that its first scan lies in.
func (e *enveloper) add(scan uint64, s int, b pyramid.Bin) {
	if b.N == 0 || scan+e.out.BinScans <= e.out.First || scan >= e.out.First+e.out.Scans {
		return
	}
	at := uint64(0)
	if scan > e.out.First {
		at = scan - e.out.First
	}
	c := at * uint64(len(e.out.Columns[s])) / e.out.Scans
	e.out.Columns[s][c].Join(b)
}

// pages adds the bins of pages first to last of a level; those that are not stored
// are put together from the level below, and at last from scans.
func (e *enveloper) pages(level int, first, last uint64) error {
	list, err := e.d.pages(e.ctx, e.id, level, first, last)
	if err != nil {
		return err
	}
	next := first
	for _, p := range list {
		if err := e.missing(level, next, p.Number); err != nil {
			return err
		}
		for s := range e.out.Columns {
			for i, b := range p.Series[s] {
				e.add(p.Number*pyramid.PageScans(level)+uint64(i)*pyramid.BinScans(level), s, b)
			}
		}
		next = p.Number + 1
	}
	return e.missing(level, next, last+1)
}

func (e *enveloper) missing(level int, from, end uint64) error {
	if from >= end || e.whole {
		return nil
	}
	if level > 0 {
		return e.pages(level-1, from*pyramid.Ratio, end*pyramid.Ratio-1)
	}
	n := pyramid.PageScans(0)
	return e.scans(max(from*n, e.out.First), min(end*n, e.out.First+e.out.Scans))
}

// scans adds the scans from one to another, unpacking only the blocks that they lie in.
func (e *enveloper) scans(from, end uint64) error {
	f, err := newFolding(e.setup)
	if err != nil {
		return err
	}
	no, err := e.d.chunkAt(e.ctx, e.id, from)
	if err != nil {
		return err
	}
	for c, err := range e.d.Chunks(e.ctx, e.id, no) {
		if err == nil {
			err = f.blocks(c, from, end, func(first uint64, at, n int) { e.run(f, first, at, n) })
		}
		if err != nil || c.FirstScan+uint64(c.Scans) >= end { // the next one would be read for nothing
			return err
		}
	}
	return nil
}

// run adds scans at to n of a block that begins with scan first, in runs of one column.
func (e *enveloper) run(f *folding, first uint64, at, n int) {
	columns := uint64(len(e.out.Columns[0]))
	for at < n {
		scan := first + uint64(at)
		m := min(n-at, measure.RunScans)
		if in := scan - e.out.First; scan >= e.out.First && in < e.out.Scans {
			// The next column begins with the scan whose number is not less than its part.
			next := ((in*columns/e.out.Scans+1)*e.out.Scans + columns - 1) / columns
			m = min(m, int(next-in))
		}
		f.meter.Extremes(f.cols, at, at+m, f.series, f.runs)
		for s, x := range f.runs[:f.series] {
			e.add(scan, s, pyramid.Bin{Min: x.Min, Max: x.Max, Sum: x.Sum, N: uint32(m)})
		}
		at += m
	}
}

// pages reads stored pages first to last of a level, in order.
func (d *DB) pages(ctx context.Context, id TaskID, level int, first, last uint64) ([]*pyramid.Page, error) {
	rows, err := d.reader.QueryContext(ctx, `SELECT page, data FROM pyramid WHERE task_id=? AND level=? AND page BETWEEN ? AND ? ORDER BY page`,
		int64(id), level, int64(first), int64(last))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*pyramid.Page
	var data sql.RawBytes
	for rows.Next() {
		p := &pyramid.Page{Level: level}
		if err := rows.Scan(&p.Number, &data); err != nil {
			return nil, err
		}
		if err := p.Parse(data); err != nil {
			return nil, fmt.Errorf("%w: level %d, page %d: %w", ErrCorrupt, level, p.Number, err)
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

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
	st, err := d.reader.PrepareContext(ctx, `SELECT chunk_no, first_scan, first_tick FROM chunk WHERE task_id=? AND chunk_no>=? ORDER BY chunk_no LIMIT 1`)
	if err != nil {
		return 0, err
	}
	defer st.Close()
	best := lo.Int64
	for a, b := lo.Int64, hi.Int64; a <= b; {
		mid := a + (b-a)/2
		var no, first, tick int64
		if err := st.QueryRowContext(ctx, int64(id), mid).Scan(&no, &first, &tick); err != nil {
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
	sh, err := scanShape(d.reader.QueryRowContext(ctx, shapeSQL, int64(id)))
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
