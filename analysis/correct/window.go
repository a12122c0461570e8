package correct

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// Smooth is the power that a windowed sensor saw, as steady pieces of equal length
// that change no more than they must: least squares with a penalty on the
// differences of neighbours, which is the posterior of a random walk. How much it
// may change is chosen by the readings' evidence.
type Smooth struct {
	From  measure.Seconds
	Cell  measure.Seconds
	Power []measure.Watt // of each cell, on the true side of the static line
	// Step is the standard deviation of the change from one cell to the next that
	// the evidence chose, Noise that of a renewal about the model.
	Step, Noise measure.Watt
	Held        int // cells that were held at the floor
	chol        *mat.BandCholesky
	uGain       float64
	uOffset     measure.Watt
	dof         float64
}

// ErrWindow is wrapped where a windowed sensor's readings cannot be undone.
var ErrWindow = errors.New("the window cannot be undone")

// maxCells bounds the memory: seven hours of a sensor that is renewed every 100 ms.
const maxCells = 500000

// Deconvolve undoes the window of a boxcar sensor. Renewals are as [Renewals] gives
// them; cell is the length of the pieces, zero for half a period; floor is what the
// power never goes below. Before the first window the power is not known.
//
// A window of many periods is undone by differences of renewals a window apart: what
// is known is the change against a window ago, so noise adds up along the trace
// and is least where the power rests for a window somewhere.
func Deconvolve(renewals []Reading, p *sensor.Profile, cell measure.Seconds, floor measure.Watt) (*Smooth, error) {
	if err := errors.Join(Check(renewals), p.Validate()); err != nil {
		return nil, err
	}
	if p.Model != sensor.Boxcar || p.Window <= 0 {
		return nil, fmt.Errorf("correct: %w: the profile is of a %s sensor with a window of %v: correct a lag by its slope", ErrWindow, p.Model, p.Window)
	}
	if cell <= 0 {
		cell = p.Period / 2
	}
	from := renewals[0].At - p.Delay - p.Window
	n := int(math.Ceil(float64((renewals[len(renewals)-1].At - p.Delay - from) / cell)))
	if n > maxCells || n < 3 {
		return nil, fmt.Errorf("correct: %w: %d pieces of %v: want 3 to %d: cut out what is wanted", ErrWindow, n, cell, maxCells)
	}
	s := &Smooth{From: from, Cell: cell, uGain: p.UGain, uOffset: p.UOffset}
	e := newEquations(renewals, p, s, n)
	ratio := e.evidence()
	return s, e.solve(s, ratio, floor)
}

// To is where the last cell ends.
func (s *Smooth) To() measure.Seconds { return s.From + measure.Seconds(len(s.Power))*s.Cell }

// Energy is the energy of a span, with the posterior's uncertainty: what the
// readings leave open, if the power changes as [Smooth.Step] says. The bound of
// what was not looked at is [Unseen]'s.
func (s *Smooth) Energy(span Span) (Energy, error) {
	if !(span.From < span.To) || span.From < s.From-1e-9 || span.To > s.To()+1e-9 {
		return Energy{}, fmt.Errorf("correct: %w: %.6f s to %.6f s; the power is known from %.6f s to %.6f s", ErrSpan, float64(span.From), float64(span.To), float64(s.From), float64(s.To()))
	}
	first, w := s.overlap(span, len(s.Power), nil)
	c := make([]float64, len(s.Power))
	e := Energy{Span: span, Raw: measure.Joule(math.NaN())}
	for i, t := range w {
		c[first+i] = t
		e.Energy += measure.Joule(t * float64(s.Power[first+i]))
	}
	var z mat.VecDense
	err := s.chol.SolveVecTo(&z, mat.NewVecDense(len(c), c))
	var ill mat.Condition
	if err != nil && !errors.As(err, &ill) {
		return Energy{}, fmt.Errorf("correct: %w: %w", ErrWindow, err)
	}
	u := float64(s.Noise) * math.Sqrt(max(dot(c, z.RawVector().Data), 0)) * measure.CoverageFactor(s.dof) / 2
	e.budget([]measure.Contribution{
		{Source: "what the readings leave open", U: measure.Joule(u)},
		{Source: "gain", U: measure.Joule(math.Abs(float64(e.Energy)) * s.uGain / 2), Systematic: true},
		{Source: "offset", U: measure.Joule(float64(span.Length()) * float64(s.uOffset) / 2), Systematic: true},
	})
	return e, nil
}

// Readings are the cells' powers at their middles.
func (s *Smooth) Readings() []Reading {
	out := make([]Reading, len(s.Power))
	for i, p := range s.Power {
		out[i] = Reading{At: s.From + (measure.Seconds(i)+0.5)*s.Cell, Power: p}
	}
	return out
}
