// Package data has SQLite's connections, and the packed form of chunks:
//
//	Connector  connections to a database
//	Reader     connections that cannot write
//	Preparing  a transaction that prepares each statement once
//	Pack       chunks coded tighter, for tasks that are cold
package data

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

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
	if c.readOnly {
		if _, err := full.ExecContext(ctx, "PRAGMA query_only=1", nil); err != nil {
			full.Close()
			return nil, err
		}
	}
	if c.still != nil {
		return &checked{full, c.still}, nil
	}
	return full, nil
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

// checked is a connection that calls still at the end of each query.
type checked struct {
	fullConn
	still func() error
}

// QueryContext runs a query; its error, and that of its rows, is still's where that has one.
func (c *checked) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.fullConn.QueryContext(ctx, text, args)
	if err != nil {
		return nil, errors.Join(err, c.still())
	}
	return &stillRows{rows, c.still}, nil
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
	return cmp.Or(r.still(), err)
}

// Tx is a transaction that prepares each statement that it runs by ExecContext once: preparing an INSERT takes longer
// than running it. The statements end with the transaction. One goroutine uses it. A server's driver needs none: it keeps
// statements itself.
type Tx struct {
	*sql.Tx
	prepared map[string]*sql.Stmt
}

// Preparing returns tx as a Tx.
func Preparing(tx *sql.Tx) *Tx { return &Tx{tx, map[string]*sql.Stmt{}} }

// ExecContext runs a statement.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	st := t.prepared[query]
	if st == nil {
		var err error
		if st, err = t.PrepareContext(ctx, query); err != nil {
			return nil, err
		}
		t.prepared[query] = st
	}
	return st.ExecContext(ctx, args...)
}
