package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
)

// putOriginal replaces all results of a task by one under the calibration of
// the stream's header; nil for none. Where the numbers of that calibration were changed
// since there is a result it is ErrCorrupt.
func putOriginal(ctx context.Context, tx *sql.Tx, id TaskID, r *measure.Result) error {
	// What is computed anew is not computed by numbers that were changed.
	var before sql.NullInt64
	err := tx.QueryRowContext(ctx, `SELECT max(calibration_id) FROM result WHERE task_id=? AND number=1`, int64(id)).Scan(&before)
	if err == nil && r != nil && before.Valid {
		var s measure.Setup
		if err = readSetup(ctx, tx, before.Int64, &s); err == nil {
			err = isAsDigested(ctx, tx, before.Int64, &s)
		}
	}
	if err != nil {
		return err
	}
	// A task that was recalculated goes back to the calibration that it was measured with.
	if _, err := tx.ExecContext(ctx, `UPDATE task SET result=NULL, calibration_id=coalesce(
		(SELECT calibration_id FROM result WHERE task_id=task.task_id AND number=1), calibration_id) WHERE task_id=?`, int64(id)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM result WHERE task_id=?`, int64(id)); err != nil {
		return err
	}
	if err := putResult(ctx, tx, id, r); err != nil || r == nil {
		return err
	}
	var cal sql.NullInt64
	if err := tx.QueryRowContext(ctx, `SELECT calibration_id FROM task WHERE task_id=?`, int64(id)).Scan(&cal); err != nil {
		return err
	}
	if !cal.Valid {
		return nil // a result without a header: there is nothing to bind it to
	}
	return keepResult(ctx, tx, id, 1, cal.Int64, r)
}

// keepResult adds a result to those of a task, and marks it as the one in use.
func keepResult(ctx context.Context, tx *sql.Tx, id TaskID, no int, cal int64, r *measure.Result) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO result VALUES(?,?,?,?, ?,?, ?,?,?,?, ?,?,?,?)`, int64(id), no, cal, time.Now().UnixNano(),
		number(r.From), number(r.To), int64(r.Samples), int64(r.FirstScan), int64(r.Gaps), int64(r.Lost),
		number(r.Total.Energy), number(r.Total.U), number(r.Mean), number(r.Peak)); err != nil {
		return err
	}
	if err := putRails(ctx, tx, `INSERT INTO result_rail VALUES(?,?,?,?,?,?,?,?,?)`, `INSERT INTO result_budget VALUES(?,?,?,?,?,?,?)`,
		[]any{int64(id), no}, r); err != nil {
		return err
	}
	return useResult(ctx, tx, id, no, cal)
}

func useResult(ctx context.Context, tx *sql.Tx, id TaskID, no int, cal int64) error {
	return mustExist(tx.ExecContext(ctx, `UPDATE task SET result=?, calibration_id=? WHERE task_id=?`, no, cal, int64(id)))
}

// AddResult adds what another calibration made of a task's counts, over the
// same window, and puts it in use: lists, the view data and exports follow it.
// Earlier results stay. A result under a calibration that the task already has
// one of only puts that one in use; added then is false. Errors wrap
// ErrNotFound, and ErrConflict where the task has no result yet, still runs, or
// has another window.
func (d *DB) AddResult(ctx context.Context, id TaskID, s measure.Setup, r *measure.Result) (no int, added bool, err error) {
	op := fmt.Sprintf("add a result of task %d", id)
	if err := s.Validate(); err != nil {
		return 0, false, fmt.Errorf("%s: %w", op, err)
	}
	err = d.write(ctx, op, func(tx *sql.Tx) error {
		h := Header{Setup: s, CalibrationID: s.CalibrationID()}
		if err := mayAdd(ctx, tx, id, &h, r); err != nil {
			return err
		}
		cal, err := putCalibration(ctx, tx, id, h)
		if err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, `SELECT number FROM result WHERE task_id=? AND calibration_id=?`, int64(id), cal).Scan(&no)
		added = errors.Is(err, sql.ErrNoRows)
		if err != nil && !added {
			return err
		}
		if !added {
			if err := reuse(ctx, tx, id, no); err != nil {
				return err
			}
			return putSeal(ctx, tx, id)
		}
		if err := tx.QueryRowContext(ctx, `SELECT max(number)+1 FROM result WHERE task_id=?`, int64(id)).Scan(&no); err != nil {
			return err
		}
		if err := putResult(ctx, tx, id, r); err != nil {
			return err
		}
		if err := keepResult(ctx, tx, id, no, cal, r); err != nil {
			return err
		}
		return putSeal(ctx, tx, id)
	})
	if err == nil {
		err = d.BuildPyramid(ctx, id) // its watts are of a calibration
	}
	return no, added && err == nil, err
}

// reuse puts a stored result in use, as it is stored.
func reuse(ctx context.Context, tx *sql.Tx, id TaskID, no int) error {
	t := Task{ID: id}
	cal, err := readResult(ctx, tx, &t, no)
	if err != nil {
		return err
	}
	if err := putResult(ctx, tx, id, t.Result); err != nil {
		return err
	}
	return useResult(ctx, tx, id, no, cal)
}

// mayAdd refuses a result that is not one of the same samples, and fills in the
// bench.
func mayAdd(ctx context.Context, tx *sql.Tx, id TaskID, h *Header, r *measure.Result) error {
	var state State
	var from, to sql.NullFloat64
	err := tx.QueryRowContext(ctx, `SELECT t.state, r.from_s, r.to_s, k.bench FROM task t LEFT JOIN result r ON r.task_id=t.task_id AND r.number=t.result
		LEFT JOIN calibration k ON k.calibration_id=t.calibration_id WHERE t.task_id=?`, int64(id)).Scan(&state, &from, &to, textTo(&h.Bench))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case err != nil:
		return err
	case state == Partial:
		return ErrNotFound
	case state == Running:
		return fmt.Errorf("%w: the task still runs", ErrConflict)
	case !from.Valid || !to.Valid:
		return fmt.Errorf("%w: the task has no window yet", ErrConflict)
	case measure.Seconds(from.Float64) != r.From || measure.Seconds(to.Float64) != r.To:
		return fmt.Errorf("%w: its window was changed meanwhile", ErrConflict)
	}
	return nil
}

// readResults lists a task's results.
func readResults(ctx context.Context, tx *sql.Tx, t *Task) (err error) {
	t.Results, err = collect(ctx, tx, func(rows *sql.Rows, r *ResultInfo) error {
		var computed sql.NullInt64
		err := rows.Scan(&r.Number, textTo(&r.CalibrationID), &computed, realTo(&r.Total.Energy), realTo(&r.Total.U), &r.InUse)
		r.Computed = fromNanos(computed)
		return err
	}, `SELECT r.number, k.name, r.computed_ns, r.energy_j, r.energy_u_j, coalesce(r.number=t.result, 1=0)
		FROM result r JOIN task t USING(task_id) JOIN calibration k ON k.calibration_id=r.calibration_id WHERE r.task_id=? ORDER BY r.number`, int64(t.ID))
	for _, r := range t.Results {
		if r.InUse {
			t.ResultNumber = r.Number
		}
	}
	return err
}

// TaskResult returns a task as Task does, with the result of a number and the
// setup that it follows in place of those in use; number 0 is Task. Errors wrap
// ErrNotFound.
func (d *DB) TaskResult(ctx context.Context, id TaskID, no int) (Task, error) {
	t, err := d.Task(ctx, id)
	if err != nil || no == 0 {
		return t, err
	}
	op := fmt.Sprintf("read result %d of task %d", no, id)
	tx, err := d.reader.BeginTx(ctx, nil)
	if err != nil {
		return Task{}, wrap(op, err)
	}
	defer tx.Rollback() // it only read
	cal, err := readResult(ctx, tx, &t, no)
	if errors.Is(err, sql.ErrNoRows) {
		return Task{}, fmt.Errorf("%s: %w: it has %d result(s)", op, ErrNotFound, len(t.Results))
	}
	if err == nil {
		t.Setup = measure.Setup{}
		err = readSetup(ctx, tx, cal, &t.Setup)
	}
	if err == nil {
		err = d.readClipped(ctx, tx, &t)
	}
	return t, wrap(op, err)
}

// readResult reads the result of a number into t, and returns its calibration.
func readResult(ctx context.Context, tx *sql.Tx, t *Task, no int) (cal int64, err error) {
	var r measure.Result
	if err := tx.QueryRowContext(ctx, `SELECT r.calibration_id, k.name, k.bench, r.from_s, r.to_s, r.samples, r.first_scan, r.gaps, r.lost,
			r.energy_j, r.energy_u_j, r.mean_w, r.peak_w
		FROM result r JOIN calibration k USING(calibration_id) WHERE r.task_id=? AND r.number=?`, int64(t.ID), no).Scan(
		&cal, textTo(&t.CalibrationID), textTo(&t.Bench), realTo(&r.From), realTo(&r.To), &r.Samples, &r.FirstScan, &r.Gaps, &r.Lost,
		realTo(&r.Total.Energy), realTo(&r.Total.U), realTo(&r.Mean), realTo(&r.Peak)); err != nil {
		return 0, err
	}
	t.Result, t.ResultNumber = &r, no
	return cal, collectRails(ctx, tx, t, "result_rail", "result_budget", "task_id=? AND number=?", int64(t.ID), no)
}

// Calibrations returns the calibrations that are stored, in the order in which
// they came.
func (d *DB) Calibrations(ctx context.Context) ([]Calibration, error) {
	const op = "list calibrations"
	tx, err := d.reader.BeginTx(ctx, nil)
	if err != nil {
		return nil, wrap(op, err)
	}
	defer tx.Rollback() // it only read
	type row struct {
		Calibration
		id int64
	}
	rows, err := collect(ctx, tx, func(rows *sql.Rows, r *row) error {
		var since sql.NullInt64
		err := rows.Scan(&r.id, textTo(&r.CalibrationID), textTo(&r.Bench), &since)
		r.Since = fromNanos(since)
		return err
	}, `SELECT calibration_id, name, bench, since_ns FROM calibration ORDER BY calibration_id`)
	if err != nil {
		return nil, wrap(op, err)
	}
	var out []Calibration
	for _, r := range rows {
		if err := readSetup(ctx, tx, r.id, &r.Setup); err != nil {
			return nil, wrap(op, err)
		}
		r.Instruments, err = collect(ctx, tx, func(rows *sql.Rows, i *Instrument) error {
			return rows.Scan(textTo(&i.Kind), textTo(&i.Serial))
		}, `SELECT DISTINCT coalesce(instrument_kind,''), coalesce(instrument_serial,'') FROM task
			WHERE calibration_id=?1 OR task_id IN (SELECT task_id FROM result WHERE calibration_id=?1)`, r.id)
		if err != nil {
			return nil, wrap(op, err)
		}
		out = append(out, r.Calibration)
	}
	return out, nil
}
