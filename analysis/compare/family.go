package compare

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Holm corrects the tests of a family (S. Holm, Scand. J. Statist. 6 (1979)
// 65–70): of all that are then shown, the chance that any is by chance alone is
// below 1 − Level. Tests without a p are left as they are.
func Holm(family []Effect) {
	var order []int
	for i := range family {
		if !math.IsNaN(family[i].P) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(family[x].P, family[y].P) })
	largest := 0.0
	for rank, i := range order {
		largest = max(largest, min(1, family[i].P*float64(len(order)-rank)))
		family[i].Holm = largest
	}
}

// power is the chance to show a difference that Visible names.
const power = 0.8

// trials is how many experiments Visible thinks through.
const trials = 4000

// Visible is the smallest relative difference that so many runs of each would show
// in four of five experiments, by the scatter of the runs that are there: each
// experiment draws its scatter anew and is tested as Between does. It is NaN where
// nothing is known of chance, and of fewer than two runs of either, which show
// nothing. seen is false where no side has two runs: then only the meter's noise is
// in it.
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
		drawn, nu := combine(welch(term{va * estimated(orderA[i], dof[0]), dof[0]}, term{vb * estimated(orderB[i], dof[1]), dof[1]}, runsA, runsB), term{fixed, math.Inf(1)})
		need[i] = quantile((1+Level)/2, nu)*drawn - u*distuv.UnitNormal.Quantile(step(i))
	}
	slices.Sort(need)
	return math.Expm1(max(need[int(power*trials)], 0)), seen
}

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
