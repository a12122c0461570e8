package postgres

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"

	"wattmark/store/postgres/internal/dialect"
)

// A transaction's rows are sent together: those of one statement are kept until
// a statement names their table, until they are many, or until the commit.
const (
	gatherBytes = 8 << 20 // kept at most
	copyFrom    = 5       // rows from which on they are sent by COPY
)

// heap is the rows of one statement.
type heap struct {
	statement *dialect.Statement
	rows      [][]any
}

// gatherer keeps a transaction's rows.
type gatherer struct {
	conn  *conn
	heaps []*heap // in the order in which they came, which foreign keys want
	bytes int
}

func newGatherer(c *conn) *gatherer { return &gatherer{conn: c} }

// add keeps a row; the arguments are copied.
func (g *gatherer) add(ctx context.Context, s *dialect.Statement, args []driver.NamedValue) error {
	if len(args) != len(s.Insert.Columns) {
		return fmt.Errorf("%d values for the %d columns of %s", len(args), len(s.Insert.Columns), s.Insert.Table)
	}
	row := make([]any, len(args))
	for i, a := range args {
		row[i] = a.Value
		g.bytes += 16
		switch v := a.Value.(type) {
		case []byte:
			row[i] = bytes.Clone(v)
			g.bytes += len(v)
		case string:
			g.bytes += len(v)
		}
	}
	h := g.heap(s)
	h.rows = append(h.rows, row)
	if g.bytes > gatherBytes {
		return g.flush(ctx)
	}
	return nil
}

func (g *gatherer) heap(s *dialect.Statement) *heap {
	for _, h := range g.heaps {
		if h.statement == s {
			return h
		}
	}
	h := &heap{statement: s}
	g.heaps = append(g.heaps, h)
	return h
}

// flushFor sends what a statement might see: up to the last heap whose table it
// names.
func (g *gatherer) flushFor(ctx context.Context, s *dialect.Statement) error {
	for _, h := range g.heaps {
		if len(h.rows) > 0 && s.Words[h.statement.Insert.Table] {
			if err := g.send(ctx, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush sends all.
func (g *gatherer) flush(ctx context.Context) error {
	g.bytes = 0
	return g.send(ctx, nil)
}

// send sends the rows up to those of a heap: its foreign keys may rest on those
// before it.
func (g *gatherer) send(ctx context.Context, last *heap) error {
	for _, h := range g.heaps {
		if err := h.send(ctx, g.conn.pgx(), g.conn.grammar.schema[h.statement.Insert.Table]); err != nil || h == last {
			return err
		}
	}
	return nil
}

func (h *heap) send(ctx context.Context, c *pgx.Conn, table dialect.Table) error {
	if len(h.rows) == 0 {
		return nil
	}
	rows, in := h.rows, h.statement.Insert
	h.rows = nil
	var err error
	switch {
	case len(rows) < copyFrom:
		err = h.batch(ctx, c, rows)
	case in.Mode == dialect.Plain:
		_, err = c.CopyFrom(ctx, pgx.Identifier{in.Table}, in.Columns, pgx.CopyFromRows(rows))
	default:
		err = merge(ctx, c, in, table, rows)
	}
	return err
}

// batch sends few rows as statements, in one go.
func (h *heap) batch(ctx context.Context, c *pgx.Conn, rows [][]any) error {
	b := &pgx.Batch{}
	for _, r := range rows {
		b.Queue(h.statement.Text, r...)
	}
	return c.SendBatch(ctx, b).Close()
}

// merge copies rows that may be there already into a table of this connection's
// own, and takes from there what is new; of rows with one key the last.
func merge(ctx context.Context, c *pgx.Conn, in *dialect.Insert, table dialect.Table, rows [][]any) error {
	own, columns := "gathered_"+in.Table, dialect.Names(in.Columns)
	if _, err := c.Exec(ctx, fmt.Sprintf(`CREATE TEMPORARY TABLE IF NOT EXISTS %s ON COMMIT DELETE ROWS AS
		SELECT %s, 0::bigint AS gathered_no FROM %s WHERE false`, dialect.Name(own), columns, dialect.Name(in.Table))); err != nil {
		return err
	}
	n := 0
	source := pgx.CopyFromFunc(func() ([]any, error) {
		if n == len(rows) {
			return nil, nil
		}
		n++
		return append(rows[n-1], int64(n)), nil
	})
	if _, err := c.CopyFrom(ctx, pgx.Identifier{own}, append(append([]string{}, in.Columns...), "gathered_no"), source); err != nil {
		return err
	}
	pick := fmt.Sprintf(`SELECT %s FROM %s ORDER BY gathered_no`, columns, dialect.Name(own))
	if in.Mode == dialect.Replace {
		key := dialect.Names(table.Key)
		pick = fmt.Sprintf(`SELECT DISTINCT ON (%s) %s FROM %s ORDER BY %s, gathered_no DESC`, key, columns, dialect.Name(own), key)
	}
	if _, err := c.Exec(ctx, fmt.Sprintf(`INSERT INTO %s(%s) %s %s`, dialect.Name(in.Table), columns, pick, table.OnConflict(in.Mode))); err != nil {
		return err
	}
	_, err := c.Exec(ctx, "DELETE FROM "+dialect.Name(own))
	return err
}
