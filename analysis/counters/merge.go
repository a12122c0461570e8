package counters

import (
	"fmt"
	"math"
	"slices"
)

// agree is how far two passes may differ in what both counted.
const agree = 0.05

// Merge makes one table of several: rows below each other, or, where files hold
// the same kernel of the same application, side by side, as passes with other
// counters. Passes may differ by 5 % in what both counted, and then the mean is
// taken.
func Merge(tables ...*Table) (*Table, error) {
	if len(tables) == 1 {
		return tables[0], nil
	}
	out := &Table{File: fmt.Sprintf("%s and %d more", tables[0].File, len(tables)-1), Form: tables[0].Form}
	for _, t := range tables {
		for _, n := range t.Notes {
			if !slices.Contains(out.Notes, n) { // each pass leaves out the same
				out.Notes = append(out.Notes, n)
			}
		}
		for _, c := range t.Columns {
			i := out.column(c.Name)
			if i < 0 {
				out.Columns = append(out.Columns, c)
			} else if out.Columns[i].Kind != c.Kind || out.Columns[i].Unit != c.Unit {
				return nil, fmt.Errorf("%s: %w: %q is of another kind or unit than in %s", t.File, ErrFormat, c.Name, tables[0].File)
			}
		}
	}
	at := map[string]int{}
	passes := 0
	for _, t := range tables {
		for _, r := range t.Runs {
			wide := r
			wide.Values = blank(len(out.Columns)).Values
			for j, c := range t.Columns {
				wide.Values[out.column(c.Name)] = r.Values[j]
			}
			key := r.App + "\x00" + r.Name
			i, seen := at[key]
			if !seen || r.unnamed || out.Runs[i].File == r.File {
				at[key] = len(out.Runs)
				out.Runs = append(out.Runs, wide)
				continue
			}
			passes++
			if err := out.join(&out.Runs[i], wide); err != nil {
				return nil, err
			}
		}
	}
	if passes > 0 {
		out.note("%d rows were joined from several passes", passes)
	}
	return out, nil
}

// join adds a pass to a row. What it counted is brought to the row's time, or, of a
// pass without a time, to its number of launches: per second, each pass stands for
// itself. Agreement is asked of the counts of a launch.
func (t *Table) join(r *Run, pass Run) error {
	launches := float64(r.Launches) / float64(pass.Launches)
	same := launches
	if s := float64(r.Time / pass.Time); !math.IsNaN(s) {
		same = s
	}
	for j, v := range pass.Values {
		again := v
		if t.Columns[j].Kind == Count {
			v, again = v*same, v*launches
		}
		switch have := r.Values[j]; {
		case math.IsNaN(v):
		case math.IsNaN(have):
			r.Values[j] = v
		case t.Columns[j].Context:
		case math.Abs(again-have) > agree*max(math.Abs(again), math.Abs(have)):
			return fmt.Errorf("%s: line %d: %w: %s of %q is %.6g, in %s %.6g: these are not passes of one run", pass.File, pass.Line, ErrFormat, t.Columns[j].Name, r.Name, again, r.File, have)
		default:
			r.Values[j] = (have + again) / 2
		}
	}
	if math.IsNaN(float64(r.Power)) {
		r.Power, r.Measured = pass.Power, pass.Measured
	}
	if math.IsNaN(float64(r.Time)) {
		r.Time = pass.Time
	}
	if r.Task == "" {
		r.Task = pass.Task
	}
	return nil
}

// Names returns the columns that a model takes when none are named: all that are
// no mere context; of Nsight Compute's those that count events.
func (t *Table) Names() (out []string) {
	nsight := t.Form == NsightLong || t.Form == NsightWide
	for _, c := range t.Columns {
		if !c.Context && (!nsight || c.Kind == Count) {
			out = append(out, c.Name)
		}
	}
	return slices.Clip(out)
}
