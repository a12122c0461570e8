package model

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// problem is training data as the solvers see it: columns of mean 0 and population
// standard deviation 1, power of mean 0. Columns that do not vary are left out.
type problem struct {
	n           int
	mean, scale []float64 // of every counter; scale 0 where it does not vary
	active      []int     // counters that vary
	z           *mat.Dense
	y           []float64
	yMean       float64
}

// standardise makes the problem of data. The standard deviation is the
// population's, with n below the root.
func standardise(d *Data) *problem {
	n, p := len(d.Rows), len(d.Counters)
	pr := &problem{n: n, mean: make([]float64, p), scale: make([]float64, p), y: make([]float64, n)}
	for j := range p {
		pr.mean[j], pr.scale[j] = moments(n, func(i int) float64 { return d.Rows[i].X[j] })
		if pr.scale[j] > 0 {
			pr.active = append(pr.active, j)
		}
	}
	pr.yMean, _ = moments(n, func(i int) float64 { return float64(d.Rows[i].Power) })
	if len(pr.active) > 0 {
		pr.z = mat.NewDense(n, len(pr.active), nil)
	}
	for i, r := range d.Rows {
		pr.y[i] = float64(r.Power) - pr.yMean
		for k, j := range pr.active {
			pr.z.Set(i, k, (r.X[j]-pr.mean[j])/pr.scale[j])
		}
	}
	return pr
}

// moments returns mean and population standard deviation of n values, the latter
// 0 where they differ by no more than rounding. The values are scaled by the
// largest first, so that their squares cannot overflow.
func moments(n int, at func(i int) float64) (mean, sd float64) {
	var top float64
	for i := range n {
		top = max(top, math.Abs(at(i)))
	}
	if top == 0 {
		return 0, 0
	}
	var sum, square, rest float64
	for i := range n {
		sum += at(i) / top
	}
	m := sum / float64(n)
	for i := range n {
		d := at(i)/top - m
		square += d * d
		rest += d // what rounding left in the mean
	}
	sd = math.Sqrt(max(0, square/float64(n)-(rest/float64(n))*(rest/float64(n))))
	if sd <= 4*0x1p-52*float64(n) {
		sd = 0
	}
	return (m + rest/float64(n)) * top, sd * top
}

// gram returns ZᵀZ and Zᵀy.
func (pr *problem) gram() (*mat.SymDense, []float64) {
	p := len(pr.active)
	g := mat.NewSymDense(p, nil)
	g.SymOuterK(1, pr.z.T())
	b := mat.NewVecDense(p, nil)
	b.MulVec(pr.z.T(), mat.NewVecDense(pr.n, pr.y))
	return g, b.RawVector().Data
}

// spectrum is the singular value decomposition of a problem, from which the ridge
// solution of every α follows at once.
type spectrum struct {
	s   []float64
	v   mat.Dense
	uty []float64
}

func (pr *problem) decompose() (*spectrum, bool) {
	if len(pr.active) == 0 {
		return &spectrum{}, true
	}
	var svd mat.SVD
	if !svd.Factorize(pr.z, mat.SVDThin) {
		return nil, false
	}
	sp := &spectrum{s: svd.Values(nil)}
	var u mat.Dense
	svd.UTo(&u)
	svd.VTo(&sp.v)
	t := mat.NewVecDense(len(sp.s), nil)
	t.MulVec(u.T(), mat.NewVecDense(pr.n, pr.y))
	sp.uty = t.RawVector().Data
	return sp, true
}

// significant reports whether a singular value is more than rounding.
func (sp *spectrum) significant(k, n int) bool {
	return sp.s[k] > sp.s[0]*0x1p-52*float64(max(n, len(sp.s)))
}

// ridge returns the weights that minimise SSE + α‖w‖². Of α = 0, plain least
// squares, it is the shortest solution where there are many.
func (sp *spectrum) ridge(alpha float64, n int) []float64 {
	if len(sp.s) == 0 {
		return nil
	}
	p, _ := sp.v.Dims()
	w := make([]float64, p)
	for k, s := range sp.s {
		if alpha == 0 && !sp.significant(k, n) {
			continue
		}
		f := s / (s*s + alpha) * sp.uty[k]
		for j := range w {
			w[j] += f * sp.v.At(j, k)
		}
	}
	return w
}

// effective is the number of parameters that a ridge fit uses, without the
// intercept: Σ s²/(s² + α).
func (sp *spectrum) effective(alpha float64, n int) (df float64) {
	for k, s := range sp.s {
		if alpha > 0 || sp.significant(k, n) {
			df += s * s / (s*s + alpha)
		}
	}
	return df
}
