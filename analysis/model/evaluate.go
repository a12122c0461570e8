package model

import (
	"fmt"

	"wattmark/measure"
)

// Held is what became of a row that was left out of the training.
type Held struct {
	Row  int // in the data
	Fold int
	Estimate
}

// Evaluation is a cross-validation.
type Evaluation struct {
	Score          // of the left-out rows
	Constant Score // of an estimate by the mean of the training rows alone, left out alike
	Folds    int
	Alphas   []float64 // of each fold's model
	Held     []Held    // in the order of the rows
	Warnings []Warning
}

// Evaluate trains without each fold in turn and estimates it. folds tells the fold
// of each row, as Folds deals them. Where α is to be chosen, every fold's model
// chooses its own, from its own training rows. Errors wrap ErrData or ErrOptions.
func Evaluate(d *Data, o Options, folds []int) (*Evaluation, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if len(folds) != len(d.Rows) || len(folds) == 0 {
		return nil, fmt.Errorf("%w: folds for %d of %d rows", ErrData, len(folds), len(d.Rows))
	}
	e := &Evaluation{Folds: count(folds), Held: make([]Held, len(d.Rows))}
	n := len(d.Rows)
	measured, estimated, constant := make([]measure.Watt, n), make([]measure.Watt, n), make([]measure.Watt, n)
	for k := range e.Folds {
		f, err := Train(d.without(k, folds), o)
		if err != nil {
			return nil, fmt.Errorf("without fold %d: %w", k+1, err)
		}
		e.Alphas = append(e.Alphas, f.Alpha)
		for i, fold := range folds {
			if fold != k {
				continue
			}
			est, err := f.Estimate(d.Rows[i].X)
			if err != nil {
				return nil, fmt.Errorf("row %d (%s): %w", i+1, d.Rows[i].Name, err)
			}
			e.Held[i] = Held{Row: i, Fold: k, Estimate: est}
			measured[i], estimated[i], constant[i] = d.Rows[i].Power, est.Power, f.meanPower()
		}
	}
	e.Score, e.Constant = NewScore(measured, estimated), NewScore(measured, constant)
	e.collect(d)
	return e, nil
}

// meanPower is the mean of the training rows: the plane passes through the means.
func (f *Fit) meanPower() measure.Watt { return f.Power(f.Mean) }

// collect gathers the warnings that bear on the whole, and names rows.
func (e *Evaluation) collect(d *Data) {
	powers := make([]float64, len(e.Held))
	for i, h := range e.Held {
		powers[i] = float64(h.Power)
		for _, w := range h.Warnings {
			if w.Code == ZeroInTraining {
				w.Row = d.Rows[i].Name
				e.Warnings = append(e.Warnings, w)
			}
		}
	}
	e.Warnings = append(e.Warnings, underestimated(d, powers)...)
}

// Apply holds a trained model against rows that it was not trained on.
func (f *Fit) Apply(d *Data) ([]Estimate, error) {
	out := make([]Estimate, len(d.Rows))
	for i, r := range d.Rows {
		var err error
		if out[i], err = f.Estimate(r.X); err != nil {
			return nil, fmt.Errorf("row %d (%s): %w", i+1, r.Name, err)
		}
	}
	return out, nil
}
