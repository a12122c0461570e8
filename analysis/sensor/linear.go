package sensor

import (
	"cmp"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"
)

// linear solves for the weights of the signals at a given delay and constant by linear
// least squares, which leaves the search with two unknowns (variable projection, Golub
// and Pereyra 1973). It is not safe for concurrent use.
type linear struct {
	k *Known
	// at and y are the renewals that are fitted; w, the inverse of their variances.
	at, y, w []float64
	variance []float64 // of each renewal, those of weight zero too
	left     int       // renewals of weight zero
	// huber is the residual beyond which the loss is linear; zero once w holds each
	// renewal's own weight. huberOf is its value for the search.
	huber, huberOf float64

	cols []float64
	r    []float64 // residuals of the last solve
	own  []float64 // weights of one solve
	ata  *mat.SymDense
	chol mat.Cholesky
	b, x *mat.VecDense
	top  float64 // the largest reading
	// uClock is the standard uncertainty of the clocks' relation, in seconds.
	uClock float64
	// uDelay is the standard uncertainty of the run's mean delay that no residual shows, in seconds: of its
	// wander, and of the power's response to a kernel.
	uDelay float64

	starts [2]response // of boxcar and lag, from the search
}

// gainSpread is the prior standard uncertainty of any sensor's gain about one. Errors of
// some percent are usual (arXiv 2312.02741). Under an evenly alternating load a wrong
// gain and a wrong window can look alike.
const gainSpread = 0.1

// newLinear returns equal weights and a Huber limit of 1 % of the readings' range from
// the 5th to the 95th percentile.
func newLinear(k *Known, at, y []float64) *linear {
	n := len(at)
	l := &linear{
		k: k, at: at, y: y, r: make([]float64, n), own: make([]float64, n),
		cols: make([]float64, n*k.k),
		ata:  mat.NewSymDense(k.k, nil), b: mat.NewVecDense(k.k, nil), x: mat.NewVecDense(k.k, nil),
	}
	s := slices.Clone(y)
	slices.Sort(s)
	l.top = math.Abs(s[n-1])
	l.huberOf = 0.01*(s[n*95/100]-s[n*5/100]) + 1e-3
	l.forget()
	return l
}

// forget gives all renewals the same weight again.
func (l *linear) forget() {
	l.huber, l.w = l.huberOf, slices.Repeat([]float64{1}, len(l.y))
}

// solve fits the weights and returns the loss: the sum of the residuals' weighted
// squares, with priors; +Inf where the weights cannot be physical. Residuals stay in r,
// weights in x.
func (l *linear) solve(r response) float64 {
	l.k.columns(r, l.at, l.cols)
	copy(l.own, l.w)
	passes := 1
	if l.huber > 0 {
		passes = 3
	}
	for p := range passes {
		if !l.normal() {
			return math.Inf(1)
		}
		x := l.x.RawVector().Data
		for i, y := range l.y {
			for j, v := range l.cols[i*l.k.k : (i+1)*l.k.k] {
				y -= v * x[j]
			}
			l.r[i] = y
		}
		if p+1 < passes {
			for i, d := range l.r {
				l.own[i] = l.w[i] * min(1, l.huber/max(math.Abs(d), 1e-12))
			}
		}
	}
	if !l.sensible() {
		return math.Inf(1)
	}
	rss := l.loss()
	if l.huber == 0 && r.delay < 0 { // a value cannot come early: it is the clocks
		rss += math.Pow(float64(r.delay)/l.uClock, 2)
	}
	return rss
}

// normal solves the normal equations with the weights of own; false where they are
// singular.
func (l *linear) normal() bool {
	n := l.k.k
	a := l.ata.RawSymmetric()
	clear(a.Data)
	b := l.b.RawVector().Data
	clear(b)
	for i, y := range l.y {
		row, w := l.cols[i*n:(i+1)*n], l.own[i]
		if w == 0 {
			continue
		}
		for j, v := range row {
			b[j] += w * v * y
			for m := j; m < n; m++ {
				a.Data[j*a.Stride+m] += w * v * row[m]
			}
		}
	}
	if p := l.prior(); p > 0 {
		a.Data[0] += p
		b[0] += p
	}
	for j := n - l.k.warm; j < n; j++ {
		a.Data[j*a.Stride+j] += l.warmPrior()
	}
	// A kind of work that no window touches is held at zero.
	for j := range n {
		a.Data[j*a.Stride+j] += 1e-12*a.Data[j*a.Stride+j] + 1e-9
	}
	return l.chol.Factorize(l.ata) && l.chol.SolveVecTo(l.x, l.b) == nil
}

// prior returns the weight of the prior of the gain, zero before residuals are in units
// of their standard deviations.
func (l *linear) prior() float64 {
	if l.k.metered() && l.huber == 0 {
		return 1 / (gainSpread * gainSpread)
	}
	return 0
}

// warmSpread is the prior standard uncertainty of a kernel's drift, relative to the largest reading.
const warmSpread = 0.05

// warmPrior returns the weight of the prior of a kernel's drift, in the units of the readings' weights.
func (l *linear) warmPrior() float64 {
	if l.huber > 0 {
		return square(l.huber / (warmSpread * l.top))
	}
	return square(1 / (warmSpread * l.top))
}

func square(x float64) float64 { return x * x }

// loss returns the sum of squares, linear beyond huber, with the prior of the gain.
func (l *linear) loss() (sum float64) {
	for i, d := range l.r {
		if a := math.Abs(d); l.huber > 0 && a > l.huber {
			sum += l.w[i] * l.huber * (2*a - l.huber) // Huber 1964
		} else {
			sum += l.w[i] * d * d
		}
	}
	if p := l.prior(); p > 0 {
		sum += p * square(l.x.AtVec(0)-1)
	}
	for j := l.k.k - l.k.warm; j < l.k.k; j++ {
		sum += l.warmPrior() * square(l.x.AtVec(j))
	}
	return sum
}

// sensible reports whether the weights are physical: a gain from 0.6 to 1.6, levels from
// −0.1 to 10 times the largest reading.
func (l *linear) sensible() bool {
	if l.k.metered() {
		g := l.x.AtVec(0)
		return g > 0.6 && g < 1.6
	}
	for j := range l.k.names {
		if v := l.x.AtVec(j); v < -0.1*l.top || v > 10*l.top {
			return false
		}
	}
	return true
}

// weigh returns the weight of each renewal, the inverse of its variance:
//
//	variance = noise² + (scale · slope · when)²
//
// with the noise of a value at rest, the slope of the prediction in W/s and the standard uncertainty when of the
// renewal's instant, from polling and jitter; noise and scale are estimated from the residuals r, robustly. A renewal
// beyond six standard deviations (a kernel whose power changes although the load is constant) gets weight zero and
// counts in left; beyond a quarter of them the models are wrong, and all count.
//
// slope is the steeper of the two models' predictions, r the smaller of their residuals,
// which favours neither model.
func weigh(r, slope, when []float64, least float64) (w, variance []float64, left int) {
	noise := max(stats.SD(r), least)
	scale := 1.0
	for range 3 {
		var rest, steep []float64
		for i := range r {
			if s := slope[i] * when[i]; s < noise {
				rest = append(rest, r[i])
			} else {
				steep = append(steep, r[i]/math.Hypot(noise, scale*s))
			}
		}
		if len(rest) >= fewest {
			noise = max(stats.SD(rest), least)
		}
		if len(steep) >= 8 {
			scale = min(max(scale*stats.SD(steep), 0.5), 4)
		}
	}
	w, variance = make([]float64, len(r)), make([]float64, len(r))
	for i := range r {
		s := math.Hypot(noise, scale*slope[i]*when[i])
		variance[i], w[i] = s*s, 1/(s*s)
		if math.Abs(r[i]) > far*s {
			w[i] = 0
			left++
		}
	}
	// Many misses mean wrong models, not wrong renewals.
	if left > len(r)/4 {
		for i, v := range variance {
			w[i] = 1 / v
		}
		left = 0
	}
	return w, variance, left
}

// far is the distance from which a residual is no error of the model, in standard deviations.
const far = 6

// slopes returns the slope of the prediction around each renewal in W/s: the change over
// the uncertainty of its instant on both sides, which includes kinks.
func (l *linear) slopes(r response, when []float64) []float64 {
	weights := slices.Clone(l.x.RawVector().Data)
	at := func(sign float64) []float64 {
		t := make([]float64, len(l.y))
		for i := range t {
			if t[i] = l.at[i] + sign*when[i]; i > 0 {
				t[i] = max(t[i], t[i-1])
			}
		}
		return l.predict(r, t, weights)
	}
	a, b := at(-1), at(1)
	for i := range a {
		a[i] = math.Abs(b[i]-a[i]) / (2 * when[i])
	}
	return a
}

// predict returns the readings at instants that weights of the signals' responses make. It overwrites cols.
func (l *linear) predict(r response, at, weights []float64) []float64 {
	l.k.columns(r, at, l.cols)
	out := make([]float64, len(at))
	for i := range out {
		for j, x := range weights {
			out[i] += x * l.cols[i*l.k.k+j]
		}
	}
	return out
}

// bounds limit the search, in seconds.
type bounds struct {
	least, most      float64 // of the constant
	early, late      float64 // of the delay
	u                float64 // of the clocks
	constants, delay int     // points of the first grid
}

// boundsFor derives the limits from the period and the length of the recording: known
// sensors have windows from a quarter of a period to ten periods; clocks related by hand
// are some tens of milliseconds wrong.
func boundsFor(period, span, uClock float64) bounds {
	uClock = cmp.Or(uClock, 2e-3)
	return bounds{
		least: period / 60, most: min(25*period, span/3), early: -4 * uClock, u: uClock, late: max(2*period, 0.25),
		constants: 32, delay: 18,
	}
}

// constantAt returns point i of the grid, even in the constant's logarithm.
func (b bounds) constantAt(i int) float64 {
	return b.least * math.Pow(b.most/b.least, float64(i)/float64(b.constants-1))
}

// delayAt returns point j of the grid, denser near the earliest delay, as sensors are.
func (b bounds) delayAt(j int) float64 {
	return b.early + (b.late-b.early)*math.Pow(float64(j)/float64(b.delay-1), 1.6)
}

// search finds the constant and the delay with the least residuals: a grid first, since
// an alternating load has several minima, then Nelder and Mead's simplex from its three
// best constants (as arXiv 2312.02741 does).
func (l *linear) search(m Model, b bounds) (response, float64) {
	type start struct {
		r   response
		rss float64
	}
	var best []start
	for i := range b.constants {
		c := b.constantAt(i)
		mine := start{rss: math.Inf(1)}
		for j := range b.delay {
			r := response{m, measure.Seconds(c), measure.Seconds(b.delayAt(j))}
			if rss := l.solve(r); rss < mine.rss {
				mine = start{r, rss}
			}
		}
		best = append(best, mine)
	}
	slices.SortStableFunc(best, func(s, t start) int { return cmp.Compare(s.rss, t.rss) })
	top := best[0]
	for _, s := range best[:3] { // a few constants, each with its best delay
		if math.IsInf(s.rss, 1) {
			continue
		}
		if r, rss := l.climb(s.r, b); rss < top.rss {
			top = start{r, rss}
		}
	}
	return top.r, l.solve(top.r)
}

// climb descends to the nearest minimum by Nelder and Mead's simplex, within bounds.
func (l *linear) climb(from response, b bounds) (response, float64) {
	at := func(x []float64) response {
		return response{from.model, measure.Seconds(math.Exp(x[0])), measure.Seconds(x[1])}
	}
	scale := (b.late - b.early) / float64(b.delay)
	p := optimize.Problem{Func: func(x []float64) float64 {
		if x[0] > math.Log(b.most) || x[0] < math.Log(b.least/8) || x[1]*scale < b.early || x[1]*scale > b.late {
			return math.Inf(1)
		}
		return l.solve(at([]float64{x[0], x[1] * scale}))
	}}
	x0 := []float64{math.Log(float64(from.constant)), float64(from.delay) / scale}
	s := &optimize.Settings{FuncEvaluations: 150, Converger: &optimize.FunctionConverge{Relative: 1e-7, Iterations: 12}}
	res, err := optimize.Minimize(p, x0, s, &optimize.NelderMead{SimplexSize: 0.3})
	if res == nil || err != nil && math.IsInf(res.F, 1) {
		return from, l.solve(from)
	}
	return at([]float64{res.X[0], res.X[1] * scale}), res.F
}

// least returns the least value of f found around near, and its place: by steps of width
// that shrink by 2.5 where neither direction improves, at most 40 moves.
func least(f func(float64) float64, near, width float64) (fx, x float64) {
	x, fx = near, f(near)
	moved := 0
	for h := width; h > width/40; {
		if g := f(x + h); g < fx {
			x, fx = x+h, g
		} else if g := f(x - h); g < fx {
			x, fx = x-h, g
		} else {
			h /= 2.5
			continue
		}
		if moved++; moved > 40 {
			break
		}
	}
	return fx, x
}
