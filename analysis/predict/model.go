// Package predict predicts the time and energy of a kernel from its number of
// blocks alone, after Boughzala, Lefèvre and Orgerie, "Predicting the energy
// consumption of CUDA kernels using SimGrid" (SBAC-PAD 2020). Equations are
// numbered as there:
//
//	T(NB) = a·NB + b                          (1)
//	E(NB) = E_b·NB + P_s·T(NB)                (3)
//	T(NB) = T_r·⌈NB/nbSM⌉,  T_r = a·nbSM      (4, 5)
//	E(NB) = E_r·⌈NB/nbSM⌉,  E_r = E_b·nbSM + P_s·T_r  (6, 7)
//
// a, b and E_b come from a few measured points; P_s is the power of the idle
// GPU. E_b is the slope of a line through the dynamic energies Σ(P − P_s)·Δt.
//
// Beyond the paper: bands of confidence and of prediction, points of known
// uncertainty, and several resident blocks a multiprocessor (Resident).
//
// Its nouns: a Point is one measurement, a Model is fitted to Points and makes a Prediction for a Target; an
// Evaluation compares predictions with new points. A Staircase finds the resident blocks from the steps of the times,
// a Round is the model's unit of execution, Advice plans a calibration, a Reference holds the paper's tables. Package
// simgrid writes a Model as a platform of SimGrid.
//
// The package is pure: it reads no file and no database. A Model is immutable and safe
// for concurrent use.
package predict

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// The kinds of error, for errors.Is.
var (
	// ErrPoints: the points cannot be fitted.
	ErrPoints = errors.New("unusable calibration points")
	// ErrInput: a number that cannot be, such as zero blocks.
	ErrInput = errors.New("not to be predicted")
)

// Weighting is the rule for the weights of the points.
type Weighting string

const (
	// Equal is the paper's plain regression: all points scatter alike.
	Equal Weighting = "equal"
	// Relative: a point's scatter is in proportion to its value.
	Relative Weighting = "relative"
	// Stated: the points' own uncertainties. Bands follow from these, and are
	// enlarged where the residuals contradict them.
	Stated Weighting = "stated"
)

// Options are a model's parameters beside its points.
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

// The bounds of plausible input.
const (
	mostSMs      = 1 << 20
	mostResident = 1 << 10
)

// defaults replaces zeros and refuses values out of bounds. Errors wrap ErrInput.
func (o Options) defaults() (Options, error) {
	o.Resident, o.Weights, o.Level = cmp.Or(o.Resident, 1), cmp.Or(o.Weights, Equal), cmp.Or(o.Level, 0.95)
	switch {
	case !(o.Idle >= 0 && measure.Known(o.Idle) && o.UIdle >= 0 && measure.Known(o.UIdle)):
		return o, fmt.Errorf("%w: an idle power of %v ± %v W: it must be finite and not negative", ErrInput,
			float64(o.Idle), float64(o.UIdle))
	case o.SMs == 0 || o.SMs > mostSMs || o.Resident > mostResident:
		return o, fmt.Errorf("%w: %d multiprocessors with %d resident blocks each: both must be positive, up to %d "+
			"and %d", ErrInput, o.SMs, o.Resident, mostSMs, mostResident)
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

// Fit makes a model of three points or more. With Stated weights each point must state its
// uncertainties. Lines that fall are an error.
func Fit(points []Point, o Options) (*Model, error) {
	o, err := o.defaults()
	if err == nil {
		err = checkPoints(points)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range points {
		if o.Weights == Stated && (p.UTime <= 0 || p.UEnergy <= 0) {
			return nil, fmt.Errorf("%w: %v: its uncertainty of time or energy is not known: state it, or choose equal "+
				"or relative weights", ErrPoints, p)
		}
	}
	m := &Model{o: o, points: slices.SortedStableFunc(slices.Values(points), byBlocks), dof: float64(len(points) - 2)}
	var t, e []float64
	for _, p := range m.points {
		m.x, t, e = append(m.x, float64(p.Blocks)), append(t, float64(p.Time)), append(e, float64(p.Energy))
	}
	st, se := sigmas(m.points, o.Weights)
	m.time, m.energy = fitLine(m.x, t, st), fitLine(m.x, e, se)
	if o.Weights == Stated { // a meter's errors have nothing to do with a clock's: no share
		m.dof, m.pTime, m.pEnergy = 0, m.time.birge(), m.energy.birge()
	} else {
		m.time.scale = max(m.time.scale, timeStep/math.Sqrt(12)/slices.Min(st))
		m.share = correlation(m.time.residual, m.energy.residual)
	}
	for i, p := range m.points {
		m.perBlock += measure.Joule(m.energy.slopeOf[i] * (float64(p.Energy) - float64(o.Idle)*float64(p.Time)))
	}
	switch {
	case !(m.time.slope > 0):
		return m, fmt.Errorf("%w: the time falls with the number of blocks (%v s a block): are all points of one "+
			"kernel with the same work a block?", ErrPoints, m.time.slope)
	case !(m.perBlock > 0):
		return m, fmt.Errorf("%w: the energy above idle falls with the number of blocks (%v J a block): is the idle "+
			"power of %v right, and does the energy hold it?", ErrPoints, float64(m.perBlock), m.o.Idle)
	}
	return m, nil
}

// timeStep is the step of stored times, in seconds: points that lie on a line know it no better
// than to a rectangular error of that width.
const timeStep = 1e-9

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

// correlation returns the correlation of two series of residuals, whose means are zero.
func correlation(a, b []float64) float64 {
	if size := floats.Norm(a, 2) * floats.Norm(b, 2); size > 0 {
		return floats.Dot(a, b) / size
	}
	return 0
}

// Options returns the model's options with defaults filled in.
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
	// PTime and PEnergy are the probabilities of residuals as large as these under the
	// stated uncertainties; 0 where none are stated.
	PTime   float64 `json:"p_time"`
	PEnergy float64 `json:"p_energy"`
}

// Parameters returns the coefficients.
func (m *Model) Parameters() Parameters {
	_, block := m.combine(func(i int) (e, t float64) { return m.energy.slopeOf[i], -m.energy.slopeOf[i] })
	k := quantile(m.o.Level, m.dof)
	p := Parameters{
		PerBlock: measure.Seconds(m.time.slope), UPerBlock: measure.Seconds(k * (m.time.scale * weighted(m.time.slopeOf, m.time.sigma))),
		Start:  measure.Seconds(m.time.intercept),
		UStart: measure.Seconds(k * (m.time.scale * weighted(m.time.interceptOf, m.time.sigma))),
		Block:  m.perBlock, UBlock: measure.Joule(m.factor(block) * math.Sqrt(block.variance())),
		DOF: m.dof, PTime: m.pTime, PEnergy: m.pEnergy,
	}
	for i, q := range m.points {
		p.Left += measure.Joule(m.energy.interceptOf[i] * (float64(q.Energy) - float64(m.o.Idle)*float64(q.Time)))
	}
	return p
}

// Point is one measured launch of a kernel.
type Point struct {
	Blocks uint64          `json:"blocks"`
	Time   measure.Seconds `json:"time_s"`
	// Energy is the total energy of the GPU, its idle power included.
	Energy measure.Joule `json:"energy_j"`
	// UTime and UEnergy are standard uncertainties (k = 1); zero for unknown.
	UTime   measure.Seconds `json:"u_time_s,omitempty"`
	UEnergy measure.Joule   `json:"u_energy_j,omitempty"`
	// From is the origin of the point: a task, a line of a file.
	From string `json:"from,omitempty"`
}

// String names a point in errors.
func (p Point) String() string {
	if p.From != "" {
		return p.From
	}
	return fmt.Sprintf("the point of %d blocks", p.Blocks)
}

// Validate refuses impossible measurements. Errors wrap ErrInput.
func (p Point) Validate() error {
	switch {
	case p.Blocks == 0:
		return fmt.Errorf("%w: %v: a launch has one block at least", ErrPoints, p)
	case p.Blocks > MostBlocks:
		return fmt.Errorf("%w: %v: %d blocks: a grid has at most %d", ErrPoints, p, p.Blocks, uint64(MostBlocks))
	case !measure.Known(p.Time) || p.Time <= 0:
		return fmt.Errorf("%w: %v: a time of %v s: it must be positive and finite", ErrPoints, p, float64(p.Time))
	case !measure.Known(p.Energy) || p.Energy <= 0:
		return fmt.Errorf("%w: %v: an energy of %v J: it must be positive and finite (what the GPU draws at rest "+
			"included)", ErrPoints, p, float64(p.Energy))
	case !measure.Known(p.UTime) || p.UTime < 0 || !measure.Known(p.UEnergy) || p.UEnergy < 0:
		return fmt.Errorf("%w: %v: an uncertainty of %v s or %v J: it must not be negative", ErrPoints, p,
			float64(p.UTime), float64(p.UEnergy))
	}
	return nil
}

// validate returns the first fault of points.
func validate(points []Point) (err error) {
	for _, p := range points {
		err = cmp.Or(err, p.Validate())
	}
	return err
}

// MostBlocks bounds a number of blocks: a float64 counts exactly up to it.
const MostBlocks = 1 << 53

// leastPoints suffice after the paper (section V-B), and leave one residual.
const leastPoints = 3

// checkPoints refuses points that no line can be drawn through.
func checkPoints(points []Point) error {
	if err := validate(points); err != nil {
		return err
	}
	if len(points) < leastPoints {
		return fmt.Errorf("%w: %d of them: three are needed, two of few blocks and one of more, or the reverse",
			ErrPoints, len(points))
	}
	least, most := slices.MinFunc(points, byBlocks).Blocks, slices.MaxFunc(points, byBlocks).Blocks
	if least == most {
		return fmt.Errorf("%w: all have %d blocks: measure other sizes as well", ErrPoints, least)
	}
	return nil
}

func byBlocks(a, b Point) int { return cmp.Compare(a.Blocks, b.Blocks) }

// line is a weighted least-squares line. Its coefficients are sums over the
// values, slope = Σ slopeOf·y and intercept = Σ interceptOf·y, which is how
// uncertainties are carried from the points to whatever is made of the line.
type line struct {
	slope, intercept     float64
	slopeOf, interceptOf []float64
	// sigma is the standard deviation of each value up to scale, and residual the
	// value less the line, over sigma.
	sigma, residual []float64
	scale           float64 // factor that the residuals put on sigma
}

// fitLine draws the line. sigma holds the values' standard deviations, at least
// up to a common factor; the x differ, as checkPoints has made sure.
func fitLine(x, y, sigma []float64) line {
	w := lists.Map(sigma, func(s float64) float64 { return 1 / (s * s) })
	l := line{sigma: sigma}
	l.intercept, l.slope = stat.LinearRegression(x, y, w, false)
	mean := stat.Mean(x, w)
	sum := floats.Sum(w)
	spread := stat.MomentAbout(2, x, mean, w) * sum
	// The slope is Σ slopeOf·y with slopeOf = w(x − x̄)/Σw(x − x̄)²; the intercept follows.
	var chi2 float64
	for i := range x {
		slope := w[i] * (x[i] - mean) / spread
		l.slopeOf = append(l.slopeOf, slope)
		l.interceptOf = append(l.interceptOf, w[i]/sum-mean*slope)
		r := (y[i] - l.intercept - l.slope*x[i]) / sigma[i]
		l.residual = append(l.residual, r)
		chi2 += r * r
	}
	l.scale = math.Sqrt(chi2 / float64(len(x)-2))
	return l
}

// weighted is the root of Σ(c·s)².
func weighted(c, s []float64) float64 {
	return floats.Norm(floats.MulTo(make([]float64, len(c)), c, s), 2)
}

// birge keeps stated uncertainties, unless the residuals contradict them: beyond
// the 95th percentile of χ² all are enlarged by the Birge ratio. It returns the
// probability of residuals as large as these.
func (l *line) birge() (p float64) {
	dof := float64(len(l.residual) - 2)
	p = distuv.ChiSquared{K: dof}.Survival(l.scale * l.scale * dof)
	if p >= 0.05 {
		l.scale = 1
	}
	return p
}

// quantile is the two-sided factor of a level, as 0.95: of Student's
// distribution, or of the normal one without degrees of freedom.
func quantile(level, dof float64) float64 {
	if dof <= 0 {
		dof = math.Inf(1)
	}
	return stats.Student((1+level)/2, dof)
}

// Staircase is a number of resident blocks that explains measured times.
type Staircase struct {
	Resident uint64
	Round    measure.Seconds // T_r: the step
	RMS      measure.Seconds // of the residuals
}

// FitStaircase finds the number of blocks that a multiprocessor holds, from the steps
// of the times (Fig. 2 of the paper): for each number r up to most it fits T = Start +
// Round·⌈NB/(sms·r)⌉. The best comes first. It fails where two numbers fit alike, or
// where a straight line fits as well as steps.
func FitStaircase(points []Point, sms, most uint64) ([]Staircase, error) {
	if err := validate(points); err != nil {
		return nil, err
	}
	if sms == 0 || sms > mostSMs || most == 0 || most > mostResident {
		return nil, fmt.Errorf("%w: a staircase of %d multiprocessors with up to %d resident blocks", ErrInput, sms,
			most)
	}
	if len(points) < 4 {
		return nil, fmt.Errorf("%w: %d of them: steps need four at least, on both sides of one", ErrPoints, len(points))
	}
	var out []Staircase
	for r := uint64(1); r <= most; r++ {
		s, ok := fitStairs(points, func(b uint64) float64 { return float64(Rounds(b, sms, r)) })
		if ok {
			s.Resident = r
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: all lie within one round: measure more blocks", ErrPoints)
	}
	slices.SortStableFunc(out, func(a, b Staircase) int { return cmp.Compare(a.RMS, b.RMS) })
	straight, _ := fitStairs(points, func(b uint64) float64 { return float64(b) })
	// Two kinds of doubt make the answer worthless: no steps at all, or two step widths alike.
	best := out[0]
	if best.RMS >= straight.RMS {
		return out, fmt.Errorf("%w: a straight line explains the times as well (%v rms) as steps do (%v): give the "+
			"resident blocks yourself", ErrPoints, straight.RMS, best.RMS)
	}
	if len(out) > 1 && float64(out[1].RMS) <= 1.2*float64(best.RMS) {
		return out, fmt.Errorf("%w: %d and %d resident blocks explain the times alike (%v and %v rms): measure just "+
			"below and above a multiple of %d blocks", ErrPoints,
			best.Resident, out[1].Resident, best.RMS, out[1].RMS, sms*best.Resident)
	}
	return out, nil
}

// fitStairs fits a start and the round by least squares over the numbers of rounds of the
// points; false where all have the same number, or the times do not grow with it.
func fitStairs(points []Point, of func(uint64) float64) (s Staircase, ok bool) {
	var x, y, one []float64
	for _, p := range points {
		x, y, one = append(x, of(p.Blocks)), append(y, float64(p.Time)), append(one, 1)
	}
	if slices.Min(x) == slices.Max(x) {
		return s, false
	}
	l := fitLine(x, y, one)
	s.Round = measure.Seconds(l.slope)
	s.RMS = measure.Seconds(floats.Norm(l.residual, 2) / math.Sqrt(float64(len(x))))
	return s, l.slope > 0
}
