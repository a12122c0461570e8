// Package model fits the power of kernels to their performance counters: ridge
// regression and its relatives, cross-validation, what each counter adds to an
// estimate, prediction intervals, and warnings where an estimate is not to be
// trusted. Nagasaka et al., "Statistical Power Modeling of GPU Kernels Using
// Performance Counters", Eq. 1: p = Σ α_i·c_i + β.
//
// The package is pure and knows no counter: a counter is a column with a name.
package model

import (
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
)

// Data is what a model is trained on or held against: a row for each kernel.
type Data struct {
	Counters []string // names of the columns, each once
	Rows     []Row
}

// Row is one kernel.
type Row struct {
	Name  string
	Group string       // the application it belongs to; empty where none is known
	Power measure.Watt // above zero; NaN where it is to be estimated
	X     []float64    // in the order of the counters
}

// Errors about data that a model cannot be made of wrap these.
var (
	ErrData    = errors.New("no data for a model")
	ErrOptions = errors.New("no such model")
)

// check refuses what a fit cannot be made of.
func (d *Data) check() error {
	if len(d.Counters) == 0 {
		return fmt.Errorf("%w: no counter: name at least one", ErrData)
	}
	seen := map[string]bool{}
	for _, c := range d.Counters {
		if seen[c] {
			return fmt.Errorf("%w: counter %q is there twice: leave one out", ErrData, c)
		}
		seen[c] = true
	}
	for i, r := range d.Rows {
		if len(r.X) != len(d.Counters) {
			return fmt.Errorf("%w: row %d (%s): %d values for %d counters", ErrData, i+1, r.Name, len(r.X), len(d.Counters))
		}
		for j, v := range r.X {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: row %d (%s): counter %q is %v: correct it or leave the row out", ErrData, i+1, r.Name, d.Counters[j], v)
			}
		}
		if p := float64(r.Power); !(p > 0) || math.IsInf(p, 0) {
			return fmt.Errorf("%w: row %d (%s): power %v W is not above zero: correct it or leave the row out", ErrData, i+1, r.Name, p)
		}
	}
	return nil
}

// part returns the rows of the given numbers; they are shared, not copied.
func (d *Data) part(rows []int) *Data {
	out := &Data{Counters: d.Counters, Rows: make([]Row, len(rows))}
	for i, r := range rows {
		out.Rows[i] = d.Rows[r]
	}
	return out
}

// without returns all rows but those of a fold.
func (d *Data) without(fold int, folds []int) *Data {
	out := &Data{Counters: d.Counters, Rows: make([]Row, 0, len(d.Rows))}
	for i, f := range folds {
		if f != fold {
			out.Rows = append(out.Rows, d.Rows[i])
		}
	}
	return out
}
