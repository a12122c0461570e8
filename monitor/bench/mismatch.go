package bench

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// yamlError gives an error of the YAML library our form. node was decoded into a to;
// both are nil where the text is no YAML.
func (s *source) yamlError(err error, node ast.Node, to reflect.Type) error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		if bad, text := badDuration(node, to); bad != nil {
			return s.mismatch(bad.GetToken(), fmt.Sprintf("%q is no time: %s", text, wants(timeType, "")))
		}
		return &Error{File: s.name, Message: firstLine(err.Error())}
	}
	var (
		wrong    *yaml.TypeError
		shape    *yaml.UnexpectedNodeTypeError
		overflow *yaml.OverflowError
	)
	switch t := ye.GetToken(); {
	case t == nil:
	case errors.As(err, &wrong):
		return s.mismatch(t, said(t)+wants(wrong.DstType, s.keyOf(t)))
	case errors.As(err, &overflow):
		return s.mismatch(t, fmt.Sprintf("%s is too large, or negative: %s", overflow.SrcNum, wants(overflow.DstType, s.keyOf(t))))
	case errors.As(err, &shape) && shape.Expected == ast.SequenceType:
		return s.mismatch(t, "want a list: [a, b], or lines that begin with -")
	case errors.As(err, &shape) && shape.Expected == ast.MappingType:
		return s.mismatch(t, "want keys and values: {key: value}, or lines of key: value")
	}
	e := &Error{File: s.name, Message: firstLine(ye.GetMessage())}
	if strings.HasPrefix(e.Message, "unknown field") {
		e.Message += ": no such key here (misspelt, or indented wrongly?)"
	}
	s.place(e, ye.GetToken())
	return e
}

// mismatch is an error at a value of another type than its key wants.
func (s *source) mismatch(t *token.Token, message string) error {
	e := &Error{File: s.name, Path: s.pathTo(t).String(), Message: message}
	s.place(e, t)
	return e
}

// said quotes what stands in a place; empty where it is no single value.
func said(t *token.Token) string {
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType, token.SequenceEntryType, token.MappingValueType:
		return ""
	}
	return fmt.Sprintf("%q: ", t.Value)
}

var timeType = reflect.TypeFor[time.Duration]()

// wants says what a type wants to be written, under a key.
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

// unitOf is what a key's number is in.
var unitOf = map[string]string{
	"gain": ", in the channel's unit (V, A, W) a count", "offset": ", in the channel's unit (V, A, W)",
	"u_offset": ", in the channel's unit (V, A, W)", "noise": ", in the channel's unit (V, A, W)",
	"u_gain": ", a fraction: 0.01 for 1 %", "u_rel": ", a fraction: 0.01 for 1 %",
	"ohm": ", in Ω without the unit: 0.005", "volt": ", in V without the unit: 12", "u_volt": ", in V without the unit",
	"rate": ", in Hz without the unit", "range": ", in V without the unit", "baud": ", in bits a second",
}

// keyOf is the last key on the way to a value.
func (s *source) keyOf(t *token.Token) string {
	p := s.pathTo(t)
	for i := len(p) - 1; i >= 0; i-- {
		if key, ok := p[i].(string); ok {
			return key
		}
	}
	return ""
}

// pathTo is the way to the value that a token begins; empty where it begins none.
func (s *source) pathTo(t *token.Token) path {
	if t == nil || t.Position == nil {
		return nil
	}
	var find func(n ast.Node, p path) path
	find = func(n ast.Node, p path) path {
		if n == nil {
			return nil
		}
		if at := n.GetToken(); at != nil && at.Position != nil && len(p) > 0 && at.Position.Offset == t.Position.Offset {
			return p
		}
		var found path
		eachChild(n, func(step any, child ast.Node) {
			if found == nil {
				found = find(child, p.with(step))
			}
		})
		return found
	}
	return find(s.root, nil)
}

// eachChild calls f with the entries of a mapping or a list.
func eachChild(n ast.Node, f func(step any, child ast.Node)) {
	switch n := n.(type) {
	case *ast.SequenceNode:
		for i, v := range n.Values {
			f(i, v)
		}
	case ast.MapNode:
		for it := n.MapRange(); it.Next(); {
			if t := it.Key().GetToken(); t != nil {
				f(t.Value, it.Value())
			}
		}
	}
}

// badDuration finds the first value that a type wants to be a time, and that is none:
// the library does not say where.
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
	eachChild(n, func(step any, child ast.Node) {
		if bad == nil {
			bad, text = badDuration(child, within(t, step))
		}
	})
	return bad, text
}

// within is the type of an entry of a type; nil where it has none.
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
