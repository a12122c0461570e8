package attribute

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// ErrColumns: names without a column, or columns with a gap.
var ErrColumns = errors.New("columns do not fit the names")

// Model is how readings follow the kernels. Where n kernels run at once each has a duty of 1/n, and the
// time without kernels has a duty of 1. A reading at t is a sum over the columns,
//
//	P(t) = Σ_c Σ_j β_cj · (mean duty of c from t − l_j+1 to t − l_j)
//
// a distributed lag (S. Almon, Econometrica 33 (1965) 178) of its own for each column. So neither the
// card's response nor the meter's is assumed, as long as they are over within the lags l. The power of a
// column is Σ_j β_cj: what the energy grows by, in the mean over the contexts of its launches, for a
// second more of it. Of a card of linear response that is its own power, and in general the energies come to
// the window's, as the sum of duties is 1.
type Model struct {
	Window measure.Window
	Clock  clock.Fit
	Delay  measure.Seconds // as in Config
	// Memory is how long a load acts on later readings, by the card's and the meter's response.
	Memory measure.Seconds
	// Average is the length of the meter's boxcar where Memory does not matter beside it, else zero: each
	// column then has one coefficient, for the boxcar. ULate is the standard uncertainty of its instant.
	Average, ULate measure.Seconds
	// Columns is the column of each name, from 0 on. Names of one column have one mean power.
	Columns []int
	// Brief is the mean length from which on a column's edges give its energy better than the fit: the
	// column joins no group, and nor does idle, which has but two stretches. Zero: none stays apart.
	Brief measure.Seconds
	// Hidden is set where most pauses are too short for the meter, and so the edges beside them: long columns are fitted,
	// too, and join groups of their kind.
	Hidden bool
}

// blocks is the number of spans of the window whose residuals show scatter that is not new in
// each scan: unrest of the card, kernels of one name that draw differently, and a response that depends
// on what ran before.
const blocks = 32

// shifts is in how many steps the instant of a boxcar is tried, up to its standard uncertainty either way.
const shifts = 4

// beyond is how far a response is looked for, in multiples of Memory: a tail of up to four is over by then but
// for an eighth (e⁻²).
const beyond = 8

// bins returns the ends of the lags in seconds, and how they are merged: first for the fit, then for others: a
// response that goes on behind Memory, and coarser lags. By how much the results differ is in the uncertainty. Lags
// ahead, by what the clock fit may be wrong, are apart from those behind, as a response often begins with a
// jump. Of boxcars the fit takes the instant at which they leave the least residuals.
func (m *Model) bins() (ends []float64, merged [][][]int) {
	var u measure.Seconds
	for _, at := range []measure.Seconds{m.Window.From, (m.Window.From + m.Window.To) / 2, m.Window.To} {
		host, _ := m.Clock.Host(at)
		_, v := m.Clock.Meter(host)
		u = max(u, v)
	}
	if w := float64(m.Average); w > 0 {
		a := min(max(math.Hypot(float64(m.ULate), float64(u)), w/1000), w/4)
		for _, at := range []float64{0, w} {
			for k := range 2*shifts + 1 {
				ends = append(ends, at+a*float64(k-shifts)/shifts)
			}
		}
		for k := range 2*shifts + 1 {
			var bins []int
			for j := k; j <= k+2*shifts; j++ {
				bins = append(bins, j)
			}
			merged = append(merged, [][]int{bins})
		}
		return ends, merged
	}
	u = max(u, m.Memory/1000) // no bin is empty
	ends = []float64{-3 * float64(u), -1.5 * float64(u), 0}
	for k := range 8 {
		ends = append(ends, math.Ldexp(float64(m.Memory), k-7))
	}
	var fine [][]int
	for k := range ends {
		fine = append(fine, []int{k})
	}
	// Coarser lags are pairs in either phase: a jump within a lag shows in one of them.
	coarse, other := [][]int{{0, 1, 2}, {3, 4}, {5, 6}, {7, 8}, {9}}, [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}}
	near := len(ends) - 1
	far := min(beyond*m.Memory, (m.Window.To-m.Window.From)/blocks)
	if far < 2*m.Memory { // the window is too short for it
		return ends, [][][]int{fine[:near], fine[:near-1], coarse, other}
	}
	return append(ends, float64(far)), [][][]int{fine[:near], fine, coarse, other}
}

// normal holds the sums of a weighted least-squares fit, upper triangle by rows.
type normal struct {
	a, g []float64 // Σ w·x·xᵀ and Σ w·x·y
	yy   float64   // Σ w·y²
	n    int
}

func newNormal(m int) normal { return normal{a: make([]float64, m*(m+1)/2), g: make([]float64, m)} }

// add takes one reading; used are the places where x is not zero, in rising order.
func (n *normal) add(x []float64, used []int, y, weight float64) {
	m := len(n.g)
	for i, r := range used {
		row, v := n.a[r*(2*m-r-1)/2:], weight*x[r]
		for _, c := range used[i:] {
			row[c] += v * x[c]
		}
		n.g[r] += v * y
	}
	n.yy += weight * y * y
	n.n++
}

func (n *normal) plus(o *normal) {
	floats.Add(n.a, o.a)
	floats.Add(n.g, o.g)
	n.yy, n.n = n.yy+o.yy, n.n+o.n
}

// matrix returns Σ w·x·xᵀ.
func (n *normal) matrix() *mat.SymDense {
	m := len(n.g)
	out := mat.NewSymDense(m, nil)
	for r := range m {
		for c := r; c < m; c++ {
			out.SetSym(r, c, n.a[r*(2*m-r-1)/2+c])
		}
	}
	return out
}

// merge returns the sums for bins that are merged, each by its width: bins of one group have one coefficient.
func (n *normal) merge(ends []float64, groups [][]int) normal {
	bins, size := len(ends)-1, len(groups)
	to, part := make([]int, bins), make([]float64, bins)
	for j := range to {
		to[j] = -1
	}
	for k, group := range groups {
		width := ends[group[len(group)-1]+1] - ends[group[0]]
		for _, j := range group {
			to[j], part[j] = k, (ends[j+1]-ends[j])/width
		}
	}
	m := len(n.g)
	out := newNormal(m / bins * size)
	out.yy, out.n = n.yy, n.n
	wide := len(out.g)
	for r := range m {
		i := r/bins*size + to[r%bins]
		if to[r%bins] < 0 {
			continue
		}
		out.g[i] += part[r%bins] * n.g[r]
		for c := r; c < m; c++ {
			if to[c%bins] < 0 {
				continue
			}
			j, v := c/bins*size+to[c%bins], part[r%bins]*part[c%bins]*n.a[r*(2*m-r-1)/2+c]
			if i == j && r != c {
				v *= 2
			}
			lo, hi := min(i, j), max(i, j)
			out.a[lo*(2*wide-lo-1)/2+hi] += v
		}
	}
	return out
}

// Solver fits the mean power of each column to the readings, by least squares. Memory grows with
// the square of the number of columns. It is not safe for concurrent use. Close must be called.
type Solver struct {
	model    Model
	columns  int // of kernels, then active idle, then idle
	from, to float64
	feed     *feed
	ends     []float64 // of the lags, s
	merged   [][][]int
	walkers  []*walker // one for each of ends, so far behind
	sums     []normal  // by block
	x        []float64
	used     []int
	last     float64
	weights  float64
}

// NewSolver prepares a fit. Kernels come in order of their begin.
func NewSolver(m Model, kernels iter.Seq2[Kernel, error]) (*Solver, error) {
	w := m.Window
	if !(w.From < w.To) || !(m.Clock.B > 0) || !(m.Memory > 0) {
		return nil, fmt.Errorf("attribute: from %v to %v, memory %v: %w", w.From, w.To, m.Memory, ErrWindow)
	}
	s := &Solver{model: m, from: float64(w.From - m.Delay), to: float64(w.To - m.Delay), last: math.Inf(-1)}
	for _, c := range m.Columns {
		if c < 0 || c >= len(m.Columns) {
			return nil, fmt.Errorf("attribute: column %d of %d names: %w", c, len(m.Columns), ErrColumns)
		}
		s.columns = max(s.columns, c+1)
	}
	s.columns += 2
	s.feed = &feed{}
	s.feed.next, s.feed.stop = iter.Pull2(kernels)
	s.ends, s.merged = m.bins()
	for range s.ends {
		v := &walker{
			s: s, feed: s.feed, t: s.from, last: math.Inf(-1),
			share: make([]float64, s.columns), spans: make([]uint64, s.columns),
		}
		if err := v.draw(); err != nil {
			s.Close()
			return nil, fmt.Errorf("attribute: %w", err)
		}
		s.walkers = append(s.walkers, v)
	}
	s.x = make([]float64, s.columns*(len(s.ends)-1))
	for range blocks {
		s.sums = append(s.sums, newNormal(len(s.x)))
	}
	return s, nil
}

// Close releases the kernels' source.
func (s *Solver) Close() { s.feed.stop() }

// Add takes the next reading: its instant in seconds of device time, its power in watts, and the standard deviation of
// its noise in watts, which matters only relative to the others'. Readings outside the
// window, or whose response reaches out of it, are skipped.
func (s *Solver) Add(at, watts, noise float64) error {
	if at < s.last || !(noise > 0) {
		return fmt.Errorf("attribute: a reading at %v with noise %v: %w", at, noise, ErrOrder)
	}
	s.last = at
	n := len(s.ends) - 1
	if at-s.ends[0] > s.to || at-s.ends[n] < s.from {
		return nil
	}
	need := math.MaxInt
	for i, w := range s.walkers {
		if err := w.to(at - s.ends[i]); err != nil {
			return fmt.Errorf("attribute: %w", err)
		}
		need = min(need, w.number)
	}
	if f := s.feed; need-f.base > 1024 { // the kernels before are not needed any more
		f.buf, f.base = append(f.buf[:0], f.buf[need-f.base:]...), need
	}
	s.used = s.used[:0]
	for i := range s.x {
		c, j := i/n, i%n
		s.x[i] = (s.walkers[j].share[c] - s.walkers[j+1].share[c]) / (s.ends[j+1] - s.ends[j])
		if s.x[i] > 1e-7 {
			s.used = append(s.used, i)
		}
	}
	weight := 1 / (noise * noise)
	s.weights += weight
	block := min(int(blocks*(at-s.from)/(s.to-s.from)), blocks-1)
	s.sums[block].add(s.x, s.used, watts, weight)
	return nil
}

// loose is the standard deviation, in mean powers of the window, of the coefficients that are taken as
// possible before anything is read. It makes the equations solvable where readings determine
// nothing, and is far outside of what a reported entry may have.
const loose = 10

// fit is the solution for one set of sums.
type fit struct {
	p       *mat.VecDense // W, by column and bin
	inverse *mat.SymDense // of the normal matrix
	sigma2  float64       // weighted residual variance
	dof     float64
	bins    int
}

// fits are the solutions for all ways to merge bins, the one to use first, and how much the squared difference of
// each to it counts: of a boxcar how likely it is, of other lags a third, as of an error up to the difference.
func (s *Solver) fits(sums *normal, mean float64) (out []fit, counts []float64, err error) {
	best := 0
	for i, groups := range s.merged {
		n := sums.merge(s.ends, groups)
		f, err := n.solve(mean, len(groups))
		if err != nil {
			return nil, nil, err
		}
		out = append(out, f)
		longer := f.bins > out[best].bins && f.criterion() < out[best].criterion()
		if longer || s.model.Average > 0 && f.sigma2 < out[best].sigma2 {
			best = i
		}
	}
	out[0], out[best] = out[best], out[0]
	s.merged[0], s.merged[best] = s.merged[best], s.merged[0]
	for i := range out {
		counts = append(counts, 1./3)
		if s.model.Average > 0 {
			counts[i] = math.Pow(out[0].sigma2/out[i].sigma2, out[i].dof/2)
		}
	}
	return out, counts, nil
}

// criterion is Schwarz's (Annals of Statistics 6 (1978) 461), but for a constant: the lower, the better. Akaike's
// takes what unlike rises and falls of a card leave for a longer memory.
func (f *fit) criterion() float64 {
	m := float64(f.p.Len())
	return (f.dof+m)*math.Log(f.sigma2*f.dof) + m*math.Log(f.dof+m)
}

// solve finds p of (A + λ)·p = g + λ·mean, with λ = σ²/(loose·mean)², for so many bins of each column.
func (n *normal) solve(mean float64, bins int) (fit, error) {
	m := len(n.g)
	f := fit{p: mat.NewVecDense(m, nil), inverse: mat.NewSymDense(m, nil), bins: bins}
	a, g := n.matrix(), mat.NewVecDense(m, n.g)
	largest := 0.0
	for i := range m {
		largest = max(largest, a.At(i, i))
	}
	f.sigma2 = 1e-9 * largest * mean * mean
	f.dof = float64(n.n - min(m, n.n))
	var c mat.Cholesky
	for range 4 { // σ² and λ depend on each other, weakly
		ridge := max(f.sigma2/(loose*loose*mean*mean), 1e-12*largest)
		b, right := mat.NewSymDense(m, nil), mat.NewVecDense(m, nil)
		b.CopySym(a)
		for i := range m {
			b.SetSym(i, i, b.At(i, i)+ridge)
			right.SetVec(i, n.g[i]+ridge*mean/float64(bins))
		}
		if !c.Factorize(b) {
			return f, fmt.Errorf("attribute: the equations of %d columns: %w", m/bins, ErrNoData)
		}
		if err := c.SolveVecTo(f.p, right); err != nil {
			return f, fmt.Errorf("attribute: %w", err)
		}
		rss := n.yy - 2*mat.Dot(f.p, g) + mat.Inner(f.p, a, f.p)
		f.sigma2 = max(rss, 1e-12*n.yy) / max(f.dof, 1)
	}
	if err := c.InverseTo(f.inverse); err != nil {
		return f, fmt.Errorf("attribute: %w", err)
	}
	return f, nil
}

// powers are the sums of the columns' coefficients.
func (f *fit) powers() []float64 { return f.sum(f.p) }

// sum adds a vector of coefficients over each column's bins.
func (f *fit) sum(v *mat.VecDense) []float64 {
	out := make([]float64, v.Len()/f.bins)
	for i, v := range v.RawVector().Data {
		out[i/f.bins] += v
	}
	return out
}

// student returns Student's factor of so many degrees of freedom, relative to k = 2 (95.45 %).
func student(dof float64) float64 {
	if dof < 2 {
		return 1e3
	}
	return distuv.StudentsT{Sigma: 1, Nu: dof}.Quantile(0.97725) / 2
}

// fresh is the covariance of the columns' powers, in W², of residuals that are new in each scan.
func (f *fit) fresh() *mat.SymDense {
	n, k := f.p.Len(), student(f.dof)
	out := mat.NewSymDense(n/f.bins, nil)
	for i := range n {
		for j := range n {
			if r, c := i/f.bins, j/f.bins; r <= c {
				out.SetSym(r, c, out.At(r, c)+k*k*f.sigma2*f.inverse.At(i, j))
			}
		}
	}
	return out
}

// blocked is the covariance of the columns' powers, in W², of residuals that hold together within a block (a
// sandwich estimate).
func (s *Solver) blocked(f *fit) *mat.SymDense {
	b := student(blocks - 1)
	out := mat.NewSymDense(s.columns, nil)
	var score, moves mat.VecDense
	for i := range s.sums {
		n := s.sums[i].merge(s.ends, s.merged[0])
		score.MulVec(n.matrix(), f.p)
		score.SubVec(mat.NewVecDense(f.p.Len(), n.g), &score)
		moves.MulVec(f.inverse, &score)
		out.SymRankOne(out, b*b*blocks/(blocks-1.0), mat.NewVecDense(s.columns, f.sum(&moves)))
	}
	return out
}

// stamps are by how much errors of the kernels' stamps move the powers, in W. An edge between a kernel and a pause that
// is wrong by e moves a duty from one to the other. Its mean square is in the variances of the duties, which
// draws the powers of both together (errors in variables; W. Fuller, Measurement Error Models (1987) 1.1), by
//
//	A⁻¹·Σ w·e²·(what e moves of the duties)²·(difference of the powers)
//
// to first order. e has a variance of a third of the stamps' squared step, as of one count either way, or of the
// clock's jitter where that is more. pauses is how much of the fitted power of the pauses there is: with 0 the
// result is a bound, since theirs is what is drawn to the kernels'. Powers that the readings hardly determine move by
// mean, the window's mean power, at most.
func (s *Solver) stamps(f *fit, pauses, mean float64) []float64 {
	w, pause := s.walkers[0], s.columns-2
	launches := 0.0
	for _, n := range w.spans[:pause] {
		launches += float64(n)
	}
	e := max(s.feed.step/math.Sqrt(3), float64(s.model.Clock.Jitter))
	// Of so many edges a launch, at each of which a reading lies with the same probability.
	each := 2 * float64(w.spans[pause]) / max(launches, 1) * s.weights / (s.to - s.from)
	right := make([]float64, f.p.Len())
	for j, group := range s.merged[0] {
		width := s.ends[group[len(group)-1]+1] - s.ends[group[0]]
		beside := pauses * f.p.AtVec(pause*f.bins+j)
		for c := range pause {
			by := e * e * each * float64(w.spans[c]) / width * (f.p.AtVec(c*f.bins+j) - beside)
			right[c*f.bins+j] = by
			right[pause*f.bins+j] -= by
		}
	}
	var moves mat.VecDense
	moves.MulVec(f.inverse, mat.NewVecDense(len(right), right))
	return lists.Map(f.sum(&moves), func(w float64) float64 { return max(min(w, mean), -mean) })
}
