package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"wattmark/measure"
)

// MethodResult is what a software method of reading the GPU's own sensor said
// of a task. docs/methods.md defines the methods.
type MethodResult struct {
	// Method is "sma", "mtsm", "papi", "average", "instant", "counter",
	// "counter-ends", or "nvidia-smi " and a column of its log; or a field and
	// "corrected", "deconvolved" or "corrected by kernels".
	Method   string
	From, To time.Time     // of the work, on the host's wall clock
	Energy   measure.Joule // NaN where the method had nothing to say: Note tells why
	U        measure.Joule // that the method states of it (k = 2); 0 where it states none
	Mean     measure.Watt  // Energy over the time
	Readings uint64        // that the energy rests on
	// Call is what its calls cost. Alone and Beside are the time from one's
	// end to the next's, while the energy counter was not being read and while it was.
	Call, Alone, Beside Timing
	Note                string
}

// Timing is a distribution of durations; NaN where there were none.
type Timing struct {
	N             uint64
	P50, P99, Max measure.Seconds
}

// PutMethods stores what methods said of a task. A result of the same method
// replaces the stored one; new methods come behind those that are there.
func (d *DB) PutMethods(ctx context.Context, id TaskID, m []MethodResult) error {
	op := fmt.Sprintf("store methods of task %d", id)
	for _, x := range m {
		if err := measure.CheckText("method", x.Method); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	return d.write(ctx, op, func(tx *sql.Tx) error {
		var exists bool
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM task WHERE task_id=?`, int64(id)).Scan(&exists); err != nil {
			return err
		} else if !exists {
			return ErrNotFound
		}
		for _, x := range m {
			if err := putMethod(ctx, tx, id, x); err != nil {
				return fmt.Errorf("method %s: %w", x.Method, err)
			}
		}
		return nil
	})
}

func putMethod(ctx context.Context, tx *sql.Tx, id TaskID, x MethodResult) error {
	row := []any{
		int64(id), int64(id), x.Method, int64(id), x.Method, x.From.UnixNano(), x.To.UnixNano(),
		number(x.Energy), number(x.Mean), int64(x.Readings),
	}
	for _, t := range []Timing{x.Call, x.Alone, x.Beside} {
		row = append(row, int64(t.N), number(t.P50), number(t.P99), number(t.Max))
	}
	_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO method_result(task_id, ordinal, method, from_ns, to_ns, energy_j, mean_w, readings,
		calls, call_p50_s, call_p99_s, call_max_s, alone, alone_p50_s, alone_p99_s, alone_max_s,
		beside, beside_p50_s, beside_p99_s, beside_max_s, note, energy_u_j) VALUES(?,
		coalesce((SELECT ordinal FROM method_result WHERE task_id=? AND method=?),
			(SELECT coalesce(max(ordinal)+1, 0) FROM method_result WHERE task_id=?)),
		?,?,?,?,?,?, ?,?,?,?, ?,?,?,?, ?,?,?,?, ?,?)`, append(row, measure.Printable(x.Note), float64(x.U))...)
	return err
}

// Methods returns what software methods said of a task, in the order in which
// they were stored.
func (d *DB) Methods(ctx context.Context, id TaskID) ([]MethodResult, error) {
	return list(ctx, d, "methods", `SELECT method, from_ns, to_ns, energy_j, mean_w, readings,
		calls, call_p50_s, call_p99_s, call_max_s, alone, alone_p50_s, alone_p99_s, alone_max_s,
		beside, beside_p50_s, beside_p99_s, beside_max_s, note, energy_u_j
		FROM method_result WHERE task_id=? ORDER BY ordinal, method`, id,
		func(rows *sql.Rows, x *MethodResult) error {
			var from, to int64
			into := []any{textTo(&x.Method), &from, &to, realTo(&x.Energy), realTo(&x.Mean), &x.Readings}
			for _, t := range []*Timing{&x.Call, &x.Alone, &x.Beside} {
				into = append(into, &t.N, realTo(&t.P50), realTo(&t.P99), realTo(&t.Max))
			}
			err := rows.Scan(append(into, textTo(&x.Note), realTo(&x.U))...)
			x.From, x.To = time.Unix(0, from).UTC(), time.Unix(0, to).UTC()
			return err
		})
}
