package dialect

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var schema = Schema{
	"t":    {Columns: []string{"a", "b", "offset"}, Key: []string{"a"}},
	"two":  {Columns: []string{"a", "b"}, Key: []string{"a", "b"}},
	"user": {Columns: []string{"id", "login"}, Key: []string{"id"}},
	"free": {Columns: []string{"a"}},
}

func TestTranslate(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`SELECT 1`, `SELECT 1`},
		{`SELECT a FROM t WHERE a=? AND b=?`, `SELECT a FROM t WHERE a=$1 AND b=$2`},
		{`SELECT a FROM t WHERE a=?2 OR b=?1`, `SELECT a FROM t WHERE a=$2 OR b=$1`},
		{`SELECT '?', "user?", 'it''s ?' FROM t -- user?`, `SELECT '?', "user?", 'it''s ?' FROM t -- user?`},
		{`SELECT user FROM user u WHERE user.id=?`, `SELECT "user" FROM "user" u WHERE "user".id=$1`},
		{`SELECT CAST(a AS REAL), CAST(b AS INTEGER) FROM main.t`, `SELECT CAST(a AS double precision), CAST(b AS bigint) FROM t`},
		{`SELECT a FROM t WHERE +t.a>=? AND +b<? AND a+b>1`, `SELECT a FROM t WHERE t.a>=$1 AND b<$2 AND a+b>1`},
		{`SELECT a FROM t WHERE t MATCH ? AND a IN (SELECT value FROM json_each(?))`, `SELECT a FROM t WHERE t.words @@ wattmark_words ($1) AND a IN (SELECT value FROM wattmark_each($2))`},
		{`SELECT 1 FROM t CROSS JOIN two ON 1=1 CROSS JOIN t x ON x.a=1 CROSS JOIN two`, `SELECT 1 FROM t INNER JOIN two ON 1=1 INNER JOIN t x ON x.a=1 CROSS JOIN two`},
		{`INSERT INTO t VALUES(?,?,?)`, `INSERT INTO t VALUES($1,$2,$3)`},
		{`INSERT INTO "t" VALUES(?,?,?)`, `INSERT INTO "t" VALUES($1,$2,$3)`},
		{`INSERT OR IGNORE INTO user(login) VALUES(?)`, `INSERT INTO "user"(login) VALUES($1) ON CONFLICT DO NOTHING `},
		{`INSERT OR REPLACE INTO t VALUES(?,?,?)`, `INSERT INTO t VALUES($1,$2,$3) ON CONFLICT ("a") DO UPDATE SET "b"=excluded."b", "offset"=excluded."offset" `},
		{`INSERT OR REPLACE INTO two VALUES(?,?)`, `INSERT INTO two VALUES($1,$2) ON CONFLICT ("a", "b") DO NOTHING `},
		{`INSERT OR IGNORE INTO t(a) VALUES((SELECT 1)) RETURNING a`, `INSERT INTO t(a) VALUES((SELECT 1))  ON CONFLICT DO NOTHING RETURNING a`},
		{`INSERT INTO t VALUES(?1,?2,?3) ON CONFLICT DO UPDATE SET b=?2`, `INSERT INTO t VALUES($1,$2,$3) ON CONFLICT ("a") DO UPDATE SET b=$2`},
		{`INSERT INTO t VALUES(1) ON CONFLICT(b) DO UPDATE SET b=1`, `INSERT INTO t VALUES(1) ON CONFLICT(b) DO UPDATE SET b=1`},
	} {
		s, err := Translate(c.in, schema)
		if err != nil || s.Text != c.want {
			t.Errorf("%s\nis %q\nwant %q (%v)", c.in, s.Text, c.want, err)
		}
	}
	for _, q := range []string{`INSERT OR REPLACE INTO free VALUES(?)`, `INSERT INTO free VALUES(?) ON CONFLICT DO UPDATE SET a=1`} {
		if s, err := Translate(q, schema); err == nil || !strings.Contains(err.Error(), "free") {
			t.Errorf("%s became %v (%v)", q, s, err)
		}
	}
}

func TestFilesOnly(t *testing.T) {
	for _, q := range []string{`PRAGMA quick_check`, `SELECT name FROM sqlite_master`, `SELECT 1 FROM pragma_table_info(?)`, `VACUUM INTO ?`, `SELECT a FROM t NOT INDEXED`} {
		if _, err := Translate(q, schema); !errors.Is(err, ErrFileOnly) {
			t.Errorf("%s: %v", q, err)
		}
	}
}

func TestInsertsThatCanBeGathered(t *testing.T) {
	for q, want := range map[string]*Insert{
		`INSERT INTO t VALUES(?,?,?)`:                      {"t", []string{"a", "b", "offset"}, Plain},
		`INSERT INTO "t" VALUES(?,?,?)`:                    {"t", []string{"a", "b", "offset"}, Plain},
		`INSERT OR IGNORE INTO t("offset", a) VALUES(?,?)`: {"t", []string{"offset", "a"}, Ignore},
		` INSERT OR REPLACE INTO two VALUES (?, ?) `:       {"two", []string{"a", "b"}, Replace},
		`INSERT INTO t VALUES(?,?)`:                        nil, // not all columns
		`INSERT INTO t(a) VALUES(?) RETURNING a`:           nil,
		`INSERT INTO t(a) VALUES(NULL)`:                    nil,
		`INSERT INTO t(a) VALUES(?1)`:                      nil, // may stand twice
		`INSERT INTO t(a) VALUES(?),(?)`:                   nil,
		`INSERT INTO t SELECT * FROM t`:                    nil,
		`DELETE FROM t WHERE a=?`:                          nil,
		`INSERT INTO t(a) VALUES(?`:                        nil,
		`INSERT`:                                           nil,
		``:                                                 nil,
	} {
		s, err := Translate(q, schema)
		if err != nil {
			t.Errorf("%s: %v", q, err)
		} else if diff := cmp.Diff(want, s.Insert); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", q, diff)
		}
	}
}

// A table is found in a statement whether its name is quoted or not: what was gathered
// for it goes there before it is read.
func TestTablesThatAStatementNames(t *testing.T) {
	for _, q := range []string{`SELECT a FROM t`, `SELECT a FROM "t"`, `DELETE FROM "t" WHERE a=?`, `INSERT INTO "t" VALUES(?,?,?)`, `SELECT "a""b" FROM T`} {
		s, err := Translate(q, schema)
		if err != nil || !s.Words["t"] || s.Words[`"t"`] {
			t.Errorf("%s: %v, %v", q, s, err)
		}
	}
}

func TestStep(t *testing.T) {
	const in = `-- INTEGER in a comment stays
CREATE TABLE user(
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- counted
  text TEXT NOT NULL, v REAL, data BLOB NOT NULL,
  n INTEGER REFERENCES t
) STRICT, WITHOUT ROWID;
CREATE TABLE u(id INTEGER PRIMARY KEY REFERENCES user) STRICT;
`
	const want = `-- INTEGER in a comment stays
CREATE TABLE "user"(
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, -- counted
  text text COLLATE "C" NOT NULL, v double precision, data bytea NOT NULL,
  n bigint REFERENCES t
);
CREATE TABLE u(id bigint PRIMARY KEY REFERENCES "user");
ALTER TABLE "user" ALTER COLUMN data SET STORAGE EXTERNAL;
`
	if diff := cmp.Diff(want, Step(in)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzTranslate: tokens are the text again, and no text makes it fall over.
func FuzzTranslate(f *testing.F) {
	for _, q := range []string{`INSERT OR REPLACE INTO t VALUES(?,?,?)`, `SELECT 'a''b' -- x`, `INSERT INTO "t`, "?1?", `INSERT OR INTO`, "'\xff", `ON CONFLICT DO UPDATE`} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		var b strings.Builder
		for _, k := range split(q) {
			b.WriteString(k.text)
		}
		if b.String() != q {
			t.Fatalf("tokens of %q are %q", q, b.String())
		}
		if s, err := Translate(q, schema); err == nil && s.Insert != nil && len(s.Insert.Columns) == 0 {
			t.Fatalf("%q is an insert without columns", q)
		}
		Step(q)
	})
}
