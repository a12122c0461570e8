package compare

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// side is one version's runs, seen by one quantity, on logarithms.
type side struct {
	logs   []float64
	mean   float64
	spread float64 // standard deviation of a run, from the runs; NaN of one
	own    float64 // what the budgets say of what is new with every run, k = 1
	shared map[string]float64
}

func newSide(runs []Run, q Quantity) side {
	s := side{spread: math.NaN(), shared: map[string]float64{}}
	var own float64
	for i := range runs {
		s.logs = append(s.logs, q.log(&runs[i]))
		for _, e := range runs[i].Errors {
			c := q.of(e)
			if e.Behind == "" {
				own += c * c / float64(len(runs))
				continue
			}
			s.shared[e.Behind] += c / float64(len(runs))
		}
	}
	s.mean, s.own = stat.Mean(s.logs, nil), math.Sqrt(own)
	if len(runs) > 1 {
		s.spread = stat.StdDev(s.logs, nil)
	}
	return s
}

// term is a part of a variance with its degrees of freedom, +Inf for one that was
// not seen in a few runs.
type term struct{ v, dof float64 }

// chance is what is new with every run, of the mean of the runs. One run alone
// has its budget.
func (s *side) chance() term {
	if n := float64(len(s.logs)); n > 1 {
		return term{s.spread * s.spread / n, n - 1}
	}
	return term{s.own * s.own, math.Inf(1)}
}

// chances is that of a difference. Where one side has a single run, nobody has
// seen it scatter: the other's scatter is taken for it, where that is more than
// its budget.
func chances(a, b *side) term {
	lone, many := a, b
	if len(b.logs) == 1 {
		lone, many = b, a
	}
	if len(lone.logs) == 1 && len(many.logs) > 1 && many.spread > lone.own {
		n := float64(len(many.logs))
		return term{many.spread * many.spread * (1 + 1/n), n - 1}
	}
	return welch(a.chance(), b.chance(), len(a.logs), len(b.logs))
}

// welch adds the variances of two means of so many runs, with Welch's degrees of
// freedom. Beside a side of two runs they are at most two, as of two runs each: two
// may lie close together by chance, and against ten Welch's own test would show a
// difference in 10 % of the comparisons without one.
func welch(a, b term, runsA, runsB int) term {
	u, dof := combine(a, b)
	if min(runsA, runsB) == 2 {
		dof = min(dof, 2)
	}
	return term{u * u, dof}
}

// common is the variance of a difference by errors that stand behind several runs:
// one that changes both sides by the same factor is not in it.
func common(a, b *side) (v float64) {
	for _, by := range slices.Sorted(maps.Keys(a.shared)) {
		d := b.shared[by] - a.shared[by]
		v += d * d
	}
	for _, by := range slices.Sorted(maps.Keys(b.shared)) {
		if _, both := a.shared[by]; !both {
			v += b.shared[by] * b.shared[by]
		}
	}
	return v
}

// combine returns the root of the terms' sum and the effective degrees of freedom
// after Welch and Satterthwaite (GUM, G.4.1).
func combine(terms ...term) (u, dof float64) {
	var v, quartic float64
	for _, t := range terms {
		v += t.v
		if !math.IsInf(t.dof, 1) {
			quartic += t.v * t.v / t.dof
		}
	}
	if quartic == 0 {
		return math.Sqrt(v), math.Inf(1)
	}
	return math.Sqrt(v), v * v / quartic
}

// quantile is that of Student's distribution.
func quantile(p, dof float64) float64 {
	if dof > 1e6 {
		return distuv.UnitNormal.Quantile(p)
	}
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: dof}.Quantile(p)
}

// twoSided is the chance of a |t| as large or larger.
func twoSided(t, dof float64) float64 {
	if dof > 1e6 {
		return 2 * distuv.UnitNormal.Survival(math.Abs(t))
	}
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: dof}.Survival(math.Abs(t))
}

// Mean is what one version comes to.
type Mean struct {
	// Value is the geometric mean over the runs, in the quantity's unit; Low and High
	// hold it at Level, with all errors of the meter.
	Value, Low, High float64
	// Spread is the relative standard deviation of a run; NaN of a single one.
	Spread float64
	Runs   int
}

// U is half of the interval.
func (m Mean) U() float64 { return (m.High - m.Low) / 2 }

func (s *side) figure() Mean {
	terms := []term{s.chance()}
	for _, by := range slices.Sorted(maps.Keys(s.shared)) {
		c := s.shared[by]
		terms = append(terms, term{c * c, math.Inf(1)})
	}
	u, dof := combine(terms...)
	k := quantile((1+Level)/2, dof) * u
	return Mean{Value: math.Exp(s.mean), Low: math.Exp(s.mean - k), High: math.Exp(s.mean + k), Spread: s.spread, Runs: len(s.logs)}
}

// Cancelled is an error that A and B have in common.
type Cancelled struct {
	Behind string
	// A and B are what it does to each, relatively (k = 1), and Left what is left of it
	// in their ratio.
	A, B, Left float64
}

// cancelled lists the errors that both sides have, the largest first.
func cancelled(a, b *side) (out []Cancelled) {
	for by, c := range a.shared {
		if d, both := b.shared[by]; both {
			out = append(out, Cancelled{by, math.Abs(c), math.Abs(d), math.Abs(d - c)})
		}
	}
	slices.SortFunc(out, func(x, y Cancelled) int { return cmp.Or(cmp.Compare(y.A, x.A), cmp.Compare(x.Behind, y.Behind)) })
	return out
}
