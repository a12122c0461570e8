package store

import (
	"database/sql"
	"strings"
	"testing"
)

// What a text stands for, as a task's number, is what SQLite makes of it in a column of
// integers.
func FuzzTaskNumber(f *testing.F) {
	for _, s := range []string{"2", " 2\t", "+.2e1", "2.", "2.5", "0x2", "2_0", "-2", "", "1e300", "9223372036854775807", "9223372036854775808", "1e18", "Infinity"} {
		f.Add(s)
	}
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TABLE t(n INTEGER)"); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "\x00") {
			t.Skip("SQLite's own reading of a zero byte in a text depends on where it stands")
		}
		got := idOf(s)
		var equal, is bool
		_, err := db.Exec("DELETE FROM t; INSERT INTO t VALUES(?)", s) // its affinity is applied
		ok(t, err)
		ok(t, db.QueryRow("SELECT typeof(n)<>'text' AND n>=1 AND n<9223372036854775807 AND n=CAST(n AS INTEGER), n=? FROM t", got).Scan(&is, &equal))
		if is != (got > 0 && got < 1<<63-1) || is && !equal {
			t.Errorf("%q is %d, in SQLite %v, equal %v", s, got, is, equal)
		}
	})
}
