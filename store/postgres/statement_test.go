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
	for q, table := range map[string]string{
		`INSERT INTO t VALUES(?,?,?)`:                                   "t",
		`INSERT INTO "t" VALUES(?,?,?)`:                                 "t",
		`INSERT INTO t("offset", a) VALUES(?,?) ON CONFLICT DO NOTHING`: "t",
		` INSERT INTO t VALUES (?, ?, ?) ` + update + ` `:               "t",
		`INSERT INTO t(a) VALUES(?) RETURNING a`:                        "",
		`INSERT INTO t(a) VALUES(NULL)`:                                 "",
		`INSERT INTO t(a) VALUES(?1)`:                                   "", // may stand twice
		`INSERT INTO t(a) VALUES(?),(?)`:                                "",
		`INSERT INTO t(a) VALUES(?) ON CONFLICT(a) DO UPDATE SET a=?`:   "",
		`INSERT INTO t SELECT * FROM t`:                                 "",
		`DELETE FROM t WHERE a=?`:                                       "",
		`INSERT INTO t(a) VALUES(?`:                                     "",
		`INSERT`:                                                        "",
		``:                                                              "",
	} {
		s, err := translate(q)
		if err != nil {
			t.Errorf("%s: %v", q, err)
		} else if s.row != table {
			t.Errorf("%s: a row of table %q, want %q", q, s.row, table)
		}
	}
}

// A table is found in a statement whether its name is quoted or not: rows that were gathered
// for it are sent before it is read.
func TestTablesThatAStatementNames(t *testing.T) {
	for _, q := range []string{`SELECT a FROM t`, `SELECT a FROM "t"`, `DELETE FROM "t" WHERE a=?`, `INSERT INTO "t" VALUES(?,?,?)`, `SELECT "a""b" FROM T`} {
		s, err := translate(q)
		if err != nil || !s.words["t"] || s.words[`"t"`] {
			t.Errorf("%s: %v, %v", q, s, err)
		}
	}
}

// FuzzTranslate: no text makes the translation fail but one about files, and the table of an insert that can
// be gathered is among the names of the statement.
func FuzzTranslate(f *testing.F) {
	for _, q := range []string{`INSERT INTO t VALUES(?,?,?)`, `SELECT 'a''b' -- x`, `INSERT INTO "t`, "?1?", "'\xff", ` MATCH ?`, `"`} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		s, err := translate(q)
		if err != nil && !errors.Is(err, store.ErrFileOnly) {
			t.Fatalf("%q: %v", q, err)
		}
		if err == nil && s.row != "" && !s.words[strings.ToLower(s.row)] {
			t.Fatalf("%q is an insert of a table %q that it does not name", q, s.row)
		}
	})
}
