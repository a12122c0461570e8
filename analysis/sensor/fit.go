package sensor

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// fitted is a fitted model, with the figures that the choice between models needs.
type fitted struct {
	fit       Fit
	response  response
	rss       float64
	residuals []float64 // in watts
	scaled    []float64 // in standard deviations
	predicted []float64
	uLag      measure.Seconds // expanded, of the mean delay
	effective float64         // number of independent renewals of the same information
}

// share returns the mean lag of a model's values behind the power, as a share of its
// constant: half of a window, the whole of a lag.
func share(m Model) float64 {
	if m == Boxcar {
		return 0.5
	}
	return 1
}

// spread is the uncertainty of the unknowns, in the order constant (its logarithm),
// delay, weights.
type spread struct {
	cov   *mat.Dense // of unequal, correlated residuals
	ratio []float64  // of those variances to those of independent, equal residuals
	dof   []float64  // effective number of renewals that determine an unknown
}

// t returns Student's quantile for an unknown, on as many degrees of freedom as there
// are renewals that determine it, from 1 to most: a window may rest on the few that an
// edge of the load fell into (Satterthwaite's rule, as Bell and McCaffrey 2002 use it).
func (s *spread) t(j int, most float64) float64 {
	return stats.Student(0.975, max(1, min(s.dof[j], most)))
}

// fitModel fits one model with its uncertainties: the deepest valley of the residuals,
// then White's covariance, then profile intervals. Errors wrap ErrSeries.
func fitModel(l *linear, from response, b bounds) (*fitted, error) {
	n, p := len(l.y), l.k.k+2
	if n < p+6 {
		return nil, fmt.Errorf("sensor: %w: %d renewals for %d unknowns", ErrSeries, n, p)
	}
	all := l.valleys(from, b)
	r, rss := l.deepest(all, from, b)
	if math.IsInf(l.solve(r), 1) {
		return nil, fmt.Errorf("sensor: %w: no %s with powers that can be explains the readings: the load does not "+
			"change enough, or the clocks do not fit", ErrSeries, r.model)
	}
	f := &fitted{response: r, rss: rss, residuals: slices.Clone(l.r), scaled: make([]float64, n)}
	var square float64
	for i, y := range l.y {
		f.predicted = append(f.predicted, y-f.residuals[i])
		f.scaled[i] = f.residuals[i] * math.Sqrt(l.w[i])
		square += f.residuals[i] * f.residuals[i]
	}
	// Correlated residuals carry less information: n·(1−ρ)/(1+ρ) independent ones.
	rho := stats.Autocorrelation(f.scaled)
	f.effective = math.Max(float64(n)*(1-max(rho, 0))/(1+max(rho, 0)), float64(p)+3)
	s, err := l.spread(f, b)
	if err != nil {
		return nil, err
	}
	s.widen(l.parts(r, b), 1+float64(l.left)*far*far/rss)
	l.solve(r) // the columns and weights are those of the best again
	nu := f.effective - float64(p)
	f.fit = Fit{
		Model: r.model, Constant: r.constant, Delay: r.delay, Gain: 1,
		Residual: measure.Watt(math.Sqrt(square / float64(n))), Correlation: rho,
	}
	l.weights(&f.fit, s, nu)
	// A profile interval ends where the loss exceeds its least value by this factor: t²
	// over the degrees of freedom, scaled by the ratio of the robust variance.
	limit := func(j int) float64 {
		t := s.t(j, nu)
		return rss*(1+s.ratio[j]*t*t/float64(n-p)) + 1e-12
	}
	l.intervals(&f.fit, all, r, b, limit(0), limit(1))
	for _, end := range []*measure.Seconds{&f.fit.DelayLow, &f.fit.DelayHigh} {
		off := math.Hypot(float64(*end-r.delay), 2*l.uDelay)
		*end = r.delay + measure.Seconds(math.Copysign(off, float64(*end-r.delay)))
	}
	// The mean delay is d + share·c: its variance by the logarithm of c and by d.
	c := float64(r.constant) * share(r.model)
	f.uLag = measure.Seconds(s.t(0, nu) * math.Sqrt(max(c*c*s.cov.At(0, 0)+2*c*s.cov.At(0, 1)+s.cov.At(1, 1), 0)))
	f.uLag = measure.Seconds(math.Hypot(float64(f.uLag), 2*l.uDelay))
	return f, nil
}

// deepest descends from a start and from every valley within 20 % of it, and returns the
// least minimum: the renewals' weights changed since the search, so that another valley
// may be the deepest.
func (l *linear) deepest(all []valley, from response, b bounds) (r response, rss float64) {
	r, rss = l.climb(from, b)
	for _, v := range all {
		if v.rss > 1.2*rss {
			continue
		}
		if q, f := l.climb(response{from.model, measure.Seconds(v.c), measure.Seconds(v.d)}, b); f < rss {
			r, rss = q, f
		}
	}
	return r, rss
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

// spread returns White's covariance (1980) in MacKinnon's form for few observations,
// with Newey and West's sums (1987) over neighbours: residuals are largest at the load's
// edges, where they weigh most, and repeat from edge to edge.
//
//	cov = (JᵀJ)⁻¹ · Σ w_lag·e_i·e_(i−lag)·j_i·j_(i−lag)ᵀ · (JᵀJ)⁻¹
//
// with the residuals e over 1 − leverage and Bartlett's weights w, never below the
// covariance of independent residuals.
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
	for i := p - l.k.warm; i < p; i++ {
		a.Set(i, i, a.At(i, i)+l.warmPrior())
	}
	for i := range p {
		a.Set(i, i, a.At(i, i)*(1+1e-9)+1e-9)
	}
	condition := mat.Condition(1) // an ill-conditioned inverse stands
	if err := inv.Inverse(&a); err != nil && (!errors.As(err, &condition) || math.IsInf(float64(condition), 1)) {
		return nil, fmt.Errorf("sensor: %w: the load does not tell the unknowns apart: it needs changes", ErrSeries)
	}
	e := make([]float64, n)
	var h mat.Dense
	h.Mul(j, &inv)
	for i := range n {
		lev := mat.Dot(h.RowView(i), j.RowView(i))
		e[i] = f.scaled[i] / max(1-lev, 0.2)
	}
	meat := neweyWest(j, e)
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

// runParts is the number of parts of a run that a fit is compared without.
const runParts = 8

// parts fits constant (its logarithm) and delay anew without each part of the run in turn, and returns their
// variances by that (the jackknife of groups): a sensor whose delay wanders, or a response that is neither
// model, leaves another fit in each part, where the residuals about one fit show little.
func (l *linear) parts(r response, b bounds) (variance [2]float64) {
	all, n := l.w, len(l.y)
	defer func() { l.w = all }()
	var constants, delays []float64
	for k := range runParts {
		l.w = slices.Clone(all)
		clear(l.w[k*n/runParts : (k+1)*n/runParts])
		if q, rss := l.climb(r, b); !math.IsInf(rss, 1) {
			constants, delays = append(constants, math.Log(float64(q.constant))), append(delays, float64(q.delay))
		}
	}
	for i, v := range [][]float64{constants, delays} {
		m := float64(len(v))
		variance[i] = (m - 1) * (m - 1) / m * stat.Variance(v, nil)
	}
	return variance
}

// widen raises all variances by a factor, and those of constant and delay to others. The factor is that of the
// renewals left out, each counted at the distance from which it was: they are evidence about the model, too (the
// winsorised variance of a trimmed mean, Tukey and McLaughlin 1963).
func (s *spread) widen(variance [2]float64, factor float64) {
	s.cov.Scale(factor, s.cov)
	floats.Scale(factor, s.ratio)
	for i, v := range variance {
		if more := v / s.cov.At(i, i); more > 1 {
			s.cov.Set(i, i, v)
			s.ratio[i] *= more
			s.dof[i] = min(s.dof[i], runParts-1)
		}
	}
}

// neweyWest returns Σ w_lag·e_i·e_(i−lag)·j_i·j_(i−lag)ᵀ, symmetrised, over the rows j_i of
// a Jacobian and residuals e, with Bartlett's weights up to 4·(n/100)^(2/9) neighbours
// (Newey and West 1994).
func neweyWest(j *mat.Dense, e []float64) *mat.Dense {
	n, p := j.Dims()
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
	return meat
}

// jacobian returns the derivative of every prediction by every unknown. Those by the
// constant and the delay are differences over 3 % of the constant: the prediction has
// kinks where a window's end meets an edge.
func (l *linear) jacobian(r response, b bounds) *mat.Dense {
	n, k := len(l.y), l.k.k
	l.solve(r)
	weights := slices.Clone(l.x.RawVector().Data)
	j := mat.NewDense(n, k+2, nil)
	j.Slice(0, n, 2, 2+k).(*mat.Dense).Copy(mat.NewDense(n, k, l.cols))
	side := func(factor, later float64) []float64 {
		x := response{r.model, r.constant * measure.Seconds(factor), r.delay + measure.Seconds(later)}
		return l.predict(x, l.at, weights)
	}
	const rel = 0.03
	h := rel * math.Max(float64(r.constant), b.least)
	hi, lo, late, early := side(1+rel, 0), side(1-rel, 0), side(1, h), side(1, -h)
	for i := range n {
		j.Set(i, 0, (hi[i]-lo[i])/(2*rel)) // by the logarithm
		j.Set(i, 1, (late[i]-early[i])/(2*h))
	}
	l.solve(r)
	return j
}

// intervals are where the residuals, all else at its best, stay below a limit: the
// profile likelihood. Over a load that alternates it may have several valleys: all
// that are deep enough belong to the interval, with the range between them.
func (l *linear) intervals(f *Fit, all []valley, r response, b bounds, constant, delay float64) {
	cs, ds := []float64{float64(r.constant)}, []float64{float64(r.delay)}
	for _, v := range all {
		if v.rss <= constant {
			cs = append(cs, v.c)
		}
		if v.rss <= delay {
			ds = append(ds, v.d)
		}
	}
	starts := append(all, valley{float64(r.constant), float64(r.delay), 0})
	from := func(outermost float64) valley {
		return starts[slices.IndexFunc(starts, func(v valley) bool { return v.c == outermost || v.d == outermost })]
	}
	byC := func(outermost, sign float64) measure.Seconds {
		return measure.Seconds(l.walkConstant(r.model, from(outermost), b, sign, constant))
	}
	byD := func(outermost, sign float64) measure.Seconds {
		return measure.Seconds(l.walkDelay(r.model, from(outermost), b, sign, delay))
	}
	f.ConstantLow, f.ConstantHigh = byC(slices.Min(cs), -1), byC(slices.Max(cs), 1)
	f.DelayLow, f.DelayHigh = byD(slices.Min(ds), -1), byD(slices.Max(ds), 1)
	if f.ConstantLow <= measure.Seconds(b.least/7) {
		f.ConstantLow = 0 // cannot be distinguished from an instantaneous value
	}
}

// valley is the best delay at a constant, with its residuals.
type valley struct{ c, d, rss float64 }

// valleys returns the best delays at the constants of the grid. Beside the grid's delays
// it tries those that keep the mean lag: along that ridge the fit changes least.
func (l *linear) valleys(from response, b bounds) (out []valley) {
	const step, side = 2e-3, 8
	lag := float64(from.delay) + share(from.model)*float64(from.constant)
	for i := range b.constants {
		v := valley{b.constantAt(i), 0, math.Inf(1)}
		gap := 0.0
		try := func(d, width float64) {
			if d < b.early || d > b.late {
				return
			}
			if rss := l.solve(response{from.model, measure.Seconds(v.c), measure.Seconds(d)}); rss < v.rss {
				v.d, v.rss, gap = d, rss, width
			}
		}
		for j := range b.delay {
			try(b.delayAt(j), (b.delayAt(j+1)-b.delayAt(j))/2)
		}
		for j := -side; j <= side; j++ {
			try(lag-share(from.model)*v.c+float64(j)*step, step/2)
		}
		if math.IsInf(v.rss, 1) {
			continue
		}
		v.rss, v.d = l.alongConstant(from.model, v.c, v.d, gap, b)
		out = append(out, v)
	}
	return out
}

// alongConstant returns the least residual at a given constant, and its delay.
func (l *linear) alongConstant(m Model, c, near, width float64, b bounds) (rss, d float64) {
	return least(func(d float64) float64 {
		if d < b.early || d > b.late {
			return math.Inf(1)
		}
		return l.solve(response{m, measure.Seconds(c), measure.Seconds(d)})
	}, near, width)
}

// walkConstant follows a valley to the constant at which its least residual crosses the
// limit; sign is the direction.
func (l *linear) walkConstant(m Model, from valley, b bounds, sign, limit float64) float64 {
	delay := from.d
	above := func(x float64) bool {
		c := from.c * math.Exp(x)
		if c > b.most {
			return true
		}
		rss, d := l.alongConstant(m, c, delay, max(0.05*from.c, 1e-3), b)
		if rss <= limit {
			delay = d
		}
		return rss > limit
	}
	return from.c * math.Exp(crossing(above, sign, math.Log(from.c/(b.least/8))))
}

// walkDelay follows a valley to the delay at which its least residual crosses the limit.
func (l *linear) walkDelay(m Model, from valley, b bounds, sign, limit float64) float64 {
	unit := max(0.05*from.c, 1e-3)
	near := from.c
	above := func(x float64) bool {
		d := from.d + x*unit
		if d < b.early || d > b.late {
			return true
		}
		// The least residual at this delay, over the constants.
		rss, log := least(func(log float64) float64 {
			c := math.Exp(log)
			if c > b.most {
				return math.Inf(1)
			}
			return l.solve(response{m, measure.Seconds(c), measure.Seconds(d)})
		}, math.Log(max(near, b.least/8)), 0.2)
		if rss <= limit {
			near = math.Exp(log)
		}
		return rss > limit
	}
	return from.d + crossing(above, sign, 1e6)*unit
}

// crossing returns the distance from zero, within 2 %, at which above becomes true: by
// growing steps, then bisection. It goes no further down than most.
func crossing(above func(float64) bool, sign, most float64) float64 {
	in, out := 0.0, 0.0
	for step := 0.02; ; step *= 1.8 {
		out = in + sign*step
		if sign < 0 && -out > most {
			if out = -most; !above(out) {
				return out
			}
			break
		}
		if above(out) {
			break
		}
		in = out
	}
	for math.Abs(out-in) > 0.02*math.Abs(out) {
		if mid := (in + out) / 2; above(mid) {
			out = mid
		} else {
			in = mid
		}
	}
	return (in + out) / 2
}
