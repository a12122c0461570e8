package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
)

// write runs f in one transaction that is on disk when write returns nil; on
// an error nothing of it remains. On a server f may run more than once, so what
// it changes beside the database must bear that.
func (d *DB) write(ctx context.Context, op string, f func(*sql.Tx) error) error {
	if d.writer == nil {
		return fmt.Errorf("%s: %w", op, ErrReadOnly)
	}
	return wrap(op, d.again(ctx, func() error { return d.writeOnce(ctx, f) }))
}

func (d *DB) writeOnce(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := d.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit there is nothing to roll back
	if err := f(tx); err != nil {
		return err
	}
	return committing(tx.Commit())
}

// mustExist turns an update or delete that met no row into ErrNotFound.
func mustExist(r sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return ErrNotFound
	}
	return nil
}

// nanos is a time as it is stored; NULL where there is none.
func nanos(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func fromNanos(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.Unix(0, n.Int64).UTC()
}

// isoTime is a time as the column taskTime shows it; NULL where there is none.
func isoTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// number is a value as it is stored: SQLite has no NaN and would store NULL.
func number[T ~float64](v T) any {
	if math.IsNaN(float64(v)) {
		return nil
	}
	return float64(v)
}

// real scans a column that number wrote: NULL becomes NaN.
type real[T ~float64] struct{ to *T }

func (r real[T]) Scan(v any) error {
	var f sql.NullFloat64
	if err := f.Scan(v); err != nil {
		return err
	}
	if *r.to = T(f.Float64); !f.Valid {
		*r.to = T(math.NaN())
	}
	return nil
}

// text scans a text into what a terminal may be shown, whoever wrote it.
type text[T ~string] struct{ to *T }

func (t text[T]) Scan(v any) error {
	var s sql.NullString
	if err := s.Scan(v); err != nil {
		return err
	}
	*t.to = T(measure.Printable(s.String))
	return nil
}

func textTo[T ~string](p *T) text[T] { return text[T]{p} }

func realTo[T ~float64](p *T) real[T] { return real[T]{p} }
