package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/store"
)

func TestTranslate(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`SELECT 1`, `SELECT 1`},
		{`SELECT a FROM t WHERE a=? AND b=?`, `SELECT a FROM t WHERE a=$1 AND b=$2`},
		{`SELECT a FROM t WHERE a=?2 OR b=?1`, `SELECT a FROM t WHERE a=$2 OR b=$1`},
		{`SELECT '?', "user?", 'it''s ? MATCH ?' FROM t -- user? json_each(?)`, `SELECT '?', "user?", 'it''s ? MATCH ?' FROM t -- user? json_each(?)`},
		{
			`SELECT a FROM t WHERE a=? AND t MATCH ? AND a IN (SELECT value FROM json_each(?))`,
			`SELECT a FROM t WHERE a=$1 AND t.words @@ wattmark_words($2) AND a IN (SELECT value FROM wattmark_each($3))`,
		},
		{`INSERT INTO "t" VALUES(?,?,?)`, `INSERT INTO "t" VALUES($1,$2,$3)`},
	} {
		s, err := translate(c.in)
		if err != nil || s.text != c.want {
			t.Errorf("%s\nis %q\nwant %q (%v)", c.in, s.text, c.want, err)
		}
	}
}

func TestFilesOnly(t *testing.T) {
	for _, q := range []string{
		`PRAGMA quick_check`, `SELECT name FROM sqlite_master`, `SELECT 1 FROM pragma_table_info(?)`, `VACUUM INTO ?`, `SELECT a FROM t NOT INDEXED`,
	} {
		if _, err := translate(q); !errors.Is(err, store.ErrFileOnly) {
			t.Errorf("%s: %v", q, err)
		}
	}
}

func TestInsertsThatCanBeGathered(t *testing.T) {
	const update = `ON CONFLICT(a,b) DO UPDATE SET offset=excluded.offset`
	for q, want := range map[string]bool{
		`INSERT INTO t VALUES(?,?,?)`:                                   true,
		`INSERT INTO "t" VALUES(?,?,?)`:                                 true,
		`INSERT INTO t("offset", a) VALUES(?,?) ON CONFLICT DO NOTHING`: true,
		` INSERT INTO t VALUES (?, ?, ?) ` + update + ` `:               true,
		`INSERT INTO t(a) VALUES(?) RETURNING a`:                        false,
		`INSERT INTO t(a) VALUES(NULL)`:                                 false,
		`INSERT INTO t(a) VALUES(?1)`:                                   false, // may stand twice
		`INSERT INTO t(a) VALUES(?),(?)`:                                false,
		`INSERT INTO t(a) VALUES(?) ON CONFLICT(a) DO UPDATE SET a=?`:   false,
		`INSERT INTO t SELECT * FROM t`:                                 false,
		`DELETE FROM t WHERE a=?`:                                       false,
		`INSERT INTO t(a) VALUES(?`:                                     false,
		`INSERT`:                                                        false,
		``:                                                              false,
	} {
		s, err := translate(q)
		if err != nil {
			t.Errorf("%s: %v", q, err)
		} else if s.row != want {
			t.Errorf("%s: gathered: %t", q, s.row)
		}
	}
}

// A table is found in a statement whether its name is quoted or not.
func TestTablesThatAStatementNames(t *testing.T) {
	for _, q := range []string{
		`SELECT a FROM sqlite_master`, `SELECT a FROM "sqlite_master"`, `DELETE FROM "sqlite_master" WHERE a=?`,
		`INSERT INTO "sqlite_master" VALUES(?,?,?)`, `SELECT "a""b" FROM SQLITE_MASTER`,
	} {
		if s, err := translate(q); !errors.Is(err, store.ErrFileOnly) {
			t.Errorf("%s: %v, %v", q, s, err)
		}
	}
}

// FuzzTranslate: no text makes the translation fail but one about files, and a statement that can be gathered has
// parameters.
func FuzzTranslate(f *testing.F) {
	for _, q := range []string{`INSERT INTO t VALUES(?,?,?)`, `SELECT 'a''b' -- x`, `INSERT INTO "t`, "?1?", "'\xff", ` MATCH ?`, `"`} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		s, err := translate(q)
		if err != nil && !errors.Is(err, store.ErrFileOnly) {
			t.Fatalf("%q: %v", q, err)
		}
		if err == nil && s.row && !strings.Contains(s.text, "$1") {
			t.Fatalf("%q is an insert without parameters", q)
		}
	})
}
