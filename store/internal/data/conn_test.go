package data

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
)

// A statement that a caller has not finished with is left alone, and one that is kept
// sees what was written since.
func TestKeptStatements(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db := sql.OpenDB(Connector("file:" + path))
	defer db.Close()
	exec := func(q string) {
		t.Helper()
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE TABLE task(task_id INTEGER PRIMARY KEY); WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<20) INSERT INTO task SELECT i FROM s`)
	reader := sql.OpenDB(Reader("file:"+path, nil))
	defer reader.Close()
	conn, err := reader.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const text = "SELECT task_id FROM task WHERE task_id>? ORDER BY task_id"
	count := func(q string, from, behind15 int) (n int) {
		t.Helper()
		outer, err := conn.QueryContext(t.Context(), q, from)
		if err != nil {
			t.Fatal(err)
		}
		defer outer.Close()
		for outer.Next() {
			n++
			if n == 3 {
				inner, err := conn.QueryContext(t.Context(), q, 15)
				if err != nil {
					t.Fatal(err)
				}
				m := 0
				for inner.Next() {
					m++
				}
				if inner.Err() != nil || m != behind15 {
					t.Errorf("%d inner rows: %v", m, inner.Err())
				}
			}
		}
		if outer.Err() != nil {
			t.Error(outer.Err())
		}
		return n
	}
	for i := range 100 {
		if n := count(fmt.Sprintf("%s LIMIT %d", text, 20+i), 10, 5); n != 10 {
			t.Fatalf("%d rows, want 10", n)
		}
	}
	exec(`INSERT INTO task VALUES(21)`)
	if n := count(text+" LIMIT 119", 10, 6); n != 11 {
		t.Errorf("%d rows after another was added, want 11", n)
	}
	err = conn.Raw(func(c any) error {
		if n := len(c.(*keeper).kept); n == 0 || n > keptStatements {
			return fmt.Errorf("%d statements are kept", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	var no sql.NullInt64
	if err := conn.QueryRowContext(t.Context(), "SELECT nonsense").Scan(&no); err == nil {
		t.Error("nonsense was answered")
	}
}
