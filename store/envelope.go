package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"wattmark/measure"
	"wattmark/measure/chunk"
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
	if err := d.shown(ctx, id); err != nil {
		return nil, wrap(op, err)
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
	// columns are those of out.
	columns *pyramid.Columns
	out     Envelope
}

func (e *enveloper) shape(columns int) {
	for _, r := range e.setup.Rails {
		e.out.Series = append(e.out.Series, r.Name)
	}
	if len(e.setup.Rails) > 1 {
		e.out.Series = append(e.out.Series, Total)
	}
	e.columns = pyramid.NewColumns(len(e.out.Series), columns, e.out.First, e.out.Scans)
	e.out.Columns = e.columns.Bins
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

// pages adds the bins of pages first to last of a level; those that are not stored
// are put together from the level below, and at last from scans.
func (e *enveloper) pages(level int, first, last uint64) error {
	next, gaps := first, [][2]uint64(nil) // looked at when the rows are closed: the pool may have no other connection
	err := e.d.eachPage(e.ctx, e.id, level, first, last, func(number uint64, data []byte) error {
		if number > next {
			gaps = append(gaps, [2]uint64{next, number})
		}
		next = number + 1
		return e.columns.JoinStored(level, number, data)
	})
	if err != nil {
		return err
	}
	for _, g := range append(gaps, [2]uint64{next, last + 1}) {
		if err := e.missing(level, g[0], g[1]); err != nil {
			return err
		}
	}
	return nil
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

// drawn keeps the memory of chunks from one envelope to the next: who looks around in a
// trace asks for many.
var drawn = sync.Pool{New: func() any { return new(chunk.Chunk) }}

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
	memory := drawn.Get().(*chunk.Chunk)
	defer drawn.Put(memory)
	for c, err := range e.d.chunksInto(e.ctx, e.id, no, memory) {
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
	for at < n {
		scan := first + uint64(at)
		m := min(n-at, measure.RunScans, e.columns.Room(scan))
		f.meter.Extremes(f.cols, at, at+m, f.series, f.runs)
		e.columns.Join(scan, m, f.runs[:f.series])
		at += m
	}
}

// eachPage reads stored pages first to last of a level, in order; do must not keep data.
func (d *DB) eachPage(ctx context.Context, id TaskID, level int, first, last uint64, do func(number uint64, data []byte) error) error {
	return d.lend(ctx, d.reader, func(row []driver.Value) error {
		r := lentRow{row: row}
		number, data := uint64(r.integer()), r.blob()
		if r.err != nil {
			return r.err
		}
		if err := do(number, data); err != nil {
			return fmt.Errorf("%w: level %d, page %d: %w", ErrCorrupt, level, number, err)
		}
		return nil
	}, "page, data", "pyramid WHERE task_id=?1 AND level=?2 AND page BETWEEN ?3 AND ?4 ORDER BY page", int64(id), level, int64(first), int64(last))
}

// page reads a stored page; nil where there is none.
func (d *DB) page(ctx context.Context, id TaskID, level int, number uint64) (*pyramid.Page, error) {
	p := &pyramid.Page{Level: level, Number: number}
	err := d.eachPage(ctx, id, level, number, number, func(_ uint64, data []byte) error { return p.Parse(data) })
	if err != nil || p.Series == nil {
		return nil, err
	}
	return p, nil
}
