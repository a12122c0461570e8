package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Error is a fault of a bench file, with its place.
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

// source is a file's text and its syntax tree.
type source struct {
	name  string
	lines []string
	root  ast.Node
}

// path leads to an entry: keys and indices.
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

// with appends steps without touching p.
func (p path) with(steps ...any) path { return append(slices.Clip(p), steps...) }

// parse reads the syntax tree of one document.
func parse(name string, data []byte) (*source, error) {
	s := &source{name: name, lines: strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return s, s.yamlError(err, nil, nil)
	}
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

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// fault makes an error at the entry that a path leads to, or at the nearest
// entry around it that the file has.
func (s *source) fault(p path, err error) error {
	node := s.root
	for _, step := range p {
		next := child(node, step)
		if next == nil {
			break
		}
		node = next
	}
	return s.at(node, p, err)
}

// faultKey makes an error at a key itself.
func (s *source) faultKey(p path, err error) error {
	if len(p) > 0 {
		if m := s.find(p[:len(p)-1]); m != nil {
			if kv := entry(m, p[len(p)-1]); kv != nil {
				return s.at(kv.Key, p, err)
			}
		}
	}
	return s.fault(p, err)
}

func (s *source) at(node ast.Node, p path, err error) error {
	e := &Error{File: s.name, Path: p.String(), Message: err.Error(), Err: err}
	s.place(e, firstToken(node))
	return e
}

// find follows a path; nil where the file has no such entry.
func (s *source) find(p path) ast.Node {
	node := s.root
	for _, step := range p {
		if node = child(node, step); node == nil {
			return nil
		}
	}
	return node
}

func entry(node ast.Node, key any) *ast.MappingValueNode {
	m, ok := node.(ast.MapNode)
	if !ok {
		return nil
	}
	for it := m.MapRange(); it.Next(); {
		if t := it.Key().GetToken(); t != nil && t.Value == key {
			return it.KeyValue()
		}
	}
	return nil
}

func child(node ast.Node, step any) ast.Node {
	switch step := step.(type) {
	case string:
		if kv := entry(node, step); kv != nil {
			return kv.Value
		}
	case int:
		if seq, ok := node.(*ast.SequenceNode); ok && step < len(seq.Values) {
			return seq.Values[step]
		}
	}
	return nil
}

// firstToken is where an entry begins to the eye of a reader.
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

// place fills in line, column and snippet.
func (s *source) place(e *Error, t *token.Token) {
	if t == nil || t.Position == nil || t.Position.Line < 1 || t.Position.Line > len(s.lines) {
		return
	}
	e.Line, e.Column = t.Position.Line, max(1, t.Position.Column)
	e.Snippet = s.snippet(e.Line, e.Column)
}

// snippet shows a line between its neighbours, with a caret below.
func (s *source) snippet(line, column int) string {
	var b strings.Builder
	for n := max(1, line-2); n <= min(len(s.lines), line+1); n++ {
		mark := ' '
		if n == line {
			mark = '>'
		}
		fmt.Fprintf(&b, "%c %3d | %s\n", mark, n, strings.ReplaceAll(s.lines[n-1], "\t", " "))
		if n == line {
			fmt.Fprintf(&b, "      | %s^\n", strings.Repeat(" ", column-1))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
