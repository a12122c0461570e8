package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"wattmark/measure"
)

// Tiny is the energy of one launch of a kernel that was too short to be
// bracketed, worked out of a task that holds many launches.
type Tiny struct {
	Method, Kernel string
	Launches       int
	Energy         measure.Estimate // of one launch
	Budget         []measure.Contribution
	Length, Gap    measure.Seconds // of one launch; between two slices of the carrier
	Carrier        measure.Watt    // NaN where there is none
	DOF            int
	Residual       measure.Joule
	// Above is a fold's energy above the level around a launch; NaN for the others.
	Above    measure.Estimate
	Profile  []TinyBin
	Plan     json.RawMessage
	Warnings []string
}

// TinyBin is one point of a folded profile.
type TinyBin struct {
	At       measure.Seconds
	Power, U measure.Watt
	Readings int
}

// PutTiny records what a task says of a tiny kernel; it replaces what was
// recorded before. Errors wrap ErrNotFound.
func (d *DB) PutTiny(ctx context.Context, id TaskID, t Tiny) error {
	op := fmt.Sprintf("store the tiny kernel of task %d", id)
	if !json.Valid(t.Plan) {
		return fmt.Errorf("%s: its plan is not JSON", op)
	}
	warnings, err := json.Marshal(append([]string{}, t.Warnings...))
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return d.write(ctx, op, func(tx *sql.Tx) error {
		var exists bool
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM task WHERE task_id=?`, int64(id)).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			return ErrNotFound
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM tiny WHERE task_id=?`, int64(id)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO tiny VALUES(?,?,?,?, ?,?,?,?, ?,?,?, ?,?,?,?)`, int64(id), t.Method, t.Kernel, t.Launches,
			number(t.Energy.Energy), number(t.Energy.U), number(t.Length), number(t.Gap), number(t.Carrier), t.DOF, number(t.Residual),
			number(t.Above.Energy), number(t.Above.U), string(t.Plan), string(warnings)); err != nil {
			return err
		}
		for i, c := range t.Budget {
			if _, err := tx.ExecContext(ctx, `INSERT INTO tiny_budget VALUES(?,?,?,?,?)`, int64(id), i, c.Source, number(c.U), c.Systematic); err != nil {
				return err
			}
		}
		for i, b := range t.Profile {
			if _, err := tx.ExecContext(ctx, `INSERT INTO tiny_profile VALUES(?,?,?,?,?,?)`, int64(id), i, float64(b.At), number(b.Power), number(b.U), b.Readings); err != nil {
				return err
			}
		}
		return nil
	})
}

// Tiny returns what a task says of a tiny kernel; nil where it was not measured
// for one.
func (d *DB) Tiny(ctx context.Context, id TaskID) (*Tiny, error) {
	op := fmt.Sprintf("read the tiny kernel of task %d", id)
	tx, err := d.reader.BeginTx(ctx, nil)
	if err != nil {
		return nil, wrap(op, err)
	}
	defer tx.Rollback() // it only read
	var t Tiny
	var plan, warnings string
	err = tx.QueryRowContext(ctx, `SELECT method, kernel, launches, energy_j, energy_u_j, length_s, gap_s, carrier_w, dof, residual_j,
			above_j, above_u_j, plan, warnings FROM tiny WHERE task_id=?`, int64(id)).Scan(
		textTo(&t.Method), textTo(&t.Kernel), &t.Launches, realTo(&t.Energy.Energy), realTo(&t.Energy.U), realTo(&t.Length), realTo(&t.Gap),
		realTo(&t.Carrier), &t.DOF, realTo(&t.Residual), realTo(&t.Above.Energy), realTo(&t.Above.U), textTo(&plan), textTo(&warnings))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(op, err)
	}
	t.Plan = json.RawMessage(plan)
	if err := json.Unmarshal([]byte(warnings), &t.Warnings); err != nil || !json.Valid(t.Plan) {
		return nil, fmt.Errorf("%s: %w: its plan or its warnings are not JSON", op, ErrCorrupt)
	}
	t.Budget, err = collect(ctx, tx, func(rows *sql.Rows, c *measure.Contribution) error {
		return rows.Scan(textTo(&c.Source), realTo(&c.U), &c.Systematic)
	}, `SELECT source, u_j, systematic FROM tiny_budget WHERE task_id=? ORDER BY ordinal`, int64(id))
	if err != nil {
		return nil, wrap(op, err)
	}
	t.Profile, err = collect(ctx, tx, func(rows *sql.Rows, b *TinyBin) error {
		return rows.Scan(realTo(&b.At), realTo(&b.Power), realTo(&b.U), &b.Readings)
	}, `SELECT at_s, power_w, u_w, readings FROM tiny_profile WHERE task_id=? ORDER BY bin`, int64(id))
	return &t, wrap(op, err)
}
