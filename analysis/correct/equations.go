package correct

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// equations are the normal equations AᵀA·x = Aᵀy in bands, and the penalty.
type equations struct {
	ata   *mat.SymBandDense
	aty   []float64
	yy    float64
	rows  int
	cells int
	band  int
}

func newEquations(renewals []Reading, p *sensor.Profile, s *Smooth, n int) *equations {
	band := min(n-1, int(math.Ceil(float64(p.Window/s.Cell)))+1)
	e := &equations{ata: mat.NewSymBandDense(n, band, nil), aty: make([]float64, n), rows: len(renewals), cells: n, band: band}
	w := make([]float64, 0, band+1)
	for _, r := range renewals {
		y := float64(r.Power-p.Offset) / p.Gain
		b := r.At - p.Delay
		first, weights := s.overlap(Span{From: b - p.Window, To: b}, n, w)
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

// overlap is the time of each cell that lies in a span, from the first on.
func (s *Smooth) overlap(span Span, n int, w []float64) (first int, out []float64) {
	first = max(0, int(math.Floor(float64((span.From-s.From)/s.Cell)+1e-9)))
	out = w[:0]
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

// penalised is AᵀA + ratio·DᵀD, factorized, with large weights on what is held.
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

const heldWeight = 1e6

// evidence is the ratio of the noise's variance to that of a step between cells that
// makes the readings likeliest, with the noise's own variance taken out (REML).
func (e *equations) evidence() float64 {
	best, most := 1.0, math.Inf(-1)
	try := func(ratio float64) {
		c, ok := e.penalised(ratio, nil)
		if !ok {
			return
		}
		x := e.x(c, e.aty)
		rest := e.yy - dot(x, e.aty) // residual and penalty together
		free := float64(e.rows - 1)
		if rest <= 0 {
			return
		}
		l := -0.5*(free*math.Log(rest/free)+c.LogDet()) + 0.5*float64(e.cells-1)*math.Log(ratio)
		if l > most {
			best, most = ratio, l
		}
	}
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

func (e *equations) x(c *mat.BandCholesky, b []float64) []float64 {
	var x mat.VecDense
	if err := c.SolveVecTo(&x, mat.NewVecDense(len(b), b)); err != nil {
		var ill mat.Condition
		if !errors.As(err, &ill) {
			return make([]float64, len(b))
		}
	}
	return x.RawVector().Data
}

// solve finds the powers, holding at the floor what would fall below it.
func (e *equations) solve(s *Smooth, ratio float64, floor measure.Watt) error {
	c, ok := e.penalised(ratio, nil)
	if !ok {
		return fmt.Errorf("correct: %w: the equations are singular", ErrWindow)
	}
	x := e.x(c, e.aty)
	s.chol = c
	free := float64(e.rows - 1)
	variance := (e.yy - dot(x, e.aty)) / free
	s.Noise = measure.Watt(math.Sqrt(max(variance, 0)))
	s.Step = s.Noise / measure.Watt(math.Sqrt(ratio))
	s.dof = free
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
		b := append([]float64(nil), e.aty...)
		for i := range b {
			if held[i] {
				b[i] += heldWeight * float64(floor)
			}
		}
		if c, ok = e.penalised(ratio, held); !ok {
			break
		}
		x = e.x(c, b)
	}
	s.Power = make([]measure.Watt, len(x))
	for i, v := range x {
		s.Power[i] = measure.Watt(v)
		if held[i] {
			s.Power[i] = floor
			s.Held++
		}
	}
	return nil
}

func dot(a, b []float64) (s float64) {
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}
