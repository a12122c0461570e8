package correct

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Smooth is the power that a windowed sensor saw, as steady cells of equal length:
// least squares with a penalty on the differences of neighbours, which is the posterior
// mean of a random walk. The step of the walk maximises the evidence of the readings.
type Smooth struct {
	From  measure.Seconds
	Cell  measure.Seconds
	Power []measure.Watt // of each cell, on the true side of the static line
	Noise measure.Watt   // standard deviation of a renewal about the model

	chol    *mat.BandCholesky
	uGain   float64
	uOffset measure.Watt
	dof     float64
}

// ErrWindow is wrapped where a windowed sensor's readings cannot be undone.
var ErrWindow = errors.New("the window cannot be undone")

// maxCells bounds the memory: seven hours of a sensor that is renewed every 100 ms.
const maxCells = 500000

// Deconvolve undoes the window of a boxcar sensor. Renewals come from [Renewals]; cell
// is the length of the pieces, zero for half a period; floor is the least possible
// power. The power is known from the beginning of the first window on. Errors wrap
// ErrReadings, ErrWindow or sensor.ErrProfile.
//
// With y = A·x + noise for the mean y of each window and the cells x, it minimises |y − A·x|² + ratio·|D·x|², D being
// the differences of neighbours. A window of many periods is undone by differences of renewals a window apart: they
// only give the change against a window ago, so noise adds up along the trace and is least where the power rests for
// a window somewhere.
func Deconvolve(renewals []Reading, p *sensor.Profile, cell measure.Seconds, floor measure.Watt) (*Smooth, error) {
	if err := errors.Join(Check(renewals), p.Validate()); err != nil {
		return nil, err
	}
	if p.Model != sensor.Boxcar || p.Window <= 0 {
		return nil, fmt.Errorf("correct: %w: the profile is of a %s sensor with a window of %v: correct a lag by "+
			"its slope", ErrWindow, p.Model, p.Window)
	}
	if cell <= 0 {
		cell = p.Period / 2
	}
	from := renewals[0].At - p.Delay - p.Window
	n := int(math.Ceil(float64((renewals[len(renewals)-1].At - p.Delay - from) / cell)))
	if n > maxCells || n < 3 {
		return nil, fmt.Errorf("correct: %w: %d pieces of %v: want 3 to %d: cut out what is wanted", ErrWindow, n, cell,
			maxCells)
	}
	s := &Smooth{From: from, Cell: cell, uGain: p.UGain, uOffset: p.UOffset}
	e := newEquations(renewals, p, s, n)
	ratio := e.evidence()
	return s, e.solve(s, ratio, floor)
}

// To is where the last cell ends.
func (s *Smooth) To() measure.Seconds { return s.From + measure.Seconds(len(s.Power))*s.Cell }

// Energy returns the energy of a span with the posterior's uncertainty, which assumes
// steps of the power as the evidence chose them. For time that no window covered see [Unseen].
// Errors wrap ErrSpan.
func (s *Smooth) Energy(span Span) (Energy, error) {
	if !(span.From < span.To) || span.From < s.From-1e-9 || span.To > s.To()+1e-9 {
		return Energy{}, fmt.Errorf("correct: %w: %.6f s to %.6f s; the power is known from %.6f s to %.6f s", ErrSpan,
			float64(span.From), float64(span.To), float64(s.From), float64(s.To()))
	}
	first, w := s.overlap(span, len(s.Power))
	c := make([]float64, len(s.Power))
	e := Energy{Span: span, Raw: measure.Joule(math.NaN())}
	for i, t := range w {
		c[first+i] = t
		e.Energy += measure.Joule(t * float64(s.Power[first+i]))
	}
	u := float64(s.Noise) * math.Sqrt(max(floats.Dot(c, solved(s.chol, c)), 0)) * measure.CoverageFactor(s.dof) / 2
	e.budget([]measure.Contribution{
		{Source: "what the readings leave open", U: measure.Joule(u)},
		{Source: "gain", U: measure.Joule(math.Abs(float64(e.Energy)) * s.uGain / 2), Systematic: true},
		{Source: "offset", U: measure.Joule(float64(span.Length()) * float64(s.uOffset) / 2), Systematic: true},
	})
	return e, nil
}

// Readings returns the cells' powers at their middles.
func (s *Smooth) Readings() []Reading {
	out := make([]Reading, len(s.Power))
	for i, p := range s.Power {
		out[i] = Reading{At: s.From + (measure.Seconds(i)+0.5)*s.Cell, Power: p}
	}
	return out
}

// equations are the normal equations AᵀA·x = Aᵀy, banded since a window covers few
// cells.
type equations struct {
	ata   *mat.SymBandDense
	aty   []float64
	yy    float64
	rows  int
	cells int
	band  int
}

// newEquations sums up the normal equations of n cells. A row of A holds the shares of
// a window that its cells take.
func newEquations(renewals []Reading, p *sensor.Profile, s *Smooth, n int) *equations {
	band := min(n-1, int(math.Ceil(float64(p.Window/s.Cell)))+1)
	e := &equations{
		ata: mat.NewSymBandDense(n, band, nil), aty: make([]float64, n), rows: len(renewals), cells: n, band: band,
	}
	for _, r := range renewals {
		y := float64(r.Power-p.Offset) / p.Gain
		b := r.At - p.Delay
		first, weights := s.overlap(Span{From: b - p.Window, To: b}, n)
		for i, wi := range weights {
			wi /= float64(p.Window)
			e.aty[first+i] += wi * y
			for j := i; j < len(weights); j++ {
				e.ata.SetSymBand(first+i, first+j, e.ata.At(first+i, first+j)+wi*weights[j]/float64(p.Window))
			}
		}
		e.yy += y * y
	}
	return e
}

// overlap returns the time in seconds that each of n cells shares with a span, from the first
// cell on.
func (s *Smooth) overlap(span Span, n int) (first int, out []float64) {
	first = max(0, int(math.Floor(float64((span.From-s.From)/s.Cell)+1e-9)))
	for i := first; i < n; i++ {
		a := s.From + measure.Seconds(i)*s.Cell
		t := min(span.To, a+s.Cell) - max(span.From, a)
		if t <= 0 {
			break
		}
		out = append(out, float64(t))
	}
	return first, out
}

// penalised factorizes AᵀA + ratio·DᵀD, with a large weight on the diagonal of each cell
// that is held at the floor; false where it is singular.
func (e *equations) penalised(ratio float64, held []bool) (*mat.BandCholesky, bool) {
	h := mat.NewSymBandDense(e.cells, e.band, nil)
	for i := range e.cells {
		for j := i; j <= min(e.cells-1, i+e.band); j++ {
			v := e.ata.At(i, j)
			switch {
			case i == j && (i == 0 || i == e.cells-1):
				v += ratio * (1 + 1e-9)
			case i == j:
				v += ratio * (2 + 1e-9)
			case j == i+1:
				v -= ratio
			}
			if i == j && held != nil && held[i] {
				v += heldWeight
			}
			h.SetSymBand(i, j, v)
		}
	}
	var c mat.BandCholesky
	ok := c.Factorize(h)
	return &c, ok
}

// heldWeight ties a cell to the floor.
const heldWeight = 1e6

// evidence returns the ratio of the noise's variance to that of a step between cells
// that maximises the restricted likelihood of the readings (REML), over 10⁻⁷ to 10³:
//
//	−½·(f·ln(S/f) + ln|AᵀA + ratio·DᵀD|) + ½·(n−1)·ln(ratio)
//
// with the penalised sum of squares S, f = rows − 1 degrees of freedom and n cells.
func (e *equations) evidence() float64 {
	best, most := 1.0, math.Inf(-1)
	try := func(ratio float64) {
		c, ok := e.penalised(ratio, nil)
		if !ok {
			return
		}
		x := solved(c, e.aty)
		rest := e.yy - floats.Dot(x, e.aty) // residual and penalty together
		free := float64(e.rows - 1)
		if rest <= 0 {
			return
		}
		l := -0.5*(free*math.Log(rest/free)+c.LogDet()) + 0.5*float64(e.cells-1)*math.Log(ratio)
		if l > most {
			best, most = ratio, l
		}
	}
	// Decades first, then halving steps around the best of them.
	for l := -7.0; l <= 3; l++ {
		try(math.Pow(10, l))
	}
	for middle, step := math.Log10(best), 0.5; step > 0.1; step /= 2 {
		try(math.Pow(10, middle-step))
		try(math.Pow(10, middle+step))
		middle = math.Log10(best)
	}
	return best
}

// solved solves factorized equations.
func solved(c *mat.BandCholesky, b []float64) []float64 {
	var x mat.VecDense
	_ = c.SolveVecTo(&x, mat.NewVecDense(len(b), b)) // an ill-conditioned solution, its only error, stands
	return x.RawVector().Data
}

// solve finds the powers. Cells that would fall below the floor are held there, and the
// rest is solved again, until none falls below.
func (e *equations) solve(s *Smooth, ratio float64, floor measure.Watt) error {
	c, ok := e.penalised(ratio, nil)
	if !ok {
		return fmt.Errorf("correct: %w: the equations are singular", ErrWindow)
	}
	x := solved(c, e.aty)
	s.chol = c
	free := float64(e.rows - 1)
	variance := (e.yy - floats.Dot(x, e.aty)) / free
	s.Noise = measure.Watt(math.Sqrt(max(variance, 0)))
	s.dof = free
	// An active set: cells are only ever added, so that it ends.
	held := make([]bool, len(x))
	for range 30 {
		more := false
		for i := range x {
			if !held[i] && x[i] < float64(floor)-1e-6 {
				held[i], more = true, true
			}
		}
		if !more {
			break
		}
		b := slices.Clone(e.aty)
		for i := range b {
			if held[i] {
				b[i] += heldWeight * float64(floor)
			}
		}
		if c, ok = e.penalised(ratio, held); !ok {
			break
		}
		x = solved(c, b)
	}
	s.Power = make([]measure.Watt, len(x))
	for i, v := range x {
		s.Power[i] = measure.Watt(v)
		if held[i] {
			s.Power[i] = floor
		}
	}
	return nil
}
