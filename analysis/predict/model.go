package predict

import (
	"fmt"
	"math"
	"slices"

	"wattmark/measure"
)

// Weighting says how much each point counts.
type Weighting string

// The weightings.
const (
	// Equal is the paper's plain regression: all points scatter alike.
	Equal Weighting = "equal"
	// Relative: a point's scatter is in proportion to its value.
	Relative Weighting = "relative"
	// Stated: the points' own uncertainties. Bands follow from these, and are
	// enlarged where the residuals contradict them.
	Stated Weighting = "stated"
)

// Options is what a model needs beside its points.
type Options struct {
	// Idle is P_s, the power of the idle GPU, and UIdle its standard uncertainty.
	Idle  measure.Watt `json:"idle_w"`
	UIdle measure.Watt `json:"u_idle_w,omitempty"`
	// SMs is nbSM, the number of multiprocessors.
	SMs uint64 `json:"sms"`
	// Resident is how many blocks a multiprocessor holds at a time; 1, as in the
	// paper, when zero.
	Resident uint64    `json:"resident"`
	Weights  Weighting `json:"weights"` // Equal when empty
	// Level of the bands; 0.95 when zero.
	Level float64 `json:"level"`
}

// The bounds of what is believed.
const (
	mostSMs      = 1 << 20
	mostResident = 1 << 10
)

func (o Options) defaults() (Options, error) {
	if o.Resident == 0 {
		o.Resident = 1
	}
	if o.Weights == "" {
		o.Weights = Equal
	}
	if o.Level == 0 {
		o.Level = 0.95
	}
	switch {
	case !(o.Idle >= 0) || math.IsInf(float64(o.Idle), 0) || !(o.UIdle >= 0) || math.IsInf(float64(o.UIdle), 0):
		return o, fmt.Errorf("%w: an idle power of %v ± %v W: it must be finite and not negative", ErrInput, float64(o.Idle), float64(o.UIdle))
	case o.SMs == 0 || o.SMs > mostSMs || o.Resident > mostResident:
		return o, fmt.Errorf("%w: %d multiprocessors with %d resident blocks each: both must be positive, up to %d and %d", ErrInput, o.SMs, o.Resident, mostSMs, mostResident)
	case o.Weights != Equal && o.Weights != Relative && o.Weights != Stated:
		return o, fmt.Errorf("%w: weights %q: want %s, %s or %s", ErrInput, o.Weights, Equal, Relative, Stated)
	case !(o.Level > 0) || o.Level >= 1:
		return o, fmt.Errorf("%w: bands of %v: the level lies between 0 and 1, as 0.95", ErrInput, o.Level)
	}
	return o, nil
}

// Model predicts. It is not changed after Fit and is safe for concurrent use.
type Model struct {
	o      Options
	points []Point
	x      []float64
	time   line // T on NB
	energy line // E on NB; its weights are those of the dynamic energies too
	// share is the correlation of the residuals of time and energy.
	share          float64
	pTime, pEnergy float64
	perBlock       measure.Joule // E_b
	dof            float64       // 0 for stated uncertainties
}

// Fit makes a model of three points or more.
func Fit(points []Point, o Options) (*Model, error) {
	o, err := o.defaults()
	if err == nil {
		err = checkPoints(points)
	}
	if err == nil && o.Weights == Stated {
		err = checkStated(points)
	}
	if err != nil {
		return nil, err
	}
	m := &Model{o: o, points: slices.SortedStableFunc(slices.Values(points), byBlocks), dof: float64(len(points) - 2)}
	var t, e []float64
	for _, p := range m.points {
		m.x, t, e = append(m.x, float64(p.Blocks)), append(t, float64(p.Time)), append(e, float64(p.Energy))
	}
	st, se := sigmas(m.points, o.Weights)
	m.time, m.energy = fitLine(m.x, t, st), fitLine(m.x, e, se)
	m.share = correlation(m.time.residual, m.energy.residual)
	if o.Weights == Stated {
		m.dof, m.share = 0, 0 // a meter's errors have nothing to do with a clock's
		m.pTime, m.pEnergy = m.time.birge(), m.energy.birge()
	}
	for i, p := range m.points {
		m.perBlock += measure.Joule(m.energy.slopeOf[i] * (float64(p.Energy) - float64(o.Idle)*float64(p.Time)))
	}
	return m, m.check()
}

func checkStated(points []Point) error {
	for _, p := range points {
		if p.UTime <= 0 || p.UEnergy <= 0 {
			return fmt.Errorf("%w: %v: its uncertainty of time or energy is not known: state it, or choose equal or relative weights", ErrPoints, p)
		}
	}
	return nil
}

// check refuses lines that fall.
func (m *Model) check() error {
	switch {
	case !(m.time.slope > 0):
		return fmt.Errorf("%w: the time falls with the number of blocks (%v s a block): are all points of one kernel with the same work a block?", ErrPoints, m.time.slope)
	case !(m.perBlock > 0):
		return fmt.Errorf("%w: the energy above idle falls with the number of blocks (%v J a block): is the idle power of %v right, and does the energy hold it?", ErrPoints, float64(m.perBlock), m.o.Idle)
	}
	return nil
}

// sigmas returns the standard deviations of times and energies, up to scale
// unless they are stated.
func sigmas(points []Point, w Weighting) (t, e []float64) {
	for _, p := range points {
		switch w {
		case Relative:
			t, e = append(t, float64(p.Time)), append(e, float64(p.Energy))
		case Stated:
			t, e = append(t, float64(p.UTime)), append(e, float64(p.UEnergy))
		default:
			t, e = append(t, 1), append(e, 1)
		}
	}
	return t, e
}

func correlation(a, b []float64) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// Options returns what the model was made with, defaults filled in.
func (m *Model) Options() Options { return m.o }

// Points returns the calibration points, by number of blocks.
func (m *Model) Points() []Point { return slices.Clone(m.points) }

// Parameters are the model's coefficients, and half widths of their intervals of
// confidence.
type Parameters struct {
	// PerBlock and Start are a and b of Eq. 1.
	PerBlock  measure.Seconds `json:"a_s"`
	UPerBlock measure.Seconds `json:"a_u_s"`
	Start     measure.Seconds `json:"b_s"`
	UStart    measure.Seconds `json:"b_u_s"`
	// Block is E_b of Eq. 3.
	Block  measure.Joule `json:"block_energy_j"`
	UBlock measure.Joule `json:"block_energy_u_j"`
	// Left is the intercept of the dynamic energies' line, which Eq. 3 leaves out.
	Left measure.Joule `json:"dynamic_intercept_j"`
	// DOF are the bands' degrees of freedom; 0 where uncertainties were stated.
	DOF float64 `json:"dof"`
	// PTime and PEnergy tell how probable residuals as large as these are under
	// the stated uncertainties; 0 where none were.
	PTime   float64 `json:"p_time"`
	PEnergy float64 `json:"p_energy"`
}

// Parameters returns the coefficients.
func (m *Model) Parameters() Parameters {
	_, block := m.combine(func(i int) (e, t float64) { return m.energy.slopeOf[i], -m.energy.slopeOf[i] })
	k := quantile(m.o.Level, m.dof)
	p := Parameters{
		PerBlock: measure.Seconds(m.time.slope), UPerBlock: measure.Seconds(k * m.time.sdSlope()),
		Start: measure.Seconds(m.time.intercept), UStart: measure.Seconds(k * m.time.sdIntercept()),
		Block: m.perBlock, UBlock: measure.Joule(m.factor(block) * math.Sqrt(block.variance())),
		DOF: m.dof, PTime: m.pTime, PEnergy: m.pEnergy,
	}
	for i, q := range m.points {
		p.Left += measure.Joule(m.energy.interceptOf[i] * (float64(q.Energy) - float64(m.o.Idle)*float64(q.Time)))
	}
	return p
}
