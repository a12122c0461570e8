package bench

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/wattmark/wattmark/monitor/regular"
)

// Error is a fault of a bench file, with its place. Its text is one line, file:line:column:
// path: message, and the lines around with a caret below the column.
type Error struct {
	File string
	// Line and Column count from 1; 0 where the place is not known.
	Line, Column int
	// Path names the entry, for example rails[1].shunt.ohm; may be empty.
	Path    string
	Message string
	// Snippet shows the lines around the place.
	Snippet string
	// Err is a cause to test for, or nil.
	Err error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Message)
	if e.Snippet != "" {
		b.WriteString("\n" + e.Snippet)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// snippetLine is a line of Error.Snippet, with the line break before it.
var snippetLine = regexp.MustCompile(`\n[> ] [ \d]{3,} \|[^\n]*`)

// OneLine returns the text of an error without the lines of the file, and several faults in one line.
func OneLine(err error) string {
	return strings.ReplaceAll(snippetLine.ReplaceAllString(err.Error(), ""), "\n", "; ")
}

// source is a file's text and its syntax tree.
type source struct {
	name  string
	lines []string
	root  ast.Node
}

// path leads to an entry: keys (string) and indices (int).
type path []any

func (p path) String() string {
	var b strings.Builder
	for _, s := range p {
		switch v := s.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", v)
		case string:
			if strings.ContainsAny(v, ". []") {
				fmt.Fprintf(&b, "[%s]", v)
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(v)
		}
	}
	return b.String()
}

// with returns p with further steps; p stays as it is.
func (p path) with(steps ...any) path { return append(slices.Clip(p), steps...) }

// parse reads the syntax tree of one document. The source is usable for errors also where
// it fails.
func parse(name string, data []byte) (*source, error) {
	s := &source{name: name, lines: strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return s, s.yamlError(err, nil, nil)
	}
	// A comment or a --- alone makes a document without a body.
	docs := slices.DeleteFunc(f.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	switch len(docs) {
	case 0:
		return s, &Error{File: name, Message: "the file is empty: it needs at least instruments"}
	case 1:
		s.root = docs[0].Body
		return s, nil
	}
	return s, s.at(docs[1].Body, nil, errors.New("a second document begins here: one bench, one document"))
}

// fault returns an error at the entry that a path leads to, or at the nearest entry around
// it that the file has.
func (s *source) fault(p path, err error) error {
	node, _ := s.find(p)
	return s.at(node, p, err)
}

// faultKey returns an error at an entry's key instead of its value.
func (s *source) faultKey(p path, err error) error {
	at, _ := s.find(p)
	if around, whole := s.find(p[:len(p)-1]); whole {
		eachChild(around, func(step any, key, _ ast.Node) {
			if step == p[len(p)-1] {
				at = key
			}
		})
	}
	return s.at(at, p, err)
}

// at returns an error at a node.
func (s *source) at(node ast.Node, p path, err error) error {
	return s.placed(&Error{File: s.name, Path: p.String(), Message: err.Error(), Err: err}, firstToken(node))
}

// find follows a path to the entry that it leads to, or to the nearest one around it that the file
// has: whole is false then.
func (s *source) find(p path) (node ast.Node, whole bool) {
	node = s.root
	for _, step := range p {
		next := child(node, step)
		if next == nil {
			return node, false
		}
		node = next
	}
	return node, true
}

// child takes one step of a path, nil where there is no such entry.
func child(node ast.Node, step any) (found ast.Node) {
	eachChild(node, func(s any, _, value ast.Node) {
		if found == nil && s == step {
			found = value
		}
	})
	return found
}

// firstToken returns the token at which an entry begins for a reader: for a block mapping
// its first key, not the colon that the library has.
func firstToken(node ast.Node) *token.Token {
	switch n := node.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if len(n.Values) > 0 && !n.IsFlowStyle {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return node.GetToken()
}

// placed fills in line, column and snippet: the line with two before and one behind it, and a caret
// below the column. Tabs become single spaces, so that the caret stands right.
func (s *source) placed(e *Error, t *token.Token) *Error {
	if t == nil || t.Position == nil || t.Position.Line < 1 || t.Position.Line > len(s.lines) {
		return e
	}
	e.Line, e.Column = t.Position.Line, max(1, t.Position.Column)
	var b strings.Builder
	for n := max(1, e.Line-2); n <= min(len(s.lines), e.Line+1); n++ {
		mark := ' '
		if n == e.Line {
			mark = '>'
		}
		fmt.Fprintf(&b, "%c %3d | %s\n", mark, n, strings.ReplaceAll(s.lines[n-1], "\t", " "))
		if n == e.Line {
			fmt.Fprintf(&b, "      | %s^\n", strings.Repeat(" ", e.Column-1))
		}
	}
	e.Snippet = strings.TrimSuffix(b.String(), "\n")
	return e
}

// yamlError converts an error of the YAML library. node was decoded into a to; both are nil
// where the text is no YAML.
func (s *source) yamlError(err error, node ast.Node, to reflect.Type) error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		if bad, text := badDuration(node, to); bad != nil {
			return s.mismatch(bad.GetToken(), fmt.Sprintf("%q is no time: %s", text, wants(timeType, "")))
		}
		return &Error{File: s.name, Message: regular.YAMLMessage(err.Error())}
	}
	wrong, badType := errors.AsType[*yaml.TypeError](err)
	overflow, tooLarge := errors.AsType[*yaml.OverflowError](err)
	shape, badShape := errors.AsType[*yaml.UnexpectedNodeTypeError](err)
	// The library's own messages name Go's types: those of values get the bench file's words.
	switch t := ye.GetToken(); {
	case t == nil:
	case badType:
		return s.mismatch(t, quoted(t)+wants(wrong.DstType, s.keyOf(t)))
	case tooLarge:
		want := wants(overflow.DstType, s.keyOf(t))
		return s.mismatch(t, fmt.Sprintf("%s is too large, or negative: %s", overflow.SrcNum, want))
	case badShape && shape.Expected == ast.SequenceType:
		return s.mismatch(t, "want a list: [a, b], or lines that begin with -")
	case badShape && shape.Expected == ast.MappingType:
		return s.mismatch(t, "want keys and values: {key: value}, or lines of key: value")
	}
	e := &Error{File: s.name, Message: regular.YAMLMessage(ye.GetMessage())}
	if strings.HasPrefix(e.Message, "unknown field") {
		e.Message += ": no such key here (misspelt, or indented wrongly?)"
	}
	return s.placed(e, ye.GetToken())
}

// mismatch returns an error at a value of another type than its key wants.
func (s *source) mismatch(t *token.Token, message string) error {
	return s.placed(&Error{File: s.name, Path: s.pathTo(t).String(), Message: message}, t)
}

// quoted quotes the value at a place, for the begin of a message; empty where it is no single
// value.
func quoted(t *token.Token) string {
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType, token.SequenceEntryType, token.MappingValueType:
		return ""
	}
	return fmt.Sprintf("%q: ", t.Value)
}

var timeType = reflect.TypeFor[time.Duration]()

// wants describes the form of a type's value under a key.
func wants(t reflect.Type, key string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == timeType:
		return "want a time with its unit, such as 5us, 10ms or 2s"
	case t.Kind() == reflect.Bool:
		return "want true or false"
	case t.Kind() == reflect.String:
		return "want one word or text"
	case t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32:
		return "want a number" + unitOf[key]
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "want a whole number" + unitOf[key]
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		return "want a list"
	}
	return "want keys and values"
}

// unitOf is the unit of a key's number.
var unitOf = map[string]string{
	"gain": ", in the channel's unit (V, A, W) a count", "offset": ", in the channel's unit (V, A, W)",
	"u_offset": ", in the channel's unit (V, A, W)", "noise": ", in the channel's unit (V, A, W)",
	"u_gain": ", a fraction: 0.01 for 1 %", "u_rel": ", a fraction: 0.01 for 1 %",
	"ohm": ", in Ω without the unit: 0.005", "volt": ", in V without the unit: 12",
	"u_volt": ", in V without the unit",
	"rate":   ", in Hz without the unit", "range": ", in V without the unit", "baud": ", in bits a second",
}

// keyOf returns the last key on the way to a value.
func (s *source) keyOf(t *token.Token) (key string) {
	for _, step := range s.pathTo(t) {
		if k, ok := step.(string); ok {
			key = k
		}
	}
	return key
}

// pathTo returns the path of the value that a token begins; empty where it begins none.
func (s *source) pathTo(t *token.Token) path {
	if t == nil || t.Position == nil {
		return nil
	}
	// Tokens have no parents: search the tree for the value at the same offset.
	var find func(n ast.Node, p path) path
	find = func(n ast.Node, p path) path {
		if n == nil {
			return nil
		}
		at := n.GetToken()
		if at != nil && at.Position != nil && len(p) > 0 && at.Position.Offset == t.Position.Offset {
			return p
		}
		var found path
		eachChild(n, func(step any, _, child ast.Node) {
			if found == nil {
				found = find(child, p.with(step))
			}
		})
		return found
	}
	return find(s.root, nil)
}

// eachChild calls f with the entries of a mapping or a list; those of a list have no key.
func eachChild(n ast.Node, f func(step any, key, value ast.Node)) {
	switch n := n.(type) {
	case *ast.SequenceNode:
		for i, v := range n.Values {
			f(i, nil, v)
		}
	case ast.MapNode:
		for it := n.MapRange(); it.Next(); {
			if t := it.Key().GetToken(); t != nil {
				f(t.Value, it.KeyValue().Key, it.Value())
			}
		}
	}
}

// badDuration finds the first value that is no duration where its type wants one: the
// library's error has no place.
func badDuration(n ast.Node, t reflect.Type) (bad ast.Node, text string) {
	if n == nil || t == nil {
		return nil, ""
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == timeType {
		if v, ok := n.(*ast.StringNode); ok {
			if _, err := time.ParseDuration(v.Value); err != nil {
				return n, v.Value
			}
		}
		return nil, ""
	}
	eachChild(n, func(step any, _, child ast.Node) {
		if bad == nil {
			bad, text = badDuration(child, within(t, step))
		}
	})
	return bad, text
}

// within returns the type of an entry of a type; nil where it has none.
func within(t reflect.Type, step any) reflect.Type {
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		return t.Elem()
	case reflect.Struct:
		for f := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(f).Tag.Get("yaml"), ",")
			if name == step || name == "" && strings.ToLower(t.Field(f).Name) == step {
				return t.Field(f).Type
			}
		}
	}
	return nil
}
