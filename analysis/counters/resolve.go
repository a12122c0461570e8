package counters

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"wattmark/analysis/model"
)

// Scale says whether counts of events are divided by the run's time.
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

// resolve finds a name: a column, else what is known under that name.
func (t *Table) resolve(name string, above []string) (*resolved, error) {
	if i := t.column(name); i >= 0 {
		return &resolved{column: i}, nil
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
		if first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return nil, fmt.Errorf("%s: %w: no counter %q in it: there are %s", t.File, ErrMissing, name, quoted(t.columnNames()))
}

func (t *Table) columnNames() []string {
	out := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		out[i] = c.Name
	}
	return out
}

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

// Data makes what a model is trained on of a table. Errors name the row.
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
				return false, fmt.Errorf("%s: line %d (%s): %w: no time to divide the counts by: add a column time_s, or the metric %s", r.File, r.Line, r.Name, ErrMissing, timeMetric)
			}
			return false, nil
		}
	}
	return true, nil
}

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
