package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"wattmark/measure"
)

// repairer mends one task in one transaction.
type repairer struct {
	tx   *sql.Tx
	id   int64
	gone map[int64]bool // chunks that were set aside
	lost int            // chunks set aside and holes found
	fold bool           // the pyramid is to be made anew
	sum  bool           // the results are to be computed anew
	scan int64          // scans that are missing now
}

// mend does what one finding asks for; counts are set at the end in any case.
func (r *repairer) mend(ctx context.Context, f Finding, result int) error {
	switch f.Kind {
	case BadChunk, Overlap:
		return r.aside(ctx, f)
	case Hole:
		return r.hole(ctx, f)
	case BadPyramid:
		r.fold = true
	case BadResult:
		return r.result(ctx, f, result)
	case FalseGap:
		return r.falseGap(ctx, f)
	case BadCount:
	default:
		return fmt.Errorf("%s: it cannot be mended here", f.What)
	}
	return nil
}

// aside moves a chunk to the table damage, and records the loss.
func (r *repairer) aside(ctx context.Context, f Finding) error {
	if r.gone[f.Chunk] {
		return nil // it had two faults
	}
	var first, n int64
	err := r.tx.QueryRowContext(ctx, `SELECT first_scan, n FROM chunk WHERE task_id=? AND chunk_no=?`, r.id, f.Chunk).Scan(&first, &n)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	content := map[string]any{}
	for _, table := range []string{"chunk", "chunk_column", "chunk_cold"} {
		if content[table], err = rowsAsText(ctx, r.tx, table, ` WHERE task_id=? AND chunk_no=?`, r.id, f.Chunk); err != nil {
			return err
		}
	}
	if err := keepDamage(ctx, r.tx, r.id, f.Chunk, f, content); err != nil {
		return err
	}
	if _, err := r.tx.ExecContext(ctx, `DELETE FROM chunk WHERE task_id=? AND chunk_no=?`, r.id, f.Chunk); err != nil {
		return err
	}
	r.gone[f.Chunk] = true
	// Scans that a chunk before it holds as well are not lost.
	var end sql.NullInt64
	if err := r.tx.QueryRowContext(ctx, `SELECT max(first_scan+n) FROM chunk WHERE task_id=? AND chunk_no<?`, r.id, f.Chunk).Scan(&end); err != nil {
		return err
	}
	if end.Int64 > first {
		first, n = end.Int64, max(first+n-end.Int64, 0)
	}
	return r.gap(ctx, first, n, fmt.Sprintf("chunk %d was damaged and set aside: %s", f.Chunk, f.What))
}

// result puts the figures of the result in use right. Those that are computed anew from
// the chunks are kept as they were in the table damage.
func (r *repairer) result(ctx context.Context, f Finding, number int) error {
	id := TaskID(r.id)
	if f.source == fromResult {
		return reuse(ctx, r.tx, id, number)
	}
	content := map[string]any{}
	for _, table := range slices.Concat(rowTables[:], keptTables[:]) {
		var err error
		if content[table], err = rowsAsText(ctx, r.tx, table, ` WHERE task_id=?`, r.id); err != nil {
			return err
		}
	}
	if err := keepDamage(ctx, r.tx, r.id, nil, f, content); err != nil || f.source == fromChunks {
		r.sum = true
		return err
	}
	rows, err := collect(ctx, r.tx, scanTask, "SELECT "+taskColumns+taskTables+"WHERE t.task_id=?", r.id)
	if err != nil || len(rows) == 0 {
		return err
	}
	t := &rows[0]
	if err := readRails(ctx, r.tx, &t.Task); err != nil {
		return err
	}
	if _, err := r.tx.ExecContext(ctx, `DELETE FROM result WHERE task_id=? AND number=?`, r.id, number); err != nil {
		return err
	}
	return keepResult(ctx, r.tx, id, number, t.calibration, t.Result)
}

// falseGap sets events aside that tell of a loss that is none.
func (r *repairer) falseGap(ctx context.Context, f Finding) error {
	for _, e := range f.events {
		where := ` WHERE task_id=? AND first_scan=? AND kind=? AND channel=? AND scans=? AND exact=1`
		args := []any{r.id, int64(e.FirstScan), e.Kind, e.Channel, int64(e.Scans)}
		rows, err := rowsAsText(ctx, r.tx, "event", where, args...)
		if err == nil {
			err = keepDamage(ctx, r.tx, r.id, f.Chunk, f, map[string]any{"event": rows})
		}
		if err == nil {
			_, err = r.tx.ExecContext(ctx, `DELETE FROM event`+where, args...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hole records the loss before a chunk that no event told of.
func (r *repairer) hole(ctx context.Context, f Finding) error {
	var from, to sql.NullInt64
	err := r.tx.QueryRowContext(ctx, `SELECT (SELECT first_scan+n FROM chunk WHERE task_id=?1 AND chunk_no<?2 ORDER BY chunk_no DESC LIMIT 1),
		(SELECT first_scan FROM chunk WHERE task_id=?1 AND chunk_no=?2)`, r.id, f.Chunk).Scan(&from, &to)
	if err != nil || !from.Valid || !to.Valid || from.Int64 >= to.Int64 {
		return err // what stood beside it was set aside: that is recorded
	}
	t := Task{ID: TaskID(r.id)}
	if err := readEvents(ctx, r.tx, &t); err != nil {
		return err
	}
	if err := keepDamage(ctx, r.tx, r.id, f.Chunk, f, map[string]any{}); err != nil {
		return err
	}
	for _, x := range untold(t.Events, from.Int64, to.Int64) {
		if err := r.gap(ctx, x[0], x[1]-x[0], "found missing by a check of the database"); err != nil {
			return err
		}
	}
	return nil
}

func (r *repairer) gap(ctx context.Context, first, n int64, detail string) error {
	r.lost++
	r.scan += n
	_, err := r.tx.ExecContext(ctx, `INSERT OR IGNORE INTO event(task_id,first_scan,kind,scans,exact,channel,detail) VALUES(?,?,?,?,1,-1,?)`,
		r.id, first, measure.EventGap, n, measure.Printable(detail))
	return err
}

// conclude counts anew, and says in the task what it lost.
func (r *repairer) conclude(ctx context.Context) error {
	if _, err := r.tx.ExecContext(ctx, `UPDATE task SET chunks=(SELECT count(*) FROM chunk WHERE task_id=?1),
		scans=(SELECT coalesce(sum(n),0) FROM chunk WHERE task_id=?1) WHERE task_id=?1`, r.id); err != nil || r.lost == 0 {
		return err
	}
	reason := fmt.Sprintf("%d scans in %d place(s) were damaged in the database and are missing", r.scan, r.lost)
	_, err := r.tx.ExecContext(ctx, `UPDATE task SET state=CASE state WHEN ?4 THEN ?4 ELSE ?2 END,
		reason=CASE reason WHEN '' THEN ?3 ELSE ?3 || '; ' || reason END WHERE task_id=?1`, r.id, Incomplete, reason, Failed)
	return err
}

// SetReason puts a sentence before a task's reason. Errors wrap ErrNotFound.
func (d *DB) SetReason(ctx context.Context, id TaskID, why string) error {
	return d.write(ctx, fmt.Sprintf("say why in task %d", id), func(tx *sql.Tx) error {
		return mustExist(tx.ExecContext(ctx, `UPDATE task SET reason=CASE reason WHEN '' THEN ?2 ELSE ?2 || '; ' || reason END WHERE task_id=?1`,
			int64(id), measure.Printable(why)))
	})
}
