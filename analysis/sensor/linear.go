package sensor

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// linear is least squares for the weights of the signals, the delay and the
// constant being given: their best value is a matter of linear algebra, and the
// search is left with two unknowns (variable projection, Golub and Pereyra 1973).
type linear struct {
	k *Known
	// at and y are the renewals that are fitted; w, the inverse of their variances.
	at, y, w []float64
	// huber is beyond which a residual counts by its size instead of its square; zero
	// once w says how much each is to be believed.
	huber, huberOf float64

	cols []float64
	r    []float64 // residuals of the last solve
	own  []float64 // weights of one solve
	ata  *mat.SymDense
	chol mat.Cholesky
	b, x *mat.VecDense
	top  float64 // the largest reading
	// uClock is how well the clocks of readings and load relate.
	uClock float64

	starts [2]response // of boxcar and lag, from the search
}

// gainSpread is what is known of any sensor's gain before it is measured: one,
// within some ten percent (k = 1). Errors of some percent are usual (arXiv
// 2312.02741). Where the load alternates evenly a wrong gain and a wrong window can
// look alike.
const gainSpread = 0.1

func newLinear(k *Known, at, y []float64) *linear {
	n := len(at)
	l := &linear{
		k: k, at: at, y: y, w: make([]float64, n), cols: make([]float64, n*k.k), r: make([]float64, n), own: make([]float64, n),
		ata: mat.NewSymDense(k.k, nil), b: mat.NewVecDense(k.k, nil), x: mat.NewVecDense(k.k, nil),
	}
	for i := range l.w {
		l.w[i] = 1
	}
	s := slices.Clone(y)
	slices.Sort(s)
	l.top = math.Abs(s[n-1])
	l.huberOf = 0.01*(s[n*95/100]-s[n*5/100]) + 1e-3
	l.huber = l.huberOf
	return l
}

// solve fits the weights and returns the sum of the residuals' weighted squares,
// infinite where the weights make no sense.
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
		l.residual()
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

// normal solves the normal equations with the weights of its own.
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
	// A kind of work that no window touches has no weight: it is held at zero.
	for j := range n {
		a.Data[j*a.Stride+j] += 1e-12*a.Data[j*a.Stride+j] + 1e-9
	}
	return l.chol.Factorize(l.ata) && l.chol.SolveVecTo(l.x, l.b) == nil
}

// prior is the weight of what is known of the gain; the residuals must be in units
// of their standard deviations for it.
func (l *linear) prior() float64 {
	if l.k.metered() && l.huber == 0 {
		return 1 / (gainSpread * gainSpread)
	}
	return 0
}

func (l *linear) residual() {
	n := l.k.k
	x := l.x.RawVector().Data
	for i, y := range l.y {
		for j, v := range l.cols[i*n : (i+1)*n] {
			y -= v * x[j]
		}
		l.r[i] = y
	}
}

func (l *linear) loss() (sum float64) {
	for i, d := range l.r {
		if a := math.Abs(d); l.huber > 0 && a > l.huber {
			sum += l.w[i] * l.huber * (2*a - l.huber) // Huber 1964
		} else {
			sum += l.w[i] * d * d
		}
	}
	if p := l.prior(); p > 0 {
		g := l.x.AtVec(0) - 1
		sum += p * g * g
	}
	return sum
}

// sensible tells whether the weights can be those of a sensor and a GPU at all.
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
