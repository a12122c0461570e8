package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// putAll writes one row for each of n values in one transaction.
func (d *DB) putAll(ctx context.Context, op, query string, id TaskID, n int, row func(i int) []any) error {
	return d.write(ctx, fmt.Sprintf("store %s of task %d", op, id), func(tx *sql.Tx) error {
		var exists bool
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM task WHERE task_id=?`, int64(id)).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			return ErrNotFound
		}
		st, err := tx.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		defer st.Close()
		for i := range n {
			if _, err := st.ExecContext(ctx, append([]any{int64(id)}, row(i)...)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// PutReadings adds readings by software methods. A reading of the same method
// at the same nanosecond replaces the stored one, so that a batch can be put
// again.
func (d *DB) PutReadings(ctx context.Context, id TaskID, r []Reading) error {
	return d.putAll(ctx, "readings", `INSERT OR REPLACE INTO reading VALUES(?,?,?,?)`, id, len(r), func(i int) []any {
		return []any{r[i].Method, r[i].At.UnixNano(), number(r[i].Value)}
	})
}

// PutKernels adds kernels; the same kernel again is no error and no second row.
func (d *DB) PutKernels(ctx context.Context, id TaskID, k []Kernel) error {
	return d.putAll(ctx, "kernels", `INSERT OR IGNORE INTO kernel VALUES(?,?,?,?)`, id, len(k), func(i int) []any {
		return []any{k[i].Start.UnixNano(), k[i].End.UnixNano(), k[i].Name}
	})
}

// PutPlayed adds marker edges as played; the same marker and chip again replace.
func (d *DB) PutPlayed(ctx context.Context, id TaskID, p []Played) error {
	return d.putAll(ctx, "played markers", `INSERT OR REPLACE INTO played VALUES(?,?,?,?,?)`, id, len(p), func(i int) []any {
		return []any{p[i].Kind, p[i].Number, p[i].Chip, p[i].At.UnixNano()}
	})
}

// list reads rows with scan; a task that does not exist is ErrNotFound.
func list[T any](ctx context.Context, d *DB, op, query string, id TaskID, scan func(*sql.Rows, *T) error) ([]T, error) {
	op = fmt.Sprintf("read %s of task %d", op, id)
	if err := d.shown(ctx, id); err != nil {
		return nil, wrap(op, err)
	}
	out, err := collect(ctx, d.reader, scan, query, int64(id))
	return out, wrap(op, err)
}

// querier is a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func collect[T any](ctx context.Context, q querier, scan func(*sql.Rows, *T) error, query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		var v T
		if err := scan(rows, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// Readings returns the software readings, by method and time.
func (d *DB) Readings(ctx context.Context, id TaskID) ([]Reading, error) {
	return list(ctx, d, "readings", `SELECT method, at_ns, value FROM reading WHERE task_id=? ORDER BY method, at_ns`, id,
		func(rows *sql.Rows, r *Reading) error {
			var at int64
			err := rows.Scan(textTo(&r.Method), &at, realTo(&r.Value))
			r.At = time.Unix(0, at).UTC()
			return err
		})
}

// Kernels returns the kernels, by start.
func (d *DB) Kernels(ctx context.Context, id TaskID) ([]Kernel, error) {
	return list(ctx, d, "kernels", `SELECT name, start_ns, end_ns FROM kernel WHERE task_id=? ORDER BY start_ns, end_ns, name`, id,
		func(rows *sql.Rows, k *Kernel) error {
			var start, end int64
			err := rows.Scan(textTo(&k.Name), &start, &end)
			k.Start, k.End = time.Unix(0, start).UTC(), time.Unix(0, end).UTC()
			return err
		})
}

// Played returns the marker edges as played, by kind, number and chip.
func (d *DB) Played(ctx context.Context, id TaskID) ([]Played, error) {
	return list(ctx, d, "played markers", `SELECT kind, number, chip, at_ns FROM played WHERE task_id=? ORDER BY kind, number, chip`, id,
		func(rows *sql.Rows, p *Played) error {
			var at int64
			err := rows.Scan(&p.Kind, &p.Number, &p.Chip, &at)
			p.At = time.Unix(0, at).UTC()
			return err
		})
}
