package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// object is an entry of SQLite's list of tables, views, indexes and triggers.
type object struct{ kind, name, sql string }

// reference is the schema as the migrations make it, by name.
var reference = sync.OnceValues(func() (map[string]object, error) {
	ctx := context.Background()
	db := sql.OpenDB(newConnector("file::memory:?_error_rc=1", false))
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
	defer db.Close()
	if err := migrate(ctx, db, 0); err != nil {
		return nil, fmt.Errorf("make the schema to compare with: %w", err)
	}
	return objects(ctx, db)
})

func objects(ctx context.Context, q querier) (map[string]object, error) {
	list, err := collect(ctx, q, func(rows *sql.Rows, o *object) error { return rows.Scan(&o.kind, &o.name, &o.sql) },
		`SELECT type, name, coalesce(sql,'') FROM main.sqlite_master WHERE name NOT LIKE 'sqlite_%'`)
	out := make(map[string]object, len(list))
	for _, o := range list {
		out[o.name] = o
	}
	return out, err
}

// tableColumns are a table's columns in their order.
func tableColumns(ctx context.Context, q querier, table string) ([]string, error) {
	return collect(ctx, q, func(rows *sql.Rows, s *string) error { return rows.Scan(s) },
		`SELECT name FROM pragma_table_info(?, 'main')`, table)
}

// owned is a table whose rows belong to tasks and go with them.
type owned struct {
	name    string
	columns []string
	key     []string // columns of the primary key, in its order
}

// bulk are the owned tables that hold samples, or what follows from them.
var bulk = []string{"chunk", "chunk_column", "chunk_cold", "pyramid", "pyramid_whole"}

// ownedTables finds the tables of tasks by their foreign keys, those that others
// refer to first: a table that is added tomorrow is found too.
func ownedTables(ctx context.Context, q querier) ([]owned, error) {
	type key struct{ table, parent string }
	keys, err := collect(ctx, q, func(rows *sql.Rows, k *key) error { return rows.Scan(&k.table, &k.parent) },
		`SELECT m.name, lower(f."table") FROM main.sqlite_master m, pragma_foreign_key_list(m.name, 'main') f
		WHERE m.type='table' AND f."from"='task_id' AND f.on_delete='CASCADE' ORDER BY m.name`)
	if err != nil {
		return nil, err
	}
	known := []string{"task"}
	for more := true; more; {
		more = false
		for _, k := range keys {
			if slices.Contains(known, k.parent) && !slices.Contains(known, k.table) {
				known, more = append(known, k.table), true
			}
		}
	}
	var out []owned
	for _, name := range known[1:] {
		cols, err := tableColumns(ctx, q, name)
		if err != nil {
			return nil, err
		}
		key, err := collect(ctx, q, func(rows *sql.Rows, s *string) error { return rows.Scan(s) },
			`SELECT name FROM pragma_table_info(?, 'main') WHERE pk>0 ORDER BY pk`, name)
		if err != nil {
			return nil, err
		}
		out = append(out, owned{name, cols, key})
	}
	return out, nil
}

// quoted are names as SQL takes any of them.
func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = `"` + strings.ReplaceAll(n, `"`, `""`) + `"`
	}
	return strings.Join(out, ",")
}

// quotedName is one name as SQL takes it. Tables of a database that somebody else made
// have whatever names that somebody gave them.
func quotedName(name string) string { return quoted([]string{name}) }
