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

	"github.com/wattmark/wattmark/analysis/model"
)

// Scale is the rule for dividing counts of events by the run's time.
type Scale string

// The scales.
const (
	Auto      Scale = "auto"       // per second where every row has a time
	PerSecond Scale = "per-second" // per second, or fail
	AsIs      Scale = "none"
)

// ErrMissing is wrapped by errors about counters that a table does not have.
var ErrMissing = errors.New("counter missing")

// resolved is a feature whose names are columns of the table.
type resolved struct {
	column  int // −1 for a formula
	formula *Formula
	of      map[string]*resolved
}

// resolveAll finds the columns of features. Errors name the feature and wrap ErrMissing
// or ErrFormula.
func (t *Table) resolveAll(features []Feature) ([]*resolved, error) {
	out := make([]*resolved, len(features))
	for i, f := range features {
		var err error
		if f.Formula != "" {
			out[i], err = t.resolveFormula(f.Formula, nil)
		} else {
			out[i], err = t.resolve(f.Name, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return out, nil
}

// resolve finds a name: a column, else a virtual counter.
func (t *Table) resolve(name string, above []string) (*resolved, error) {
	if i := t.column(name); i >= 0 {
		return &resolved{column: i}, nil
	}
	if slices.Contains(above, name) {
		return nil, fmt.Errorf("%w: %s is defined by itself", ErrFormula, name)
	}
	var first error
	// The first definition whose counters are all there holds.
	for _, text := range virtual[name] {
		r, err := t.resolveFormula(text, append(above, name))
		if err == nil {
			return r, nil
		}
		if first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return nil, fmt.Errorf("%s: %w: no counter %q in it: there are %s", t.File, ErrMissing, name,
		quoted(names))
}

// resolveFormula finds the columns of a formula, which may be the plain name of one;
// above holds the names whose definitions led here.
func (t *Table) resolveFormula(text string, above []string) (*resolved, error) {
	if i := t.column(text); i >= 0 { // a name that is no word needs no quotes by itself
		return &resolved{column: i}, nil
	}
	f, err := ParseFormula(text)
	if err != nil {
		return nil, err
	}
	r := &resolved{column: -1, formula: f, of: map[string]*resolved{}}
	for _, name := range f.Counters() {
		if r.of[name], err = t.resolve(name, above); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Data returns the features of a table as training data. Errors name the row.
func (t *Table) Data(features []Feature, scale Scale) (*model.Data, error) {
	rs, err := t.resolveAll(features)
	if err != nil {
		return nil, err
	}
	perSecond, err := t.perSecond(scale)
	if err != nil {
		return nil, err
	}
	d := &model.Data{}
	for _, f := range features {
		d.Counters = append(d.Counters, f.Name)
	}
	for i := range t.Runs {
		r := &t.Runs[i]
		row := model.Row{Name: r.Name, Group: r.App, Power: r.Power, X: make([]float64, len(rs))}
		for j, x := range rs {
			if row.X[j], err = x.value(t, r, perSecond); err != nil {
				return nil, fmt.Errorf("%s: line %d (%s): %s: %w", r.File, r.Line, r.Name, features[j].Name, err)
			}
		}
		d.Rows = append(d.Rows, row)
	}
	return d, nil
}

// PerSecond reports whether Data divides counts by time.
func (t *Table) PerSecond(scale Scale) bool {
	yes, err := t.perSecond(scale)
	return err == nil && yes && slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Kind == Count })
}

// perSecond reports whether counts are divided by time. It fails for an unknown scale,
// and where a time is missing but asked for.
func (t *Table) perSecond(scale Scale) (bool, error) {
	if scale == AsIs {
		return false, nil
	}
	if scale != Auto && scale != PerSecond && scale != "" {
		return false, fmt.Errorf("%w: scale %q: want %s, %s or %s", ErrFormula, scale, Auto, PerSecond, AsIs)
	}
	for _, r := range t.Runs {
		if math.IsNaN(float64(r.Time)) {
			if scale == PerSecond {
				return false, fmt.Errorf("%s: line %d (%s): %w: no time to divide the counts by: add a column "+
					"time_s, or the metric %s", r.File, r.Line, r.Name, ErrMissing, timeMetric)
			}
			return false, nil
		}
	}
	return true, nil
}

// value returns a feature of a row, counts per second if asked. A missing counter is an
// error that wraps ErrMissing.
func (x *resolved) value(t *Table, r *Run, perSecond bool) (float64, error) {
	if x.formula != nil {
		return x.formula.Value(func(name string) (float64, error) { return x.of[name].value(t, r, perSecond) })
	}
	v, c := r.Values[x.column], t.Columns[x.column]
	if math.IsNaN(v) {
		return 0, fmt.Errorf("%w: %q was not counted for it", ErrMissing, c.Name)
	}
	if perSecond && c.Kind == Count {
		v /= float64(r.Time)
	}
	return v, nil
}

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

// check refuses anything but numbers, names, the four operations, parentheses, and min
// and max of two, nested at most 200 deep: Go's parser accepts any expression.
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
	functions := map[ast.Node]bool{} // min and max
	ast.Inspect(f.root, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			functions[call.Fun] = true
		}
		e, ok := n.(ast.Expr)
		if !ok || functions[n] {
			return ok
		}
		name, named := nameOf(e)
		if named && !slices.Contains(out, name) {
			out = append(out, name)
		}
		return !named
	})
	return out
}

// Value evaluates a formula; of returns the counters' values. 0/0 is 0: a kernel
// without either event has no such ratio.
func (f *Formula) Value(of func(string) (float64, error)) (float64, error) {
	v, err := value(f.root, of)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = fmt.Errorf("%w: %q comes to %v: does it divide by zero?", ErrFormula, f.text, v)
	}
	return v, err
}

// value evaluates an expression that check has passed.
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

// binary evaluates an operation; 0/0 is 0.
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
