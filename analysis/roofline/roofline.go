// Package roofline fits the roofline model of energy (J. W. Choi, D. Bedard, R. Fowler, R. Vuduc: A roofline model of
// energy, IPDPS 2013) to measured work: the shares of a device's time and energy by arithmetic intensity. Points are
// fitted by Fit to a Model, whose Figures carry expanded uncertainties (95 %).
//
// Work of W flop that moves Q bytes takes
//
//	T = max(W τ_flop, Q τ_mem)           (time overlaps)
//	E = W ε_flop + Q ε_mem + π₀ T        (energy does not)
//
// with I = W/Q its intensity, τ the inverse of the device's best rates, ε the energy of one flop and one byte, and π₀
// the constant power: that of everything that costs time, not work. The balance of time is B_τ = τ_mem/τ_flop, that
// of energy B_ε = ε_mem/ε_flop. With ε̂ = ε_flop + π₀ τ_flop and η = ε_flop/ε̂ the energy is
//
//	E = W ε̂ (1 + B̂(I)/I),  B̂(I) = η B_ε + (1 − η) max(0, B_τ − I)
//
// and half of the best flops a joule is reached where I = B̂(I).
package roofline

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// ErrFit: the points do not determine the model.
var ErrFit = errors.New("the points do not determine an energy roofline")

// Level is the confidence of intervals.
const Level = 0.95

// Point is measured work.
type Point struct {
	Name        string
	Flop, Bytes float64 // that were done and moved; 0 for none
	Energy      measure.Joule
	Time        measure.Seconds
	// U is the relative standard uncertainty of the energy by the point's own errors:
	// noise and window. It is used where there are just as many points as unknowns.
	U float64
	// Throttled: the device lowered its clocks, and with them the energy of a flop.
	Throttled bool
}

// Intensity is in flop a byte, +Inf for work that moves nothing.
func (p Point) Intensity() float64 { return p.Flop / p.Bytes }

// Power is the point's mean power.
func (p Point) Power() measure.Watt { return measure.Watt(float64(p.Energy) / float64(p.Time)) }

// Common are the meter's errors that all points share, as standard uncertainties.
type Common struct {
	Gain   float64      // relative
	Offset measure.Watt // of the power
}

// Peaks are the best rates, a second. A zero is taken from the points.
type Peaks struct {
	Flops float64 `json:"peak_flop_per_s"`
	Bytes float64 `json:"peak_byte_per_s"`
}

// Figure is a value with the half-width of its interval at Level.
type Figure struct {
	Value float64 `json:"value"`
	U     float64 `json:"u"`
}

// Model is a device's roofline of energy.
type Model struct {
	Flop     Figure `json:"energy_per_flop_j"`
	Byte     Figure `json:"energy_per_byte_j"`
	Constant Figure `json:"constant_power_w"`
	Peaks
	// TimeBalance is B_τ, Gap is B_ε, EnergyBalance where half of the best flops a joule
	// is reached, all in flop a byte; BestFlop is the energy of a flop with all the
	// constant power on it, ε̂, in J.
	TimeBalance   float64 `json:"time_balance_flop_per_byte"`
	EnergyBalance Figure  `json:"energy_balance_flop_per_byte"`
	Gap           Figure  `json:"byte_over_flop_energy"`
	BestFlop      Figure  `json:"energy_per_flop_at_best_j"`
	// Scatter is the points' relative standard deviation around the model, DoF its
	// degrees of freedom; with none it is NaN.
	Scatter measure.Ratio `json:"scatter_pct"`
	DoF     int           `json:"dof"`
	// Throttled: points that were throttled are in the fit, for too few are left
	// without them.
	Throttled bool     `json:"-"`
	Cautions  []string `json:"cautions,omitempty"`
}

// Fitted reports whether a point is one that the model was fitted to.
func (m *Model) Fitted(p Point) bool { return m.Throttled || !p.Throttled }

// Time is how long work takes at the best rates.
func (m *Model) Time(flop, bytes float64) measure.Seconds {
	return measure.Seconds(math.Max(flop/m.Peaks.Flops, bytes/m.Peaks.Bytes))
}

// Energy returns the energy of work that takes a time.
func (m *Model) Energy(flop, bytes float64, t measure.Seconds) measure.Joule {
	return measure.Joule(flop*m.Flop.Value + bytes*m.Byte.Value + m.Constant.Value*float64(t))
}

// At is the model at an intensity: flop a second, flop a joule, and watts.
func (m *Model) At(intensity float64) (perSecond, perJoule float64, power measure.Watt) {
	t := m.Time(intensity, 1)
	e := m.Energy(intensity, 1, t)
	return intensity / float64(t), intensity / float64(e), measure.Watt(float64(e) / float64(t))
}

// check refuses points that no model can be fitted to.
func check(points []Point, given Peaks) error {
	if len(points) < unknowns {
		return fmt.Errorf("%w: %s: want three or more, of different intensities", ErrFit, measure.Plural(len(points), "point"))
	}
	for _, p := range points {
		for _, v := range []float64{float64(p.Energy), float64(p.Time)} {
			if !(v > 0) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: %s: energy %v in %v: both must be positive", ErrFit, p.Name, p.Energy, p.Time)
			}
		}
		if !(p.Flop >= 0) || !(p.Bytes >= 0) || math.IsInf(p.Flop+p.Bytes, 0) || !(p.U >= 0) {
			return fmt.Errorf("%w: %s: %v flop, %v bytes, u %v: none may be negative", ErrFit, p.Name, p.Flop, p.Bytes,
				p.U)
		}
	}
	if given.Flops < 0 || given.Bytes < 0 || !measure.Known(given.Flops+given.Bytes) {
		return fmt.Errorf("%w: peaks of %v flop/s and %v byte/s: must be positive", ErrFit, given.Flops, given.Bytes)
	}
	return nil
}

// peaks are the best rates of the points, where none are given.
func peaks(points []Point, given Peaks) (Peaks, error) {
	out := given
	for _, p := range points {
		if given.Flops == 0 {
			out.Flops = max(out.Flops, p.Flop/float64(p.Time))
		}
		if given.Bytes == 0 {
			out.Bytes = max(out.Bytes, p.Bytes/float64(p.Time))
		}
	}
	if !(out.Flops > 0) || !(out.Bytes > 0) {
		return out, fmt.Errorf("%w: no point does arithmetic, or none moves data", ErrFit)
	}
	return out, nil
}

// Work is the work of a task, in flop and in bytes moved; zero for none.
type Work struct {
	Flop  float64 `json:"flop"`
	Bytes float64 `json:"byte"`
}

// ParseTaskWork reads a task's number and its work: TASK:flop=W,byte=Q. The number is
// positive; amounts are finite, not negative and given at most once each.
func ParseTaskWork(s string) (task int64, w Work, err error) {
	bad := func() (int64, Work, error) {
		return 0, Work{}, fmt.Errorf("%q: want a task's number and its work, as in 3:flop=4.4e12,byte=1e11", s)
	}
	number, list, ok := strings.Cut(s, ":")
	task, e := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if !ok || e != nil || task < 1 {
		return bad()
	}
	amounts := map[string]*float64{"flop": &w.Flop, "byte": &w.Bytes} // not yet given
	for part := range strings.SplitSeq(list, ",") {
		unit, amount, _ := strings.Cut(part, "=")
		unit = strings.TrimSpace(unit)
		v, e := strconv.ParseFloat(strings.TrimSpace(amount), 64)
		if e != nil || !(v >= 0) || math.IsInf(v, 0) || amounts[unit] == nil {
			return bad()
		}
		*amounts[unit] = v
		delete(amounts, unit)
	}
	return task, w, nil
}

// unknowns are ε_flop, ε_mem and π₀.
const unknowns = 3

// theta are the three unknowns.
type theta [unknowns]float64

// Fit fits the model to three points or more. The powers are linear in the
// unknowns,
//
//	E/T = ε_flop W/T + ε_mem Q/T + π₀,
//
// with the times as they were measured, so that a kernel that reaches no roof does not bend the energies. The squares
// are weighted for errors in proportion to the power; their scatter gives the interval, by Student's t, with three
// points their own U. A common error of the gain scales all three unknowns; one of the offset moves π₀. Throttled
// points are left out where more than three others span the model: a device at its power limit lowers clocks and
// voltage, and a flop costs less.
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
	if err != nil || n == 0 {
		return m, err
	}
	what := "they are shown, and not fitted"
	if m.Throttled = len(rest) == len(points); m.Throttled {
		what = "they are fitted, for too few others are left; measure more intensities far from the balance"
	}
	m.Cautions = append(m.Cautions, fmt.Sprintf("%d of %d points were throttled: at lower clocks and voltage a flop "+
		"costs less, and the model has one cost; %s", n, len(points), what))
	return m, nil
}

// fit is Fit to some of the points; the best rates are those of all.
func fit(points, all []Point, common Common, given Peaks) (*Model, error) {
	m := &Model{Scatter: measure.Ratio(math.NaN()), DoF: len(points) - unknowns}
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
		m.Scatter = measure.Ratio(s.scatter)
		k = stats.Student((1+Level)/2, float64(m.DoF))
	}
	figure := func(i int) Figure {
		// A common error has infinitely many degrees of freedom: its k is the normal one.
		v := distuv.UnitNormal.Quantile((1+Level)/2) * math.Sqrt(common.variance(i, s.theta))
		return Figure{s.theta[i], math.Hypot(k*math.Sqrt(s.cov.At(i, i)), v)}
	}
	m.Flop, m.Byte, m.Constant = figure(0), figure(1), figure(2)
	m.TimeBalance = m.Peaks.Flops / m.Peaks.Bytes
	m.derive(s, common)
	m.caution(points, s, given)
	return m, nil
}

// variance returns the variance of one unknown by the errors common to all points.
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
		return nil, fmt.Errorf("%w: energy by flop, by byte and by time cannot be told apart: want intensities far "+
			"below and far above the balance of time", ErrFit)
	}
	var b mat.VecDense
	_ = qr.SolveVecTo(&b, false, d.y) // it fails by the condition alone, as the inverse below
	var normal mat.SymDense
	normal.SymOuterK(1, d.x.T())
	var chol mat.Cholesky
	chol.Factorize(&normal)
	_ = chol.InverseTo(s.cov)
	variance := s.variance(points, d, &b)
	for i := range unknowns {
		s.theta[i] = b.AtVec(i) / d.scale[i]
		for j := i; j < unknowns; j++ {
			s.cov.SetSym(i, j, s.cov.At(i, j)*variance/d.scale[i]/d.scale[j])
		}
	}
	return s, nil
}

// variance returns the variance of one equation: from the scatter of the points, or 1
// where their own U are in the weights.
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
	return 0 // unknown
}

// caution adds the limits of the figures.
func (m *Model) caution(points []Point, s *solution, given Peaks) {
	add := func(format string, a ...any) { m.Cautions = append(m.Cautions, fmt.Sprintf(format, a...)) }
	if m.DoF == 0 {
		add("three points for three unknowns: nothing tells whether the model holds; measure more intensities")
	}
	if s.condition > 30 {
		add("the points lie nearly in a plane (condition %.0f): flop, byte and time are badly told apart; measure a "+
			"wider range of intensities", s.condition)
	}
	for name, f := range map[string]Figure{"a flop": m.Flop, "a byte": m.Byte, "constant power": m.Constant} {
		if f.Value <= 0 {
			add("the energy of %s comes out as %.3g: clocks that change with the load, or too narrow a range of "+
				"intensities", name, f.Value)
		}
	}
	slices.Sort(m.Cautions)
	if given.Flops == 0 && !slices.ContainsFunc(points,
		func(p Point) bool { return p.Bytes/float64(p.Time) < 0.5*m.Peaks.Bytes && p.Flop > 0 }) {
		add("no point is bound by arithmetic: its best rate is a lower limit; give --peak-flops, or measure higher " +
			"intensities")
	}
	if given.Bytes == 0 && !slices.ContainsFunc(points,
		func(p Point) bool { return p.Flop/float64(p.Time) < 0.5*m.Peaks.Flops && p.Bytes > 0 }) {
		add("no point is bound by memory: its best rate is a lower limit; give --peak-bytes, or measure lower " +
			"intensities")
	}
}

// Residual returns the relative excess of a point's energy over the model's.
func (m *Model) Residual(p Point) float64 {
	return float64(p.Energy)/float64(m.Energy(p.Flop, p.Bytes, p.Time)) - 1
}

// derive works out the balances, with intervals from draws of the unknowns: they
// are ratios, whose errors are not normal where a denominator is small.
func (m *Model) derive(s *solution, c Common) {
	gap, balance, best := m.balances(s.theta)
	const draws = 2000
	rng := rand.New(rand.NewPCG(1, uint64(s.dof)))
	root := rootOf(s.cov)
	list := [3][]float64{}
	for range draws {
		g, b, f := m.balances(s.draw(rng, root, c))
		for i, v := range []float64{g, b, f} {
			list[i] = append(list[i], v)
		}
	}
	half := func(v []float64) float64 {
		slices.Sort(v)
		return (v[int((1+Level)/2*draws)] - v[int((1-Level)/2*draws)]) / 2
	}
	m.Gap, m.EnergyBalance = Figure{gap, half(list[0])}, Figure{balance, half(list[1])}
	m.BestFlop = Figure{best, half(list[2])}
}

// balances are B_ε, the intensity of half of the best flops a joule, and ε̂.
func (m *Model) balances(t theta) (gap, balance, best float64) {
	gap = t[1] / t[0]
	best = t[0] + t[2]/m.Peaks.Flops
	eta := t[0] / best
	if balance = eta * gap; balance < m.TimeBalance { // I = η B_ε + (1 − η)(B_τ − I)
		balance = (eta*gap + (1-eta)*m.TimeBalance) / (2 - eta)
	}
	return gap, balance, best
}

// rootOf is a root of a covariance: draws of unit variance become draws of it.
func rootOf(cov *mat.SymDense) [unknowns][unknowns]float64 {
	var out [unknowns][unknowns]float64
	var eig mat.EigenSym
	// Unknowns decades apart: of length one first.
	var d theta
	scaled := mat.NewSymDense(unknowns, nil)
	for i := range d {
		if d[i] = math.Sqrt(cov.At(i, i)); d[i] == 0 {
			d[i] = 1
		}
	}
	for i := range d {
		for j := i; j < unknowns; j++ {
			scaled.SetSym(i, j, cov.At(i, j)/d[i]/d[j])
		}
	}
	if !eig.Factorize(scaled, true) {
		return out
	}
	var v mat.Dense
	eig.VectorsTo(&v)
	for i := range d {
		for j, l := range eig.Values(nil) {
			out[i][j] = d[i] * v.At(i, j) * math.Sqrt(max(l, 0))
		}
	}
	return out
}

// draw is one guess of the unknowns.
func (s *solution) draw(rng *rand.Rand, root [unknowns][unknowns]float64, c Common) (t theta) {
	wide := 1.0
	if s.dof > 0 { // Student's t of several variables
		var chi float64
		for range s.dof {
			z := rng.NormFloat64()
			chi += z * z
		}
		wide = math.Sqrt(float64(s.dof) / chi)
	}
	var z theta
	for i := range z {
		z[i] = wide * rng.NormFloat64()
	}
	gain, offset := 1+c.Gain*rng.NormFloat64(), float64(c.Offset)*rng.NormFloat64()
	for i := range t {
		t[i] = s.theta[i]
		for j := range z {
			t[i] += root[i][j] * z[j]
		}
		t[i] *= gain
	}
	t[2] += offset
	return t
}
