package fold

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// ErrPhases: the phases do not separate the kernel from its carrier.
var ErrPhases = errors.New("phases that tell nothing")

// Phase is a stretch of carrier, plain or with kernels between its slices.
type Phase struct {
	Window measure.Window
	Edges  measure.Edges
	// Carrier is how long the carrier itself ran within the phase.
	Carrier measure.Seconds
	// Inserted is how many launches of the kernel the phase holds; 0 for a plain one.
	Inserted int
}

// Difference is the energy that one launch of the kernel adds to its carrier's.
type Difference struct {
	Energy   measure.Estimate
	Budget   []measure.Contribution
	Inserted int // in all
	// Carrier is the carrier's own power, where its drift crosses the middle.
	Carrier measure.Watt
	// Residual is the standard deviation of a phase's energy around the fit, and
	// DOF its degrees of freedom.
	Residual measure.Joule
	DOF      int
}

// Contrast integrates the phases over the blocks and fits
//
//	E_i = P·c_i·(1 + drift, a polynomial of time) + e·m_i
//
// to their energies by least squares: c_i is the carrier's own time in phase i,
// m_i the launches. e is a linear combination of the E_i, so its budget is that
// of measure.Combine, and the scatter between phases is seen in the residuals.
// Phases come in order of time; the meter's blocks are read once. Errors wrap
// ErrPhases, or are the integrator's.
func Contrast(s *measure.Setup, phases []Phase, blocks iter.Seq2[*measure.Block, error]) (Difference, error) {
	d, err := newDesign(phases)
	if err != nil {
		return Difference{}, fmt.Errorf("contrast: %w", err)
	}
	w, err := measure.NewWindows(s, lists.Map(phases, func(p Phase) measure.Window { return p.Window }))
	if err == nil {
		err = w.AddAll(blocks)
	}
	if err != nil {
		return Difference{}, fmt.Errorf("contrast: %w", err)
	}
	parts := make([]measure.Part, len(phases))
	energies := make([]float64, len(phases))
	for i, g := range w.Integrators() {
		parts[i] = measure.Part{Window: g, Edges: phases[i].Edges, Weight: d.weights[i]}
		r, err := g.Result(phases[i].Edges)
		if err != nil {
			return Difference{}, fmt.Errorf("contrast: phase %d: %w", i+1, err)
		}
		energies[i] = float64(r.Total.Energy)
	}
	c, err := measure.Combine(parts)
	if err != nil {
		return Difference{}, fmt.Errorf("contrast: %w", err)
	}
	out := Difference{DOF: d.dof, Inserted: d.inserted}
	beta, residual := d.solve(energies)
	out.Carrier, out.Residual = measure.Watt(beta[1]), measure.Joule(residual)
	var square float64
	for _, w := range d.weights {
		square += w * w
	}
	c = c.WithScatter("scatter of the phases", measure.Joule(residual*math.Sqrt(square)), float64(d.dof))
	out.Energy, out.Budget = c.Energy, c.Budget
	return out, nil
}

// design is the least-squares problem: its first unknown is the energy of one
// launch, its second the carrier's power, the rest is drift.
type design struct {
	rows     [][]float64
	solver   [][]float64 // unknowns × phases: the pseudo-inverse
	weights  []float64   // its first row
	dof      int
	inserted int
}

func newDesign(phases []Phase) (*design, error) {
	d := &design{}
	plain := 0
	for i, p := range phases {
		if p.Inserted == 0 {
			plain++
		}
		if !(p.Carrier > 0) || p.Inserted < 0 {
			return nil, fmt.Errorf("%w: phase %d: %v of carrier with %d launches", ErrPhases, i+1, p.Carrier,
				p.Inserted)
		}
		d.inserted += p.Inserted
	}
	// Powers of time for the drift: as few as leave seven degrees of freedom, three at most.
	unknowns := 2 + max(0, min(3, len(phases)-2-7))
	d.dof = len(phases) - unknowns
	if plain < 3 || len(phases)-plain < 3 {
		return nil, fmt.Errorf("%w: %d plain and %d with the kernel: at least three of each are needed", ErrPhases,
			plain, len(phases)-plain)
	}
	middle := func(p Phase) float64 { return float64(p.Window.From+p.Window.To) / 2 }
	first, last := middle(phases[0]), middle(phases[len(phases)-1])
	for _, p := range phases {
		t := 2*(middle(p)-first)/(last-first) - 1
		row := []float64{float64(p.Inserted), float64(p.Carrier)}
		for k := 1; len(row) < unknowns; k++ {
			row = append(row, float64(p.Carrier)*math.Pow(t, float64(k)))
		}
		d.rows = append(d.rows, row)
	}
	var ok bool
	if d.solver, ok = pseudoInverse(d.rows); !ok {
		return nil, fmt.Errorf("%w: plain phases and phases with the kernel do not alternate", ErrPhases)
	}
	d.weights = d.solver[0]
	return d, nil
}

// solve returns the unknowns and the standard deviation of a phase around the fit.
func (d *design) solve(y []float64) (beta []float64, residual float64) {
	beta = make([]float64, len(d.solver))
	for k, row := range d.solver {
		for i, v := range y {
			beta[k] += row[i] * v
		}
	}
	for i, row := range d.rows {
		r := y[i]
		for k, b := range beta {
			r -= b * row[k]
		}
		residual += r * r
	}
	return beta, math.Sqrt(residual / float64(d.dof))
}

// pseudoInverse returns (AᵀA)⁻¹Aᵀ with columns brought to unit length first; not
// ok where a column is all but a combination of the others.
func pseudoInverse(a [][]float64) (out [][]float64, ok bool) {
	n := len(a[0])
	m, eye := mat.NewDense(len(a), n, slices.Concat(a...)), mat.NewDense(len(a), len(a), nil)
	for i := range a {
		eye.Set(i, i, 1)
	}
	scale := make([]float64, n)
	for k := range n {
		scale[k] = mat.Norm(m.ColView(k), 2)
		for i := range a {
			m.Set(i, k, m.At(i, k)/scale[k])
		}
	}
	var qr mat.QR
	qr.Factorize(m)
	var inverse mat.Dense
	if !(qr.Cond() < 3e4) || qr.SolveTo(&inverse, false, eye) != nil {
		return nil, false
	}
	for k := range n {
		out = append(out, inverse.RawRowView(k))
		floats.Scale(1/scale[k], out[k])
	}
	return out, true
}
