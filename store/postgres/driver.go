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
type connector struct {
	inner   driver.Connector
	grammar *grammar
}

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
	return &conn{Conn: std, grammar: c.grammar}, nil
}

// grammar keeps translations: the store has some hundred statements.
type grammar struct {
	columns map[string][]string // by table
	known   sync.Map            // string → *statement
}

// translate returns the translation of a statement, made once.
func (g *grammar) translate(q string) (*statement, error) {
	if s, ok := g.known.Load(q); ok {
		return s.(*statement), nil
	}
	s, err := translate(q, g.columns)
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
// other statement first sends the gathered rows of the tables that it names.
func (c *conn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.grammar.translate(q)
	if err != nil {
		return nil, err
	}
	// A nil gatherer: outside of a transaction rows are written at once.
	if c.rows != nil {
		if s.insert != nil {
			return driver.RowsAffected(1), c.rows.add(ctx, s, args)
		}
		if err := c.rows.flushFor(ctx, s); err != nil {
			return nil, err
		}
	}
	return c.Conn.ExecContext(ctx, s.text, args)
}

// QueryContext runs a query, behind the gathered rows that it might see.
func (c *conn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.grammar.translate(q)
	if err != nil {
		return nil, err
	}
	if c.rows != nil {
		if err := c.rows.flushFor(ctx, s); err != nil {
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

// A transaction's rows are sent together: those of one statement are kept until
// a statement names their table, until they are many, or until the commit.
const (
	gatherBytes = 8 << 20 // kept at most
	copyFrom    = 5       // rows from which on they are sent by COPY
)

// heap holds the rows of one statement.
type heap struct {
	statement *statement
	rows      [][]any
}

// gatherer collects a transaction's rows, so that many are sent by one COPY.
type gatherer struct {
	conn  *conn
	heaps []*heap // in the order in which they came, which foreign keys want
	bytes int
}

// add keeps a row; the arguments are copied.
func (g *gatherer) add(ctx context.Context, s *statement, args []driver.NamedValue) error {
	if len(args) != len(s.insert.columns) {
		return fmt.Errorf("%d values for the %d columns of %s", len(args), len(s.insert.columns), s.insert.table)
	}
	// The memory of a blob is the caller's until add returns.
	row := make([]any, len(args))
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
	h := g.heap(s)
	h.rows = append(h.rows, row)
	if g.bytes > gatherBytes {
		return g.flush(ctx)
	}
	return nil
}

// heap returns the heap of a statement, a new one at the end where there is none.
func (g *gatherer) heap(s *statement) *heap {
	for _, h := range g.heaps {
		if h.statement == s {
			return h
		}
	}
	h := &heap{statement: s}
	g.heaps = append(g.heaps, h)
	return h
}

// flushFor sends the gathered rows that a statement might see: up to the last heap whose table it names.
func (g *gatherer) flushFor(ctx context.Context, s *statement) error {
	for _, h := range g.heaps {
		// words are the names in the statement's text; a name in a comment or text only sends rows early.
		if len(h.rows) > 0 && s.words[h.statement.insert.table] {
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

// send sends the rows up to those of a heap: its foreign keys may rest on those before it.
func (g *gatherer) send(ctx context.Context, last *heap) error {
	for _, h := range g.heaps {
		if err := h.send(ctx, g.conn.pgx()); err != nil || h == last {
			return err
		}
	}
	return nil
}

// send sends the rows: a few as statements, many by COPY, and those that may conflict with
// stored rows by way of a temporary table.
func (h *heap) send(ctx context.Context, c *pgx.Conn) error {
	if len(h.rows) == 0 {
		return nil
	}
	rows, in := h.rows, h.statement.insert
	h.rows = nil
	if len(rows) < copyFrom {
		b := &pgx.Batch{}
		for _, r := range rows {
			b.Queue(h.statement.text, r...)
		}
		return c.SendBatch(ctx, b).Close()
	}
	if in.conflict == "" {
		_, err := c.CopyFrom(ctx, pgx.Identifier{in.table}, in.columns, pgx.CopyFromRows(rows))
		return err
	}
	// COPY cannot ignore or replace rows that are there: they are copied into a temporary table, and inserted
	// from it; of rows with one key that replace each other the last.
	name := func(s string) string { return pgx.Identifier{s}.Sanitize() }
	own, columns := "gathered_"+in.table, make([]string, len(in.columns))
	for i, column := range in.columns {
		columns[i] = name(column)
	}
	list := strings.Join(columns, ", ")
	if _, err := c.Exec(ctx, fmt.Sprintf(`CREATE TEMPORARY TABLE IF NOT EXISTS %s ON COMMIT DELETE ROWS AS
		SELECT %s, 0::bigint AS gathered_no FROM %s WHERE false`, name(own), list, name(in.table))); err != nil {
		return err
	}
	numbered := pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) { return append(rows[i], int64(i)), nil })
	if _, err := c.CopyFrom(ctx, pgx.Identifier{own}, append(slices.Clone(in.columns), "gathered_no"),
		numbered); err != nil {
		return err
	}
	pick := fmt.Sprintf(`SELECT %s FROM %s ORDER BY gathered_no`, list, name(own))
	if in.key != "" {
		pick = fmt.Sprintf(`SELECT DISTINCT ON (%[1]s) %[2]s FROM %[3]s ORDER BY %[1]s, gathered_no DESC`, in.key, list,
			name(own))
	}
	_, err := c.Exec(ctx, fmt.Sprintf(`INSERT INTO %s(%s) %s %s`, name(in.table), list, pick, in.conflict))
	if err == nil {
		_, err = c.Exec(ctx, "DELETE FROM "+name(own))
	}
	return err
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
	text   string
	insert *insert         // nil unless rows of the statement can be gathered
	words  map[string]bool // lower case: the tables that it names are among them
}

// insert stores one row of parameters and nothing else, so that many can be sent by COPY.
type insert struct {
	table    string
	columns  []string
	conflict string // the clause ON CONFLICT; empty for none
	key      string // columns by which rows replace others, separated by commas; empty for none
}

var (
	// sqlToken matches texts, quoted names and comments; the three translated forms; words.
	sqlToken = lazy.Regexp(`'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|(?i:\s+MATCH\s+\?\d*)|\?\d*|\w+`)
	// rowInsert matches an insert of one row: quote, table, columns, parameters, conflict, key.
	rowInsert = lazy.Regexp(`^\s*INSERT INTO ("?)(\w+)"?\s*(?:\(([^()]*)\))?\s*` +
		`VALUES\s*\(((?:\s*\?\s*,)*\s*\?)\s*\)` +
		`\s*(ON CONFLICT(?:\s*\(([^()]*)\) DO UPDATE SET [^()?]*| DO NOTHING))?\s*$`)
)

// ofFiles are words of statements about SQLite's files.
var ofFiles = []string{"pragma", "sqlite_master", "sqlite_schema", "vacuum", "attach", "detach", "indexed"}

// translate translates a statement; columns are those of each table. Errors wrap store.ErrFileOnly.
func translate(q string, columns map[string][]string) (*statement, error) {
	s := &statement{words: map[string]bool{}}
	params := 0
	param := func(t string) string {
		if n := strings.TrimLeft(t, "?"); n != "" {
			return "$" + n
		}
		params++
		return "$" + strconv.Itoa(params)
	}
	s.text = sqlToken().ReplaceAllStringFunc(q, func(t string) string {
		switch {
		case t[0] == '\'' || strings.HasPrefix(t, "--"):
			return t
		case t[0] == '"':
			s.words[strings.ToLower(strings.ReplaceAll(t[1:len(t)-1], `""`, `"`))] = true
			return t
		case t[0] == '?':
			return param(t)
		case strings.Contains(t, "?"): // MATCH
			return ".words @@ wattmark_words(" + param(t[strings.Index(t, "?"):]) + ")"
		}
		word := strings.ToLower(t)
		if s.words[word] = true; word == "json_each" {
			return "wattmark_each"
		}
		return t
	})
	for w := range s.words {
		if slices.Contains(ofFiles, w) || strings.HasPrefix(w, "pragma_") {
			return nil, fmt.Errorf("%w (%s) in: %s", store.ErrFileOnly, w, q)
		}
	}
	s.insert = insertOf(q, columns)
	return s, nil
}

// insertOf recognizes an insert of one row; nil for all other statements.
func insertOf(q string, columns map[string][]string) *insert {
	m := rowInsert().FindStringSubmatch(q)
	if m == nil {
		return nil
	}
	in := &insert{table: m[2], columns: columns[m[2]], conflict: m[5], key: m[6]}
	if m[3] != "" {
		in.columns = nil
		for c := range strings.SplitSeq(m[3], ",") {
			in.columns = append(in.columns, strings.Trim(c, "\" \n\t"))
		}
	}
	if len(in.columns) != strings.Count(m[4], "?") {
		return nil
	}
	return in
}
