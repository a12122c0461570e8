package model

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"wattmark/measure"
)

// Estimate is what a model says of a row.
type Estimate struct {
	Power measure.Watt
	// Contributions are what each counter adds; with the intercept they make Power.
	Contributions []measure.Watt
	// Leverage is 1/n + the squared distance from the training rows' middle, in units
	// of their spread (Mahalanobis' over n). Its mean over the training rows is
	// (rank + 1)/n. +Inf where the row lies off the plane in which those rows lie.
	Leverage float64
	Warnings []Warning
}

// spread is the training rows' covariance, inverted.
type spread struct {
	values  []float64
	vectors mat.Dense
	rank    int
	active  []int // the counters that vary
}

// Estimate applies the model to a row, whose values must be finite.
func (f *Fit) Estimate(x []float64) (Estimate, error) {
	if len(x) != len(f.Counters) {
		return Estimate{}, fmt.Errorf("%w: %d values for %d counters", ErrData, len(x), len(f.Counters))
	}
	e := Estimate{Power: f.Power(x), Contributions: make([]measure.Watt, len(x))}
	for j, c := range f.Coefficients {
		if math.IsNaN(x[j]) || math.IsInf(x[j], 0) {
			return Estimate{}, fmt.Errorf("%w: counter %q is %v", ErrData, f.Counters[j], x[j])
		}
		e.Contributions[j] = measure.Watt(c * x[j])
	}
	if p := float64(e.Power); math.IsNaN(p) || math.IsInf(p, 0) {
		return Estimate{}, fmt.Errorf("%w: the estimate overflows: look for absurd values", ErrData)
	}
	e.Leverage = f.leverage(x)
	e.Warnings = f.beyond(x, e.Leverage)
	return e, nil
}

// standard returns the standardised values of a row; 0 where a counter did not
// vary in training.
func (f *Fit) standard(x []float64) []float64 {
	z := make([]float64, len(x))
	for j := range x {
		if f.Scale[j] > 0 {
			z[j] = (x[j] - f.Mean[j]) / f.Scale[j]
		}
	}
	return z
}

func (f *Fit) spreadOf() *spread {
	if f.spread != nil {
		return f.spread
	}
	s := &spread{}
	for j, v := range f.Scale {
		if v > 0 {
			s.active = append(s.active, j)
		}
	}
	p := len(s.active)
	var sub *mat.SymDense
	if p > 0 {
		sub = mat.NewSymDense(p, nil)
		for a, i := range s.active {
			for b, j := range s.active[a:] {
				sub.SetSym(a, a+b, f.Gram[i*len(f.Counters)+j])
			}
		}
	}
	var eig mat.EigenSym
	if p > 0 && eig.Factorize(sub, true) {
		s.values = eig.Values(nil)
		eig.VectorsTo(&s.vectors)
		for k, v := range s.values {
			// Eigenvalues are squares: rounding makes 10⁻¹⁶ of the largest out of nothing.
			if v > s.values[p-1]*1e-12 {
				s.rank++
			} else {
				s.values[k] = 0
			}
		}
	}
	f.spread = s
	return s
}

// leverage is 1/n + zᵀ(ZᵀZ)⁻¹z.
func (f *Fit) leverage(x []float64) float64 {
	s := f.spreadOf()
	h := 1 / float64(f.Rows)
	var size float64
	along := s.along(f.standard(x))
	for _, t := range along {
		size += t * t
	}
	for k, v := range s.values {
		switch t := along[k]; {
		case v > 0:
			h += t * t / v
		case t*t > 1e-6*(size+1):
			return math.Inf(1)
		}
	}
	return h
}

// along returns a standardised row's parts along the directions of the spread.
func (s *spread) along(z []float64) []float64 {
	out := make([]float64, len(s.values))
	for k := range out {
		for a, j := range s.active {
			out[k] += s.vectors.At(a, k) * z[j]
		}
	}
	return out
}
