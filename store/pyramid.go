package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/pyramid"
)

// folding returns the pyramid that grows with a task, going on behind what is
// stored of it.
func (d *DB) folding(ctx context.Context, id TaskID) (*folding, error) {
	d.foldMu.Lock()
	f := d.folds[id]
	d.foldMu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := d.newFolding(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := f.resume(ctx, d, id, nil); err != nil {
		return nil, err
	}
	d.keepFolding(id, f)
	return f, nil
}

// newFolding begins a task's pyramid, of the calibration in use. One that was changed after
// it was stored is ErrCorrupt.
func (d *DB) newFolding(ctx context.Context, id TaskID) (*folding, error) {
	setup, calibration, err := d.setupOf(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := isAsDigested(ctx, d.reader, calibration, setup); err != nil {
		return nil, err
	}
	f, err := newFolding(setup)
	if err != nil {
		return nil, err
	}
	f.calibration = calibration
	return f, nil
}

// keepFolding remembers a task's pyramid; nil forgets it: it is then resumed from
// what is stored.
func (d *DB) keepFolding(id TaskID, f *folding) {
	d.foldMu.Lock()
	defer d.foldMu.Unlock()
	if f == nil {
		delete(d.folds, id)
		return
	}
	if d.folds == nil {
		d.folds = map[TaskID]*folding{}
	}
	d.folds[id] = f
}

// resume goes on behind the last page of the lowest level. spill takes what is
// complete on the way; nil keeps it for the next fold.
func (f *folding) resume(ctx context.Context, d *DB, id TaskID, spill func([]pyramidRow) error) error {
	var last sql.NullInt64
	if err := d.reader.QueryRowContext(ctx, `SELECT max(page) FROM pyramid WHERE task_id=? AND level=0`, int64(id)).Scan(&last); err != nil {
		return err
	}
	from := uint64(0)
	if last.Valid {
		err := f.builder.Resume(uint64(last.Int64), func(level int, page uint64) (*pyramid.Page, error) { return d.page(ctx, id, level, page) })
		if err != nil {
			return err
		}
		if from, err = d.chunkAt(ctx, id, f.builder.Next()); err != nil {
			return err
		}
	}
	for c, err := range d.chunksInto(ctx, id, from, &chunk.Chunk{}) {
		if err == nil {
			err = f.take(c)
		}
		if err == nil && spill != nil && len(f.rows) >= spillRows {
			err = spill(f.handOver())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// spillRows is how many pages are kept in memory while a pyramid is built anew.
const spillRows = 64

func (f *folding) handOver() []pyramidRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	rows := f.rows
	f.rows = nil
	return rows
}

// setupOf returns a task's setup and the number of its calibration.
func (d *DB) setupOf(ctx context.Context, id TaskID) (*measure.Setup, int64, error) {
	tx, err := d.reader.BeginTx(ctx, nil)
	if err != nil {
		return nil, 0, err
	}
	defer tx.Rollback() // it only read
	var cal sql.NullInt64
	err = tx.QueryRowContext(ctx, `SELECT calibration_id FROM task WHERE task_id=?`, int64(id)).Scan(&cal)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, 0, ErrNotFound
	case err != nil:
		return nil, 0, err
	case !cal.Valid:
		return nil, 0, ErrNoHeader
	}
	s := new(measure.Setup)
	return s, cal.Int64, readSetup(ctx, tx, cal.Int64, s)
}

// fold folds chunks in. Chunks of a call that fails must come again, after
// keepFolding(nil).
func (f *folding) fold(chunks []*chunk.Chunk) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range chunks {
		if err := f.take(c); err != nil {
			return fmt.Errorf("chunk %d: %w", c.No, err)
		}
	}
	return nil
}

func (d *DB) putPages(ctx context.Context, tx *sql.Tx, id TaskID, rows []pyramidRow) error {
	if len(rows) == 0 {
		return nil
	}
	put := tx.StmtContext(ctx, d.st.page)
	for _, r := range rows {
		if _, err := put.ExecContext(ctx, int64(id), r.level, int64(r.page), r.data); err != nil {
			return err
		}
	}
	return nil
}

// finishPyramid stores what is left of a task's pyramid and notes that it is whole. One
// that does not hold each scan of the task once, as where a page was stored before all of
// its chunks had come, is made anew.
func (d *DB) finishPyramid(ctx context.Context, id TaskID) error {
	f, err := d.folding(ctx, id)
	if errors.Is(err, ErrNoHeader) {
		return nil
	}
	if err == nil {
		err = d.closePyramid(ctx, id, f, true)
	}
	if errors.Is(err, errPartial) {
		return d.BuildPyramid(ctx, id)
	}
	return err
}

// errPartial: the pages do not hold each scan of the task once.
var errPartial = errors.New("the pyramid does not hold all scans")

// closePyramid stores the pages that are not full and notes that the pyramid is whole.
// With counted, nothing is stored of one that holds other scans than the task has, and
// the error is errPartial.
func (d *DB) closePyramid(ctx context.Context, id TaskID, f *folding, counted bool) error {
	defer d.keepFolding(id, nil)
	f.mu.Lock()
	err := f.builder.Close()
	f.mu.Unlock()
	if err != nil {
		return err
	}
	rows := f.handOver()
	return d.write(ctx, fmt.Sprintf("store the pyramid of task %d", id), func(tx *sql.Tx) error {
		if err := f.inUse(ctx, tx, id); err != nil {
			return err
		}
		var scans uint64
		if err := tx.QueryRowContext(ctx, `SELECT scans FROM task WHERE task_id=?`, int64(id)).Scan(&scans); err != nil {
			return err
		}
		if counted && scans != f.builder.Scans() {
			return errPartial
		}
		if err := d.putPages(ctx, tx, id, rows); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO pyramid_whole VALUES(?,?,?)`, int64(id), f.calibration, int64(scans))
		return err
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
	err = d.write(ctx, op, func(tx *sql.Tx) error {
		for _, table := range []string{"pyramid", "pyramid_whole"} {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE task_id=?`, int64(id)); err != nil { // #nosec G202 -- names of this list
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.keepFolding(id, nil)
	err = f.resume(ctx, d, id, func(rows []pyramidRow) error {
		return d.write(ctx, op, func(tx *sql.Tx) error {
			if err := f.inUse(ctx, tx, id); err != nil {
				return err
			}
			return d.putPages(ctx, tx, id, rows)
		})
	})
	if err != nil {
		return wrap(op, err)
	}
	return wrap(op, d.closePyramid(ctx, id, f, false))
}

// inUse fails where another calibration was put in use since the folding began: whoever
// did that makes the pyramid.
func (f *folding) inUse(ctx context.Context, tx *sql.Tx, id TaskID) error {
	var same bool
	err := tx.QueryRowContext(ctx, `SELECT calibration_id=?2 FROM task WHERE task_id=?1`, int64(id), f.calibration).Scan(&same)
	if err == nil && !same {
		return fmt.Errorf("%w: another calibration was put in use meanwhile", ErrConflict)
	}
	return err
}

// BuildPyramids makes the pyramids that finished tasks lack: those of an older version of
// this program, or that could not be made. The newest come first; each is told of, with
// what kept it from being made.
func (d *DB) BuildPyramids(ctx context.Context, tell func(TaskID, error)) error {
	ids, err := collect(ctx, d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan(id) },
		`SELECT task_id FROM task t WHERE state<>?1 AND `+published+` AND chunks>0 AND calibration_id IS NOT NULL AND NOT EXISTS
		(SELECT 1 FROM pyramid_whole w WHERE w.task_id=t.task_id AND w.scans=t.scans AND w.calibration_id=t.calibration_id) ORDER BY task_id DESC`, int64(Running))
	if err != nil {
		return wrap("look for tasks without a pyramid", err)
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

// DeferPyramids keeps chunks that come in from being folded into pyramids until their
// task is finished. It tells what the pyramid costs; nothing else is won by it.
func (d *DB) DeferPyramids() { d.unfold.Store(true) }

// foldBeside folds chunks into the task's pyramid while they are being stored, and
// returns the pages that were complete before, which go with them: so the disk is not
// waited for with folding still to be done. Folded must be called before the chunks are
// given back. A pyramid that cannot be made holds nothing up: it is made from the chunks
// when it is wanted.
func (d *DB) foldBeside(ctx context.Context, id TaskID, chunks []*chunk.Chunk) (pages []pyramidRow, folded func()) {
	if len(chunks) == 0 || d.unfold.Load() {
		return nil, func() {}
	}
	f, err := d.folding(ctx, id)
	if err != nil {
		return nil, func() {}
	}
	pages = f.handOver()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f.fold(chunks); err != nil {
			d.keepFolding(id, nil)
		}
	}()
	return pages, func() { <-done }
}
