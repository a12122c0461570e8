package compare

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat/distuv"
)

// Coverage names the sources of scatter that the interval of a ratio covers.
type Coverage string

const (
	// Meters: one run of each, so that the meters' uncertainty is all that is known.
	Meters Coverage = "meters"
	// OneSide: one run against several, taken to scatter as those do.
	OneSide Coverage = "meters, and the scatter of the side with several runs"
	// NoDrift: several runs of each, whose order does not tell a drift from a difference.
	NoDrift Coverage = "meters and scatter, no drift"
	// BothSides: several runs of each, in turns or in pairs.
	BothSides Coverage = "meters and scatter"
)

// Change is the relative difference of B from A: −0.1 for ten percent less. Its bounds
// hold it at Level; they are NaN where the uncertainty is 0.
type Change struct {
	Relative   measure.Ratio `json:"change_pct"`
	ChangeLow  measure.Ratio `json:"low_pct"`
	ChangeHigh measure.Ratio `json:"high_pct"`
}

// newChange returns the change of a ratio with its interval and uncertainty.
func newChange(ratio, low, high, u float64) Change {
	if !(u > 0) {
		low, high = math.NaN(), math.NaN()
	}
	return Change{measure.Ratio(ratio - 1), measure.Ratio(low - 1), measure.Ratio(high - 1)}
}

// Effect is the ratio of B to A in one quantity.
type Effect struct {
	Quantity
	A Mean `json:"a"`
	B Mean `json:"b"`
	Change
	// Ratio is B over A without the drift; Low and High hold it at Level.
	Ratio float64 `json:"-"`
	Low   float64 `json:"-"`
	High  float64 `json:"-"`
	// Holds names the errors that the interval of the ratio covers.
	Holds Coverage `json:"interval_holds"`
	// Design is the order of the runs, without which there is no P.
	Design Design `json:"design"`
	// P is the chance of a difference as large where there is none, by itself. It is NaN
	// in a design without a test, or where the runs do not scatter.
	P measure.Number `json:"p"`
	// DoF are the degrees of freedom of U; +Inf for a budget's.
	DoF measure.Number `json:"dof"`
	// Corrected is P in view of all tests of a family; P itself of a single one.
	Corrected measure.Number `json:"p_corrected"`
	// Shown is true where a difference was shown at Level, by Corrected.
	Shown bool `json:"shown"`
	// U is the standard uncertainty of the ratio's logarithm, Common the part of it by errors
	// that stand behind several runs and do not cancel.
	U      float64 `json:"-"`
	Common float64 `json:"-"`
	// Cancelled are the errors that A and B share.
	Cancelled []Cancelled `json:"-"`

	a, b  side
	pairs []pair
	post  posterior // of the difference of logarithms; nil where no order allows for a drift
}

// ChangeU is half of the interval of Change.
func (e *Effect) ChangeU() float64 { return (e.High - e.Low) / 2 }

// Between compares B with A in one quantity.
func Between(a, b []Run, q Quantity) (Effect, error) {
	if err := cmp.Or(check("A", a), check("B", b)); err != nil {
		return Effect{}, err
	}
	sa, sb := newSide(a, q), newSide(b, q)
	seq, design := order(a, b)
	e := Effect{Quantity: q, A: sa.figure(), B: sb.figure(), Design: design, Holds: NoDrift, a: sa, b: sb}
	// The errors that both sides have, the largest first.
	size := func(v float64) measure.Ratio { return measure.Ratio(math.Abs(v)) }
	for by, c := range sa.shared {
		if d, both := sb.shared[by]; both {
			e.Cancelled = append(e.Cancelled, Cancelled{by, size(c), size(d), size(d - c)})
		}
	}
	slices.SortFunc(e.Cancelled,
		func(x, y Cancelled) int { return cmp.Or(cmp.Compare(y.A, x.A), cmp.Compare(x.Behind, y.Behind)) })
	switch {
	case design == Turns, design.inPairs():
		e.Holds = BothSides
	case max(len(a), len(b)) == 1:
		e.Holds = Meters
	case design == Single:
		e.Holds = OneSide
	}
	fixed := common(&sa, &sb)
	e.Common = math.Sqrt(fixed)
	switch {
	case design == Turns:
		e.post = regress(seq, e.ordered(seq), fixed)
	case design.inPairs():
		e.pairs, _ = pairs(a, b)
		e.post = paired(e.pairs, sa.logs, sb.logs, fixed)
	}
	switch d := sb.mean - sa.mean; {
	case e.post != nil:
		d, u, dof := e.post.moments()
		e.estimate(d, e.post.quantile((1-Level)/2), e.post.quantile((1+Level)/2), u, dof)
	case e.Holds == BothSides: // no scatter
		e.estimate(d, d, d, 0, math.Inf(1))
	default:
		u, dof := combine(chances(&sa, &sb), term{fixed, math.Inf(1)})
		k := stats.Student((1+Level)/2, dof) * u
		e.estimate(d, d-k, d+k, u, dof)
	}
	e.P = e.chanceOf(0)
	e.correct(e.P)
	return e, nil
}

// ordered returns the logarithms of the runs in the order of time.
func (e *Effect) ordered(seq []ordered) []float64 {
	return lists.Map(seq, func(r ordered) float64 {
		if r.b {
			return e.b.logs[r.index]
		}
		return e.a.logs[r.index]
	})
}

// estimate sets the ratio from a difference of logarithms with its interval, standard
// uncertainty and degrees of freedom.
func (e *Effect) estimate(d, low, high, u, dof float64) {
	e.U, e.DoF = u, measure.Number(dof)
	e.Ratio, e.Low, e.High = math.Exp(d), math.Exp(low), math.Exp(high)
	e.Change = newChange(e.Ratio, e.Low, e.High, u)
}

// chanceOf returns the probability of a difference of logarithms as far from null by
// chance alone; NaN without a test.
func (e *Effect) chanceOf(null float64) measure.Number {
	if e.post == nil || !e.Design.tested() {
		return measure.Number(math.NaN())
	}
	below := e.post.cdf(null)
	// 1 − below loses the digits of a small chance: the mirrored distribution has them.
	mirrored := slices.Clone(e.post)
	for i := range mirrored {
		mirrored[i].mean = -mirrored[i].mean
	}
	return measure.Number(min(1, 2*min(below, mirrored.cdf(-null))))
}

// correct sets the chance in view of a family of tests.
func (e *Effect) correct(p measure.Number) { e.Corrected, e.Shown = p, p < 1-Level }

// All compares in all quantities, and corrects their tests for their number. Each quantity follows from energy and
// time, so that any two of the hypotheses "no difference" hold only if all five do. Holm's correction then has two
// steps (J. P. Shaffer, J. Am. Stat. Assoc. 81 (1986) 826–831; closed tests: R. Marcus, E. Peritz and K. R. Gabriel,
// Biometrika 63 (1976) 655–660): all five at once, by the smaller of the two p of energy and time, doubled; then each
// by its own p.
func All(a, b []Run) ([]Effect, error) {
	var out []Effect
	for _, q := range []Quantity{Energy, Time, Power, EDP, ED2P} {
		e, err := Between(a, b, q)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	first := slices.Clone(out[:2])
	Holm(first)
	// Holm leaves the smaller p doubled; one that is not known counts for nothing.
	global := first[0].Corrected
	if !(first[1].Corrected > global) && measure.Known(first[1].Corrected) {
		global = first[1].Corrected
	}
	for i := range out {
		out[i].correct(max(out[i].P, global))
	}
	return out, nil
}

// Holm corrects the tests of a family (S. Holm, Scand. J. Statist. 6 (1979)
// 65–70): of all that are then shown, the chance that any is by chance alone is
// below 1 − Level. Tests without a p are left as they are.
func Holm(family []Effect) {
	var order []int
	for i := range family {
		if measure.Known(family[i].P) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(family[x].P, family[y].P) })
	largest := measure.Number(0)
	for rank, i := range order {
		largest = max(largest, min(1, family[i].P*measure.Number(len(order)-rank)))
		family[i].correct(largest)
	}
}

// power is the chance to show a difference that Visible names.
const power = 0.8

// AssumedScatter is the relative standard deviation of a run (k = 1) that is assumed
// where the runs show none.
const AssumedScatter = 0.01

// Scatter is the relative standard deviation of a run: as the test sees it in turns,
// else the root mean square of the sides', else that of the side with several runs, but
// at least what the meter adds to a run. seen is false where it is AssumedScatter.
func (e *Effect) Scatter() (sd float64, seen bool) {
	na, nb := float64(len(e.a.logs)), float64(len(e.b.logs))
	switch sa, sb := e.a.spread, e.b.spread; {
	case e.post != nil:
		return math.Sqrt(max(e.U*e.U-e.Common*e.Common, 0) / (1/na + 1/nb)), true
	case na > 1 && nb > 1:
		return math.Sqrt((sa*sa + sb*sb) / 2), true
	case na > 1:
		return max(sa, e.b.own), true
	case nb > 1:
		return max(sb, e.a.own), true
	}
	return max(AssumedScatter, math.Hypot(e.a.own, e.b.own)/math.Sqrt2), false
}

// Visible returns the smallest relative difference that so many runs of each, in turns where the present ones are,
// else in pairs of random order, show in four of five experiments, of runs with a scatter sd (k = 1) and no drift. It
// counts with two tests, of energy and time. It is NaN for fewer runs than a test needs, and where sd is 0.
func (e *Effect) Visible(runsA, runsB int, sd float64) float64 {
	dof, enough := float64(min(runsA, runsB)-1), min(runsA, runsB) >= leastPairs
	if e.Design == Turns {
		dof, enough = float64(runsA+runsB-4), min(runsA, runsB) >= 2 && runsA+runsB >= leastRuns
	}
	if !enough || !(sd > 0) {
		return math.NaN()
	}
	v := sd * sd * (1/float64(runsA) + 1/float64(runsB))
	critical := stats.Student(1-(1-Level)/4, dof)
	// In units of the uncertainty by scatter: the estimated variance is spread as χ²/ν, in
	// equal steps of probability.
	const steps = 200
	var bounds []float64
	for i := range steps {
		chi2 := distuv.ChiSquared{K: dof}.Quantile((float64(i) + 0.5) / steps)
		bounds = append(bounds, critical*math.Sqrt(v*chi2/dof+e.Common*e.Common))
	}
	u := math.Sqrt(v + e.Common*e.Common)
	lo, hi := 0.0, bounds[steps-1]+10*u
	for range 50 {
		mid, shown := (lo+hi)/2, 0.0
		for _, b := range bounds {
			shown += distuv.UnitNormal.Survival((b-mid)/u) / steps
		}
		if shown < power {
			lo = mid
		} else {
			hi = mid
		}
	}
	return math.Expm1(hi)
}

// mostNeeded bounds the runs that Needed names.
const mostNeeded = 1000

// Needed returns the smallest number of runs of each, ordered as for Visible, that show
// the present difference in four of five experiments, of runs with a scatter sd; 0 for more than
// 1000, or where there is no difference.
func (e *Effect) Needed(sd float64) int {
	n := leastPairs + sort.Search(mostNeeded, func(i int) bool {
		n := leastPairs + i
		return e.Visible(n, n, sd) <= math.Expm1(math.Abs(math.Log(e.Ratio)))
	})
	if n > mostNeeded {
		return 0
	}
	return n
}

// PairsFor returns the pairs after which the interval of the ratio is no wider than ± u
// (relative), by the scatter of the present pairs; 0 where the errors of the meters alone are
// wider, or for more than most. Pairs beyond the present ones are Second, see [Turn].
func (e *Effect) PairsFor(u measure.Ratio, most int) int {
	now := len(e.pairs)
	if now < 2 || e.post == nil {
		return 0
	}
	v := max(e.U*e.U-e.Common*e.Common, 0) * float64(now)
	n := now + sort.Search(most-now+1, func(more int) bool {
		u1, dof := combine(term{v / float64(now+more), float64(now - 1)}, term{e.Common * e.Common, math.Inf(1)})
		return stats.Student((1+Level)/2, dof)*u1 <= float64(u)
	})
	if n > most {
		return 0
	}
	return n
}

// Randomisation is the exact test of pairs whose order was drawn at random (R. A. Fisher, The Design of Experiments
// (1935), section 21): without a difference each pair could as well have had the other sign. P is the share of the
// signs that make a mean difference as large. It assumes no distribution and no form of the drift; with n pairs it is
// at least 2^(1−n).
type Randomisation struct {
	P float64 `json:"p"`
	// Ways is the number of signs evaluated; Exact: these are all.
	Ways  int  `json:"ways"`
	Exact bool `json:"exact"`
}

const (
	// allPairs are the most pairs of which all signs are evaluated.
	allPairs = 14
	// mostWays is the size of the random sample of the signs of more pairs.
	mostWays = 20_000
)

// Randomise makes the test; nil without pairs of random order, and where their scatter set
// their number, which is not the same for all signs. The random choice is the same for the
// same number of pairs, so that a result can be repeated.
func (e *Effect) Randomise() *Randomisation {
	second := func(p pair) bool { return p.turn.Second }
	if e.post == nil || e.Design != RandomPairs || slices.ContainsFunc(e.pairs, second) {
		return nil
	}
	sum, size := 0.0, 0.0
	d := make([]float64, len(e.pairs))
	for i, p := range e.pairs {
		d[i] = e.b.logs[p.b] - e.a.logs[p.a]
		sum, size = sum+d[i], size+math.Abs(d[i])
	}
	seen := math.Abs(sum) - 1e-9*size // the same sum, added up in another order
	r := &Randomisation{Ways: mostWays, Exact: len(d) <= allPairs}
	if r.Exact {
		r.Ways = 1 << len(d)
	}
	rng := rand.New(rand.NewPCG(uint64(len(d)), 0))
	extreme := 0
	for way := range r.Ways {
		signs := uint64(way)
		flipped := 0.0
		for i, v := range d {
			if !r.Exact && way > 0 && i%64 == 0 { // the first way is the observed one
				signs = rng.Uint64()
			}
			if signs>>(i%64)&1 == 1 {
				v = -v
			}
			flipped += v
		}
		if math.Abs(flipped) >= seen {
			extreme++
		}
	}
	r.P = float64(extreme) / float64(r.Ways)
	return r
}
