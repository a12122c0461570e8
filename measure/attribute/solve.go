package attribute

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// ErrColumns: names without a column, or columns with a gap.
var ErrColumns = errors.New("columns do not fit the names")

// Model is what a Solver takes a reading for. Each name of a kernel has one mean power p; where n
// kernels run at once each has a duty of 1/n, and the time without kernels has a duty of 1.
// A reading at t is Σ p·x, with x the duty behind the lag Tau and averaged over the span
// Average before t.
type Model struct {
	Window measure.Window
	Clock  clock.Fit
	Delay  measure.Seconds // as in Config
	// Tau is the time constant of the card's and the meter's response, Average the length of
	// the meter's boxcar; zeros mean readings of an instant.
	Tau, Average measure.Seconds
	// Columns is the column of each name, from 0 on. Names of one column have one mean power.
	Columns []int
	// Brief is the mean length from which on a column's edges give its energy better than the fit: the
	// column joins no group, and nor does idle, which has but two stretches. Zero: none stays apart.
	Brief measure.Seconds
}

// blocks is the number of spans of the window whose residuals show scatter that is not new in
// each scan: unrest of the card, or kernels of one name that draw differently.
const blocks = 32

// normal holds the sums of a weighted least-squares fit, upper triangle by rows.
type normal struct {
	a, g []float64 // Σ w·x·xᵀ and Σ w·x·y
	yy   float64   // Σ w·y²
	n    int
}

func newNormal(columns int) normal {
	return normal{a: make([]float64, columns*columns), g: make([]float64, columns)}
}

// add takes one reading; used are the columns whose x is not zero, in rising order.
func (n *normal) add(x []float64, used []int, y, weight float64) {
	m := len(n.g)
	for i, r := range used {
		for _, c := range used[i:] {
			n.a[r*m+c] += weight * x[r] * x[c]
		}
		n.g[r] += weight * x[r] * y
	}
	n.yy += weight * y * y
	n.n++
}

func (n *normal) plus(o *normal) {
	for i := range n.a {
		n.a[i] += o.a[i]
	}
	for i := range n.g {
		n.g[i] += o.g[i]
	}
	n.yy, n.n = n.yy+o.yy, n.n+o.n
}

// moved is the model with all kernels moved alike: by nothing, and by one standard uncertainty of the
// clock fit either way. late walks one Average behind.
type moved struct {
	now, late *walker
	sums      []normal // by block for the first, one for the others
}

// Solver fits the mean power of each column to the readings, by least squares. Memory grows with
// the square of the number of columns. It is not safe for concurrent use. Close must be called.
type Solver struct {
	model    Model
	columns  int // of kernels, then active idle, then idle
	from, to float64
	feed     *feed
	models   []moved
	x        []float64
	used     []int
	last     float64
	weights  float64
}

// NewSolver prepares a fit. Kernels come in order of their begin.
func NewSolver(m Model, kernels iter.Seq2[Kernel, error]) (*Solver, error) {
	w := m.Window
	if !(w.From < w.To) || !(m.Clock.B > 0) {
		return nil, fmt.Errorf("attribute: from %v to %v: %w", w.From, w.To, ErrWindow)
	}
	s := &Solver{model: m, from: float64(w.From - m.Delay), to: float64(w.To - m.Delay), last: math.Inf(-1)}
	for _, c := range m.Columns {
		if c < 0 || c >= len(m.Columns) {
			return nil, fmt.Errorf("attribute: column %d of %d names: %w", c, len(m.Columns), ErrColumns)
		}
		s.columns = max(s.columns, c+1)
	}
	s.columns += 2
	s.x, s.feed = make([]float64, s.columns), newFeed(kernels)
	var u measure.Seconds
	for _, at := range []measure.Seconds{w.From, (w.From + w.To) / 2, w.To} {
		host, _ := m.Clock.Host(at)
		_, v := m.Clock.Meter(host)
		u = max(u, v)
	}
	for i, shift := range []float64{0, float64(u), -float64(u)} {
		if i > 0 && u == 0 {
			break
		}
		v := moved{sums: make([]normal, 1)}
		if i == 0 {
			v.sums = make([]normal, blocks)
		}
		for j := range v.sums {
			v.sums[j] = newNormal(s.columns)
		}
		var err error
		if v.now, err = s.newWalker(s.feed, shift); err == nil && m.Average > 0 {
			v.late, err = s.newWalker(s.feed, shift)
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("attribute: %w", err)
		}
		s.models = append(s.models, v)
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
	if at > s.to || at-float64(s.model.Average)-5*float64(s.model.Tau) < s.from {
		return nil
	}
	block := min(int(blocks*(at-s.from)/(s.to-s.from)), blocks-1)
	weight := 1 / (noise * noise)
	s.weights += weight
	need := math.MaxInt
	for i := range s.models {
		v := &s.models[i]
		if err := s.row(v, at); err != nil {
			return fmt.Errorf("attribute: %w", err)
		}
		v.sums[min(block, len(v.sums)-1)].add(s.x, s.used, watts, weight)
		need = min(need, v.now.number)
		if v.late != nil {
			need = min(need, v.late.number)
		}
	}
	s.feed.drop(need)
	return nil
}

// row computes what a reading has of each column.
func (s *Solver) row(v *moved, at float64) error {
	if err := v.now.to(at); err != nil {
		return err
	}
	average := float64(s.model.Average)
	if v.late != nil {
		if err := v.late.to(at - average); err != nil {
			return err
		}
	}
	s.used = s.used[:0]
	for i := range s.x {
		switch {
		case v.late != nil:
			s.x[i] = (v.now.integral(i) - v.late.integral(i)) / average
		case s.model.Tau > 0:
			s.x[i] = v.now.lag[i]
		default:
			s.x[i] = v.now.duty(i)
		}
		if math.Abs(s.x[i]) > 1e-9 {
			s.used = append(s.used, i)
		}
	}
	return nil
}

// loose is the standard deviation, in mean powers of the window, of the powers that are taken as
// possible before anything is read. It makes the equations solvable where readings determine
// nothing, and is far outside of what a reported entry may have.
const loose = 10

// fit is the solution for one set of sums.
type fit struct {
	p       *mat.VecDense // W, by column
	inverse *mat.SymDense // of the normal matrix
	sigma2  float64       // weighted residual variance
	rank    int           // directions that the readings determine to better than the mean power
	dof     float64
}

// solve finds p of (A + λ)·p = g + λ·mean, with λ = σ²/(loose·mean)².
func (n *normal) solve(mean float64) (fit, error) {
	m := len(n.g)
	a := mat.NewSymDense(m, append([]float64(nil), n.a...))
	f := fit{p: mat.NewVecDense(m, nil), inverse: mat.NewSymDense(m, nil)}
	var eigen mat.EigenSym
	if !eigen.Factorize(a, false) {
		return f, fmt.Errorf("attribute: no eigenvalues of %d columns: %w", m, ErrNoData)
	}
	values := eigen.Values(nil)
	f.sigma2 = 1e-9 * values[m-1] * mean * mean
	for range 4 { // σ² and λ depend on each other, weakly
		ridge := max(f.sigma2/(loose*loose*mean*mean), 1e-13*values[m-1])
		b, right := mat.NewSymDense(m, append([]float64(nil), n.a...)), mat.NewVecDense(m, nil)
		for i := range m {
			b.SetSym(i, i, b.At(i, i)+ridge)
			right.SetVec(i, n.g[i]+ridge*mean)
		}
		var c mat.Cholesky
		if !c.Factorize(b) {
			return f, fmt.Errorf("attribute: the equations of %d columns: %w", m, ErrNoData)
		}
		if err := errors.Join(c.SolveVecTo(f.p, right), c.InverseTo(f.inverse)); err != nil {
			return f, fmt.Errorf("attribute: %w", err)
		}
		rss := n.yy - 2*mat.Dot(f.p, mat.NewVecDense(m, n.g)) + mat.Inner(f.p, a, f.p)
		f.rank = 0
		for _, v := range values {
			if v*mean*mean > f.sigma2 {
				f.rank++
			}
		}
		f.dof = float64(n.n - f.rank)
		f.sigma2 = max(rss, 1e-12*n.yy) / max(f.dof, 1)
	}
	return f, nil
}

// covariances are those of the columns' powers, in W²: of residuals that are new in each scan, and of
// residuals that hold together within a block (a sandwich estimate).
func (s *Solver) covariances(f *fit) (fresh, blocked *mat.SymDense) {
	m := s.columns
	fresh, meat := mat.NewSymDense(m, nil), mat.NewSymDense(m, nil)
	// Student's factor for few scans, in place of k = 2 (95.45 %).
	k := 1e3
	if f.dof >= 2 {
		k = distuv.StudentsT{Sigma: 1, Nu: f.dof}.Quantile(0.97725) / 2
	}
	fresh.ScaleSym(k*k*f.sigma2, f.inverse)
	var score mat.VecDense
	for i := range s.models[0].sums {
		n := &s.models[0].sums[i]
		score.MulVec(mat.NewSymDense(m, n.a), f.p)
		score.SubVec(mat.NewVecDense(m, n.g), &score)
		meat.SymRankOne(meat, blocks/(blocks-1.0), &score)
	}
	var half, whole mat.Dense
	half.Mul(f.inverse, meat)
	whole.Mul(&half, f.inverse)
	blocked = mat.NewSymDense(m, nil)
	for i := range m {
		for j := i; j < m; j++ {
			blocked.SetSym(i, j, (whole.At(i, j)+whole.At(j, i))/2)
		}
	}
	return fresh, blocked
}
