package clocksync

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"wattmark/measure"
)

const (
	// huber is where the loss turns from square to linear, in standard
	// uncertainties (P. J. Huber, Robust Statistics, 1981), and reject where an edge
	// has no say at all.
	huber  = 1.345
	reject = 5.0
	rounds = 40
	// madToSigma turns the median of absolute deviations into a standard deviation.
	madToSigma = 1.4826
	// shaped is how many edges of a kind show their common shape.
	shaped = 8
)

// The columns of the fit, in seconds; the jumps follow.
const (
	colOffset = iota
	colDrift  // ppm
	colLate
	columns
)

// solver is a linear fit of host − meter:
//
//	y = offset − drift·x + late (ends only) + Σ jumps before x
//
// with a prior on the drift and on late, since one start and one end cannot tell
// the two apart.
type solver struct {
	edges    []Edge
	x, y, u  []float64
	w        []float64 // Huber's weights, 0 for an outlier
	jumps    []float64 // where, by x
	y0       float64
	prior    [columns]float64 // standard uncertainties; 0 for none
	scale    float64
	beta     []float64
	cov      *mat.SymDense
	residual []float64
}

// solve fits the clock to f's edges.
func (f *Fit) solve(first measure.Seconds, o Options) error {
	starts, ends := f.count()
	if starts == 0 {
		return fmt.Errorf("%w: at none of the %d starts of work does the power rise", ErrActivity, starts+ends+f.Unseen)
	}
	f.shape()
	s := newSolver(f.Edges, first, o)
	f.Start = measure.Seconds(float64(first) - s.y0)
	s.robustly()
	for range maxJumps {
		at, ok := s.jump()
		if !ok {
			break
		}
		s.jumps = append(s.jumps, at)
		s.robustly()
	}
	s.prune()
	return f.finish(s, o, starts, ends)
}

func (f *Fit) count() (starts, ends int) {
	for _, e := range f.Edges {
		if e.End {
			ends++
		} else {
			starts++
		}
	}
	return starts, ends
}

// shape replaces each edge's own foot by the median of its kind where there are
// enough of them: the middle of a ramp is better known than its foot.
func (f *Fit) shape() {
	for _, end := range []bool{false, true} {
		var feet []float64
		for _, e := range f.Edges {
			if e.End == end {
				feet = append(feet, float64(e.Meter-e.middle))
			}
		}
		if len(feet) < shaped {
			continue
		}
		foot := measure.Seconds(median(feet))
		for i := range f.Edges {
			if f.Edges[i].End == end {
				f.Edges[i].Meter = f.Edges[i].middle + foot
			}
		}
	}
}

func newSolver(edges []Edge, first measure.Seconds, o Options) *solver {
	s := &solver{edges: edges, prior: [columns]float64{colDrift: o.URate * 1e6, colLate: lateLimit}}
	n := len(edges)
	s.x, s.y, s.u, s.w = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	s.residual = make([]float64, n)
	for i, e := range edges {
		s.y[i] = float64(e.Host - e.Meter)
	}
	s.y0 = median(slices.Clone(s.y[:min(n, 8)]))
	for i, e := range edges {
		s.y[i] -= s.y0
		s.x[i] = float64(e.Meter) - (float64(first) - s.y0)
		s.u[i] = float64(e.U)
		s.w[i] = 1
	}
	return s
}

// lateLimit is the prior standard uncertainty of how late ends are against starts.
const lateLimit = 0.5e-3

// row writes the coefficients of edge i.
func (s *solver) row(i int, out []float64) {
	out[colOffset], out[colDrift], out[colLate] = 1, -s.x[i]*1e-6, 0
	if s.edges[i].End {
		out[colLate] = 1
	}
	for j, at := range s.jumps {
		out[columns+j] = 0
		if s.x[i] > at {
			out[columns+j] = 1
		}
	}
}

// robustly solves until the weights are settled.
func (s *solver) robustly() {
	for i := range s.w {
		s.w[i] = 1
	}
	s.scale = 1
	var last []float64
	for round := range rounds {
		s.normal()
		s.reweigh(round)
		if last != nil && slices.EqualFunc(last, s.beta, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
			break
		}
		last = slices.Clone(s.beta)
	}
}

// normal solves the weighted normal equations.
func (s *solver) normal() {
	k := columns + len(s.jumps)
	a, b := mat.NewSymDense(k, nil), mat.NewVecDense(k, nil)
	row := make([]float64, k)
	for i, w := range s.w {
		if w == 0 {
			continue
		}
		w /= s.u[i] * s.u[i] * s.scale * s.scale
		s.row(i, row)
		for p := range k {
			for q := p; q < k; q++ {
				a.SetSym(p, q, a.At(p, q)+w*row[p]*row[q])
			}
			b.SetVec(p, b.AtVec(p)+w*row[p]*s.y[i])
		}
	}
	for p, u := range s.prior {
		if u > 0 {
			a.SetSym(p, p, a.At(p, p)+1/(u*u))
		}
	}
	for p := range k { // a jump without edges on a side changes nothing
		if a.At(p, p) == 0 {
			a.SetSym(p, p, 1)
		}
		a.SetSym(p, p, a.At(p, p)*(1+1e-12))
	}
	var ch mat.Cholesky
	var x mat.VecDense
	s.cov = mat.NewSymDense(k, nil)
	if !ch.Factorize(a) || ch.SolveVecTo(&x, b) != nil || ch.InverseTo(s.cov) != nil {
		return // the last solution stands
	}
	s.beta = x.RawVector().Data
	for i := range s.x {
		s.row(i, row)
		s.residual[i] = s.y[i]
		for p, v := range row {
			s.residual[i] -= v * s.beta[p]
		}
	}
}

// reweigh sets the scale and the weights by the residuals. In the first rounds
// nothing is rejected, so that a bad beginning rejects no good edge.
func (s *solver) reweigh(round int) {
	z := make([]float64, len(s.x))
	for i := range z {
		z[i] = math.Abs(s.residual[i]) / s.u[i]
	}
	free := float64(len(z)) - float64(columns+len(s.jumps))
	s.scale = 1
	if free > 0 { // few edges leave too little scatter behind
		s.scale = madToSigma * median(slices.Clone(z)) * math.Sqrt(float64(len(z))/free)
	}
	if free < 10 {
		s.scale = max(1, s.scale)
	}
	s.scale = max(s.scale, 0.02)
	for i, v := range z {
		v /= s.scale
		switch {
		case v <= huber:
			s.w[i] = 1
		case v <= reject || round < 5:
			s.w[i] = huber / v
		default:
			s.w[i] = 0
		}
	}
}

// finish states the result with its uncertainty.
func (f *Fit) finish(s *solver, o Options, starts, ends int) error {
	if s.beta == nil {
		return fmt.Errorf("%w: the edges' times do not determine a line", ErrClocks)
	}
	var squares float64
	for i := range f.Edges {
		f.Edges[i].Residual = measure.Seconds(s.residual[i])
		f.Edges[i].Used = s.w[i] > 0
		if s.w[i] == 0 {
			f.Rejected++
			continue
		}
		f.Used++
		squares += s.residual[i] * s.residual[i]
	}
	if f.Used < (starts+ends+1)/2 {
		return fmt.Errorf("%w: of %d edges %d lie off any line", ErrActivity, starts+ends, f.Rejected)
	}
	free := float64(f.Used - columns - len(s.jumps))
	f.Scatter = measure.Seconds(math.Sqrt(squares / max(1, free)))
	grow := s.wander()
	f.Offset = measure.Seconds(s.y0 + s.beta[colOffset])
	if both(starts, ends) {
		// A start is seen late and the end early, or the other way round: shared fairly.
		f.Offset += measure.Seconds(max(-lateLimit, min(lateLimit, s.beta[colLate])) / 2)
	}
	f.OffsetStat = measure.Seconds(grow * math.Sqrt(s.cov.At(colOffset, colOffset)))
	f.DriftPPM, f.DriftUPPM = s.beta[colDrift], 2*grow*math.Sqrt(s.cov.At(colDrift, colDrift))
	f.Late, f.LateU = measure.Seconds(s.beta[colLate]), measure.Seconds(2*grow*math.Sqrt(s.cov.At(colLate, colLate)))
	f.OffsetU = 2 * measure.Seconds(math.Hypot(float64(f.OffsetStat), f.systematic(o, starts, ends)))
	for j, at := range s.jumps {
		f.Jumps = append(f.Jumps, s.describe(j, at, f.Start, grow))
	}
	slices.SortFunc(f.Jumps, func(a, b Jump) int { return int(math.Copysign(1, float64(a.At-b.At))) })
	f.single()
	return nil
}

// both tells whether there are enough edges of both kinds to hold them against each
// other.
func both(starts, ends int) bool { return starts >= 3 && ends >= 3 }

// systematic is what no number of edges averages out, k = 1: how the foot of a
// rise relates to the time stamp. What starts and ends disagree by may belong to
// either, evenly distributed. Where they cannot be held against each other, the foot
// of a rise that takes longer than a sample is known within a quarter of it.
func (f *Fit) systematic(o Options, starts, ends int) float64 {
	u := float64(o.UOnset)
	if starts < 3 {
		u = math.Hypot(u, float64(o.UFirst))
	}
	if both(starts, ends) {
		return math.Hypot(u, min(math.Abs(float64(f.Late)), lateLimit)/2/math.Sqrt(3))
	}
	var rises []float64
	for _, e := range f.Edges {
		if !e.End {
			rises = append(rises, float64(e.Rise))
		}
	}
	return math.Hypot(u, max(0, median(rises)-float64(f.interval))/4/math.Sqrt(3))
}

// wander is by how much neighbouring residuals are alike, as a factor on the
// standard uncertainties: n edges that wander together are fewer than n.
func (s *solver) wander() float64 {
	var a, b float64
	last := math.NaN()
	for i, r := range s.residual {
		if s.w[i] == 0 {
			continue
		}
		if !math.IsNaN(last) {
			a += r * last
		}
		b += r * r
		last = r
	}
	if len(s.x) < 20 || b == 0 {
		return 1
	}
	rho := min(0.95, max(0, a/b))
	return math.Sqrt((1 + rho) / (1 - rho))
}
