// Package dialect says in PostgreSQL's SQL what package store says in SQLite's.
// Both understand nearly all of it; what differs is translated by token, never
// inside of a text:
//
//	? and ?7                   $1, $7
//	INSERT OR IGNORE           INSERT … ON CONFLICT DO NOTHING
//	INSERT OR REPLACE          INSERT … ON CONFLICT(key) DO UPDATE SET every column
//	ON CONFLICT DO UPDATE      the same with the key
//	user                       "user", which is a word of SQL there
//	CAST(x AS REAL), main.t    double precision, t
//	+name                      name: the sign only keeps SQLite from an index
//	CROSS JOIN t ON …          INNER JOIN: SQLite is told the order of the loops
//	json_each(?)               wattmark_each($1), of numbers
//	text MATCH ?               text.words @@ wattmark_words($1)
//
// What asks SQLite about its own file is ErrFileOnly.
package dialect

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrFileOnly: the statement is about a file.
var ErrFileOnly = errors.New("the statement is about a file")

// ofFiles are words of statements about SQLite's files.
var ofFiles = []string{"pragma", "sqlite_master", "sqlite_schema", "vacuum", "attach", "detach", "indexed"}

// Table is what a translation asks of the schema.
type Table struct {
	Columns []string
	Key     []string // of the primary key; none where there is none
}

// Schema is the tables by name.
type Schema map[string]Table

// Mode says what an insert does with a row whose key is taken.
type Mode byte

// The modes.
const (
	Plain Mode = iota
	Ignore
	Replace
)

// Insert is a statement that stores one row of parameters and nothing else, so
// that rows of it can be gathered.
type Insert struct {
	Table   string
	Columns []string
	Mode    Mode
}

// Statement is a translated statement.
type Statement struct {
	Text   string
	Insert *Insert         // nil for all that is more than one
	Words  map[string]bool // lower case: the tables that it names are among them
}

// Translate turns a statement into PostgreSQL's. Errors name what cannot be
// translated.
func Translate(q string, s Schema) (*Statement, error) {
	t := translator{schema: s, in: split(q), out: &Statement{Words: map[string]bool{}}}
	if err := t.run(); err != nil {
		return nil, fmt.Errorf("%w in: %s", err, q)
	}
	for w := range t.out.Words {
		if contains(ofFiles, w) || strings.HasPrefix(w, "pragma_") {
			return nil, fmt.Errorf("%w (%s)", ErrFileOnly, w)
		}
	}
	t.out.Insert = t.simple()
	return t.out, nil
}

type translator struct {
	schema Schema
	in     []token
	out    *Statement
	text   strings.Builder
	mode   Mode
	table  string // of an insert
	params int
}

func (t *translator) run() error {
	depth, conflict := 0, false
	for i := 0; i < len(t.in); i++ {
		k := t.in[i]
		if k.kind == word || k.name() != "" {
			t.out.Words[strings.ToLower(cmp.Or(k.name(), k.text))] = true
		}
		switch {
		case k.is("INSERT") && t.table == "":
			i = t.insert(i)
			continue
		case k.is("RETURNING") && depth == 0 && t.mode != Plain:
			if err := t.conflict(); err != nil {
				return err
			}
			conflict = true
		case k.is("CONFLICT") && t.word(i, 1).is("DO") && t.word(i, 2).is("UPDATE"):
			key, err := t.key()
			if err != nil {
				return err
			}
			t.text.WriteString("CONFLICT " + key)
			continue
		case k.text == "(":
			depth++
		case k.text == ")":
			depth--
		}
		t.text.WriteString(t.token(i))
	}
	if t.mode != Plain && !conflict {
		if err := t.conflict(); err != nil {
			return err
		}
	}
	t.out.Text = t.text.String()
	return nil
}

// token translates one token.
func (t *translator) token(i int) string {
	k, next, before := t.in[i], t.word(i, 1), t.word(i, -1)
	switch {
	case k.kind == param && before.is("MATCH"):
		return "(" + t.param(k) + ")"
	case k.kind == param:
		return t.param(k)
	case k.is("user"):
		return `"user"`
	case k.is("main") && next.text == "." || k.text == "." && before.is("main"):
		return ""
	case k.is("REAL") && before.is("AS"):
		return "double precision"
	case k.is("INTEGER") && before.is("AS"):
		return "bigint"
	case k.is("BLOB") && before.is("AS"):
		return "bytea"
	case k.is("CROSS") && (t.word(i, 3).is("ON") || t.word(i, 4).is("ON")):
		return "INNER"
	case k.is("json_each"):
		return "wattmark_each"
	case k.is("MATCH") && next.kind == param:
		return ".words @@ wattmark_words"
	case k.kind == space && t.next(i).is("MATCH"):
		return ""
	case k.text == "+" && next.kind == word && (before.text == "(" || before.is("WHERE") || before.is("AND") || before.is("OR") || before.is("NOT")):
		return ""
	}
	return k.text
}

func (t *translator) param(k token) string {
	if len(k.text) > 1 {
		return "$" + k.text[1:]
	}
	t.params++
	return "$" + strconv.Itoa(t.params)
}

// next returns the token behind one, be it space.
func (t *translator) next(i int) token {
	if i+1 < len(t.in) {
		return t.in[i+1]
	}
	return token{}
}

// word returns the token that stands n tokens from one, spaces not counted.
func (t *translator) word(i, n int) token {
	step := 1
	if n < 0 {
		step, n = -1, -n
	}
	for i += step; i >= 0 && i < len(t.in); i += step {
		if t.in[i].kind == space {
			continue
		}
		if n--; n == 0 {
			return t.in[i]
		}
	}
	return token{}
}

// insert writes the head of an insert up to the table, and returns the last token
// that it used.
func (t *translator) insert(i int) int {
	if t.word(i, 1).is("OR") {
		switch w := t.word(i, 2); {
		case w.is("IGNORE"):
			t.mode = Ignore
		case w.is("REPLACE"):
			t.mode = Replace
		}
	}
	for ; i < len(t.in) && !t.in[i].is("INTO"); i++ {
	}
	k := t.word(i, 1)
	name := cmp.Or(k.name(), strings.ToLower(k.text))
	for i++; i < len(t.in) && t.in[i].kind == space; i++ {
	}
	t.table = name
	t.out.Words[name] = true
	if name == "user" || k.name() != "" {
		name = Name(name)
	}
	t.text.WriteString("INSERT INTO " + name)
	return i
}

// conflict writes what an insert does with a row whose key is taken.
func (t *translator) conflict() error {
	if t.mode == Ignore {
		t.text.WriteString(" ON CONFLICT DO NOTHING ")
		return nil
	}
	key, err := t.key()
	if err != nil {
		return err
	}
	t.text.WriteString(" ON CONFLICT " + key + " DO " + t.schema[t.table].update() + " ")
	return nil
}

func (t *translator) key() (string, error) {
	k := t.schema[t.table].Key
	if len(k) == 0 {
		return "", fmt.Errorf("table %s has no key by which rows are replaced", t.table)
	}
	return "(" + Names(k) + ")", nil
}

// update is what replaces a row: every column that is not of the key.
func (x Table) update() string {
	var set []string
	for _, c := range x.Columns {
		if !contains(x.Key, c) {
			set = append(set, Name(c)+"=excluded."+Name(c))
		}
	}
	if len(set) == 0 {
		return "NOTHING"
	}
	return "UPDATE SET " + strings.Join(set, ", ")
}

// OnConflict returns the clause that an insert of a mode ends with.
func (x Table) OnConflict(m Mode) string {
	switch m {
	case Ignore:
		return " ON CONFLICT DO NOTHING"
	case Replace:
		return " ON CONFLICT (" + Names(x.Key) + ") DO " + x.update()
	}
	return ""
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Name quotes a name.
func Name(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// Names quotes names and sets commas between.
func Names(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = Name(s)
	}
	return strings.Join(out, ", ")
}

// simple recognizes INSERT [OR …] INTO table[(columns)] VALUES(?, …).
func (t *translator) simple() *Insert {
	var in []token
	for _, k := range t.in {
		if k.kind != space {
			in = append(in, k)
		}
	}
	if len(in) == 0 || !in[0].is("INSERT") {
		return nil
	}
	for len(in) > 0 && !in[0].is("INTO") {
		in = in[1:]
	}
	if len(in) < 3 {
		return nil
	}
	x := &Insert{Table: t.table, Mode: t.mode, Columns: t.schema[t.table].Columns}
	in = in[2:]
	if in[0].text == "(" {
		x.Columns, in = list(in, func(k token) bool { return k.kind == word || k.kind == quoted })
	}
	if len(in) == 0 || !in[0].is("VALUES") {
		return nil
	}
	values, rest := list(in[1:], func(k token) bool { return k.text == "?" })
	if len(rest) > 0 || len(values) == 0 || len(values) != len(x.Columns) {
		return nil
	}
	return x
}

// list reads (a, b, …) of tokens of a kind and returns what comes behind; nil
// where that does not stand there.
func list(in []token, of func(token) bool) (out []string, rest []token) {
	if len(in) == 0 || in[0].text != "(" {
		return nil, in
	}
	for i := 1; i+1 < len(in); i += 2 {
		if !of(in[i]) {
			return nil, in
		}
		out = append(out, strings.Trim(in[i].text, `"`))
		switch in[i+1].text {
		case ")":
			return out, in[i+2:]
		case ",":
		default:
			return nil, in
		}
	}
	return nil, in
}
