package postgres

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"wattmark/store"
	"wattmark/store/postgres/internal/dialect"
)

// connector opens connections that understand the store's SQL.
type connector struct {
	inner   driver.Connector
	grammar *grammar
}

func (c *connector) Driver() driver.Driver { return c.inner.Driver() }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	raw, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	std, ok := raw.(*stdlib.Conn)
	if !ok {
		raw.Close()
		return nil, fmt.Errorf("the PostgreSQL driver's connection is a %T, which is not known", raw)
	}
	return &conn{Conn: std, grammar: c.grammar}, nil
}

// grammar keeps translations: the store has some hundred statements.
type grammar struct {
	schema dialect.Schema
	known  sync.Map // string → *dialect.Statement
}

func (g *grammar) translate(q string) (*dialect.Statement, error) {
	if s, ok := g.known.Load(q); ok {
		return s.(*dialect.Statement), nil
	}
	s, err := dialect.Translate(q, g.schema)
	if err != nil {
		return nil, err
	}
	g.known.Store(q, s)
	return s, nil
}

// conn is one connection.
type conn struct {
	*stdlib.Conn
	grammar *grammar
	rows    *gatherer // of the transaction under way; nil outside of one
	plans   store.Planning
}

func (c *conn) pgx() *pgx.Conn { return c.Conn.Conn() }

// IsValid tells the pool whether to keep the connection.
func (c *conn) IsValid() bool { return !c.pgx().IsClosed() }

// CheckNamedValue brings arguments into the form that the columns have: truth
// values are numbers, as in a file. PostgreSQL takes no zero byte and no broken
// UTF-8 in a text; readers would see U+FFFD in their place from a file too.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	value, err := driver.DefaultParameterConverter.ConvertValue(v.Value)
	if err != nil {
		return err
	}
	switch x := value.(type) {
	case bool:
		value = int64(0)
		if x {
			value = int64(1)
		}
	case string:
		value = strings.ReplaceAll(strings.ToValidUTF8(x, "\uFFFD"), "\x00", "\uFFFD")
	}
	v.Value = value
	return nil
}

// ExecContext runs a statement; in a transaction, rows to insert are gathered.
func (c *conn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.grammar.translate(q)
	if err != nil {
		return nil, err
	}
	return c.exec(ctx, s, args)
}

func (c *conn) exec(ctx context.Context, s *dialect.Statement, args []driver.NamedValue) (driver.Result, error) {
	if c.rows != nil {
		if s.Insert != nil {
			return driver.RowsAffected(1), c.rows.add(ctx, s, args)
		}
		if err := c.rows.flushFor(ctx, s); err != nil {
			return nil, err
		}
	}
	return c.Conn.ExecContext(ctx, s.Text, args)
}

// QueryContext runs a query.
func (c *conn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.grammar.translate(q)
	if err != nil {
		return nil, err
	}
	return c.query(ctx, s, args)
}

func (c *conn) query(ctx context.Context, s *dialect.Statement, args []driver.NamedValue) (driver.Rows, error) {
	if c.rows != nil {
		if err := c.rows.flushFor(ctx, s); err != nil {
			return nil, err
		}
	}
	if c.rows != nil {
		return c.Conn.QueryContext(ctx, s.Text, args)
	}
	if err := c.plan(ctx); err != nil {
		return nil, c.stale(err)
	}
	rows, err := c.Conn.QueryContext(ctx, s.Text, args)
	return rows, c.stale(err)
}

// plan lets the server plan statements as store.PlanningOf says. It is asked only where
// that changes, and not within a transaction, with which the setting would be undone.
func (c *conn) plan(ctx context.Context) error {
	want := store.PlanningOf(ctx)
	if want == c.plans {
		return nil
	}
	mode, sort := "DEFAULT", "DEFAULT"
	if want != store.PlanEach {
		mode = "force_generic_plan"
	}
	if want == store.PlanInOrder {
		sort = "off" // where nothing else will do, it sorts nevertheless
	}
	if _, err := c.pgx().PgConn().Exec(ctx, "SET plan_cache_mode TO "+mode+"; SET enable_sort TO "+sort).ReadAll(); err != nil {
		return err
	}
	c.plans = want
	return nil
}

// stale turns the error of a connection that broke while it lay idle into what lets
// the pool take another one. Nothing was changed over it.
func (c *conn) stale(err error) error {
	if err != nil && c.pgx().IsClosed() {
		return driver.ErrBadConn
	}
	return err
}

// Prepare is PrepareContext.
func (c *conn) Prepare(q string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), q)
}

// PrepareContext translates a statement. The driver beneath prepares each text
// once per connection, when it is first run.
func (c *conn) PrepareContext(_ context.Context, q string) (driver.Stmt, error) {
	s, err := c.grammar.translate(q)
	if err != nil {
		return nil, err
	}
	return &stmt{conn: c, s: s}, nil
}

// BeginTx begins a transaction, whose rows are gathered.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	inner, err := c.Conn.BeginTx(ctx, o)
	if err != nil {
		return nil, c.stale(err)
	}
	c.rows = newGatherer(c)
	return &tx{inner: inner, conn: c, ctx: ctx}, nil
}

// tx is a transaction. driver.Tx hands no context to Commit.
type tx struct {
	inner driver.Tx
	conn  *conn
	ctx   context.Context
}

func (t *tx) Commit() error {
	err := t.conn.rows.flush(t.ctx)
	t.conn.rows = nil
	if err != nil {
		t.inner.Rollback() // the first error is the one to tell
		return notCommitted{err}
	}
	return t.inner.Commit()
}

func (t *tx) Rollback() error {
	t.conn.rows = nil
	return t.inner.Rollback()
}

// notCommitted is an error of the rows that were still to be written when the
// transaction was to be committed.
type notCommitted struct{ error }

func (n notCommitted) Unwrap() error { return n.error }

// NotCommitted says that nothing of the transaction remains.
func (notCommitted) NotCommitted() bool { return true }

// stmt is a translated statement on a connection.
type stmt struct {
	conn *conn
	s    *dialect.Statement
}

func (s *stmt) Close() error  { return nil }
func (s *stmt) NumInput() int { return -1 } // the server counts

// CheckNamedValue is the connection's.
func (s *stmt) CheckNamedValue(v *driver.NamedValue) error { return s.conn.CheckNamedValue(v) }

// ExecContext runs the statement.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.exec(ctx, s.s, args)
}

// QueryContext runs the query.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(ctx, s.s, args)
}

// Exec is what database/sql does not call.
func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

// Query is what database/sql does not call.
func (s *stmt) Query([]driver.Value) (driver.Rows, error) { return nil, driver.ErrSkip }
