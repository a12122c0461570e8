package postgres

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/store"
)

// connector opens connections that understand the store's SQL.
type connector struct{ inner driver.Connector }

func (c *connector) Driver() driver.Driver { return c.inner.Driver() }

// Connect opens a connection of the driver beneath, and wraps it.
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
	return &conn{Conn: std}, nil
}

// known keeps translations: the store has some hundred statements.
var known sync.Map // string → *statement

// translated returns the translation of a statement, made once.
func translated(q string) (*statement, error) {
	if s, ok := known.Load(q); ok {
		return s.(*statement), nil
	}
	s, err := translate(q)
	if err != nil {
		return nil, err
	}
	known.Store(q, s)
	return s, nil
}

// conn is one connection.
type conn struct {
	*stdlib.Conn
	rows *gatherer // of the transaction under way; nil outside of one
}

// pgx is the connection below database/sql.
func (c *conn) pgx() *pgx.Conn { return c.Conn.Conn() }

// IsValid reports whether the pool may keep the connection.
func (c *conn) IsValid() bool { return !c.pgx().IsClosed() }

// CheckNamedValue brings arguments into the form that the columns have: truth values are numbers, as in a
// file. PostgreSQL takes no zero byte and no broken UTF-8 in a text; readers would see U+FFFD in their
// place from a file too. PostgreSQL does not convert a boolean to a smallint column by itself.
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

// ExecContext runs a statement. In a transaction an INSERT of one row is gathered and reported as one row; any
// other statement first sends the gathered rows.
func (c *conn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	s, err := translated(q)
	if err != nil {
		return nil, err
	}
	// A nil gatherer: outside of a transaction rows are written at once.
	if c.rows != nil {
		if s.row {
			return driver.RowsAffected(1), c.rows.add(ctx, s, args)
		}
		if err := c.rows.flush(ctx); err != nil {
			return nil, err
		}
	}
	return c.Conn.ExecContext(ctx, s.text, args)
}

// QueryContext runs a query, behind the gathered rows.
func (c *conn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := translated(q)
	if err != nil {
		return nil, err
	}
	if c.rows != nil {
		if err := c.rows.flush(ctx); err != nil {
			return nil, err
		}
		// Within a transaction a broken connection is an error: its earlier statements are lost.
		return c.Conn.QueryContext(ctx, s.text, args)
	}
	rows, err := c.Conn.QueryContext(ctx, s.text, args)
	return rows, c.stale(err)
}

// stale turns the error of a connection that broke while it lay idle into driver.ErrBadConn, for
// which the pool takes another one. Nothing was changed over it.
func (c *conn) stale(err error) error {
	if err != nil && c.pgx().IsClosed() {
		return driver.ErrBadConn
	}
	return err
}

// BeginTx begins a transaction, whose rows are gathered.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	inner, err := c.Conn.BeginTx(ctx, o)
	if err != nil {
		return nil, c.stale(err)
	}
	c.rows = &gatherer{conn: c}
	return &tx{inner: inner, conn: c, ctx: ctx}, nil
}

// tx is a transaction. driver.Tx hands no context to Commit.
type tx struct {
	inner driver.Tx
	conn  *conn
	ctx   context.Context
}

// Commit sends the gathered rows, and commits. An error of those rows is a notCommitted: nothing of the
// transaction remains, unlike after an error of the commit itself, which may have reached the server.
func (t *tx) Commit() error {
	err := t.conn.rows.flush(t.ctx)
	t.conn.rows = nil
	if err != nil {
		t.inner.Rollback() // the first error is returned
		return notCommitted{err}
	}
	return t.inner.Commit()
}

// Rollback drops the gathered rows.
func (t *tx) Rollback() error {
	t.conn.rows = nil
	return t.inner.Rollback()
}

// notCommitted is an error of the rows that were still to be written when the
// transaction was to be committed.
type notCommitted struct{ error }

func (n notCommitted) Unwrap() error { return n.error }

// NotCommitted reports that nothing of the transaction remains.
func (notCommitted) NotCommitted() bool { return true }

// gatherBytes is how much is gathered at most, but for the last row.
const gatherBytes = 1 << 20

// gatherer keeps the inserts of a transaction, so that the server is waited for once for many of them: until another
// statement, until they are many, or until the commit.
type gatherer struct {
	conn  *conn
	batch pgx.Batch // in the order in which they came, which foreign keys want
	bytes int
}

// add keeps a row; the arguments are copied.
func (g *gatherer) add(ctx context.Context, s *statement, args []driver.NamedValue) error {
	// The memory of a blob is the caller's until add returns.
	row := make([]any, len(args))
	g.bytes += 16 * len(args) // numbers, too
	for i, a := range args {
		row[i] = a.Value
		// An estimate for the value's own size.
		g.bytes += 16
		switch v := a.Value.(type) {
		case []byte:
			row[i] = bytes.Clone(v)
			g.bytes += len(v)
		case string:
			g.bytes += len(v)
		}
	}
	g.batch.Queue(s.text, row...)
	if g.bytes > gatherBytes {
		return g.flush(ctx)
	}
	return nil
}

// flush sends the rows.
func (g *gatherer) flush(ctx context.Context) error {
	batch := g.batch
	g.batch, g.bytes = pgx.Batch{}, 0
	if batch.Len() == 0 {
		return nil
	}
	return g.conn.pgx().SendBatch(ctx, &batch).Close()
}

// Package store writes SQL that SQLite and PostgreSQL both understand, but for
//
//	? and ?7                   $1, $7
//	json_each(?)               wattmark_each($1), of numbers
//	text MATCH ?               text.words @@ wattmark_words($1)
//
// These are translated outside of texts, names and comments. A statement about SQLite's own
// file is refused with store.ErrFileOnly.

// statement is a translated statement.
type statement struct {
	text string
	row  bool // it stores one row of parameters, and does nothing else
}

var (
	// sqlToken matches texts, quoted names and comments; the three translated forms; words.
	sqlToken = lazy.Regexp(`'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|(?i:\s+MATCH\s+\?\d*)|\?\d*|\w+`)
	// rowInsert matches an insert of one row of parameters.
	rowInsert = lazy.Regexp(`^\s*INSERT INTO "?\w+"?\s*(?:\([^()]*\))?\s*VALUES\s*\((?:\s*\?\s*,)*\s*\?\s*\)` +
		`\s*(?:ON CONFLICT(?:\s*\([^()]*\) DO UPDATE SET [^()?]*| DO NOTHING))?\s*$`)
)

// ofFiles are words of statements about SQLite's files.
var ofFiles = []string{"pragma", "sqlite_master", "sqlite_schema", "vacuum", "attach", "detach", "indexed"}

// translate translates a statement. Errors wrap store.ErrFileOnly.
func translate(q string) (*statement, error) {
	words := map[string]bool{} // lower case: the tables that it names are among them
	params := 0
	param := func(t string) string {
		if n := strings.TrimLeft(t, "?"); n != "" {
			return "$" + n
		}
		params++
		return "$" + strconv.Itoa(params)
	}
	text := sqlToken().ReplaceAllStringFunc(q, func(t string) string {
		switch {
		case t[0] == '\'' || strings.HasPrefix(t, "--"):
			return t
		case t[0] == '"':
			words[strings.ToLower(strings.ReplaceAll(t[1:len(t)-1], `""`, `"`))] = true
			return t
		case t[0] == '?':
			return param(t)
		case strings.Contains(t, "?"): // MATCH
			return ".words @@ wattmark_words(" + param(t[strings.Index(t, "?"):]) + ")"
		}
		word := strings.ToLower(t)
		if words[word] = true; word == "json_each" {
			return "wattmark_each"
		}
		return t
	})
	for w := range words {
		if slices.Contains(ofFiles, w) || strings.HasPrefix(w, "pragma_") {
			return nil, fmt.Errorf("%w (%s) in: %s", store.ErrFileOnly, w, q)
		}
	}
	return &statement{text, rowInsert().MatchString(q)}, nil
}
