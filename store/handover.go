package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"modernc.org/sqlite"
)

// A row of many columns costs more to hand over to Go than to find: each value takes
// two locks, two calls and an allocation or two. On a file's connections an aggregate
// function of ours gathers the rows of a small answer instead, all values one behind
// the other, and hands over one blob.

// gatherName is that function's name.
const gatherName = "wattmark_gather"

// gatherer is one evaluation of the function.
type gatherer struct{ b []byte }

// gathererBytes is what is kept of a gatherer for the next one.
const gathererBytes = 1 << 20

var gatherers = sync.Pool{New: func() any { return new(gatherer) }}

func registerGather(d *sqlite.Driver) error {
	return d.RegisterFunction(gatherName, &sqlite.FunctionImpl{
		NArgs: -1, Deterministic: true, VolatileArgs: true,
		MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) {
			return gatherers.Get().(*gatherer), nil
		},
	})
}

// Step gathers a row. The arguments are lent.
func (g *gatherer) Step(_ *sqlite.FunctionContext, row []driver.Value) error {
	for _, v := range row {
		switch x := v.(type) {
		case nil:
			g.b = append(g.b, cellNone)
		case int64:
			g.b = binary.AppendVarint(append(g.b, cellInt), x)
		case float64:
			g.b = binary.LittleEndian.AppendUint64(append(g.b, cellReal), math.Float64bits(x))
		case string:
			g.b = append(binary.AppendUvarint(append(g.b, cellText), uint64(len(x))), x...)
		default:
			return fmt.Errorf("%s: a %T cannot be gathered", gatherName, v)
		}
	}
	return nil
}

// WindowInverse is what no question asks for.
func (g *gatherer) WindowInverse(*sqlite.FunctionContext, []driver.Value) error {
	return fmt.Errorf("%s is no window function", gatherName)
}

// WindowValue is what was gathered.
func (g *gatherer) WindowValue(*sqlite.FunctionContext) (driver.Value, error) { return g.b, nil }

// Final ends the evaluation.
func (g *gatherer) Final(*sqlite.FunctionContext) {
	if g.b = g.b[:0]; cap(g.b) <= gathererBytes {
		gatherers.Put(g)
	}
}

// nextCell takes a value off what was gathered. Its text is lent.
func nextCell(b []byte) (c cell, rest []byte, err error) {
	if len(b) == 0 {
		return c, nil, errGathered
	}
	c.kind, b = b[0], b[1:]
	switch c.kind {
	case cellNone:
		return c, b, nil
	case cellInt:
		if x, n := binary.Varint(b); n > 0 {
			c.bits = uint64(x)
			return c, b[n:], nil
		}
	case cellReal:
		if len(b) >= 8 {
			c.bits = binary.LittleEndian.Uint64(b)
			return c, b[8:], nil
		}
	case cellText:
		if x, n := binary.Uvarint(b); n > 0 && x <= uint64(len(b)-n) {
			c.lent = b[n : n+int(x)]
			return c, b[n+int(x):], nil
		}
	}
	return c, nil, errGathered
}

var errGathered = fmt.Errorf("%w: rows end within a value", ErrCorrupt)

// fillRow puts the values of the first row of what was gathered into columns.
func fillRow(columns []column, b []byte) (rest []byte, err error) {
	var c cell
	for _, to := range columns {
		if c, b, err = nextCell(b); err == nil {
			err = to.take(&c)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// gather reads the rows of a question that are few: next is called for each, when its
// values are in their columns. What stands in the question is what follows SELECT. One that
// is not to be planned each time takes a moment, whatever its values are.
func (d *DB) gather(ctx context.Context, plan Planning, columns []column, next func() error, selected, from string, args ...any) error {
	if d.server != nil {
		return scanRows(context.WithValue(ctx, planning{}, plan), d.reader, columns, next, "SELECT "+selected+" FROM "+from, args...)
	}
	c, err := d.reader.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if plan != PlanEach {
		// To be able to interrupt a statement, driver and database/sql each start a goroutine.
		// These wake another thread, which takes half of the core from a short statement.
		ctx = context.WithoutCancel(ctx)
	}
	rows, err := c.QueryContext(ctx, "SELECT "+gatherName+"("+selected+") FROM "+from, args...) // #nosec G202 -- texts of this package
	if err != nil {
		return err
	}
	defer rows.Close()
	var b sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&b); err != nil {
			return err
		}
		for rest := []byte(b); len(rest) > 0; {
			if rest, err = fillRow(columns, rest); err == nil {
				err = next()
			}
			if err != nil {
				return err
			}
		}
	}
	return rows.Err()
}

// scanRows is gather where a driver hands over each value.
func scanRows(ctx context.Context, q querier, columns []column, next func() error, text string, args ...any) error {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	to := make([]any, len(columns))
	for i, c := range columns {
		to[i] = c
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return err
		}
		if err := next(); err != nil {
			return err
		}
	}
	return rows.Err()
}
