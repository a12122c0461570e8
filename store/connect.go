package store

import (
	"context"
	"database/sql/driver"

	"modernc.org/sqlite"
)

// connector opens connections of our own driver: it alone carries the module
// of the virtual table, so that nothing leaks into other users of the driver.
type connector struct {
	dsn    string
	shadow bool // make data the virtual table, and forbid writing
}

var ourDriver = &sqlite.Driver{}

func newConnector(dsn string, shadow bool) driver.Connector { return &connector{dsn, shadow} }

func (c *connector) Driver() driver.Driver { return ourDriver }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := ourDriver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return conn, nil
}
