// Package data reads stored samples inside of SQLite's connections:
//
//	Connector  connections to a database, by this package's own instance of the driver, which
//	           keep their statements prepared
//	Reader     connections that cannot write, and on which the name data is a virtual table
//	           instead of the view
//	module     the virtual table: the view's rows, by decoding the chunks directly
//	scanner    a task's scans as the paper's columns
//	Pack       chunks coded tighter, for tasks that are cold
package data

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/wattmark/wattmark/internal/lazy"
	"modernc.org/sqlite"
)

// ourDriver alone carries the module of the virtual table, so that nothing leaks into other users
// of the SQLite driver in the process.
var ourDriver = func() *sqlite.Driver {
	d := &sqlite.Driver{}
	if err := d.RegisterModule(moduleName, module{}); err != nil {
		panic(err) // only a name that is taken, and ours are the only ones
	}
	return d
}()

// Connector returns a connector to an SQLite database by its own connection string.
func Connector(dsn string) driver.Connector { return &connector{dsn: dsn} }

// Reader returns a connector whose connections cannot write; on them the name data means the virtual table.
// still, unless it is nil, is called at the end of each query: its error becomes the query's.
func Reader(dsn string, still func() error) driver.Connector { return &connector{dsn, true, still} }

type connector struct {
	dsn    string
	shadow bool
	still  func() error
}

func (c *connector) Driver() driver.Driver { return ourDriver }

// Connect opens a connection. A reader gets its number in connections first, by which SQLite
// then makes its virtual table.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	raw, err := ourDriver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	full, isFull := raw.(fullConn)
	if !isFull {
		raw.Close()
		return nil, fmt.Errorf("the SQLite driver's connection %T lacks a part that is needed", raw)
	}
	conn := &keeper{fullConn: full, kept: map[string]*keptStatement{}, still: c.still}
	if !c.shadow {
		return conn, nil
	}
	conn.id = lastConn.Add(1)
	connections.Store(conn.id, full)
	for _, q := range []string{
		fmt.Sprintf("CREATE VIRTUAL TABLE temp.data USING %s(%d)", moduleName, conn.id),
		"PRAGMA query_only=1",
	} {
		if _, err := full.ExecContext(ctx, q, nil); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// fullConn is all that database/sql and package store ask of a connection.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	IsReadOnly(schema string) (bool, error)
	NewBackup(to string) (*sqlite.Backup, error)
}

// connections leads a virtual table, which SQLite makes with nothing but its text arguments, to
// the connection that it lives on: reading through it, the table sees the same transaction as
// the query that uses it.
var (
	connections sync.Map // int64 → fullConn
	lastConn    atomic.Int64
)

// keptStatements bounds how many statements a connection keeps: all that lists, tasks and
// ingest are asked with, and room for the questions of one program.
const keptStatements = 64

// keeper is a connection that keeps its statements prepared, as a server's driver does: of a page of
// tasks, preparing its question took a fifth of the time. It belongs to one goroutine at a time.
type keeper struct {
	fullConn
	id    int64 // in connections; 0 for none
	kept  map[string]*keptStatement
	still func() error // nil for none
}

type keptStatement struct {
	fullStatement
	inUse bool
}

// fullStatement is all that database/sql asks of a statement.
type fullStatement interface {
	driver.Stmt
	driver.StmtQueryContext
	driver.StmtExecContext
}

// statement returns the kept statement of a text; nil where it is in use, or of a kind that is not kept:
// a PRAGMA may take effect where it is prepared.
func (c *keeper) statement(ctx context.Context, text string) (*keptStatement, error) {
	s := c.kept[text]
	if s == nil && !keptForm().MatchString(text) || s != nil && s.inUse {
		return nil, nil
	}
	if s == nil {
		stmt, err := c.fullConn.PrepareContext(ctx, text)
		if err != nil {
			return nil, err
		}
		full, isFull := stmt.(fullStatement)
		if !isFull {
			return nil, stmt.Close()
		}
		s = &keptStatement{fullStatement: full}
		// Where many are kept, some that are at rest are let go, for their memory.
		for other, old := range c.kept {
			if len(c.kept) < keptStatements {
				break
			}
			if !old.inUse {
				_ = old.Close()
				delete(c.kept, other)
			}
		}
		c.kept[text] = s
	}
	return s, nil
}

var keptForm = lazy.Regexp(`^\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b`)

// QueryContext runs a query by a statement that is kept.
func (c *keeper) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.statement(ctx, text)
	var rows driver.Rows
	if err == nil && s == nil {
		rows, err = c.fullConn.QueryContext(ctx, text, args)
	} else if err == nil {
		if rows, err = s.QueryContext(ctx, args); err == nil {
			s.inUse = true
			rows = &keptRows{Rows: rows, of: s}
		}
	}
	switch {
	case err != nil && c.still != nil:
		return nil, errors.Join(err, c.still())
	case err != nil:
		return nil, err
	case c.still != nil:
		return &stillRows{rows, c.still}, nil
	}
	return rows, nil
}

// ExecContext runs a statement that is kept.
func (c *keeper) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.statement(ctx, text)
	if err != nil {
		return nil, err
	} else if s == nil {
		return c.fullConn.ExecContext(ctx, text, args)
	}
	return s.ExecContext(ctx, args)
}

// Close closes the kept statements and the connection, and forgets its number.
func (c *keeper) Close() error {
	for _, s := range c.kept {
		_ = s.Close() // only its memory is given back
	}
	clear(c.kept)
	err := c.fullConn.Close()
	connections.Delete(c.id)
	return err
}

// query runs a query inside another one of the same connection, which database/sql would not let us do; it
// belongs to the goroutine that runs the outer query. Each row is lent until the next.
func query(conn fullConn, text string, args []driver.Value, row func([]driver.Value) error) (err error) {
	st, err := conn.Prepare(text)
	if err != nil {
		return err
	}
	defer st.Close()
	//lint:ignore SA1019 there is no context here; the outer query's interrupts the connection
	rows, err := st.Query(args)
	if err != nil {
		return err
	}
	defer rows.Close()
	dest := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(dest); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := row(dest); err != nil {
			return err
		}
	}
}

// keptRows frees their statement when they are closed.
type keptRows struct {
	driver.Rows
	of *keptStatement
}

func (r *keptRows) Close() error {
	r.of.inUse = false
	return r.Rows.Close()
}

// stillRows end in the error of still.
type stillRows struct {
	driver.Rows
	still func() error
}

func (r *stillRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err == nil {
		return nil
	}
	if changed := r.still(); changed != nil {
		return changed
	}
	return err
}
