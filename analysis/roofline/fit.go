package roofline

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// unknowns are ε_flop, ε_mem and π₀.
const unknowns = 3

// theta are the three unknowns.
type theta [unknowns]float64

// Fit fits the model to three points or more. The powers are linear in the
// unknowns,
//
//	E/T = ε_flop W/T + ε_mem Q/T + π₀,
//
// with the times as they were measured, so that a kernel that reaches no roof does
// not bend the energies. The squares are weighted for errors in proportion to the
// power; what the points scatter gives the interval, by Student's t, and with three
// points their own U. What is common to all, a gain, scales all three unknowns; an
// offset moves π₀. Points that were throttled are left out where more than three others
// span the model: a device at its power limit lowers clocks and voltage, and a flop
// costs less.
func Fit(points []Point, common Common, given Peaks) (*Model, error) {
	if err := check(points, given); err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Throttled })
	n := len(points) - len(rest)
	if n == 0 || len(rest) <= unknowns {
		rest = points
	}
	m, err := fit(rest, points, common, given)
	if n > 0 && errors.Is(err, ErrFit) && len(rest) < len(points) {
		rest = points
		m, err = fit(rest, points, common, given)
	}
	if err == nil && n > 0 {
		m.Throttled = len(rest) == len(points)
		m.throttled(n, len(points))
	}
	return m, err
}

// throttled says what throttled points do to the figures.
func (m *Model) throttled(n, of int) {
	what := "they are shown, and not fitted"
	if m.Throttled {
		what = "they are fitted, for too few others are left; measure more intensities far from the balance"
	}
	m.Cautions = append(m.Cautions, fmt.Sprintf("%d of %d points were throttled: at lower clocks and voltage a flop costs less, and the model has one cost; %s", n, of, what))
}

// fit is Fit to some of the points; the best rates are those of all.
func fit(points, all []Point, common Common, given Peaks) (*Model, error) {
	m := &Model{Scatter: math.NaN(), DoF: len(points) - unknowns}
	var err error
	if m.Peaks, err = peaks(all, given); err != nil {
		return nil, err
	}
	s, err := solve(points)
	if err != nil {
		return nil, err
	}
	k := distuv.UnitNormal.Quantile((1 + Level) / 2)
	if m.DoF > 0 {
		m.Scatter = s.scatter
		k = distuv.StudentsT{Sigma: 1, Nu: float64(m.DoF)}.Quantile((1 + Level) / 2)
	}
	figure := func(i int) Figure {
		// What is common is known as well as one likes: its k is the normal one.
		v := distuv.UnitNormal.Quantile((1+Level)/2) * math.Sqrt(common.variance(i, s.theta))
		return Figure{s.theta[i], math.Hypot(k*math.Sqrt(s.cov.At(i, i)), v)}
	}
	m.Flop, m.Byte, m.Constant = figure(0), figure(1), figure(2)
	m.TimeBalance = m.Peaks.Flops / m.Peaks.Bytes
	m.derive(s, common)
	m.caution(points, s, given)
	return m, nil
}

// variance is what is common to all points does to one unknown.
func (c Common) variance(i int, t theta) float64 {
	v := c.Gain * t[i] * c.Gain * t[i]
	if i == 2 {
		v += float64(c.Offset * c.Offset)
	}
	return v
}

// solution is a fit with its covariance by the points' own errors.
type solution struct {
	theta     theta
	cov       *mat.SymDense
	scatter   float64 // relative
	condition float64 // of the design, its columns of length one
	dof       int
}

// design is the weighted equations, their columns of length one: flop, bytes and
// watts are decades apart.
type design struct {
	x     *mat.Dense
	y     *mat.VecDense
	scale theta
}

func newDesign(points []Point) (design, error) {
	n := len(points)
	d := design{x: mat.NewDense(n, unknowns, nil), y: mat.NewVecDense(n, nil)}
	for i, p := range points {
		w := 1 / float64(p.Power())
		if n == unknowns && p.U > 0 {
			w /= p.U
		}
		for j, v := range (theta{p.Flop / float64(p.Time), p.Bytes / float64(p.Time), 1}) {
			d.x.Set(i, j, v*w)
			d.scale[j] += v * w * v * w
		}
		d.y.SetVec(i, float64(p.Power())*w)
	}
	for j := range d.scale {
		if d.scale[j] = math.Sqrt(d.scale[j]); d.scale[j] == 0 {
			return d, fmt.Errorf("%w: no point does arithmetic, or none moves data", ErrFit)
		}
		for i := range n {
			d.x.Set(i, j, d.x.At(i, j)/d.scale[j])
		}
	}
	return d, nil
}

// solve makes the weighted least squares.
func solve(points []Point) (*solution, error) {
	d, err := newDesign(points)
	if err != nil {
		return nil, err
	}
	var qr mat.QR
	qr.Factorize(d.x)
	s := &solution{condition: qr.Cond(), dof: len(points) - unknowns, scatter: math.NaN(), cov: new(mat.SymDense)}
	if s.condition > 1e6 || math.IsNaN(s.condition) {
		return nil, fmt.Errorf("%w: energy by flop, by byte and by time cannot be told apart: want intensities far below and far above the balance of time", ErrFit)
	}
	var b mat.VecDense
	if err := qr.SolveVecTo(&b, false, d.y); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	var normal mat.SymDense
	normal.SymOuterK(1, d.x.T())
	var chol mat.Cholesky
	if !chol.Factorize(&normal) {
		return nil, fmt.Errorf("%w: the equations are singular", ErrFit)
	}
	if err := chol.InverseTo(s.cov); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	variance := s.variance(points, d, &b)
	for i := range unknowns {
		s.theta[i] = b.AtVec(i) / d.scale[i]
		for j := i; j < unknowns; j++ {
			s.cov.SetSym(i, j, s.cov.At(i, j)*variance/d.scale[i]/d.scale[j])
		}
	}
	return s, nil
}

// variance is that of one equation: as the points scatter, or as their own U say,
// which are in the weights then.
func (s *solution) variance(points []Point, d design, b *mat.VecDense) float64 {
	if s.dof > 0 {
		var r mat.VecDense
		r.MulVec(d.x, b)
		r.SubVec(d.y, &r)
		v := mat.Dot(&r, &r) / float64(s.dof)
		s.scatter = math.Sqrt(v)
		return v
	}
	if slices.ContainsFunc(points, func(p Point) bool { return p.U > 0 }) {
		return 1
	}
	return 0 // nobody knows
}

// caution says what the figures do not hold.
func (m *Model) caution(points []Point, s *solution, given Peaks) {
	add := func(format string, a ...any) { m.Cautions = append(m.Cautions, fmt.Sprintf(format, a...)) }
	if m.DoF == 0 {
		add("three points for three unknowns: nothing tells whether the model holds; measure more intensities")
	}
	if s.condition > 30 {
		add("the points lie nearly in a plane (condition %.0f): flop, byte and time are badly told apart; measure a wider range of intensities", s.condition)
	}
	for name, f := range map[string]Figure{"a flop": m.Flop, "a byte": m.Byte, "constant power": m.Constant} {
		if f.Value <= 0 {
			add("the energy of %s comes out as %.3g: clocks that change with the load, or too narrow a range of intensities", name, f.Value)
		}
	}
	slices.Sort(m.Cautions)
	if given.Flops == 0 && !slices.ContainsFunc(points, func(p Point) bool { return p.Bytes/float64(p.Time) < 0.5*m.Peaks.Bytes && p.Flop > 0 }) {
		add("no point is bound by arithmetic: its best rate is a lower limit; give --peak-flops, or measure higher intensities")
	}
	if given.Bytes == 0 && !slices.ContainsFunc(points, func(p Point) bool { return p.Flop/float64(p.Time) < 0.5*m.Peaks.Flops && p.Bytes > 0 }) {
		add("no point is bound by memory: its best rate is a lower limit; give --peak-bytes, or measure lower intensities")
	}
}

// Residual is what a point's energy is more than the model's, relatively.
func (m *Model) Residual(p Point) float64 {
	return float64(p.Energy)/float64(m.Energy(p.Flop, p.Bytes, p.Time)) - 1
}
