package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
)

// Finish ends a task; finishing again replaces the outcome as a whole, with all
// results. The result is one under the calibration of the stream's header, and
// becomes number 1. With a result, the view data is cut to the result's window: its scans are the
// Result.Samples stored scans from Result.FirstScan on. A step that the task's life
// does not have is ErrEnded: a task that has ended does not run again. When it returns, an
// ended task is in the file itself and no longer depends on the log (see emptyLog).
func (d *DB) Finish(ctx context.Context, id TaskID, o Outcome) error {
	err := d.write(ctx, fmt.Sprintf("finish task %d", id), func(tx *sql.Tx) error {
		if err := move(ctx, tx, id, &o); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM marker WHERE task_id=?", int64(id)); err != nil {
			return err
		}
		if err := putMarkers(ctx, tx, id, o.Markers); err != nil {
			return err
		}
		if err := putClock(ctx, tx, id, o.Clock); err != nil {
			return err
		}
		if err := putOriginal(ctx, tx, id, o.Result); err != nil || o.State == Running {
			return err
		}
		return putSeal(ctx, tx, id)
	})
	switch {
	case err != nil:
	case o.State == Running:
		d.keepFolding(id, nil) // chunks are still to come, maybe to another process: whoever stores them goes on behind what is stored
	default:
		// A pyramid that cannot be made now is made from the chunks when it is wanted.
		_ = d.finishPyramid(ctx, id)
		d.emptyLog(ctx)
	}
	return err
}

// PutFailure keeps how the work of a task failed, for whoever ends the task. Errors wrap
// ErrNotFound.
func (d *DB) PutFailure(ctx context.Context, id TaskID, f Failure) error {
	var exit any
	if f.ExitCode != nil {
		exit = int64(*f.ExitCode)
	}
	return d.write(ctx, fmt.Sprintf("say why the work of task %d failed", id), func(tx *sql.Tx) error {
		return mustExist(tx.ExecContext(ctx, `UPDATE task SET failure=?, exit_code=? WHERE task_id=?`,
			measure.Printable(f.Reason), exit, int64(id)))
	})
}

// move takes a task to the state of an outcome, if its life has such a step.
func move(ctx context.Context, tx *sql.Tx, id TaskID, o *Outcome) error {
	on, err := o.event()
	if err != nil {
		return err
	}
	var from State
	var owner string
	if err := tx.QueryRowContext(ctx, `SELECT state, coalesce(owner,'') FROM task WHERE task_id=?`, int64(id)).Scan(&from, &owner); errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	} else if err != nil {
		return err
	}
	life := from
	if o.Once && o.State != Running && owner != "" && o.Owner == owner {
		life = Running // an end in its owner's place holds until the owner says its own
	}
	to, err := transitions.Next(life, on)
	if from == Partial && o.State != Running { // whole: others see it from here on
		to, err = o.State, nil
		if _, err := tx.ExecContext(ctx, `UPDATE task SET cold=0, stored_ns=? WHERE task_id=?`, nanos(time.Now()), int64(id)); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	var stays any
	if o.Recovered && owner != "" {
		stays = owner
	}
	// On a server another may have moved it since it was read.
	res, err := tx.ExecContext(ctx, `UPDATE task SET state=?, reason=?, owner=?, nvml_j=?, nvml_method=nullif(?,'') WHERE task_id=? AND state=?`,
		to, o.Reason, stays, optional(o.NVML), o.NVMLMethod, int64(id), from)
	if err := mustExist(res, err); errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: by another program, just now", ErrEnded)
	} else if err != nil {
		return err
	}
	return nil
}

func optional[T ~float64](v *T) any {
	if v == nil {
		return nil
	}
	return number(*v)
}

func putMarkers(ctx context.Context, tx *sql.Tx, id TaskID, found []marker.Found) error {
	for i, m := range found {
		if _, err := tx.ExecContext(ctx, `INSERT INTO marker VALUES(?,?,?, ?,?,?,?, ?,?,?,?, ?,?,?)`, int64(id), i, m.Kind,
			number(m.T), number(m.U), number(m.Begin), number(m.End),
			number(m.Correlation), number(m.PSLR), number(m.Step), number(m.Tau), m.Tag, m.TagOK, m.Fallback); err != nil {
			return fmt.Errorf("marker %d: %w", i, err)
		}
		for k, e := range m.Edges {
			if _, err := tx.ExecContext(ctx, `INSERT INTO marker_edge VALUES(?,?,?,?,?,?)`, int64(id), i, k, e.Chip, number(e.T), number(e.U)); err != nil {
				return fmt.Errorf("marker %d, edge of chip %d: %w", i, e.Chip, err)
			}
		}
	}
	return nil
}

func putClock(ctx context.Context, tx *sql.Tx, id TaskID, f *clock.Fit) error {
	v := make([]any, 9)
	if f != nil {
		v = []any{number(f.Origin), number(f.A), number(f.B), number(f.VarA), number(f.VarB), number(f.CovAB), number(f.RMS), f.Used, f.Rejected}
	}
	_, err := tx.ExecContext(ctx, `UPDATE task SET clock_origin_s=?, clock_a_s=?, clock_b=?, clock_var_a=?, clock_var_b=?,
		clock_cov_ab=?, clock_rms_s=?, clock_used=?, clock_rejected=? WHERE task_id=?`, append(v, int64(id))...)
	return err
}

// putResult makes a result the one in use.
func putResult(ctx context.Context, tx *sql.Tx, id TaskID, r *measure.Result) error {
	for _, table := range []string{"rail_result", "budget"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE task_id=?", int64(id)); err != nil { // #nosec G202 -- names of this list
			return err
		}
	}
	if r == nil {
		_, err := tx.ExecContext(ctx, `UPDATE task SET has_result=0, from_s=NULL, to_s=NULL, samples=NULL, first_scan=NULL,
			gaps=NULL, lost=NULL, end_scan=NULL, energy_j=NULL, energy_u_j=NULL, mean_w=NULL, peak_w=NULL WHERE task_id=?`, int64(id))
		return err
	}
	end, err := endScan(ctx, tx, id, r.FirstScan, r.Samples)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE task SET has_result=1, from_s=?, to_s=?, samples=?, first_scan=?,
			gaps=?, lost=?, end_scan=?, energy_j=?, energy_u_j=?, mean_w=?, peak_w=? WHERE task_id=?`,
		number(r.From), number(r.To), int64(r.Samples), int64(r.FirstScan), int64(r.Gaps), int64(r.Lost), end,
		number(r.Total.Energy), number(r.Total.U), number(r.Mean), number(r.Peak), int64(id)); err != nil {
		return err
	}
	return putRails(ctx, tx, `INSERT INTO rail_result VALUES(?,?,?,?,?,?,?,?)`, `INSERT INTO budget VALUES(?,?,?,?,?,?)`, []any{int64(id)}, r)
}

// putRails stores the rails and budgets of a result by statements that begin
// with the values of key.
func putRails(ctx context.Context, tx *sql.Tx, rail, budget string, key []any, r *measure.Result) error {
	row := func(v ...any) []any { return append(slices.Clone(key), v...) }
	lines := func(rail int, lines []measure.Contribution) error {
		for i, l := range lines {
			if _, err := tx.ExecContext(ctx, budget, row(rail, i, l.Source, number(l.U), l.Systematic)...); err != nil {
				return fmt.Errorf("budget line %s: %w", l.Source, err)
			}
		}
		return nil
	}
	for i, rr := range r.Rails {
		if _, err := tx.ExecContext(ctx, rail, row(i, rr.Name, rr.Role,
			number(rr.Energy.Energy), number(rr.Energy.U), number(rr.Mean), number(rr.Peak))...); err != nil {
			return fmt.Errorf("rail %s: %w", rr.Name, err)
		}
		if err := lines(i, rr.Budget); err != nil {
			return err
		}
	}
	return lines(-1, r.Budget)
}

// endScan returns one past the last of the given number of stored scans from
// first on. Counting what is stored, not what was sampled, keeps the window
// right where scans were lost in it and their number is an estimate.
func endScan(ctx context.Context, tx *sql.Tx, id TaskID, first, samples uint64) (int64, error) {
	rows, err := tx.QueryContext(ctx, `SELECT first_scan, n FROM chunk WHERE task_id=? ORDER BY chunk_no`, int64(id))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	end, left := int64(first), int64(samples)
	for rows.Next() && left > 0 {
		var from, n int64
		if err := rows.Scan(&from, &n); err != nil {
			return 0, err
		}
		from, stop := max(from, int64(first)), from+n
		if take := min(left, stop-from); take > 0 {
			end = from + take
			left -= take
		}
	}
	return end, rows.Err()
}
