package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
)

// A driver hands a blob over in memory of its own, made anew for each: what is read of a
// trace would go through the garbage collector, megabytes a second for each one that looks
// at it. On a file's connections an aggregate function of ours lends a row's values
// instead, as they lie in SQLite's memory, to whoever asked for them.

// lendName is that function's name. Its first argument is the number of who asked.
const lendName = "wattmark_lend"

// borrower is who asked.
type borrower struct {
	take func(row []driver.Value) error
	err  error
}

var (
	borrowers    sync.Map // int64 → *borrower
	lastBorrower atomic.Int64
)

// lender is an evaluation of the function.
type lender struct{}

func registerLend(d *sqlite.Driver) error {
	return d.RegisterFunction(lendName, &sqlite.FunctionImpl{
		NArgs: -1, VolatileArgs: true,
		MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) { return lender{}, nil },
	})
}

// Step lends a row. What goes wrong is kept: through SQLite, only its text would come back.
func (lender) Step(_ *sqlite.FunctionContext, row []driver.Value) error {
	number, _ := row[0].(int64)
	found, ok := borrowers.Load(number)
	if !ok {
		return fmt.Errorf("%s is for this program's own use", lendName)
	}
	if b := found.(*borrower); b.err == nil {
		b.err = b.take(row[1:])
	}
	return nil
}

// WindowInverse is what no question asks for.
func (lender) WindowInverse(*sqlite.FunctionContext, []driver.Value) error {
	return fmt.Errorf("%s is no window function", lendName)
}

// WindowValue is nothing: the values are where they should be.
func (lender) WindowValue(*sqlite.FunctionContext) (driver.Value, error) { return nil, nil }

// Final ends the evaluation.
func (lender) Final(*sqlite.FunctionContext) {}

// lend reads rows of a file or server that q asks: take is called for each, with values
// that are the driver's own: they hold until it returns. Its parameters are numbered. On a
// file the rows come in the order in which they are found, whatever order is asked for: it
// must be that of the index that finds them.
func (d *DB) lend(ctx context.Context, q querier, take func(row []driver.Value) error, columns, from string, args ...any) error {
	if d.server != nil {
		return lendRows(ctx, q, take, "SELECT "+columns+" FROM "+from, args...)
	}
	b := &borrower{take: take}
	number := lastBorrower.Add(1)
	borrowers.Store(number, b)
	defer borrowers.Delete(number)
	text := "SELECT " + lendName + "(?" + strconv.Itoa(len(args)+1) + "," + columns + ") FROM " + from // #nosec G202 -- texts of this package
	rows, err := q.QueryContext(ctx, text, append(args[:len(args):len(args)], number)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() { // one, of nothing
	}
	if b.err != nil {
		return b.err
	}
	return rows.Err()
}

// lendRows is lend where a driver hands over each value.
func lendRows(ctx context.Context, q querier, take func(row []driver.Value) error, text string, args ...any) error {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	row, to := make([]driver.Value, len(names)), make([]any, len(names))
	for i := range row {
		to[i] = lent{&row[i]}
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return err
		}
		if err := take(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

var _ sql.Scanner = lent{}

// lent takes a driver's value as it is.
type lent struct{ to *driver.Value }

func (l lent) Scan(v any) error {
	*l.to = v
	return nil
}

// lentRow gives the integers and blobs of a row that was lent, one behind the other; any
// other value is of a damaged file.
type lentRow struct {
	row []driver.Value
	err error
}

func (r *lentRow) next() (v driver.Value) {
	if r.err == nil && len(r.row) == 0 {
		r.err = errGathered
	}
	if r.err == nil {
		v, r.row = r.row[0], r.row[1:]
	}
	return v
}

func (r *lentRow) integer() int64 {
	v := r.next()
	x, ok := v.(int64)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("%w: a column holds a %T in place of an integer", ErrCorrupt, v)
	}
	return x
}

// blob is nil where there is none.
func (r *lentRow) blob() []byte {
	v := r.next()
	x, ok := v.([]byte)
	if !ok && v != nil && r.err == nil {
		r.err = fmt.Errorf("%w: a column holds a %T in place of bytes", ErrCorrupt, v)
	}
	return x
}
