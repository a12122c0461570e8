package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"gonum.org/v1/gonum/floats"
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
		pr.mean[j], pr.scale[j] = moments(lists.Map(d.Rows, func(r Row) float64 { return r.X[j] }))
	}
	pr.active = nonzero(pr.scale)
	pr.yMean, _ = moments(lists.Map(d.Rows, func(r Row) float64 { return float64(r.Power) }))
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

// moments returns mean and population standard deviation of values, the latter
// 0 where they differ by no more than rounding. The values are scaled by the
// largest first, so that their squares cannot overflow.
func moments(v []float64) (mean, sd float64) {
	top := floats.Norm(v, math.Inf(1))
	if top == 0 {
		return 0, 0
	}
	var sum, square, rest float64
	for _, x := range v {
		sum += x / top
	}
	n := float64(len(v))
	m := sum / n
	for _, x := range v {
		d := x/top - m
		square += d * d
		rest += d // the rounding error of the mean
	}
	if sd = math.Sqrt(max(0, square/n-(rest/n)*(rest/n))); sd <= 4*0x1p-52*n {
		sd = 0
	}
	return (m + rest/n) * top, sd * top
}

// nonzero returns where values are other than zero.
func nonzero(v []float64) (at []int) {
	for i, x := range v {
		if x != 0 {
			at = append(at, i)
		}
	}
	return at
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

// decompose returns the singular values and vectors of the standardised columns. An error
// wraps ErrData.
func (pr *problem) decompose() (*spectrum, error) {
	if len(pr.active) == 0 {
		return &spectrum{}, nil
	}
	var svd mat.SVD
	if !svd.Factorize(pr.z, mat.SVDThin) {
		return nil, fmt.Errorf("%w: the singular values of the counters do not converge: look for absurd values",
			ErrData)
	}
	sp := &spectrum{s: svd.Values(nil)}
	var u mat.Dense
	svd.UTo(&u)
	svd.VTo(&sp.v)
	// With Z = U·S·Vᵀ all solutions are V·diag(s/(s² + α))·Uᵀy.
	t := mat.NewVecDense(len(sp.s), nil)
	t.MulVec(u.T(), mat.NewVecDense(pr.n, pr.y))
	sp.uty = t.RawVector().Data
	return sp, nil
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

// rule is one of the penalised problems that coordinate descent solves:
// minimise ‖y − Zw‖² + l2·‖w‖² + l1·‖w‖₁, all w at or above zero if positive.
type rule struct {
	l1, l2   float64
	positive bool
}

// The descent ends when the optimality conditions hold to this part of the
// largest gradient, and gives up after so many sweeps.
const (
	kktGoal  = 1e-11
	kktLimit = 1e-7
	sweeps   = 50 // of a round
	rounds   = 1000
)

// descend solves a rule by coordinate descent on the Gram matrix, and exactly once
// it is near. It fails if the conditions of Karush, Kuhn and Tucker do not hold in
// the end.
func descend(g *mat.SymDense, b []float64, r rule) ([]float64, error) {
	w := make([]float64, len(b))
	scale := max(r.l1, 2*floats.Norm(b, math.Inf(1)))
	if scale == 0 {
		return w, nil
	}
	// On the Gram matrix G = ZᵀZ and b = Zᵀy a sweep costs p², whatever the rows. A round
	// refreshes the gradient, and tries the exact finish, which costs p³.
	grad := slices.Clone(b) // b − Gw
	for range rounds {
		for range sweeps {
			sweep(g, grad, w, r)
		}
		done := polish(g, b, w, r, scale)
		if residual(g, b, w, grad); done || r.violation(grad, w) <= kktGoal*scale {
			break
		}
	}
	if v := r.violation(grad, w); v > kktLimit*scale {
		return nil, fmt.Errorf("%w: coordinate descent stopped %.2g short of the optimum: leave out collinear "+
			"counters or raise α", ErrData, v/scale)
	}
	return w, nil
}

// sweep takes every weight to its optimum once, the others held.
func sweep(g *mat.SymDense, grad, w []float64, r rule) {
	for j := range w {
		// The optimum of one weight is the soft threshold of its correlation with the
		// residual that leaves it out, over its squared length and the penalty.
		d := g.At(j, j)
		next := r.shrink(grad[j]+d*w[j]) / (d + r.l2)
		if step := next - w[j]; step != 0 {
			for k := range grad {
				grad[k] -= g.At(j, k) * step
			}
			w[j] = next
		}
	}
}

// shrink is the soft threshold.
func (r rule) shrink(v float64) float64 {
	switch t := r.l1 / 2; {
	case v > t:
		return v - t
	case v < -t && !r.positive:
		return v + t
	}
	return 0
}

// residual works b − Gw out afresh, so that rounding does not add up.
func residual(g *mat.SymDense, b, w, grad []float64) {
	rest := mat.NewVecDense(len(grad), grad)
	rest.MulVec(g, mat.NewVecDense(len(w), w))
	rest.SubVec(mat.NewVecDense(len(b), b), rest)
}

// violation is by how much the conditions of Karush, Kuhn and Tucker fail: the
// gradient must vanish where a weight is free, and point outward where it is not.
func (r rule) violation(grad, w []float64) (worst float64) {
	for j, v := range w {
		d := 2 * (grad[j] - r.l2*v) // downhill
		switch {
		case v > 0:
			worst = max(worst, math.Abs(d-r.l1))
		case v < 0:
			worst = max(worst, math.Abs(d+r.l1))
		case r.positive:
			worst = max(worst, d-r.l1)
		default:
			worst = max(worst, math.Abs(d)-r.l1)
		}
	}
	return worst
}

// polish goes from where the descent stands to the exact optimum by Lawson and Hanson's active sets: solve for the
// weights that count as if their signs were given, stop where one reaches zero and leave it out, take in the one that
// violates the conditions most. It changes w only if it succeeds.
func polish(g *mat.SymDense, b, w []float64, r rule, scale float64) bool {
	s := active{rule: r, g: g, b: b, w: slices.Clone(w), sign: make([]float64, len(w))}
	for j, v := range w {
		if v != 0 {
			s.sign[j] = math.Copysign(1, v)
		}
	}
	grad := make([]float64, len(w))
	for range 10 * (len(w) + 1) {
		whole, ok := s.step()
		if !ok {
			return false
		}
		if !whole {
			continue
		}
		residual(g, b, s.w, grad)
		if !s.take(grad, kktGoal*scale) {
			if r.violation(grad, s.w) > kktGoal*scale {
				return false
			}
			copy(w, s.w)
			return true
		}
	}
	return false
}

// active is a set of weights that may differ from zero, with their signs.
type active struct {
	rule
	g       *mat.SymDense
	b       []float64
	w, sign []float64
}

// step goes towards the optimum of the set as far as no sign changes, and reports
// whether it got there. It fails where the set's columns follow from each other.
func (s *active) step() (whole, ok bool) {
	on := nonzero(s.sign)
	if len(on) == 0 {
		return true, true
	}
	var a mat.SymDense
	a.SubsetSym(s.g, on)
	rhs := mat.NewVecDense(len(on), nil)
	for i, j := range on {
		a.SetSym(i, i, s.g.At(j, j)+s.l2)
		// The gradient of l1·|w| is the given sign times l1.
		rhs.SetVec(i, s.b[j]-s.sign[j]*s.l1/2)
	}
	var chol mat.Cholesky
	var x mat.VecDense
	if !chol.Factorize(&a) || chol.Cond() > 1e14 || chol.SolveVecTo(&x, rhs) != nil {
		return false, false
	}
	// Go the whole way, or up to the first weight that would change its sign.
	t, first := 1.0, -1
	for i, j := range on {
		if v := x.AtVec(i); v*s.sign[j] <= 0 {
			if f := s.w[j] / (s.w[j] - v); first < 0 || f < t {
				t, first = f, j
			}
		}
	}
	for i, j := range on {
		s.w[j] += t * (x.AtVec(i) - s.w[j])
	}
	if first >= 0 {
		s.w[first], s.sign[first] = 0, 0
	}
	return first < 0, true
}

// take lets in the weight that violates the conditions most, if one does.
func (s *active) take(grad []float64, goal float64) bool {
	best, worst := -1, goal
	for j, d := range grad {
		v := 2*math.Abs(d) - s.l1
		if s.sign[j] == 0 && v > worst && !(s.positive && d < 0) {
			best, worst = j, v
		}
	}
	if best >= 0 {
		s.sign[best] = math.Copysign(1, grad[best])
	}
	return best >= 0
}
