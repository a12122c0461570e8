package sensor

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"wattmark/measure"
)

// fitted is a model fitted, with what the choice between models needs.
type fitted struct {
	fit       Fit
	response  response
	rss       float64
	residuals []float64 // in watts
	scaled    []float64 // in standard deviations
	predicted []float64
	uLag      measure.Seconds // expanded, of the mean delay
	effective float64         // number of independent renewals that tell as much
}

// share is how much of its constant a model's values lie behind the power in the
// mean: a half of a window, the whole of a lag.
func share(m Model) float64 {
	if m == Boxcar {
		return 0.5
	}
	return 1
}

// spread is what the residuals say of the unknowns, in the order constant (its
// logarithm), delay, weights.
type spread struct {
	cov   *mat.Dense // with residuals as they are: unequal, and one like the next
	ratio []float64  // of those variances to what independent, equal residuals give
	dof   []float64  // number of renewals that an unknown rests on, in effect
}

// t is Student's quantile for an unknown, on as many degrees of freedom as there
// are renewals that it rests on: a window may be told by the few that an edge of the
// load fell into (Satterthwaite's rule, as Bell and McCaffrey 2002 use it).
func (s *spread) t(j int, most float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: max(1, min(s.dof[j], most))}.Quantile(0.975)
}

// fitModel fits one model with its uncertainties.
func fitModel(l *linear, from response, b bounds) (*fitted, error) {
	n, p := len(l.y), l.k.k+2
	if n < p+6 {
		return nil, fmt.Errorf("sensor: %w: %d renewals for %d unknowns", ErrSeries, n, p)
	}
	// With the weights that the renewals have now, another valley may be the deepest.
	all := l.valleys(from, b)
	r, rss := l.climb(from, b)
	for _, v := range all {
		if v.rss > 1.2*rss {
			continue
		}
		if q, f := l.climb(response{from.model, measure.Seconds(v.c), measure.Seconds(v.d)}, b); f < rss {
			r, rss = q, f
		}
	}
	if math.IsInf(l.solve(r), 1) {
		return nil, fmt.Errorf("sensor: %w: no %s with powers that can be explains the readings: the load does not change enough, or the clocks do not fit", ErrSeries, r.model)
	}
	f := &fitted{response: r, rss: rss, residuals: slices.Clone(l.r), scaled: make([]float64, n)}
	var square float64
	for i, y := range l.y {
		f.predicted = append(f.predicted, y-f.residuals[i])
		f.scaled[i] = f.residuals[i] * math.Sqrt(l.w[i])
		square += f.residuals[i] * f.residuals[i]
	}
	rho := correlation(f.scaled)
	f.effective = math.Max(float64(n)*(1-max(rho, 0))/(1+max(rho, 0)), float64(p)+3)
	s, err := l.spread(f, b)
	if err != nil {
		return nil, err
	}
	l.solve(r) // the columns and weights are those of the best again
	nu := f.effective - float64(p)
	f.fit = Fit{
		Model: r.model, Constant: r.constant, Delay: r.delay, Gain: 1,
		Residual: measure.Watt(math.Sqrt(square / float64(n))), Correlation: rho,
	}
	l.weights(&f.fit, s, nu)
	limit := func(j int) float64 {
		t := s.t(j, nu)
		return rss*(1+s.ratio[j]*t*t/float64(n-p)) + 1e-12
	}
	l.intervals(&f.fit, all, r, b, limit(0), limit(1))
	c := float64(r.constant) * share(r.model)
	f.uLag = measure.Seconds(s.t(0, nu) * math.Sqrt(max(c*c*s.cov.At(0, 0)+2*c*s.cov.At(0, 1)+s.cov.At(1, 1), 0)))
	return f, nil
}

// weights writes the fitted weights as levels, or as gain and offset.
func (l *linear) weights(f *Fit, s *spread, nu float64) {
	u := func(j int) float64 { return s.t(2+j, nu) * math.Sqrt(max(s.cov.At(2+j, 2+j), 0)) }
	if l.k.metered() {
		f.Gain, f.UGain = l.x.AtVec(0), u(0)
		f.Offset, f.UOffset = measure.Watt(l.x.AtVec(1)), measure.Watt(u(1))
		return
	}
	for j, name := range l.k.names {
		f.Levels = append(f.Levels, Level{name, measure.Watt(l.x.AtVec(j)), measure.Watt(u(j))})
	}
}

// spread is White's covariance (1980) in MacKinnon's form for few observations,
// with Newey and West's sums (1987) over neighbours: the fit is worst at the
// load's edges, there it tells most, and what it misses it misses again.
func (l *linear) spread(f *fitted, b bounds) (*spread, error) {
	n, p := len(l.y), l.k.k+2
	j := l.jacobian(f.response, b)
	for i := range n { // in standard deviations
		for c := range p {
			j.Set(i, c, j.At(i, c)*math.Sqrt(l.w[i]))
		}
	}
	var a, inv mat.Dense
	a.Mul(j.T(), j)
	a.Set(2, 2, a.At(2, 2)+l.prior())
	for i := range p {
		a.Set(i, i, a.At(i, i)*(1+1e-9)+1e-9)
	}
	if err := inv.Inverse(&a); err != nil && math.IsInf(float64(conditionOf(err)), 1) {
		return nil, fmt.Errorf("sensor: %w: the load does not tell the unknowns apart: it needs changes", ErrSeries)
	}
	e := make([]float64, n)
	var h mat.Dense
	h.Mul(j, &inv)
	for i := range n {
		lev := mat.Dot(h.RowView(i), j.RowView(i))
		e[i] = f.scaled[i] / max(1-lev, 0.2)
	}
	meat := mat.NewDense(p, p, nil)
	band := int(4 * math.Pow(float64(n)/100, 2.0/9))
	for lag := 0; lag <= band; lag++ {
		w := 1 - float64(lag)/float64(band+1)
		for i := lag; i < n; i++ {
			g := w * e[i] * e[i-lag]
			for x := range p {
				for y := range p {
					v := g * j.At(i, x) * j.At(i-lag, y)
					meat.Set(x, y, meat.At(x, y)+v)
					if lag > 0 {
						meat.Set(y, x, meat.At(y, x)+v)
					}
				}
			}
		}
	}
	s := &spread{cov: mat.NewDense(p, p, nil)}
	var half mat.Dense
	half.Mul(&inv, meat)
	s.cov.Mul(&half, &inv)
	white := f.rss / float64(n-p)
	for i := range p {
		s.cov.Set(i, i, max(s.cov.At(i, i), white*inv.At(i, i)))
		s.ratio = append(s.ratio, s.cov.At(i, i)/max(white*inv.At(i, i), 1e-300))
		var sum, square float64
		for m := range n {
			v := h.At(m, i) * h.At(m, i)
			sum, square = sum+v, square+v*v
		}
		s.dof = append(s.dof, sum*sum/max(square, 1e-300))
	}
	return s, nil
}

func conditionOf(err error) mat.Condition {
	if c, ok := err.(mat.Condition); ok {
		return c
	}
	return mat.Condition(math.Inf(1))
}

// jacobian is the derivative of every prediction by every unknown. The columns of
// the two that the search found are differences over a stretch of some percent:
// the prediction has kinks where a window's end meets an edge.
func (l *linear) jacobian(r response, b bounds) *mat.Dense {
	n, k := len(l.y), l.k.k
	l.solve(r)
	weights := append([]float64(nil), l.x.RawVector().Data...)
	j := mat.NewDense(n, k+2, nil)
	for i := range n {
		for c := range k {
			j.Set(i, 2+c, l.cols[i*k+c])
		}
	}
	side := func(r response) []float64 {
		l.k.columns(r, l.at, l.cols)
		out := make([]float64, n)
		for i := range n {
			for c := range k {
				out[i] += weights[c] * l.cols[i*k+c]
			}
		}
		return out
	}
	const rel = 0.03
	h := rel * math.Max(float64(r.constant), b.least)
	up, down := r, r
	up.constant *= 1 + rel
	down.constant *= 1 - rel
	hi, lo := side(up), side(down)
	up, down = r, r
	up.delay += measure.Seconds(h)
	down.delay -= measure.Seconds(h)
	late, early := side(up), side(down)
	for i := range n {
		j.Set(i, 0, (hi[i]-lo[i])/(2*rel)) // by the logarithm
		j.Set(i, 1, (late[i]-early[i])/(2*h))
	}
	l.solve(r)
	return j
}

// correlation of a series with itself one later.
func correlation(r []float64) float64 {
	var s, c float64
	for i, v := range r {
		s += v * v
		if i > 0 {
			c += v * r[i-1]
		}
	}
	if s == 0 {
		return 0
	}
	return c / s
}
