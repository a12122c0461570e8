package model

import (
	"fmt"
	"math"
)

// Choice is the α that cross-validation over the training rows prefers.
type Choice struct {
	Alpha float64
	Tried []Tried // in order of α
}

// Tried is one α and its mean squared error over the left-out rows.
type Tried struct {
	Alpha float64    `json:"alpha"`
	MSE   SquareWatt `json:"mse_w2"`
}

// The grid of α: so many a decade.
const (
	ridgeLeast, ridgeMost = -4, 5
	perDecade             = 4
	lassoDecades          = 4
)

// ChooseAlpha tries a grid of α by cross-validation: rows dealt by whole
// applications where every row has one and there are enough of them, else by row
// number. Of equal errors the larger α wins.
func ChooseAlpha(d *Data, o Options) (*Choice, error) {
	k := o.AlphaFolds
	if k == 0 {
		k = defaultFolds
	}
	k = min(k, len(d.Rows))
	folds, err := Folds(d, ByGroupK, k, 0)
	if err != nil {
		folds, err = Folds(d, ByRowMod, k, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("choose α: %w", err)
	}
	grid := o.grid(d)
	square := make([]float64, len(grid))
	for f := range count(folds) {
		if err := tryFold(d, o, folds, f, grid, square); err != nil {
			return nil, fmt.Errorf("choose α: %w", err)
		}
	}
	c := &Choice{}
	best := math.Inf(1)
	for i, a := range grid {
		mse := square[i] / float64(len(d.Rows))
		c.Tried = append(c.Tried, Tried{a, SquareWatt(mse)})
		if mse <= best {
			best, c.Alpha = mse, a
		}
	}
	return c, nil
}

// tryFold adds the squared errors of one fold under every α.
func tryFold(d *Data, o Options, folds []int, fold int, grid, square []float64) error {
	pr := standardise(d.without(fold, folds))
	var sp *spectrum
	if o.Method == Ridge {
		var ok bool
		if sp, ok = pr.decompose(); !ok {
			return fmt.Errorf("%w: the singular values of the counters do not converge: look for absurd values", ErrData)
		}
	}
	for i, a := range grid {
		var w []float64
		var err error
		if sp != nil {
			w = sp.ridge(a, pr.n)
		} else if w, _, err = pr.solve(Options{Method: o.Method, Alpha: a}); err != nil {
			return err
		}
		l := pr.linear(w)
		for r, f := range folds {
			if f == fold {
				e := float64(d.Rows[r].Power - l.Power(d.Rows[r].X))
				square[i] += e * e
			}
		}
	}
	return nil
}

// grid returns the α to try: for ridge from 10⁻⁴ to 10⁵; for lasso up to the one
// that leaves no counter.
func (o Options) grid(d *Data) (out []float64) {
	most, decades := math.Pow(10, ridgeMost), ridgeMost-ridgeLeast
	if o.Method == Lasso {
		most, decades = 1, lassoDecades
		if pr := standardise(d); len(pr.active) > 0 {
			_, b := pr.gram()
			most = 0
			for _, v := range b {
				most = max(most, 2*math.Abs(v))
			}
		}
	}
	for i := range decades*perDecade + 1 {
		out = append(out, most*math.Pow(10, float64(i)/perDecade-float64(decades)))
	}
	return out
}
