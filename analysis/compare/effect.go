package compare

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/combin"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/measure"
)

// Coverage names the sources of scatter that the interval of a ratio covers.
type Coverage string

// The coverages.
const (
	// Meters: one run of each, so that the meters' uncertainty is all that is known.
	Meters Coverage = "meters"
	// OneSide: one run against several, taken to scatter as those do.
	OneSide Coverage = "meters, and the scatter of the side with several runs"
	// BothSides: several runs of each.
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
	// Ratio is B over A; Low and High hold it at Level.
	Ratio float64 `json:"-"`
	Low   float64 `json:"-"`
	High  float64 `json:"-"`
	// Holds names the errors that the interval of the ratio covers.
	Holds Coverage `json:"interval_holds"`
	// P is the chance of a difference as large where there is none. It is NaN where a
	// side has one run, or where the runs do not scatter and have no budget.
	P measure.Number `json:"p"`
	// DoF are the degrees of freedom of U; +Inf for a budget's.
	DoF measure.Number `json:"dof"`
	// Shown is true where a difference was shown at Level, in view of all tests of the family.
	Shown bool `json:"shown"`
	// Holm is P in view of all tests of a family; P itself of a single one.
	Holm measure.Number `json:"-"`
	// U is the standard uncertainty of the ratio's logarithm, Common the part of it by errors
	// that stand behind several runs and do not cancel.
	U      float64 `json:"-"`
	Common float64 `json:"-"`
	// Cancelled are the errors that A and B share.
	Cancelled []Cancelled `json:"-"`

	a, b  side
	turns bool // the runs took turns
}

// ChangeU is half of the interval of Change.
func (e *Effect) ChangeU() float64 { return (e.High - e.Low) / 2 }

// Between compares B with A in one quantity.
func Between(a, b []Run, q Quantity) (Effect, error) {
	if err := check("A", a); err != nil {
		return Effect{}, err
	}
	if err := check("B", b); err != nil {
		return Effect{}, err
	}
	sa, sb := newSide(a, q), newSide(b, q)
	e := Effect{
		Quantity: q, A: sa.figure(), B: sb.figure(), Holds: Meters, a: sa, b: sb, turns: Interleaved(a, b),
	}
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
	case min(len(a), len(b)) > 1:
		e.Holds = BothSides
	case max(len(a), len(b)) > 1:
		e.Holds = OneSide
	}
	fixed := common(&sa, &sb)
	u, dof := combine(chances(&sa, &sb), term{fixed, math.Inf(1)})
	e.U, e.DoF, e.Common = u, measure.Number(dof), math.Sqrt(fixed)
	d := sb.mean - sa.mean
	k := stats.Student((1+Level)/2, dof) * u
	e.Ratio, e.Low, e.High = math.Exp(d), math.Exp(d-k), math.Exp(d+k)
	e.Change = newChange(e.Ratio, e.Low, e.High, u)
	e.P = e.chanceOf(d)
	e.correct(e.P)
	return e, nil
}

// chanceOf returns the probability of a difference of logarithms as large by chance
// alone; NaN with one run on either side, whose scatter is unknown.
func (e *Effect) chanceOf(difference float64) measure.Number {
	if e.Holds != BothSides || !(e.U > 0) {
		return measure.Number(math.NaN())
	}
	return measure.Number(stats.StudentTail(difference/e.U, float64(e.DoF)))
}

// correct sets the chance in view of a family of tests.
func (e *Effect) correct(p measure.Number) { e.Holm, e.Shown = p, p < 1-Level }

// Permute tests the difference by permutation; nil where a side has one run.
func (e *Effect) Permute() *Permutation {
	if len(e.a.logs) < 2 || len(e.b.logs) < 2 {
		return nil
	}
	return permute(e.a.logs, e.b.logs)
}

// All compares in all quantities. They are made of two, energy and time, so they
// are no family of tests: each has its own p.
func All(a, b []Run) ([]Effect, error) {
	var out []Effect
	for _, q := range Quantities() {
		e, err := Between(a, b, q)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
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

// trials is how many experiments Visible thinks through.
const trials = 4000

// Visible returns the smallest relative difference that so many runs of each would show
// in four of five experiments, by the scatter of the present runs: 4000 experiments
// draw their scatter anew and are tested as Between does. It is NaN where the scatter
// is unknown, and for fewer than two runs of either, which show nothing. seen is false
// where no side has two runs: then it holds the meter's noise alone.
func (e *Effect) Visible(runsA, runsB int) (change float64, seen bool) {
	va, vb, dof, seen := e.scatter(runsA, runsB)
	va, vb = va/float64(runsA), vb/float64(runsB)
	fixed := e.Common * e.Common
	u := math.Sqrt(va + vb + fixed)
	if !(u > 0) || min(runsA, runsB) < 2 {
		return math.NaN(), seen
	}
	// Equal steps of probability in an order of chance: a Latin hypercube.
	rng := rand.New(rand.NewPCG(uint64(runsA), uint64(runsB)))
	orderA, orderB := rng.Perm(trials), rng.Perm(trials)
	need := make([]float64, trials)
	for i := range need {
		drawn, nu := combine(welch(term{va * estimated(orderA[i], dof[0]), dof[0]},
			term{vb * estimated(orderB[i], dof[1]), dof[1]}, runsA, runsB), term{fixed, math.Inf(1)})
		need[i] = stats.Student((1+Level)/2, nu)*drawn - u*distuv.UnitNormal.Quantile(step(i))
	}
	slices.Sort(need)
	return math.Expm1(max(need[int(power*trials)], 0)), seen
}

// step returns the middle of one of trials equal steps of probability.
func step(i int) float64 { return (float64(i) + 0.5) / trials }

// estimated is a variance as runs estimate it, over the true one, at a step of
// probability.
func estimated(i int, dof float64) float64 {
	if math.IsInf(dof, 1) {
		return 1
	}
	return distuv.ChiSquared{K: dof}.Quantile(step(i)) / dof
}

// scatter is the variance of a run of A and of B, with the degrees of freedom that
// so many runs will have.
func (e *Effect) scatter(runsA, runsB int) (va, vb float64, dof [2]float64, seen bool) {
	sa, sb := e.a.spread, e.b.spread
	switch {
	case math.IsNaN(sa) && math.IsNaN(sb):
		return e.a.own * e.a.own, e.b.own * e.b.own, [2]float64{math.Inf(1), math.Inf(1)}, false
	case math.IsNaN(sa):
		sa = max(sb, e.a.own)
	case math.IsNaN(sb):
		sb = max(sa, e.b.own)
	}
	return sa * sa, sb * sb, [2]float64{float64(max(runsA-1, 1)), float64(max(runsB-1, 1))}, true
}

// Permutation is a permutation test of the difference of two means: the share of the
// assignments of runs to A and B that make a difference as large. It assumes neither
// errors of the meter nor a distribution.
type Permutation struct {
	P float64 `json:"p"`
	// Ways is the number of assignments evaluated; Exact: these are all.
	Ways  int  `json:"ways"`
	Exact bool `json:"exact"`
}

// mostWays bounds the assignments; of more a random sample is evaluated.
const mostWays = 20_000

// permute makes the test. The random choice is the same for the same numbers of
// runs, so that a result can be repeated.
func permute(a, b []float64) *Permutation {
	all := slices.Concat(a, b)
	add := func(list []float64) (sum float64) {
		for _, v := range list {
			sum += v
		}
		return sum
	}
	total := add(all)
	na, nb := float64(len(a)), float64(len(b))
	difference := func(sum float64) float64 { return math.Abs((total-sum)/nb - sum/na) }
	seen := difference(add(a))
	seen -= 1e-9 * (seen + math.Abs(total)*1e-6) // the same difference, added up in another order
	p := &Permutation{Ways: mostWays}
	extreme := 0
	if n := combin.GeneralizedBinomial(na+nb, na); n <= mostWays {
		p.Exact, p.Ways = true, int(math.Round(n))
		g := combin.NewCombinationGenerator(len(all), len(a))
		pick := make([]int, len(a))
		for g.Next() {
			sum := 0.0
			for _, i := range g.Combination(pick) {
				sum += all[i]
			}
			if difference(sum) >= seen {
				extreme++
			}
		}
		p.P = float64(extreme) / float64(p.Ways)
		return p
	}
	rng := rand.New(rand.NewPCG(uint64(len(a)), uint64(len(b))))
	for range mostWays - 1 {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if difference(add(all[:len(a)])) >= seen {
			extreme++
		}
	}
	p.P = float64(extreme+1) / mostWays // the observed assignment is one of them
	return p
}
