package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
)

// ourDriver alone carries the module of the virtual table and the functions that
// hand rows over, so that nothing leaks into other users of the SQLite driver in the process.
var ourDriver = func() *sqlite.Driver {
	d := &sqlite.Driver{}
	if err := errors.Join(d.RegisterModule(moduleName, module{}), registerGather(d), registerLend(d)); err != nil {
		panic(err) // only a name that is taken, and ours are the only ones
	}
	return d
}()

// connector opens connections; those with shadow can only read, and data on
// them is the virtual table.
type connector struct {
	dsn    string
	shadow bool
	still  *still // of a file that is read without locks
}

func newConnector(dsn string, shadow bool) driver.Connector { return &connector{dsn, shadow, nil} }

func (c *connector) Driver() driver.Driver { return ourDriver }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	raw, err := ourDriver.Open(c.dsn)
	if err != nil || !c.shadow {
		return raw, err
	}
	full, isFull := raw.(fullConn)
	if !isFull {
		raw.Close()
		return nil, fmt.Errorf("the SQLite driver's connection %T lacks a part that is needed", raw)
	}
	conn := &shadowConn{fullConn: full, id: lastConn.Add(1), keeper: newKeeper(full), still: c.still}
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

// fullConn is all that database/sql asks of a connection.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// connections tells a virtual table, which SQLite makes with nothing but its
// text arguments, the connection that it lives on: reading through it, the
// table sees the same transaction as the query that uses it.
var (
	connections sync.Map // int64 → fullConn
	lastConn    atomic.Int64
)

type shadowConn struct {
	fullConn
	id     int64
	keeper *keeper
	still  *still
}

// QueryContext runs a query by a statement that is kept.
func (c *shadowConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.keeper.query(ctx, text, args)
	if c.still == nil {
		return rows, err
	}
	if err != nil {
		return nil, errors.Join(err, c.still.check())
	}
	return &stillRows{rows, c.still}, nil
}

func (c *shadowConn) Close() error {
	c.keeper.close()
	err := c.fullConn.Close()
	connections.Delete(c.id)
	return err
}

// query runs a query inside another one of the same connection, which
// database/sql would not let us do; it belongs to the goroutine that runs the
// outer query. Each row is lent until the next.
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
		if err := rows.Next(dest); err != nil {
			return ignoreEOF(err)
		}
		if err := row(dest); err != nil {
			return err
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
