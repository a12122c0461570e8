package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"slices"
)

//go:generate go run ./internal/viewgen -o migrations/0017_view.sql

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the schema's steps in order; a file's schema version
// (PRAGMA user_version) is the number of steps that were applied to it. A step
// that was released is never changed.
var migrations = loadMigrations()

type migration struct{ name, sql string }

func loadMigrations() []migration {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		panic(err)
	}
	var out []migration
	for _, e := range entries { // by name, and names begin with the number
		text, err := migrationFiles.ReadFile("migrations/" + e.Name())
		if err != nil {
			panic(err)
		}
		out = append(out, migration{e.Name(), string(text)})
	}
	return slices.Clip(out)
}

// migrate applies the steps that are missing, one transaction each.
func migrate(ctx context.Context, db *sql.DB, version int) error {
	for version < len(migrations) {
		next, err := step(ctx, db)
		if err != nil {
			return err
		}
		version = next
	}
	return nil
}

// step applies the next step. The version is read again inside the
// transaction: another program may have just done it.
func step(ctx context.Context, db *sql.DB) (version int, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // after Commit there is nothing to roll back
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, err
	}
	if version >= len(migrations) {
		return version, nil
	}
	m := migrations[version]
	if _, err := tx.ExecContext(ctx, m.sql); err != nil {
		return 0, fmt.Errorf("migration %s: %w", m.name, err)
	}
	version++
	mark := fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d", ApplicationID, version)
	if _, err := tx.ExecContext(ctx, mark); err != nil {
		return 0, fmt.Errorf("migration %s: %w", m.name, err)
	}
	return version, tx.Commit()
}
