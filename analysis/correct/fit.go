package correct

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"
)

// Fit is a device's constant, found in its own readings.
type Fit struct {
	// C is the constant that makes energies right: the mean lag of the reading behind
	// the power, C = ∫(P∞ − P)dt / (P∞ − P₀). U is expanded, k = 2.
	C   measure.Seconds `json:"constant_s"`
	U   measure.Seconds `json:"constant_u_s"`
	How string          `json:"how"` // the method
	// Tau and Delay are those of the exponential that fits the rise best, NaN where none was
	// fitted; their sum is near C. Polling and the holding of the register add to the delay.
	Tau      measure.Seconds `json:"tau_s,omitzero"`
	Delay    measure.Seconds `json:"delay_s,omitzero"`
	Rest     measure.Watt    `json:"rest_w"`     // P₀
	Work     measure.Watt    `json:"work_w"`     // P∞
	Residual measure.Watt    `json:"residual_w"` // rms of the exponential
	// From and To are the kernel of a fit on one rise, NaN elsewhere.
	From     measure.Seconds `json:"from_s,omitzero"`
	To       measure.Seconds `json:"to_s,omitzero"`
	Readings int             `json:"readings"` // that were used
	Warnings []string        `json:"warnings,omitempty"`
}

// ErrFit is wrapped where readings do not determine the constant.
var ErrFit = errors.New("the constant cannot be fitted")

// settled is the number of time constants after which a reading is within 0.03 % of its
// final value: e⁻⁸.
const settled = 8

// FitRise fits the constant on the readings of one kernel of steady power that
// began at work.From after some rest, and lasted until work.To at least.
//
// A single exponential is fitted to the rise by least squares (Burtscher et al., section 5). The readings count as
// settled after 8 τ: the level from there on is P∞, and C is the area missing below it, divided by P∞ − P₀. Unlike
// the exponential, the area includes the time that a value waits in the sensor's register. Where the kernel is too
// short for that, C is τ plus the delay.
func FitRise(rs []Reading, work Span) (Fit, error) {
	if err := Check(rs); err != nil {
		return Fit{}, err
	}
	f := Fit{From: work.From, To: work.To}
	rest := within(rs, Span{From: rs[0].At, To: work.From})
	rise := within(rs, work)
	if len(rest) < 3 || len(rise) < 8 {
		return f, fmt.Errorf("correct: %w: %s before the kernel and %d during it: want 3 and 8", ErrFit,
			measure.Plural(len(rest), "reading"), len(rise))
	}
	// The rest just before the kernel, not the tail of an earlier one.
	rest = rest[max(0, len(rest)-max(10, len(rise)/4)):]
	f.Rest = measure.Watt(stats.Median(powers(rest)))
	if err := f.exponential(rise, work.From); err != nil {
		return f, err
	}
	// Again on the rise alone: the kernel's power may drift, and its end be gradual.
	near := within(rs, Span{From: work.From, To: work.From + 1.5*settled*f.Tau})
	if len(near) >= 8 && len(near) < len(rise) {
		if err := f.exponential(near, work.From); err != nil {
			return f, err
		}
	}
	if d := math.Abs(float64(f.Work - f.Rest)); d < 20*float64(Noise(rs)) || d < 2 {
		return f, fmt.Errorf("correct: %w: the power rose by %.3g W only", ErrFit, d)
	}
	if look := Spacing(Changes(within(rs, Span{From: work.From, To: work.From + 3*f.Tau}))); !(f.Tau > 1.5*look) {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the constant, %v, is no longer than a look of the sensor or "+
			"two (%v): it hardly lags, or averages", f.Tau, look))
	}
	f.Readings = len(rise)
	f.area(rs, work)
	return f, nil
}

// exponential fits τ and the delay by Nelder and Mead's simplex, from the best of five
// starts. P₀ is known, and P∞ follows by linear least squares for each pair.
func (f *Fit) exponential(rise []Reading, from measure.Seconds) error {
	y := powers(rise)
	x := make([]float64, len(y))
	model := func(tau, delay float64) (inf, rms float64) {
		var xx, xy float64
		for i, r := range rise {
			x[i] = 0
			if t := float64(r.At-from) - delay; t > 0 {
				x[i] = -math.Expm1(-t / tau)
			}
			xx += x[i] * x[i]
			xy += x[i] * (y[i] - float64(f.Rest))
		}
		if xx == 0 {
			return float64(f.Rest), math.Inf(1)
		}
		k := xy / xx
		for i := range y {
			d := y[i] - float64(f.Rest) - k*x[i]
			rms += d * d
		}
		return float64(f.Rest) + k, math.Sqrt(rms / float64(len(y)))
	}
	length := float64(rise[len(rise)-1].At - from)
	best, least := []float64{}, math.Inf(1)
	for _, share := range []float64{0.003, 0.01, 0.03, 0.1, 0.3} { // the surface has a long valley
		if _, r := model(share*length, 0); r < least {
			best, least = []float64{math.Log(share * length), 0}, r
		}
	}
	// The simplex moves in ln τ and in delays of τ: both of about one.
	tau0 := math.Exp(best[0])
	res, err := optimize.Minimize(optimize.Problem{Func: func(p []float64) float64 {
		if math.Abs(p[1]) > 5 || math.Abs(p[0]-best[0]) > 4 {
			return math.Inf(1)
		}
		_, r := model(math.Exp(p[0]), p[1]*tau0)
		return r
	}}, best, nil, &optimize.NelderMead{})
	if err != nil {
		return fmt.Errorf("correct: %w: %w", ErrFit, err)
	}
	tau, delay := math.Exp(res.X[0]), res.X[1]*tau0
	inf, rms := model(tau, delay)
	f.Tau, f.Delay = measure.Seconds(tau), measure.Seconds(delay)
	f.Work, f.Residual = measure.Watt(inf), measure.Watt(rms)
	return nil
}

// area takes C from the missing area where the kernel lasted long enough. Its expanded
// uncertainty combines the spacing of readings as rectangular with the change of C for
// 5 and 12 time constants; or, for an exponential, with its residual.
func (f *Fit) area(rs []Reading, work Span) {
	spacing := float64(Spacing(rs))
	tau := float64(f.Tau)
	f.C, f.How = f.Tau+f.Delay, "exponential"
	u := []float64{spacing / math.Sqrt(12), float64(f.Residual) / math.Abs(float64(f.Work-f.Rest)) * tau}
	flat := within(rs, Span{From: work.From + settled*f.Tau, To: work.To})
	if end := rs[len(rs)-1].At; work.From+1.5*settled*f.Tau > min(work.To, end) || len(flat) < 3 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the kernel lasted %v: from %v on the level that the reading "+
			"nears would be seen, and C could be taken from the area", work.Length(), 1.5*settled*f.Tau))
	} else if c, ok := f.missing(rs, flat, work, settled); ok {
		f.C, f.How = c, "missing area"
		u = u[:1]
		for _, n := range []float64{5, 1.5 * settled} { // how settled it is, and how level the level
			if other, ok := f.missing(rs, flat, work, n); ok {
				u = append(u, float64(other-c)/math.Sqrt(3))
			}
		}
	}
	f.U = measure.Seconds(2 * floats.Norm(u, 2))
}

// missing returns the area below the level over n time constants, divided by P∞ − P₀;
// false where the kernel is shorter. It sets Work to the level.
func (f *Fit) missing(rs, flat []Reading, work Span, n float64) (measure.Seconds, bool) {
	s := Span{From: work.From, To: work.From + measure.Seconds(n)*f.Tau}
	e, err := Integrate(rs, s)
	if err != nil || s.To > work.To {
		return 0, false
	}
	f.Work = measure.Watt(stats.Median(powers(flat)))
	return measure.Seconds((float64(f.Work)*float64(s.Length()) - float64(e)) / float64(f.Work-f.Rest)), true
}

// FitDuration fits the constant by making energy proportional to duration, for spans
// of the same work of different lengths. With the raw energy E of a span and the rise
// ΔP of the reading over it, it solves
//
//	E_i = P·T_i − C·ΔP_i
//
// for the power P and C by least squares. Two spans suffice; from three on their
// scatter gives U. Two spans that differ only in their first reading, such as two runs
// in close succession, do as well.
func FitDuration(rs []Reading, spans []Span) (Fit, error) {
	if err := Check(rs); err != nil {
		return Fit{}, err
	}
	if len(spans) < 2 {
		return Fit{}, fmt.Errorf("correct: %w: %d run: the same work has to have run twice, for different times or "+
			"from different readings", ErrFit, len(spans))
	}
	x, y := mat.NewDense(len(spans), 2, nil), mat.NewVecDense(len(spans), nil)
	for i, s := range spans {
		e, err := Integrate(rs, s)
		if err != nil {
			return Fit{}, fmt.Errorf("run %d: %w", i+1, err)
		}
		x.SetRow(i, []float64{float64(s.Length()), float64(valueAt(rs, s.From) - valueAt(rs, s.To))})
		y.SetVec(i, float64(e))
	}
	none := measure.Seconds(math.NaN())
	f := Fit{
		Readings: len(rs), How: "energy proportional to duration", Rest: measure.Watt(math.NaN()),
		Tau: none, Delay: none, From: none, To: none,
	}
	var svd mat.SVD
	if !svd.Factorize(x, mat.SVDThin) || svd.Cond() > 1e6 {
		return f, fmt.Errorf("correct: %w: the runs are too much alike to part the power from the lag: let one last "+
			"much longer", ErrFit)
	}
	var b mat.VecDense
	_ = b.SolveVec(x, y) // it fails by the condition alone, as the inverse of scatter
	f.Work, f.C = measure.Watt(b.AtVec(0)), measure.Seconds(b.AtVec(1))
	f.scatter(rs, x, y, &b)
	return f, nil
}

// scatter sets the uncertainty of a fit by duration: from its residuals, or with two
// runs from the spacing of the readings.
func (f *Fit) scatter(rs []Reading, x *mat.Dense, y, b *mat.VecDense) {
	n, _ := x.Dims()
	var r mat.VecDense
	var xtx, inv mat.Dense
	r.MulVec(x, b)
	r.SubVec(y, &r)
	rss := mat.Dot(&r, &r)
	f.Residual = measure.Watt(math.NaN())
	// The energy that an end, off by up to a reading's distance, is wrong by.
	u2, k := math.Pow(float64(f.Work)*float64(Spacing(rs)), 2)/6, 2.0
	if n > 2 && rss/float64(n-2) > u2/100 {
		u2, k = rss/float64(n-2), measure.CoverageFactor(float64(n-2))
	}
	xtx.Mul(x.T(), x)
	_ = inv.Inverse(&xtx)
	f.U = measure.Seconds(k * math.Sqrt(u2*inv.At(1, 1)))
}

// within returns the readings of a span.
func within(rs []Reading, s Span) []Reading {
	a := sort.Search(len(rs), func(i int) bool { return rs[i].At >= s.From })
	b := sort.Search(len(rs), func(i int) bool { return rs[i].At >= s.To })
	return rs[a:max(a, b)]
}

func powers(rs []Reading) []float64 {
	return lists.Map(rs, func(r Reading) float64 { return float64(r.Power) })
}

// valueAt interpolates the readings linearly; beyond them it returns the nearest.
func valueAt(rs []Reading, t measure.Seconds) measure.Watt {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].At > t })
	if i == 0 || i == len(rs) {
		return rs[max(0, min(i, len(rs)-1))].Power
	}
	a, b := rs[i-1], rs[i]
	return a.Power + (b.Power-a.Power)*measure.Watt((t-a.At)/(b.At-a.At))
}

// withConstants works out an energy under a profile, and adds to its budget the effect
// of the uncertainties of the profile's window, lag and delay: the change of the energy
// under a profile in which one of them is off by its standard uncertainty. A constant
// under which the energy cannot be had is left out.
func withConstants[T interface{ Energy(Span) (Energy, error) }](
	p *sensor.Profile, span Span, undo func(*sensor.Profile) (T, error),
) (found T, e Energy, err error) {
	under := func(q *sensor.Profile) (none T, e Energy, err error) {
		x, err := undo(q)
		if err != nil {
			return none, e, err
		}
		e, err = x.Energy(span)
		return x, e, err
	}
	if found, e, err = under(p); err != nil {
		return found, e, err
	}
	list := e.Budget
	for _, c := range []struct {
		source string
		u      measure.Seconds // k = 2
		of     func(*sensor.Profile) *measure.Seconds
	}{
		{"sensor's window", p.UWindow, func(q *sensor.Profile) *measure.Seconds { return &q.Window }},
		{"sensor's lag", p.UTau, func(q *sensor.Profile) *measure.Seconds { return &q.Tau }},
		{"sensor's delay", p.UDelay, func(q *sensor.Profile) *measure.Seconds { return &q.Delay }},
	} {
		if !(c.u > 0) {
			continue
		}
		q := *p
		*c.of(&q) += c.u / 2
		if _, other, err := under(&q); err == nil {
			u := measure.Joule(math.Abs(float64(other.Energy - e.Energy)))
			list = append(list, measure.Contribution{Source: c.source, U: u, Systematic: true})
		}
	}
	e.budget(list)
	return found, e, nil
}

// SmoothEnergy undoes a window as [Deconvolve] does, and integrates a span; the
// uncertainty includes that of the profile's constants. Where only the
// integral fails, the undone power is returned with the error.
func SmoothEnergy(renewals []Reading, p *sensor.Profile, floor measure.Watt, span Span) (*Smooth, Energy, error) {
	return withConstants(p, span, func(q *sensor.Profile) (*Smooth, error) {
		return Deconvolve(renewals, q, p.Period/2, floor)
	})
}

// LevelsEnergy fits powers as [FindLevels] does, and integrates a span; the uncertainty
// includes that of the profile's constants. Where only the
// integral fails, the powers are returned with the error.
func LevelsEnergy(renewals []Reading, p *sensor.Profile, activities []Activity, span Span) (*Levels, Energy, error) {
	return withConstants(p, span, func(q *sensor.Profile) (*Levels, error) {
		return FindLevels(renewals, q, activities)
	})
}

// Preset is a sensor with published constants.
type Preset struct {
	Lag    Lag
	Level  measure.Watt // of the active idle
	Margin measure.Watt // above it, from which on the GPU counts as at work; zero to find it
}

// Both agree on C within 1 %. The 833.333 s that the paper prints is a slip of units:
// docs/sensor.md proves it from the paper's joules.
var presets = map[string]Preset{
	// Burtscher, Zecena and Zong, section 5: C = 0.8333 s (printed as 833.333s), active
	// idle 52.5 W; U from the published tool's other value.
	"k20": {Lag: Lag{C: 0.833333, U: 0.0067}, Level: 52.5},
	// The authors' program K20Power 1.0: 840 000 µs, at work above 55 W.
	"k20power": {Lag: Lag{C: 0.84, U: 0.0067}, Level: 52.5, Margin: 2.5},
}

// FindPreset returns a preset by its name.
func FindPreset(name string) (Preset, error) {
	p, ok := presets[strings.ToLower(name)]
	if !ok {
		return Preset{}, fmt.Errorf("no preset %q: there are %s", name, strings.Join(PresetNames(), ", "))
	}
	return p, nil
}

// PresetNames lists the presets.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }
