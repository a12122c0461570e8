package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/pyramid"
	"github.com/wattmark/wattmark/store/internal/fold"
)

// folding is the pyramid that grows with a task. Invariant: the folder holds the pages of all chunks that
// were folded and whose pages were not handed over; the pages handed over before are stored, or are lost
// with the transaction that failed, and then the whole folding is dropped (deleted from DB.folds).
type folding struct {
	// mu: on a server several goroutines may store chunks of one task. Chunks that were folded
	// already are left out.
	mu sync.Mutex
	*fold.Folder
	calibration int64
}

// folding returns the pyramid that grows with a task. The first call resumes it behind the stored pages.
func (d *DB) folding(ctx context.Context, id TaskID) (*folding, error) {
	// Two goroutines may resume the same pyramid at once; both come to the same pages, the later one stays
	// in the map.
	if f, known := d.folds.Load(id); known {
		return f.(*folding), nil
	}
	f, err := d.newFolding(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := f.resume(ctx, d, id, nil); err != nil {
		return nil, err
	}
	d.folds.Store(id, f)
	return f, nil
}

// newFolding begins a task's pyramid, of the calibration in use. One that was changed after
// it was stored is ErrCorrupt.
func (d *DB) newFolding(ctx context.Context, id TaskID) (*folding, error) {
	setup, calibration, err := d.setupOf(ctx, id, "")
	if err != nil {
		return nil, err
	}
	// Pages of changed numbers would look like a measurement.
	s := d.reading(ctx)
	isAsDigested(s, calibration, setup)
	if s.err != nil {
		return nil, s.err
	}
	f, err := fold.New(setup)
	return &folding{Folder: f, calibration: calibration}, err
}

// resume goes on behind the last page of the lowest level, reading the chunks from there on. Level 0 has
// the finest bins; higher levels are folded from it. Its last page may not be full: the folder reads it
// back and goes on in it. spill takes complete pages on the way; nil keeps them for the next fold.
func (f *folding) resume(ctx context.Context, d *DB, id TaskID, spill func([]fold.Page) error) error {
	s := d.reading(ctx)
	last := one[sql.NullInt64](s, `SELECT max(page) FROM pyramid WHERE task_id=? AND level=0`, id)
	if s.err != nil {
		return s.err
	}
	from := uint64(0)
	if last.Valid {
		err := f.Resume(uint64(last.Int64),
			func(level int, page uint64) (*pyramid.Page, error) { return d.page(ctx, id, level, page) })
		if err != nil {
			return err
		}
		// The chunk that holds the next scan is folded again; scans below Next are left out by Take.
		if from = chunkAt(s, id, f.Next()); s.err != nil {
			return s.err
		}
	}
	for c, err := range d.chunksInto(ctx, id, from, &chunk.Chunk{}) {
		if err == nil {
			err = f.Take(c)
		}
		// Complete pages are handed over early, else a capture of days would keep gigabytes.
		if err == nil && spill != nil && f.Pending() >= spillRows {
			err = spill(f.handOver())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// spillRows is how many pages are kept in memory while a pyramid is built anew.
// Each batch is one transaction, short enough for other writers to come in between.
const spillRows = 64

// handOver returns the complete pages.
func (f *folding) handOver() []fold.Page {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.HandOver()
}

// setupOf returns a task's setup and the number of its calibration, under a further condition on the task.
func (d *DB) setupOf(ctx context.Context, id TaskID, condition string) (setup *measure.Setup, cal int64, err error) {
	setup = &measure.Setup{}
	err = d.view(ctx, "", func(s *session) {
		var launched time.Time
		row := s.row(`SELECT coalesce(calibration_id,0), launched_ns FROM task t WHERE task_id=?`+condition, id)
		switch found := row.found(&cal, (*moment)(&launched)); {
		case !found:
			s.fail(ErrNotFound)
		case cal == 0:
			s.fail(ErrNoHeader)
		}
		readSetup(s, cal, setup)
		*setup = calib.Aged(*setup, launched)
	})
	return setup, cal, err
}

// putPages stores pages, in place of those of the same numbers.
// An upsert: the last page of a level is stored when it is not full, and replaced once it is.
func putPages(s *session, id TaskID, pages []fold.Page) {
	for _, p := range pages {
		s.exec(upsert("pyramid", "task_id,level,page", "data"), id, p.Level, int64(p.Number), p.Data)
	}
}

// finishPyramid stores the rest of a task's pyramid and marks it as whole. A pyramid that does not hold
// each scan of the task once, as where a page was stored before all of its chunks had come, is made anew.
func (d *DB) finishPyramid(ctx context.Context, id TaskID) error {
	f, err := d.folding(ctx, id)
	if errors.Is(err, ErrNoHeader) {
		return nil
	}
	if err == nil {
		err = d.closePyramid(ctx, id, f, true)
	}
	// Another process may have stored chunks of this task meanwhile, or a page is missing.
	if errors.Is(err, errPartial) {
		return d.BuildPyramid(ctx, id)
	}
	return err
}

// errPartial: the pages do not hold each scan of the task once.
var errPartial = errors.New("the pyramid does not hold all scans")

// closePyramid stores the pages that are not full and notes that the pyramid is whole. With counted,
// nothing is stored of one that holds other scans than the task has, and the error is errPartial. The map
// forgets the folding in any case: a closed one takes no chunks.
func (d *DB) closePyramid(ctx context.Context, id TaskID, f *folding, counted bool) error {
	defer d.folds.Delete(id)
	// Close makes pages of the bins that are not full; none of them is stored before.
	f.mu.Lock()
	err := f.Close()
	f.mu.Unlock()
	if err != nil {
		return err
	}
	rows := f.handOver()
	// One transaction for the last pages and the mark: pyramid_whole is there only with all pages.
	return d.write(ctx, fmt.Sprintf("store the pyramid of task %d", id), func(s *session) {
		f.inUse(s, id)
		scans := one[uint64](s, `SELECT scans FROM task WHERE task_id=?`, id)
		if counted && scans != f.Scans() {
			s.fail(errPartial)
		}
		putPages(s, id, rows)
		s.exec(upsert("pyramid_whole", "task_id", "calibration_id,scans"), id, f.calibration, int64(scans))
	})
}

// BuildPyramid makes a task's pyramid anew from its chunks, as after a new
// calibration, or for a task of an older version of this program. A calibration that was
// changed after it was stored is ErrCorrupt, and the pyramid stays as it is.
func (d *DB) BuildPyramid(ctx context.Context, id TaskID) error {
	op := fmt.Sprintf("build the pyramid of task %d", id)
	f, err := d.newFolding(ctx, id)
	if err != nil {
		return wrap(op, err)
	}
	// Deleting the old pages is a transaction of its own. From its commit to the last one the task has
	// no whole pyramid, and readers fold its chunks (see Envelope).
	// What is left of a thinned task is not enough for a new one.
	if err := d.write(ctx, op, func(s *session) {
		if wholeSamples(s, id); s.err == nil {
			s.clear(id, "pyramid", "pyramid_whole")
		}
	}); err != nil {
		return err
	}
	d.folds.Delete(id)
	err = f.resume(ctx, d, id, func(rows []fold.Page) error {
		return d.write(ctx, op, func(s *session) {
			f.inUse(s, id)
			putPages(s, id, rows)
		})
	})
	if err != nil {
		return wrap(op, err)
	}
	// Not counted: made from all chunks that are stored, it holds all there is.
	return wrap(op, d.closePyramid(ctx, id, f, false))
}

// inUse fails with ErrConflict where another calibration was put in use since the folding began:
// the call that did so makes the pyramid.
func (f *folding) inUse(s *session, id TaskID) {
	if !one[bool](s, `SELECT calibration_id=?2 FROM task WHERE task_id=?1`, id, f.calibration) {
		s.fail(fmt.Errorf("%w: another calibration was put in use meanwhile", ErrConflict))
	}
}

// BuildPyramids makes the pyramids that finished tasks lack, newest task first. tell is called with each
// task and the error of its pyramid. It returns the first error of the list itself, or the context's.
func (d *DB) BuildPyramids(ctx context.Context, tell func(TaskID, error)) error {
	// Whole means: of as many scans as the task has, and of the calibration in use. NOT EXISTS probes
	// the primary key of pyramid_whole once a task.
	ids, err := collect(ctx, d, "look for tasks without a pyramid", value[TaskID],
		`SELECT task_id FROM task t WHERE state<>?1 AND `+published+` AND chunks>0 AND calibration_id IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM event e WHERE e.task_id=t.task_id AND kind=9)
		AND NOT EXISTS (SELECT 1 FROM pyramid_whole w
		WHERE w.task_id=t.task_id AND w.scans=t.scans AND w.calibration_id=t.calibration_id) ORDER BY task_id DESC`,
		Running)
	if err != nil {
		return err
	}
	for _, id := range ids {
		err := d.BuildPyramid(ctx, id)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		tell(id, err)
	}
	return nil
}

// DeferPyramids leaves folding until a task is finished, to measure the cost of the pyramid.
func (d *DB) DeferPyramids() { d.unfold.Store(true) }

// foldBeside folds chunks into the task's pyramid while they are being stored, and returns the pages that
// were complete before, which go with them: so the disk is not waited for with folding still to be done.
// Folded must be called before the chunks are given back. A pyramid that cannot be made holds nothing up:
// it is made from the chunks when it is wanted.
func (d *DB) foldBeside(ctx context.Context, id TaskID, chunks []*chunk.Chunk) (pages []fold.Page, folded func()) {
	if len(chunks) == 0 || d.unfold.Load() {
		return nil, func() {}
	}
	f, err := d.folding(ctx, id)
	if err != nil {
		return nil, func() {}
	}
	// The pages of the call before: their chunks are committed. The pages of these chunks go with the
	// next call, when their chunks are.
	pages = f.handOver()
	var folding sync.WaitGroup
	// folded waits for its end: the caller lends the chunks until AppendChunks returns.
	folding.Go(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range chunks {
			// A chunk that was folded already is skipped by its scan numbers; one that leaves a hole in the
			// folding is an error.
			if f.Take(c) != nil {
				d.folds.Delete(id)
				return
			}
		}
	})
	return pages, folding.Wait
}

// pyramid parses all pages of a task, and returns the comparison of them with the chunks; nil
// where none is possible.
func (c *checker) pyramid(ctx context.Context, t *taskState) (*refolding, error) {
	r := &refolding{c: c, id: t.ID}
	s := c.d.reading(ctx)
	var scans, cal int64
	whole := s.row(`SELECT scans, calibration_id FROM pyramid_whole WHERE task_id=?`, t.ID).found(&scans, &cal)
	switch {
	case s.err != nil:
		return nil, s.err
	case whole && t.State != Running && uint64(scans) != t.Scans:
		r.bad("it is said to cover %d scans; the task has %d", scans, t.Scans)
		return nil, nil
	case c.strange[t.cal]:
		return nil, nil // its watts are of the calibration before its change
	}
	what, err := c.parsePages(ctx, t)
	if err != nil {
		return nil, err
	}
	if what != "" {
		r.bad("%s", what)
		return nil, nil
	}
	// The comparison needs a whole pyramid of the calibration that the chunks are read by.
	if c.opt.Quick || !whole || cal != t.cal || t.State == Running {
		return nil, nil // a pyramid that is missing or of another calibration is made when it is needed
	}
	r.fold, err = fold.New(&t.setup)
	return r, err
}

// parsePages describes the first page that cannot be read; empty where all can.
// By the primary key (task_id, level, page), page by page, in one query: pages are small.
func (c *checker) parsePages(ctx context.Context, t *taskState) (what string, err error) {
	s := c.d.reading(ctx)
	p := &pyramid.Page{}
	var data sql.RawBytes
	for rows := range s.rows(`SELECT level, page, data FROM pyramid WHERE task_id=? ORDER BY level, page`, t.ID) {
		if s.fail(rows.Scan(&p.Level, &p.Number, &data)); s.err != nil {
			break
		}
		if p.Level < 0 || p.Level >= pyramid.Levels {
			what = fmt.Sprintf("there is no level %d", p.Level)
		} else if err := p.Parse(data); err != nil {
			what = fmt.Sprintf("level %d, page %d: %v", p.Level, p.Number, err)
		} else if n := fold.Series(&t.setup); len(p.Series) != n {
			what = fmt.Sprintf("level %d, page %d: %d series of %d", p.Level, p.Number, len(p.Series), n)
		}
		if what != "" {
			break
		}
		c.out.Pages++
	}
	// A malformed database page ends the query; that is a finding about the pyramid here, not an error.
	if isCorrupt(s.err) {
		return "its pages cannot be read", nil
	}
	return what, s.err
}

// refolding makes a task's pyramid anew, in memory page by page, and compares it with the
// stored one, up to the first difference. A nil one does nothing.
type refolding struct {
	c      *checker
	id     TaskID
	fold   *fold.Folder
	differ bool
}

// bad reports a difference.
func (r *refolding) bad(format string, a ...any) {
	r.c.found(BadPyramid, r.id, "db repair makes it anew from the chunks", format, a...)
}

// take folds a chunk in, and compares the pages that it completes, some dozens at a time.
func (r *refolding) take(ctx context.Context, x *chunk.Chunk) error {
	if r == nil || r.differ {
		return nil
	}
	if err := r.fold.Take(x); err != nil {
		return err
	}
	if r.fold.Pending() < spillRows {
		// Pages are compared in batches, to keep the queries for stored pages off the path of each chunk.
		return nil
	}
	return r.compare(ctx)
}

// close compares the pages that are not full.
func (r *refolding) close(ctx context.Context) error {
	if r == nil || r.differ {
		return nil
	}
	if err := r.fold.Close(); err != nil {
		return err
	}
	return r.compare(ctx)
}

// compare compares the complete pages with the stored ones. The first difference ends the comparison.
func (r *refolding) compare(ctx context.Context) error {
	for _, p := range r.fold.HandOver() {
		what, err := r.c.comparePage(ctx, r.id, p)
		if err != nil {
			return err
		}
		if what != "" {
			r.bad("level %d, page %d: %s", p.Level, p.Number, what)
			r.differ = true
			return nil
		}
	}
	return nil
}

// comparePage describes the difference of a stored page from one that was made anew; empty where
// they agree. A capture that was interrupted has pages made from rounded ones: they agree within
// a few of their steps.
func (c *checker) comparePage(ctx context.Context, id TaskID, r fold.Page) (string, error) {
	got, err := c.d.page(ctx, id, r.Level, r.Number)
	if err != nil {
		return "", err
	}
	if got == nil {
		return "it is missing", nil
	}
	want := &pyramid.Page{Level: r.Level, Number: r.Number}
	if err := want.Parse(r.Data); err != nil {
		return "", err
	}
	for s := range want.Series {
		// Values are stored as 16-bit steps of the range of a page. The tolerance is 8 steps of that range,
		// for pages that were read back, rounded and folded again, and 10⁻⁶ of the size for float32.
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, b := range want.Series[s] {
			if b.N > 0 {
				lo, hi = min(lo, float64(b.Min)), max(hi, float64(b.Max))
			}
		}
		tolerance := 8*(hi-lo)/math.MaxUint16 + 1e-6*max(math.Abs(lo), math.Abs(hi))
		for i, w := range want.Series[s] {
			g := got.Series[s][i]
			// Written so that NaN is far from everything.
			far := func(a, b float64) bool { return !(math.Abs(a-b) <= tolerance) }
			if g.N != w.N {
				return fmt.Sprintf("bin %d of series %d has %d scans, the chunks have %d", i, s, g.N, w.N), nil
			}
			if w.N > 0 &&
				(far(float64(g.Min), float64(w.Min)) || far(float64(g.Max), float64(w.Max)) || far(float64(g.Mean()),
					float64(w.Mean()))) {
				return fmt.Sprintf("bin %d of series %d says %v to %v, the chunks %v to %v", i, s, g.Min, g.Max, w.Min,
					w.Max), nil
			}
		}
	}
	return "", nil
}
