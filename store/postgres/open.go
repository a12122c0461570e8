// Package postgres holds the task database on a PostgreSQL server, for a lab
// that shares one. It is a kind of server of package store: the same calls, the
// same tables, the same answers. What differs is how a connection understands
// SQL (internal/dialect), that a transaction's rows are gathered and sent by
// COPY, and that the view data decodes the chunks in the server, by functions of
// its own. docs/postgresql.md is for users.
//
// A connection writes under REPEATABLE READ. Two that are in each other's way do
// not wait for a lock of the whole database, as they would on a file: one of them
// fails and package store runs it again.
package postgres

import (
	"context"
	"database/sql"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"wattmark/store"
)

// Schemes begin a server's address, as in postgres://user@host:5432/database.
var Schemes = []string{"postgres", "postgresql"}

// Register makes store.Open know the addresses of PostgreSQL. Where a server is waited for
// that stands still, say is told, from any goroutine; nil for silence.
func Register(say func(text string)) { store.Register(Server{say}, Schemes...) }

// Server is PostgreSQL 13 or later.
type Server struct{ say func(text string) }

// writers is how many transactions of one program run beside each other.
const writers = 4

// Open connects, and brings the schema up to date unless it is only to be read. A question
// to a server that stands still fails with store.ErrUnreachable, after some 15 s.
func (s Server) Open(ctx context.Context, address string, readOnly bool) (writer, reader *sql.DB, err error) {
	cfg, err := config(address)
	if err != nil {
		return nil, nil, err
	}
	watch(cfg, s.say)
	g, err := prepare(ctx, cfg, readOnly)
	if err != nil {
		return nil, nil, err
	}
	if !readOnly {
		writer = pool(cfg, g, writers)
	}
	read := cfg.Copy()
	read.RuntimeParams["default_transaction_read_only"] = "on"
	return writer, pool(read, g, max(4, runtime.GOMAXPROCS(0))), nil
}

func pool(cfg *pgx.ConnConfig, g *grammar, connections int) *sql.DB {
	db := sql.OpenDB(&connector{inner: stdlib.GetConnector(*cfg), grammar: g})
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// config reads an address. The settings that durability and the transactions'
// order rest on are ours, whatever the server's defaults are.
func config(address string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	for name, value := range map[string]string{
		"default_transaction_isolation": "repeatable read",
		"synchronous_commit":            "on",
		"lock_timeout":                  "10s",
		"client_encoding":               "UTF8",
		"standard_conforming_strings":   "on",
		"bytea_output":                  "hex",
		"extra_float_digits":            "3",
	} {
		cfg.RuntimeParams[name] = value
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "wattmark"
	}
	return cfg, nil
}

// prepare makes the schema and learns it, over a connection of its own.
func prepare(ctx context.Context, cfg *pgx.ConnConfig, readOnly bool) (*grammar, error) {
	c, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return nil, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	if readOnly {
		err = current(ctx, c)
	} else {
		err = migrate(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	schema, err := readSchema(ctx, c)
	return &grammar{schema: schema}, err
}
