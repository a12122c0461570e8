package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/pyramid"
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/store/internal/fold"
)

// Envelope is a stretch of a task as columns to draw: the least, greatest and mean power of each
// series within each column.
type Envelope struct {
	// Series names them: the rails, and "total" behind them where there are several.
	Series []string
	// First is the first scan; column c covers Scans·c/Columns to Scans·(c+1)/Columns
	// of those from it on, to within a bin.
	First, Scans uint64
	// From and To are its bounds in device time: those asked for, as far as there are samples.
	From, To measure.Seconds
	// BinScans is how many scans the finest bin that was looked at covers; 1 for single scans.
	BinScans uint64
	Columns  [][]pyramid.Bin // by series
}

// Total names the series that is the sum of the rails.
const Total = "total"

// Envelope reads a task's power from one device time to another, in the given number of columns,
// 1 to 65536. It reads a few thousand bins of the task's pyramid, however long the stretch is;
// where that is missing, the scans themselves. Scans at the ends belong to the nearest column.
// Errors wrap ErrNotFound or ErrNoHeader.
func (d *DB) Envelope(ctx context.Context, id TaskID, from, to measure.Seconds, columns int) (*Envelope, error) {
	op := fmt.Sprintf("read the envelope of task %d", id)
	if columns < 1 || columns > 1<<16 || !(from < to) {
		return nil, fmt.Errorf("%s: %d columns from %v to %v: want 1 to 65536 columns and an end after the begin", op,
			columns, from, to)
	}
	setup, cal, err := d.setupOf(ctx, id, d.unlessMine(id))
	if err != nil {
		return nil, wrap(op, err)
	}
	e := &enveloper{ctx: ctx, d: d, id: id, setup: setup, out: Envelope{From: from, To: to}}
	s := d.reading(ctx)
	first, end := scanAt(s, id, setup.Timebase, from), scanAt(s, id, setup.Timebase, to)
	e.out.First, e.out.Scans = first, max(end, first+1)-first
	// The stretch is cut at the first and the last scan: columns share out the scans that there are, and
	// would otherwise stand at wrong times.
	lo, hi, err := d.Extent(ctx, id)
	if err := errors.Join(s.err, err); err != nil {
		return nil, wrap(op, err)
	}
	if lo < to && from < hi {
		e.out.From, e.out.To = max(from, lo), min(to, hi)
	}
	e.out.Series = lists.Map(setup.Rails, func(r measure.Rail) string { return r.Name })
	if len(setup.Rails) > 1 {
		e.out.Series = append(e.out.Series, Total)
	}
	e.columns = pyramid.NewColumns(len(e.out.Series), columns, e.out.First, e.out.Scans)
	e.out.Columns = e.columns.Bins
	s.row(`SELECT w.scans=t.scans AND w.calibration_id=?2, w.calibration_id<>?2
		FROM pyramid_whole w JOIN task t USING(task_id) WHERE w.task_id=?1`, id, cal).found(&e.whole, &e.stale)
	s.fail(e.read(columns))
	return &e.out, wrap(op, s.err)
}

// enveloper is one Envelope.
type enveloper struct {
	ctx   context.Context
	d     *DB
	id    TaskID
	setup *measure.Setup
	whole bool // missing pages have no scans
	stale bool // the pages are of another calibration
	// columns are those of out.
	columns *pyramid.Columns
	out     Envelope
}

// read chooses the coarsest level whose bins are still finer than the columns.
func (e *enveloper) read(columns int) error {
	per := e.out.Scans / uint64(columns)
	level := -1
	for level+1 < pyramid.Levels && pyramid.BinScans(level+1) <= per {
		level++
	}
	end := e.out.First + e.out.Scans
	if level < 1 && !e.stale && one[bool](e.d.reading(e.ctx), `SELECT count(*)>0 FROM event WHERE task_id=? AND kind=?
		AND first_scan<? AND first_scan+scans>?`, e.id, measure.EventThinned, int64(end), int64(e.out.First)) {
		level = 1 // its bins are left of deleted samples
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

// missing fills pages from one number to before another, from the level below. Where the pyramid
// is whole they have no scans.
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

// drawn keeps the memory of chunks from one envelope to the next: a viewer who moves through a
// trace asks for many.
var drawn = sync.Pool{New: func() any { return new(chunk.Chunk) }}

// scans adds the scans from one to another, unpacking only the blocks that they lie in.
func (e *enveloper) scans(from, end uint64) error {
	f, err := fold.New(e.setup)
	if err != nil {
		return err
	}
	s := e.d.reading(e.ctx)
	no := chunkAt(s, e.id, from)
	if s.err != nil {
		return s.err
	}
	memory := drawn.Get().(*chunk.Chunk)
	defer drawn.Put(memory)
	for c, err := range e.d.chunksInto(e.ctx, e.id, no, memory) {
		if err == nil {
			err = f.Blocks(c, from, end, func(first uint64, at, n int) { e.run(f, first, at, n) })
		}
		if err != nil || c.FirstScan+uint64(c.Scans) >= end { // the next one would be read for nothing
			return err
		}
	}
	return nil
}

// run adds scans at to n of a block that begins with scan first, in runs of one column.
func (e *enveloper) run(f *fold.Folder, first uint64, at, n int) {
	for at < n {
		scan := first + uint64(at)
		m := min(n-at, measure.RunScans, e.columns.Room(scan))
		e.columns.Join(scan, m, f.Extremes(at, m))
		at += m
	}
}

// eachPage reads stored pages first to last of a level, in order; do must not keep data.
func (d *DB) eachPage(ctx context.Context, id TaskID, level int, first, last uint64,
	do func(number uint64, data []byte) error,
) error {
	s := d.reading(ctx)
	for rows := range s.rows(`SELECT page, data FROM pyramid WHERE task_id=? AND level=? AND page BETWEEN ? AND ?
		ORDER BY page`, id, level, int64(first), int64(last)) {
		var number uint64
		var data sql.RawBytes
		if err := rows.Scan(&number, &data); err != nil {
			return misread(ctx, err)
		}
		if err := do(number, data); err != nil {
			return fmt.Errorf("%w: level %d, page %d: %w", ErrCorrupt, level, number, err)
		}
	}
	return s.err
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

// MaxSpanScans is the longest span that SpanEnergy integrates, so that one question
// cannot keep a processor for minutes: 55 minutes at 20 kHz are within it.
const MaxSpanScans = 1 << 26

// ErrSpan: a span of device time cannot be integrated.
var ErrSpan = errors.New("bad span")

// SpanEnergy integrates a task's power from one device time to another, under the calibration in use. It
// reads the chunks of the span and one on either side. The uncertainty takes the two times as exact. Errors
// wrap ErrNotFound, ErrNoHeader, ErrSpan or measure.ErrWindow.
func (d *DB) SpanEnergy(ctx context.Context, id TaskID, from, to measure.Seconds) (measure.Result, error) {
	op := fmt.Sprintf("integrate task %d from %v to %v", id, from, to)
	setup, _, err := d.setupOf(ctx, id, d.unlessMine(id))
	if err != nil {
		return measure.Result{}, wrap(op, err)
	}
	g, err := measure.NewIntegrator(setup, from, to)
	if err != nil {
		return measure.Result{}, fmt.Errorf("%s: %w", op, err)
	}
	// Chunks behind the span add nothing.
	behind := func() bool {
		_, last, ok := g.Covered()
		return ok && last > to
	}
	if err := d.eachBlock(ctx, id, setup, from, to, g.Add, behind); err != nil {
		return measure.Result{}, wrap(op, err)
	}
	r, err := g.Result(measure.Edges{})
	if errors.Is(err, measure.ErrNoData) { // it knows of the chunks near the span only
		lo, hi, _ := d.Extent(ctx, id)
		return measure.Result{}, fmt.Errorf("%s: %w: the task has samples from %v to %v", op, measure.ErrNoData, lo, hi)
	}
	if err != nil {
		return measure.Result{}, fmt.Errorf("%s: %w", op, err)
	}
	return r, nil
}

// spanFirst returns the chunk before the one that a span begins in: a rail's window
// may be moved by its channels' skew.
func (d *DB) spanFirst(ctx context.Context, id TaskID, tb measure.Timebase, from, to measure.Seconds) (uint64, error) {
	s := d.reading(ctx)
	tick := tb.Ticks(from)
	no := lastChunk(s, id, func(_ uint64, first int64) bool { return float64(first) <= tick })
	if a, b := scanAt(s, id, tb, from), scanAt(s, id, tb, to); b > a && b-a > MaxSpanScans {
		s.fail(fmt.Errorf("%w: %s: at most %d at once; part it, the parts add up", ErrSpan, measure.Plural(b-a, "sample"),
			uint64(MaxSpanScans)))
	}
	return one[uint64](s, `SELECT coalesce(max(chunk_no),?2) FROM chunk WHERE task_id=?1 AND chunk_no<?2`, id, no), s.err
}

// Window returns the window of a task's result in use, in device time; ok is false
// where there is none. Errors wrap ErrNotFound.
func (d *DB) Window(ctx context.Context, id TaskID) (from, to measure.Seconds, ok bool, err error) {
	s := d.reading(ctx)
	if !s.row(`SELECT has_result, from_s, to_s FROM task t WHERE task_id=?`+d.unlessMine(id), id).
		found(&ok, (*real)(&from), (*real)(&to)) {
		s.fail(ErrNotFound)
	}
	return from, to, ok && from < to, wrap(fmt.Sprintf("read the window of task %d", id), s.err)
}

// ChunkAt returns the number and the first scan of the last chunk of a task that begins at or before a scan: of its
// first chunk where none does, and 0 without chunks.
func (d *DB) ChunkAt(ctx context.Context, id TaskID, scan uint64) (no, firstScan uint64, err error) {
	s := d.reading(ctx)
	no = chunkAt(s, id, scan)
	s.row(`SELECT first_scan FROM chunk WHERE task_id=? AND chunk_no=?`, id, int64(no)).found(&firstScan)
	return no, firstScan, wrap(fmt.Sprintf("look for scan %d of task %d", scan, id), s.err)
}

// chunkAt returns the number of the last chunk that begins at or before a scan; 0
// where none does. Chunks' scans grow with their numbers.
func chunkAt(s *session, id TaskID, scan uint64) uint64 {
	return lastChunk(s, id, func(first uint64, _ int64) bool { return first <= scan })
}

// lastChunk returns the number of the last chunk that before holds of, by halving.
func lastChunk(s *session, id TaskID, before func(firstScan uint64, firstTick int64) bool) uint64 {
	var lo, hi sql.NullInt64
	s.row(`SELECT min(chunk_no), max(chunk_no) FROM chunk WHERE task_id=?`, id).into(&lo, &hi)
	best := lo.Int64
	for a, b := lo.Int64, hi.Int64; lo.Valid && a <= b && s.err == nil; {
		mid := a + (b-a)/2
		var no, first, tick int64
		s.row(`SELECT chunk_no, first_scan, first_tick FROM chunk WHERE task_id=? AND chunk_no>=? ORDER BY chunk_no
			LIMIT 1`, id, mid).into(&no, &first, &tick)
		if before(uint64(first), tick) {
			best, a = no, max(no, mid)+1
		} else {
			b = mid - 1
		}
	}
	return uint64(best)
}

// scanAt returns the number of the scan at a device time, as near as ticks at an even distance
// up to the next chunk allow; before the first chunk it is the first scan, and 0 without chunks.
func scanAt(s *session, id TaskID, tb measure.Timebase, at measure.Seconds) uint64 {
	tick := tb.Ticks(at)
	no := lastChunk(s, id, func(_ uint64, first int64) bool { return float64(first) <= tick })
	var first, n, start int64
	s.row(`SELECT first_scan, coalesce((SELECT first_scan FROM chunk WHERE task_id=?1 AND chunk_no>?2
		ORDER BY chunk_no LIMIT 1)-first_scan, n), first_tick FROM chunk WHERE task_id=?1 AND chunk_no=?2`, id,
		int64(no)).found(&first, &n, &start)
	in := math.Ceil((tick - float64(start)) / tb.TicksPerScan)
	return uint64(first) + uint64(min(max(in, 0), float64(n)))
}

// Extent returns the span of device time in which a task has samples; both are 0
// where it has none. Errors wrap ErrNotFound or ErrNoHeader.
func (d *DB) Extent(ctx context.Context, id TaskID) (from, to measure.Seconds, err error) {
	s := d.reading(ctx)
	tb := s.shapeOf(id, d.unlessMine(id)).tb
	var first, last, n int64
	if s.row(`SELECT a.first_tick, b.first_tick, b.n FROM
		(SELECT first_tick FROM chunk WHERE task_id=?1 ORDER BY chunk_no LIMIT 1) a,
		(SELECT first_tick, n FROM chunk WHERE task_id=?1 ORDER BY chunk_no DESC LIMIT 1) b`, id).
		found(&first, &last, &n) {
		from, to = tb.Seconds(float64(first)), tb.Seconds(float64(last)+float64(n)*tb.TicksPerScan)
	}
	return from, to, wrap(fmt.Sprintf("read the extent of task %d", id), s.err)
}

// AtWall returns what the whole machine took over a window by the meter at its wall, given the card's result
// there with the uncertainty of the window's ends. It reads the window's chunks. Errors wrap
// ErrNotFound, ErrNoHeader, ErrSpan, or those of package wall: ErrNone where there is no such meter.
func (d *DB) AtWall(ctx context.Context, id TaskID, card *measure.Result, e measure.Edges) (*wall.Result, error) {
	op := fmt.Sprintf("the whole machine's energy of task %d", id)
	setup, _, err := d.setupOf(ctx, id, "")
	if err != nil {
		return nil, wrap(op, err)
	}
	m, err := wall.New(setup, measure.Window{From: card.From, To: card.To})
	if err != nil {
		return nil, err
	}
	if err := d.eachBlock(ctx, id, setup, card.From-2*wall.Reach(setup), card.To, m.Add, m.Done); err != nil {
		return nil, wrap(op, err)
	}
	return m.Result(card, e)
}

// eachBlock hands a task's blocks on, from the chunk before a span on until done.
func (d *DB) eachBlock(ctx context.Context, id TaskID, s *measure.Setup, from, to measure.Seconds,
	add func(*measure.Block) error, done func() bool,
) error {
	first, err := d.spanFirst(ctx, id, s.Timebase, from, to)
	if err != nil {
		return err
	}
	for b, err := range chunk.DecodeAllSums(d.Chunks(ctx, id, first), s) {
		if err == nil {
			err = add(b)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || done() {
			return err
		}
	}
	return nil
}
