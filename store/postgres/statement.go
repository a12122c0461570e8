package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/store"
)

// Package store writes SQL that SQLite and PostgreSQL both understand, but for
//
//	? and ?7                   $1, $7
//	json_each(?)               wattmark_each($1), of numbers
//	text MATCH ?               text.words @@ wattmark_words($1)
//
// These are translated outside of texts, names and comments. A statement about SQLite's own
// file is refused with store.ErrFileOnly.

// statement is a translated statement.
type statement struct {
	text   string
	insert *insert         // nil unless rows of the statement can be gathered
	words  map[string]bool // lower case: the tables that it names are among them
}

// insert stores one row of parameters and nothing else, so that many can be sent by COPY.
type insert struct {
	table    string
	columns  []string
	conflict string // the clause ON CONFLICT; empty for none
	key      string // columns by which rows replace others, separated by commas; empty for none
}

var (
	// sqlToken matches texts, quoted names and comments; the three translated forms; words.
	sqlToken = lazy.Regexp(`'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|(?i:\s+MATCH\s+\?\d*)|\?\d*|\w+`)
	// rowInsert matches an insert of one row: quote, table, columns, parameters, conflict, key.
	rowInsert = lazy.Regexp(`^\s*INSERT INTO ("?)(\w+)"?\s*(?:\(([^()]*)\))?\s*` +
		`VALUES\s*\(((?:\s*\?\s*,)*\s*\?)\s*\)` +
		`\s*(ON CONFLICT(?:\s*\(([^()]*)\) DO UPDATE SET [^()?]*| DO NOTHING))?\s*$`)
)

// ofFiles are words of statements about SQLite's files.
var ofFiles = []string{"pragma", "sqlite_master", "sqlite_schema", "vacuum", "attach", "detach", "indexed"}

// translate translates a statement; columns are those of each table. Errors wrap store.ErrFileOnly.
func translate(q string, columns map[string][]string) (*statement, error) {
	s := &statement{words: map[string]bool{}}
	params := 0
	param := func(t string) string {
		if n := strings.TrimLeft(t, "?"); n != "" {
			return "$" + n
		}
		params++
		return "$" + strconv.Itoa(params)
	}
	s.text = sqlToken().ReplaceAllStringFunc(q, func(t string) string {
		switch {
		case t[0] == '\'' || strings.HasPrefix(t, "--"):
			return t
		case t[0] == '"':
			s.words[strings.ToLower(strings.ReplaceAll(t[1:len(t)-1], `""`, `"`))] = true
			return t
		case t[0] == '?':
			return param(t)
		case strings.Contains(t, "?"): // MATCH
			return ".words @@ wattmark_words(" + param(t[strings.Index(t, "?"):]) + ")"
		}
		word := strings.ToLower(t)
		if s.words[word] = true; word == "json_each" {
			return "wattmark_each"
		}
		return t
	})
	for w := range s.words {
		if slices.Contains(ofFiles, w) || strings.HasPrefix(w, "pragma_") {
			return nil, fmt.Errorf("%w (%s) in: %s", store.ErrFileOnly, w, q)
		}
	}
	s.insert = insertOf(q, columns)
	return s, nil
}

// insertOf recognizes an insert of one row; nil for all other statements.
func insertOf(q string, columns map[string][]string) *insert {
	m := rowInsert().FindStringSubmatch(q)
	if m == nil {
		return nil
	}
	in := &insert{table: m[2], columns: columns[m[2]], conflict: m[5], key: m[6]}
	if m[3] != "" {
		in.columns = nil
		for c := range strings.SplitSeq(m[3], ",") {
			in.columns = append(in.columns, strings.Trim(c, "\" \n\t"))
		}
	}
	if len(in.columns) != strings.Count(m[4], "?") {
		return nil
	}
	return in
}
