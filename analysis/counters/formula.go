package counters

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"slices"
	"strconv"
)

// Formula works a virtual counter out of others: numbers, + − * /, parentheses,
// min(a, b), max(a, b), and names of counters. A name that is no word, as "SP ADD",
// stands in quotes. It is read by Go's own parser.
type Formula struct {
	text string
	root ast.Expr
}

// ErrFormula is wrapped by errors about formulas.
var ErrFormula = errors.New("not a formula")

// formulaDepth limits nesting, so that no input can exhaust the stack.
const (
	formulaDepth  = 200
	formulaLength = 10_000
)

// ParseFormula reads a formula. Errors wrap ErrFormula.
func ParseFormula(text string) (*Formula, error) {
	if len(text) > formulaLength {
		return nil, fmt.Errorf("%w: longer than %d characters", ErrFormula, formulaLength)
	}
	root, err := parser.ParseExpr(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w: names that are no words stand in quotes", ErrFormula, text, err)
	}
	f := &Formula{text, root}
	if err := check(root, 0); err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrFormula, text, err)
	}
	return f, nil
}

// nameOf returns the counter that an expression names: x, "a b" or a.b.c.
func nameOf(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name, true
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			return s, err == nil
		}
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.BasicLit); ok && x.Kind == token.STRING {
			return "", false
		}
		s, ok := nameOf(e.X)
		return s + "." + e.Sel.Name, ok
	}
	return "", false
}

func check(e ast.Expr, depth int) error {
	if depth > formulaDepth {
		return errors.New("nested too deeply")
	}
	if _, ok := nameOf(e); ok {
		return nil
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		if v, err := strconv.ParseFloat(e.Value, 64); err == nil && !math.IsInf(v, 0) && e.Kind != token.CHAR {
			return nil
		}
	case *ast.ParenExpr:
		return check(e.X, depth+1)
	case *ast.UnaryExpr:
		if e.Op == token.SUB || e.Op == token.ADD {
			return check(e.X, depth+1)
		}
	case *ast.BinaryExpr:
		if slices.Contains([]token.Token{token.ADD, token.SUB, token.MUL, token.QUO}, e.Op) {
			return errors.Join(check(e.X, depth+1), check(e.Y, depth+1))
		}
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.Ident); ok && (f.Name == "min" || f.Name == "max") && len(e.Args) == 2 {
			return errors.Join(check(e.Args[0], depth+1), check(e.Args[1], depth+1))
		}
	}
	return fmt.Errorf("at character %d: want numbers, names, + - * /, parentheses, min and max of two", e.Pos())
}

// Counters returns the names in a formula, each once, as they come.
func (f *Formula) Counters() (out []string) {
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	var walk func(e ast.Expr)
	walk = func(e ast.Expr) {
		if name, ok := nameOf(e); ok {
			add(name)
			return
		}
		switch e := e.(type) {
		case *ast.ParenExpr:
			walk(e.X)
		case *ast.UnaryExpr:
			walk(e.X)
		case *ast.BinaryExpr:
			walk(e.X)
			walk(e.Y)
		case *ast.CallExpr:
			for _, a := range e.Args {
				walk(a)
			}
		}
	}
	walk(f.root)
	return out
}

// Value works a formula out; of tells the counters' values. Nothing over nothing is
// nothing: a kernel that does neither has none.
func (f *Formula) Value(of func(string) (float64, error)) (float64, error) {
	v, err := value(f.root, of)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = fmt.Errorf("%w: %q comes to %v: does it divide by zero?", ErrFormula, f.text, v)
	}
	return v, err
}

func value(e ast.Expr, of func(string) (float64, error)) (float64, error) {
	if name, ok := nameOf(e); ok {
		return of(name)
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.ParseFloat(e.Value, 64)
	case *ast.ParenExpr:
		return value(e.X, of)
	case *ast.UnaryExpr:
		v, err := value(e.X, of)
		if e.Op == token.SUB {
			v = -v
		}
		return v, err
	case *ast.BinaryExpr:
		return binary(e, of)
	case *ast.CallExpr:
		a, err1 := value(e.Args[0], of)
		b, err2 := value(e.Args[1], of)
		if e.Fun.(*ast.Ident).Name == "min" {
			return min(a, b), errors.Join(err1, err2)
		}
		return max(a, b), errors.Join(err1, err2)
	}
	return 0, fmt.Errorf("%w: %T", ErrFormula, e) // check lets none through
}

func binary(e *ast.BinaryExpr, of func(string) (float64, error)) (float64, error) {
	a, err1 := value(e.X, of)
	b, err2 := value(e.Y, of)
	err := errors.Join(err1, err2)
	switch e.Op {
	case token.ADD:
		return a + b, err
	case token.SUB:
		return a - b, err
	case token.MUL:
		return a * b, err
	}
	if a == 0 && b == 0 {
		return 0, err
	}
	return a / b, err
}
