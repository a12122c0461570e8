package postgres_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
)

// TestSameColumns holds the tables of a new server's database against a new file's.
func TestSameColumns(t *testing.T) {
	file, server := openFile(t), open(t)
	rows := must(file.SQL().QueryContext(t.Context(), `SELECT name FROM sqlite_master WHERE type IN ('table','view') AND name NOT LIKE '\_%' ESCAPE '\'
		AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'task\_text\_%' ESCAPE '\' AND sql NOT LIKE 'CREATE VIRTUAL%'`))(t)
	defer rows.Close()
	n := 0
	for rows.Next() {
		var table string
		ok(t, rows.Scan(&table))
		want, got := columns(t, file.SQL(), table), columns(t, server.SQL(), table)
		if !slices.Equal(want, got) {
			t.Errorf("table %s has columns\n%v in a file,\n%v on a server", table, want, got)
		}
		n++
	}
	if ok(t, rows.Err()); n < 25 {
		t.Errorf("only %d tables were compared", n)
	}
}

func columns(t *testing.T, db *sql.DB, table string) (out []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM \""+table+"\" WHERE 1=0")
	if err != nil {
		t.Errorf("table %s: %v", table, err)
		return nil
	}
	defer rows.Close()
	for _, c := range must(rows.Columns())(t) {
		out = append(out, strings.ToLower(c))
	}
	return out
}

// makeTasks makes synthetic tasks of many users, names and days.
func makeTasks(t testing.TB, address string, n int) {
	t.Helper()
	psql(t, address, fmt.Sprintf(`INSERT INTO "user"(login) SELECT 'user'||i FROM generate_series(1,50) i;
		INSERT INTO task(user_id,name,launched_ns,launched,state,monitor,capture_id,gpu,gpu_uuid,driver,marker_code,marker_chip_s,marker_guard,marker_tag_bits,marker_tag,job,chunks,scans)
		SELECT 1+i%%50, 'kernel'||i%%997||' '||i%%7, 1700000000000000000+i*60000000000, '2026', 2, 'm:1', 'c'||i, 'H200', 'GPU-1', '570', 1, 0.002, 4, 8, 1,
			CASE WHEN i%%10=0 THEN 'job'||i%%1000 END, 10, 100000 FROM generate_series(1,%d) i`, n))
	psql(t, address, "VACUUM ANALYZE") // as the server does by itself before long
}

// pages are questions as people ask them.
var pages = map[string]store.Query{
	"newest":        {},
	"next page":     {Before: 5000},
	"user":          {User: "user7"},
	"user and name": {User: "user7", Name: "kernel*"},
	"name":          {Name: "kernel5 3"},
	"prefix":        {Name: "kernel99*"},
	"job":           {Job: "job500"},
	"since":         {Since: epoch.AddDate(-10, 0, 0), Limit: 50},
}

// TestListsUseIndexes reads the plans of the very statements that list tasks, out
// of the server's log: none may read the whole table.
func TestListsUseIndexes(t *testing.T) {
	coverage.Long(t)
	c := pgtest.Own(t, "fsync=off", "session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0")
	c.Make(t, "w")
	d := openAt(t, c.URL("w"))
	makeTasks(t, c.URL("w"), 20000)
	conn := dial(t, c.URL("w"))
	for name, q := range pages {
		plans(t, c, conn)
		if list := must(d.Tasks(t.Context(), q))(t); len(list) == 0 {
			t.Errorf("%s: no tasks", name)
		}
		plan := plans(t, c, conn)
		if !strings.Contains(plan, "Index") || strings.Contains(plan, "Seq Scan on task ") {
			t.Errorf("%s:\n%s", name, plan)
		}
		// However many tasks a user has, they are not sorted for a page.
		if q.User != "" && q.Name != "" && !strings.Contains(plan, "Scan Backward using task_user on task") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
