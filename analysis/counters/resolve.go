package counters

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"slices"
	"strconv"

	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/internal/lists"
)

// Scale is the rule for dividing counts of events by the run's time.
type Scale string

const (
	Auto      Scale = "auto"       // per second where every row has a time
	PerSecond Scale = "per-second" // per second, or fail
	AsIs      Scale = "none"
)

// ErrMissing is wrapped by errors about counters that a table does not have.
var ErrMissing = errors.New("counter missing")

// reader returns a feature of a row, counts per second if asked. A missing counter is an
// error that wraps ErrMissing.
type reader func(r *Run, perSecond bool) (float64, error)

// reader returns the reader of a column.
func (t *Table) reader(column int) reader {
	return func(r *Run, perSecond bool) (float64, error) {
		v, c := r.Values[column], t.Columns[column]
		if math.IsNaN(v) {
			return 0, fmt.Errorf("%w: %q was not counted for it", ErrMissing, c.Name)
		}
		if perSecond && c.Kind == Count {
			v /= float64(r.Time)
		}
		return v, nil
	}
}

// resolveAll finds the columns of features. Errors name the feature and wrap ErrMissing
// or ErrFormula.
func (t *Table) resolveAll(features []Feature) ([]reader, error) {
	out := make([]reader, len(features))
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

// resolve finds a name: a column, else the first definition of a virtual counter whose
// counters are all there. above holds the names whose definitions led here.
func (t *Table) resolve(name string, above []string) (reader, error) {
	if i := t.column(name); i >= 0 {
		return t.reader(i), nil
	}
	if slices.Contains(above, name) {
		return nil, fmt.Errorf("%w: %s is defined by itself", ErrFormula, name)
	}
	var first error
	for _, text := range virtual[name] {
		r, err := t.resolveFormula(text, append(above, name))
		if err == nil {
			return r, nil
		}
		first = cmp.Or(first, err)
	}
	if first != nil {
		return nil, first
	}
	names := lists.Map(t.Columns, func(c Column) string { return c.Name })
	return nil, fmt.Errorf("%s: %w: no counter %q in it: there are %s", t.File, ErrMissing, name, quoted(names))
}

// resolveFormula finds the columns of a formula, which may be the plain name of one.
func (t *Table) resolveFormula(text string, above []string) (reader, error) {
	if i := t.column(text); i >= 0 { // a name that is no word needs no quotes by itself
		return t.reader(i), nil
	}
	f, err := ParseFormula(text)
	if err != nil {
		return nil, err
	}
	of := map[string]reader{}
	for _, name := range f.Counters() {
		// Resolved once here, not for each row.
		if of[name], err = t.resolve(name, above); err != nil {
			return nil, err
		}
	}
	return func(r *Run, perSecond bool) (float64, error) {
		return f.Value(func(name string) (float64, error) { return of[name](r, perSecond) })
	}, nil
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
	d := &model.Data{Counters: lists.Map(features, func(f Feature) string { return f.Name })}
	for i := range t.Runs {
		r := &t.Runs[i]
		row := model.Row{Name: r.Name, Group: r.App, Power: r.Power, X: make([]float64, len(rs))}
		for j, x := range rs {
			if row.X[j], err = x(r, perSecond); err != nil {
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

// Formula works a virtual counter out of others: numbers, + − * /, parentheses,
// min(a, b), max(a, b), and names of counters. A name that is no word, as "SP ADD",
// stands in quotes. It is read by Go's own parser.
type Formula struct {
	text  string
	names []string // of counters, each once, as they come
	value term
}

// term evaluates an expression over the counters' values, which of returns.
type term func(of func(string) (float64, error)) (float64, error)

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
	f := &Formula{text: text}
	if f.value, err = f.compile(root, 0); err != nil {
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

// operations are those of a formula; 0/0 is 0: a kernel without either event has no such
// ratio.
var operations = map[token.Token]func(a, b float64) float64{
	token.ADD: func(a, b float64) float64 { return a + b },
	token.SUB: func(a, b float64) float64 { return a - b },
	token.MUL: func(a, b float64) float64 { return a * b },
	token.QUO: func(a, b float64) float64 {
		if a == 0 && b == 0 {
			return 0
		}
		return a / b
	},
}

var functions = map[string]func(a, b float64) float64{"min": math.Min, "max": math.Max}

// compile turns an expression into a term and notes its names. It refuses anything but
// numbers, names, the four operations, parentheses, and min and max of two, nested at most
// 200 deep: Go's parser accepts any expression.
func (f *Formula) compile(e ast.Expr, depth int) (term, error) {
	if depth > formulaDepth {
		return nil, errors.New("nested too deeply")
	}
	if name, ok := nameOf(e); ok {
		f.names = lists.AddNew(f.names, name)
		return func(of func(string) (float64, error)) (float64, error) { return of(name) }, nil
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		if v, err := strconv.ParseFloat(e.Value, 64); err == nil && !math.IsInf(v, 0) && e.Kind != token.CHAR {
			return func(func(string) (float64, error)) (float64, error) { return v, nil }, nil
		}
	case *ast.ParenExpr:
		return f.compile(e.X, depth+1)
	case *ast.UnaryExpr:
		switch e.Op {
		case token.ADD:
			return f.compile(e.X, depth+1)
		case token.SUB:
			return f.apply(operations[token.MUL], &ast.BasicLit{Kind: token.INT, Value: "-1"}, e.X, depth+1)
		}
	case *ast.BinaryExpr:
		if op := operations[e.Op]; op != nil {
			return f.apply(op, e.X, e.Y, depth+1)
		}
	case *ast.CallExpr:
		if fn, ok := e.Fun.(*ast.Ident); ok && functions[fn.Name] != nil && len(e.Args) == 2 {
			return f.apply(functions[fn.Name], e.Args[0], e.Args[1], depth+1)
		}
	}
	return nil, fmt.Errorf("at character %d: want numbers, names, + - * /, parentheses, min and max of two", e.Pos())
}

// apply compiles two operands and joins them by an operation.
func (f *Formula) apply(op func(a, b float64) float64, x, y ast.Expr, depth int) (term, error) {
	a, err1 := f.compile(x, depth)
	b, err2 := f.compile(y, depth)
	return func(of func(string) (float64, error)) (float64, error) {
		v, err1 := a(of)
		w, err2 := b(of)
		return op(v, w), errors.Join(err1, err2)
	}, errors.Join(err1, err2)
}

// Counters returns the names in a formula, each once, as they come.
func (f *Formula) Counters() []string { return f.names }

// Value evaluates a formula; of returns the counters' values.
func (f *Formula) Value(of func(string) (float64, error)) (float64, error) {
	v, err := f.value(of)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = fmt.Errorf("%w: %q comes to %v: does it divide by zero?", ErrFormula, f.text, v)
	}
	return v, err
}
