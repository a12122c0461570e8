package correct

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"wattmark/measure"
)

// Fit is a device's constant, found in its own readings.
type Fit struct {
	// C is the constant that makes energies right: what the reading trails the power
	// by, C = ∫(P∞ − P)dt / (P∞ − P₀). U is expanded, k = 2.
	C, U measure.Seconds
	// Tau and Delay are the exponential that fits the rise best; their sum is near C,
	// and the delay holds what polling and holding the register add.
	Tau, Delay measure.Seconds
	Rest, Work measure.Watt // P₀, P∞
	Residual   measure.Watt // rms of the exponential
	Readings   int
	How        string
	Warnings   []string
}

// ErrFit is wrapped where readings do not tell the constant.
var ErrFit = errors.New("the constant cannot be fitted")

// settled is how many constants a reading takes to be at its end within 0.03 %.
const settled = 8

// FitRise fits the constant on the readings of one kernel of steady power that
// began at work.From after some rest, and lasted until work.To at least.
//
// A single exponential is laid through the rise by least squares (the paper's
// section 5). From its τ the readings are taken to have settled after 8 τ: the
// level from there on is P∞, and the area that is missing below it is C. The area
// counts what an exponential does not: the time that a look of the sensor waits
// in its register. Where the kernel is too short for that, C is τ and the delay.
func FitRise(rs []Reading, work Span) (Fit, error) {
	if err := Check(rs); err != nil {
		return Fit{}, err
	}
	f := Fit{}
	rest := within(rs, Span{From: rs[0].At, To: work.From})
	rise := within(rs, work)
	if len(rest) < 3 || len(rise) < 8 {
		return f, fmt.Errorf("correct: %w: %d readings before the kernel and %d during it: want 3 and 8", ErrFit, len(rest), len(rise))
	}
	// What came just before, not an earlier kernel's tail.
	rest = rest[max(0, len(rest)-max(10, len(rise)/4)):]
	f.Rest = measure.Watt(median(powers(rest)))
	if err := f.exponential(rise, work.From); err != nil {
		return f, err
	}
	// Again on the rise itself: a kernel's end may run out slowly, and its power drift.
	if near := within(rs, Span{From: work.From, To: work.From + 1.5*settled*f.Tau}); len(near) >= 8 && len(near) < len(rise) {
		if err := f.exponential(near, work.From); err != nil {
			return f, err
		}
	}
	if d := math.Abs(float64(f.Work - f.Rest)); d < 20*float64(Noise(rs)) || d < 2 {
		return f, fmt.Errorf("correct: %w: the power rose by %.3g W only", ErrFit, d)
	}
	if look := Spacing(Changes(within(rs, Span{From: work.From, To: work.From + 3*f.Tau}))); !(f.Tau > 1.5*look) {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the constant, %v, is no longer than a look of the sensor or two (%v): it hardly lags, or averages", f.Tau, look))
	}
	f.Readings = len(rise)
	f.area(rs, work)
	return f, nil
}

// exponential finds τ and the delay; P₀ is known, and P∞ follows for each of them.
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

// area takes C from the missing area where the kernel lasted long enough, and its
// uncertainty from what bears on that.
func (f *Fit) area(rs []Reading, work Span) {
	poll := Spacing(rs)
	spacing := float64(poll)
	tau := float64(f.Tau)
	f.C, f.How = f.Tau+f.Delay, "exponential"
	u := []float64{spacing / math.Sqrt(12), float64(f.Residual) / math.Abs(float64(f.Work-f.Rest)) * tau}
	flat := within(rs, Span{From: work.From + settled*f.Tau, To: work.To})
	if end := rs[len(rs)-1].At; work.From+1.5*settled*f.Tau > min(work.To, end) || len(flat) < 3 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the kernel lasted %v: from %v on the level that the reading nears would be seen, and C could be taken from the area", work.Length(), 1.5*settled*f.Tau))
	} else if c, ok := f.missing(rs, flat, work, settled); ok {
		f.C, f.How = c, "missing area"
		u = u[:1]
		for _, n := range []float64{5, 1.5 * settled} { // how settled it is, and how level the level
			if other, ok := f.missing(rs, flat, work, n); ok {
				u = append(u, float64(other-c)/math.Sqrt(3))
			}
		}
	}
	sum := 0.0
	for _, x := range u {
		sum += x * x
	}
	f.U = measure.Seconds(2 * math.Sqrt(sum))
}

// missing is the area below the level over n time constants, as a time.
func (f *Fit) missing(rs, flat []Reading, work Span, n float64) (measure.Seconds, bool) {
	s := Span{From: work.From, To: work.From + measure.Seconds(n)*f.Tau}
	e, err := Integrate(rs, s)
	if err != nil || s.To > work.To {
		return 0, false
	}
	f.Work = measure.Watt(median(powers(flat)))
	return measure.Seconds((float64(f.Work)*float64(s.Length()) - float64(e)) / float64(f.Work-f.Rest)), true
}

// FitDuration fits the constant by making energy proportional to duration: the same
// work was done in each of the spans, for different times. Of each it takes the
// raw energy E and the rise ΔP of the reading over it, and solves
//
//	E_i = P·T_i − C·ΔP_i
//
// for the power P and C by least squares. Two spans suffice; from three on their
// scatter gives U. Two alike but for what the reading began at, as of two runs
// close together, do as well.
func FitDuration(rs []Reading, spans []Span) (Fit, error) {
	if err := Check(rs); err != nil {
		return Fit{}, err
	}
	if len(spans) < 2 {
		return Fit{}, fmt.Errorf("correct: %w: %d run: the same work has to have run twice, for different times or from different readings", ErrFit, len(spans))
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
	f := Fit{Readings: len(rs), How: "energy proportional to duration", Rest: measure.Watt(math.NaN())}
	var svd mat.SVD
	if !svd.Factorize(x, mat.SVDThin) || svd.Cond() > 1e6 {
		return f, fmt.Errorf("correct: %w: the runs are too much alike to part the power from the lag: let one last much longer", ErrFit)
	}
	var b mat.VecDense
	if err := b.SolveVec(x, y); err != nil {
		return f, fmt.Errorf("correct: %w: %w", ErrFit, err)
	}
	f.Work, f.C = measure.Watt(b.AtVec(0)), measure.Seconds(b.AtVec(1))
	f.scatter(rs, x, y, &b)
	return f, nil
}

// scatter gives the fit by duration its uncertainty: from what is left, or with two
// runs from the readings' noise and spacing.
func (f *Fit) scatter(rs []Reading, x *mat.Dense, y, b *mat.VecDense) {
	n, _ := x.Dims()
	var fit, xtx, inv mat.Dense
	fit.Mul(x, b)
	rss := 0.0
	for i := range n {
		d := y.AtVec(i) - fit.At(i, 0)
		rss += d * d
	}
	f.Residual = measure.Watt(math.NaN())
	// What an end off by a share of a reading's distance costs.
	u2, k := math.Pow(float64(f.Work)*float64(Spacing(rs)), 2)/6, 2.0
	if n > 2 && rss/float64(n-2) > u2/100 {
		u2, k = rss/float64(n-2), measure.CoverageFactor(float64(n-2))
	}
	xtx.Mul(x.T(), x)
	if inv.Inverse(&xtx) != nil {
		f.U = measure.Seconds(math.NaN())
		return
	}
	f.U = measure.Seconds(k * math.Sqrt(u2*inv.At(1, 1)))
}

// within are the readings of a span.
func within(rs []Reading, s Span) []Reading {
	a := sort.Search(len(rs), func(i int) bool { return rs[i].At >= s.From })
	b := sort.Search(len(rs), func(i int) bool { return rs[i].At >= s.To })
	return rs[a:max(a, b)]
}

func powers(rs []Reading) []float64 {
	out := make([]float64, len(rs))
	for i, r := range rs {
		out[i] = float64(r.Power)
	}
	return out
}

// valueAt interpolates the readings.
func valueAt(rs []Reading, t measure.Seconds) measure.Watt {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].At > t })
	if i == 0 || i == len(rs) {
		return rs[max(0, min(i, len(rs)-1))].Power
	}
	a, b := rs[i-1], rs[i]
	return a.Power + (b.Power-a.Power)*measure.Watt((t-a.At)/(b.At-a.At))
}
