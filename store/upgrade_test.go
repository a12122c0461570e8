package store

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ofVersion makes a database as the program of an earlier schema left it: the
// first steps, and of a database of today what those already had room for.
func ofVersion(t *testing.T, version int, today string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprintf("version%d.db", version))
	db := sql.OpenDB(newConnector(dsn(path, "rwc", "_pragma=page_size(16384)"), false))
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, m := range migrations[:version] {
		_, err := db.Exec(m.sql)
		ok(t, err)
	}
	_, err := db.Exec(fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d; PRAGMA journal_mode=WAL; ATTACH '%s' AS today", ApplicationID, version, today))
	ok(t, err)
	// The index of words is filled by its triggers.
	for _, table := range namesOf(t, db, "SELECT name FROM sqlite_master WHERE type='table' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'task_text%'") {
		columns := slices.DeleteFunc(fieldsOf(t, db, "main", table), func(c string) bool { return !slices.Contains(fieldsOf(t, db, "today", table), c) })
		if len(columns) == 0 {
			continue // a table that later steps dropped
		}
		list := `"` + strings.Join(columns, `","`) + `"`
		if _, err := db.Exec(fmt.Sprintf(`INSERT OR IGNORE INTO main."%s"(%s) SELECT %s FROM today."%s"`, table, list, list, table)); err != nil {
			t.Fatalf("version %d, table %s: %v", version, table, err)
		}
	}
	return path
}

func namesOf(t *testing.T, db *sql.DB, query string, args ...any) (names []string) {
	t.Helper()
	rows := must(db.Query(query, args...))(t)
	defer rows.Close()
	for rows.Next() {
		var n string
		ok(t, rows.Scan(&n))
		names = append(names, n)
	}
	ok(t, rows.Err())
	return names
}

func fieldsOf(t *testing.T, db *sql.DB, schema, table string) []string {
	return namesOf(t, db, "SELECT name FROM pragma_table_info(?, ?)", table, schema)
}

// what of a task every version had.
const everVersion = `SELECT t.name || ' ' || u.login || ' ' || t.state || ' ' || t.scans || ' ' || t.chunks || ' ' ||
	(SELECT count(*) || ' ' || round(sum(power), 3) || ' ' || max(seqNum) FROM data d WHERE d.taskID = t.task_id)
	FROM task t JOIN user u USING(user_id) ORDER BY t.task_id`

// A database of any earlier version opens, with all that it held.
func TestEveryOlderVersionComesAlong(t *testing.T) {
	noRaces(t)
	now := open(t)
	captured(t, now, "gemm", "ada", "c-1", 2)
	captured(t, now, "memory", "bob", "c-2", 3)
	ok(t, now.SetTags(t.Context(), 1, map[string]string{"node": `"a" 3`, "project": "survey"}, nil))
	ok(t, now.SetTags(t.Context(), 2, nil, []string{"node"}))
	tags := must(now.List(t.Context(), ListQuery{Ascending: true}))(t).Tasks[0].Tags
	want := namesOf(t, now.SQL(), everVersion)
	if len(want) != 2 || !strings.HasPrefix(want[0], "gemm ada 2 ") {
		t.Fatalf("%q", want)
	}
	ok(t, now.Close())
	for version := 2; version < len(migrations); version++ { // the first had no view yet
		path := ofVersion(t, version, now.Path())
		if _, err := OpenReadOnly(t.Context(), path); !errors.Is(err, ErrOlder) {
			t.Errorf("version %d, to read: %v", version, err)
		}
		d := must(Open(t.Context(), path))(t)
		if got := namesOf(t, d.SQL(), everVersion); !slices.Equal(got, want) {
			t.Errorf("version %d came along as\n%q, not\n%q", version, got, want)
		}
		if list := must(d.List(t.Context(), ListQuery{Ascending: true}))(t).Tasks; version >= 13 && !maps.Equal(list[0].Tags, tags) || list[1].Tags != nil {
			t.Errorf("version %d came along with the tags %q and %q", version, list[0].Tags, list[1].Tags)
		}
		var is int
		ok(t, d.SQL().QueryRow("PRAGMA user_version").Scan(&is))
		if is != len(migrations) {
			t.Errorf("version %d is now %d", version, is)
		}
		if id := captured(t, d, "new", "eve", "c-3", 1); id == 0 {
			t.Errorf("version %d takes no new task", version)
		}
		ok(t, d.Close())
		d = must(OpenReadOnly(t.Context(), path))(t)
		ok(t, d.Close())
	}
}

// One that a later program wrote is refused by name of both versions, and not
// touched; neither is one whose upgrade fails.
func TestLaterVersionIsRefused(t *testing.T) {
	d := open(t)
	captured(t, d, "gemm", "ada", "c-1", 1)
	ok(t, d.Close())
	db := must(sql.Open("sqlite", d.Path()))(t)
	_, err := db.Exec(fmt.Sprintf("PRAGMA user_version=%d", len(migrations)+1))
	ok(t, err)
	ok(t, db.Close())
	before := must(os.ReadFile(d.Path()))(t)
	want := fmt.Sprintf("schema %d, this program knows %d: update the program", len(migrations)+1, len(migrations))
	if _, err := Open(t.Context(), d.Path()); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	if !slices.Equal(before, must(os.ReadFile(d.Path()))(t)) {
		t.Error("it was changed")
	}
}
