package clocksync

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

const (
	// huber is the residual, in standard uncertainties, beyond which the loss is linear
	// (P. J. Huber, Robust Statistics, 1981); beyond reject an edge has weight zero.
	huber  = 1.345
	reject = 5.0
	rounds = 40 // of reweighing, at most
	// shaped is the number of edges from which on their median shape is used.
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
// with a prior on the drift and on late, which one start and one end cannot separate.
type solver struct {
	edges    []Edge
	x, y, u  []float64
	w        []float64        // Huber's weights, 0 for an outlier
	jumps    []float64        // their places, by x
	y0       float64          // offset that was taken off y
	prior    [columns]float64 // standard uncertainties; 0 for none
	scale    float64          // of the residuals, in units of u
	beta     []float64        // solution: columns, then jumps
	cov      *mat.SymDense    // of beta
	residual []float64        // s
}

// solve fits the clock to f's edges: a line, then jumps one by one while a significant
// one is left.
func (f *Fit) solve(first measure.Seconds) error {
	starts := len(lists.Filter(f.Edges, func(e *Edge) bool { return !e.End }))
	ends := len(f.Edges) - starts
	if starts == 0 {
		return fmt.Errorf("%w: at none of the %d starts of work does the power rise", ErrActivity, starts+ends+f.Unseen)
	}
	f.shape()
	s := newSolver(f.Edges, first)
	f.Start = measure.Seconds(float64(first) - s.y0)
	s.robustly()
	for range maxJumps {
		at, ok := s.findJump()
		if !ok {
			break
		}
		s.jumps = append(s.jumps, at)
		s.robustly()
	}
	s.prune()
	return f.finish(s, starts, ends)
}

// shape replaces each edge's own foot by the median of its kind where there are
// enough of them: the middle of a ramp is better known than its foot.
func (f *Fit) shape() {
	for _, end := range []bool{false, true} {
		kind := lists.Filter(f.Edges, func(e *Edge) bool { return e.End == end })
		feet := lists.Map(kind, func(e Edge) float64 { return float64(e.Meter - e.middle) })
		if len(feet) < shaped {
			continue
		}
		foot := measure.Seconds(stats.Median(feet))
		for i := range f.Edges {
			if f.Edges[i].End == end {
				f.Edges[i].Meter = f.Edges[i].middle + foot
			}
		}
	}
}

// newSolver returns the equations of all edges, with times relative to the first start
// and to the median offset of the first edges, for numbers of about one.
func newSolver(edges []Edge, first measure.Seconds) *solver {
	s := &solver{edges: edges, prior: [columns]float64{colDrift: uRate * 1e6, colLate: lateLimit}}
	n := len(edges)
	s.y = lists.Map(edges, func(e Edge) float64 { return float64(e.Host - e.Meter) })
	s.u = lists.Map(edges, func(e Edge) float64 { return float64(e.U) })
	s.y0 = stats.Median(s.y[:min(n, 8)])
	floats.AddConst(-s.y0, s.y)
	s.x = lists.Map(edges, func(e Edge) float64 { return float64(e.Meter) - (float64(first) - s.y0) })
	s.residual = make([]float64, n)
	return s
}

// lateLimit is the prior standard uncertainty of Fit.Late, in seconds.
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

// robustly solves and reweighs in turn until the solution changes by less than 1e-12.
func (s *solver) robustly() {
	s.w, s.scale = slices.Repeat([]float64{1}, len(s.x)), 1
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

// normal solves the weighted normal equations by Cholesky's decomposition, a prior of
// standard uncertainty u adding 1/u² to the diagonal. Where they are singular the last
// solution stands.
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
		s.residual[i] = s.y[i] - floats.Dot(row, s.beta)
	}
}

// reweigh sets the scale and Huber's weights by the residuals. In the first five rounds
// nothing is rejected, so that a bad start rejects no good edge.
func (s *solver) reweigh(round int) {
	z := make([]float64, len(s.x))
	for i := range z {
		z[i] = math.Abs(s.residual[i]) / s.u[i]
	}
	free, least := float64(len(z))-float64(columns+len(s.jumps)), 0.02
	if free < 10 {
		least = 1
	}
	s.scale = least
	if free > 0 { // corrected for the degrees of freedom
		s.scale = max(least, stats.SD(z)*math.Sqrt(float64(len(z))/free))
	}
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

// finish states the result with its uncertainty. Rejected edges both of whose neighbours
// fit are listed as single.
func (f *Fit) finish(s *solver, starts, ends int) error {
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
		// A start seen late and an end seen early: half of the difference each.
		f.Offset += measure.Seconds(max(-lateLimit, min(lateLimit, s.beta[colLate])) / 2)
	}
	scatter := grow * math.Sqrt(s.cov.At(colOffset, colOffset))
	f.DriftPPM, f.DriftUPPM = s.beta[colDrift], 2*grow*math.Sqrt(s.cov.At(colDrift, colDrift))
	f.Late = measure.Seconds(s.beta[colLate])
	f.OffsetU = 2 * measure.Seconds(math.Hypot(scatter, f.systematic(starts, ends)))
	for j, at := range s.jumps {
		f.Jumps = append(f.Jumps, s.describe(j, at, f.Start, grow))
	}
	slices.SortFunc(f.Jumps, func(a, b Jump) int { return int(math.Copysign(1, float64(a.At-b.At))) })
	for i, e := range f.Edges {
		if !e.Used && (i == 0 || f.Edges[i-1].Used) && (i+1 == len(f.Edges) || f.Edges[i+1].Used) {
			f.Single = append(f.Single, e)
		}
	}
	return nil
}

// both reports whether there are enough edges of both kinds to compare them.
func both(starts, ends int) bool { return starts >= 3 && ends >= 3 }

// systematic returns the standard uncertainty (k = 1, seconds) that no number of edges
// averages out: the relation of a rise's foot to the time stamp. Half the disagreement
// of starts and ends may belong to either, evenly distributed (/√3). Without enough of
// both, the foot of a rise longer than a sample is known within a quarter of it.
func (f *Fit) systematic(starts, ends int) float64 {
	u := uOnset
	if starts < 3 {
		u = math.Hypot(u, uFirst)
	}
	if both(starts, ends) {
		return math.Hypot(u, min(math.Abs(float64(f.Late)), lateLimit)/2/math.Sqrt(3))
	}
	begins := lists.Filter(f.Edges, func(e *Edge) bool { return !e.End })
	rises := lists.Map(begins, func(e Edge) float64 { return float64(e.Rise) })
	return math.Hypot(u, max(0, stats.Median(rises)-float64(f.interval))/4/math.Sqrt(3))
}

// wander returns the factor on standard uncertainties for correlated neighbours:
// √((1+ρ)/(1−ρ)) with the first autocorrelation ρ of the residuals, 1 below 20 edges.
func (s *solver) wander() float64 {
	var used []float64
	for i, r := range s.residual {
		if s.w[i] != 0 {
			used = append(used, r)
		}
	}
	if len(s.x) < 20 {
		return 1
	}
	rho := min(0.95, max(0, stats.Autocorrelation(used)))
	return math.Sqrt((1 + rho) / (1 - rho))
}

// prune drops jumps that fall below four standard uncertainties in the whole fit, once
// others have been added.
func (s *solver) prune() {
	for {
		drop := -1
		for j := range s.jumps {
			size, u := s.beta[columns+j], math.Sqrt(s.cov.At(columns+j, columns+j))
			if math.Abs(size) < 4*u {
				drop = j
			}
		}
		if drop < 0 {
			return
		}
		s.jumps = slices.Delete(s.jumps, drop, drop+1)
		s.robustly()
	}
}

// describe returns jump j with its uncertainties, widened by grow.
func (s *solver) describe(j int, at float64, start measure.Seconds, grow float64) Jump {
	out := Jump{
		At:   start + measure.Seconds(at),
		Size: measure.Seconds(s.beta[columns+j]),
		U:    measure.Seconds(2 * grow * math.Sqrt(s.cov.At(columns+j, columns+j))),
	}
	for i, x := range s.x {
		switch {
		case s.w[i] == 0:
		case x < at:
			out.Edges[0]++
		default:
			out.Edges[1]++
		}
	}
	k, _ := slices.BinarySearch(s.x, at)
	if k > 0 && k < len(s.x) {
		out.UAt = measure.Seconds(s.x[k]-s.x[k-1]) / 2
	}
	return out
}
