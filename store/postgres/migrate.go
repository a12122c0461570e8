package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"wattmark/store"
	"wattmark/store/postgres/internal/dialect"
)

//go:generate go run ./internal/stepgen -from ../migrations -to migrations

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the schema's steps in order, of the names that the file's steps
// have. A step that was released is never changed.
var migrations = loadMigrations()

type migration struct{ name, sql string }

func loadMigrations() (out []migration) {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		panic(err)
	}
	for _, e := range entries { // by name, and names begin with the number
		text, err := migrationFiles.ReadFile("migrations/" + e.Name())
		if err != nil {
			panic(err)
		}
		out = append(out, migration{e.Name(), string(text)})
	}
	return out
}

// lockKey is the advisory lock of who changes the schema: "WaMk" in ASCII.
const lockKey = store.ApplicationID

// marks is where the steps that were applied are written down.
const marks = `CREATE TABLE IF NOT EXISTS wattmark_schema(
	version integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT now())`

// version returns how many steps were applied, 0 where the schema is empty. It
// refuses what is not ours or is newer.
func version(ctx context.Context, c *pgx.Conn) (n int, err error) {
	var ours bool
	var tables int
	err = c.QueryRow(ctx, `SELECT to_regclass('wattmark_schema') IS NOT NULL,
		(SELECT count(*) FROM pg_class WHERE relkind IN ('r','v','p') AND relnamespace=to_regnamespace(quote_ident(current_schema())))`).Scan(&ours, &tables)
	switch {
	case err != nil:
		return 0, err
	case !ours && tables > 0:
		return 0, fmt.Errorf("%w (%d tables in the schema): name an empty database, or another schema with ?search_path=NAME", store.ErrForeign, tables)
	case !ours:
		return 0, nil
	}
	err = c.QueryRow(ctx, `SELECT coalesce(max(version),0) FROM wattmark_schema`).Scan(&n)
	if err == nil && n > len(migrations) {
		err = fmt.Errorf("%w: schema %d, this program knows %d: update the program", store.ErrNewer, n, len(migrations))
	}
	return n, err
}

// migrate applies the steps that are missing, one transaction each. One program
// does so at a time; where nothing is missing, nothing is locked.
func migrate(ctx context.Context, c *pgx.Conn) (err error) {
	n, err := version(ctx, c)
	if err != nil || n == len(migrations) {
		return err
	}
	if _, err := c.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(lockKey)); err != nil {
		return err
	}
	defer func() {
		_, unlock := c.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, int64(lockKey))
		err = errors.Join(err, unlock)
	}()
	for {
		done, err := step(ctx, c)
		if err != nil || done {
			return err
		}
	}
}

// step applies the next step; done is true where there is none. The version is
// read under the lock: another program may have just done it.
func step(ctx context.Context, c *pgx.Conn) (done bool, err error) {
	n, err := version(ctx, c)
	if err != nil || n == len(migrations) {
		return true, err
	}
	m := migrations[n]
	return false, pgx.BeginTxFunc(ctx, c, pgx.TxOptions{}, func(tx pgx.Tx) error {
		for _, text := range []string{marks, m.sql} {
			if _, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll(); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO wattmark_schema(version, name) VALUES($1,$2)`, n+1, m.name)
		return err
	})
}

// readSchema reads the tables' columns and keys.
func readSchema(ctx context.Context, c *pgx.Conn) (dialect.Schema, error) {
	rows, err := c.Query(ctx, `SELECT r.relname, a.attname, coalesce(array_position(i.indkey::int2[], a.attnum), -1)
		FROM pg_class r JOIN pg_attribute a ON a.attrelid=r.oid AND a.attnum>0 AND NOT a.attisdropped
		LEFT JOIN pg_index i ON i.indrelid=r.oid AND i.indisprimary
		WHERE r.relkind IN ('r','p') AND r.relnamespace=to_regnamespace(quote_ident(current_schema())) ORDER BY r.relname, a.attnum`)
	if err != nil {
		return nil, err
	}
	out := dialect.Schema{}
	var table, column string
	var key int
	_, err = pgx.ForEachRow(rows, []any{&table, &column, &key}, func() error {
		t := out[table]
		t.Columns = append(t.Columns, column)
		if key >= 0 {
			t.Key = append(t.Key, column)
		}
		out[table] = t
		return nil
	})
	return out, err
}
