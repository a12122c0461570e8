package model

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"wattmark/measure"
)

// Interval holds a power with a stated probability.
type Interval struct {
	Low  measure.Watt `json:"low_w"`
	High measure.Watt `json:"high_w"`
}

// heldModels is how many models Calibrate makes at most.
const heldModels = 200

// Calibrate prepares the intervals by jackknife+ (Barber, Candès, Ramdas,
// Tibshirani: "Predictive inference with the jackknife+", 2021): a model without
// each row, or, of more than 200 rows, without each of 200 parts (CV+). byGroup
// leaves whole applications out, so that the interval is that of a kernel of a new
// application. α is that of the fit.
func (f *Fit) Calibrate(d *Data, byGroup bool) error {
	by, k := ByOne, 0
	switch {
	case byGroup:
		by = ByGroup
	case len(d.Rows) > heldModels:
		by, k = ByRowMod, heldModels
	}
	folds, err := Folds(d, by, k, 0)
	if err != nil {
		return err
	}
	f.Held, f.HeldRows = nil, make([]HeldRow, len(d.Rows))
	for m := range count(folds) {
		g, err := Train(d.without(m, folds), Options{Method: f.Method, Alpha: f.Alpha})
		if err != nil {
			return fmt.Errorf("prediction intervals: %w", err)
		}
		f.Held = append(f.Held, g.Linear)
		for i, fold := range folds {
			if fold == m {
				f.HeldRows[i] = HeldRow{Model: m, Residual: d.Rows[i].Power - g.Power(d.Rows[i].X)}
			}
		}
	}
	return nil
}

// Jackknife is the interval of jackknife+ at a level such as 0.95. It takes no
// shape of the errors for granted, only that the new kernel is drawn as those of
// the training were. Proved is a coverage of 2·level − 1; in practice it is near
// the level. It is false where there are too few rows for the level, or none kept.
func (f *Fit) Jackknife(x []float64, level float64) (Interval, bool) {
	n := len(f.HeldRows)
	rank := int(math.Ceil(level * float64(n+1)))
	if n == 0 || rank > n {
		return Interval{}, false
	}
	at := make([]float64, len(f.Held))
	for m, l := range f.Held {
		at[m] = float64(l.Power(x))
	}
	low, high := make([]float64, n), make([]float64, n)
	for i, h := range f.HeldRows {
		r := math.Abs(float64(h.Residual))
		low[i], high[i] = at[h.Model]-r, at[h.Model]+r
	}
	slices.Sort(low)
	slices.Sort(high)
	return Interval{measure.Watt(low[n-rank]), measure.Watt(high[rank-1])}, true
}

// Analytic is the textbook interval: errors normal, alike and independent, the
// model true, no penalty's bias. It is for ridge and least squares:
//
//	ŷ ± t·s·√(1 + 1/n + zᵀ(ZᵀZ + α)⁻¹ZᵀZ(ZᵀZ + α)⁻¹z)
//
// It is false for other methods and without degrees of freedom.
func (f *Fit) Analytic(x []float64, level float64) (Interval, bool) {
	if f.DOF <= 0 || (f.Method != Ridge && f.Method != LeastSquares) {
		return Interval{}, false
	}
	s := f.spreadOf()
	q := 1 + 1/float64(f.Rows)
	for k, t := range s.along(f.standard(x)) {
		if v := s.values[k]; v > 0 {
			q += t * t * v / ((v + f.Alpha) * (v + f.Alpha))
		}
	}
	k := distuv.StudentsT{Sigma: 1, Nu: f.DOF}.Quantile((1 + level) / 2)
	u := measure.Watt(k * math.Sqrt(q) * float64(f.Sigma))
	p := f.Power(x)
	return Interval{p - u, p + u}, true
}
