// Package data has SQLite's connections, and the packed form of chunks:
//
//	Connector  connections to a database, which keep their statements prepared
//	Reader     connections that cannot write
//	Pack       chunks coded tighter, for tasks that are cold
package data

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/wattmark/wattmark/internal/lazy"
	"modernc.org/sqlite"
)

// Connector returns a connector to an SQLite database by its own connection string.
func Connector(dsn string) driver.Connector { return &connector{dsn: dsn} }

// Reader returns a connector whose connections cannot write.
// still, unless it is nil, is called at the end of each query: its error becomes the query's.
func Reader(dsn string, still func() error) driver.Connector { return &connector{dsn, true, still} }

type connector struct {
	dsn      string
	readOnly bool
	still    func() error
}

func (c *connector) Driver() driver.Driver { return &sqlite.Driver{} }

// Connect opens a connection.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	raw, err := c.Driver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	full, isFull := raw.(fullConn)
	if !isFull {
		raw.Close()
		return nil, fmt.Errorf("the SQLite driver's connection %T lacks a part that is needed", raw)
	}
	conn := &keeper{fullConn: full, kept: map[string]*keptStatement{}, still: c.still}
	if c.readOnly {
		if _, err := full.ExecContext(ctx, "PRAGMA query_only=1", nil); err != nil {
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

// keptStatements bounds how many statements a connection keeps: all that lists, tasks and
// ingest are asked with, and room for the questions of one program.
const keptStatements = 64

// keeper is a connection that keeps its statements prepared, as a server's driver does: of a page of
// tasks, preparing its question took a fifth of the time. It belongs to one goroutine at a time.
type keeper struct {
	fullConn
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

// Close closes the kept statements and the connection.
func (c *keeper) Close() error {
	for _, s := range c.kept {
		_ = s.Close() // only its memory is given back
	}
	clear(c.kept)
	return c.fullConn.Close()
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
