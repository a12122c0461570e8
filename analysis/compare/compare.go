// Package compare compares measurements of two versions of some work, A and B: their ratios in energy, time, mean
// power and the energy-delay products, with an interval and a test. Its nouns: a Run is one measurement with its
// Errors, a Quantity a product of powers of energy and time, an Effect the ratio of B to A in a quantity, PerWork the
// ratio by amount of work, a Randomisation the exact test of pairs.
//
// All computation is on logarithms, where products are sums and ratios differences: means are geometric. An error
// with a common source, such as the gain of one meter, changes A and B by the same factor and cancels; an error that
// is new with every run does not. [Error.Behind] names the source.
//
// Runs in pairs whose order was drawn at random are tested by their differences (paired, [Effect.Randomise]), others
// in turns by a regression that takes a drift off ([Design], regress). In blocks a drift of the card looks the same
// as a difference, and one run shows no scatter: there is a ratio with an interval that names what it covers, and no
// test.
//
// The package is pure, its functions safe for concurrent use.
package compare

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat"
)

// ErrRuns: the runs cannot be compared.
var ErrRuns = errors.New("cannot be compared")

// Level is the confidence of intervals; a test shows a difference at p < 1 − Level.
const Level = 0.95

// Error is one error of a run: the relative change of energy and time by a standard
// deviation of it (k = 1). An error that enlarges both has the same sign in both.
type Error struct {
	// Behind names its source. Errors of the same name are one error, in whichever
	// runs. Empty: it is new with every run.
	Behind       string
	Energy, Time float64
}

// Run is one measurement of one version: both values positive.
type Run struct {
	Name   string
	At     time.Time // when it began; zero where it is not known
	Energy measure.Joule
	Time   measure.Seconds
	Errors []Error
	Turn   Turn // in a series of pairs of random order; zero for none
}

// Quantity is a compared quantity: Energy^a · Time^b.
type Quantity struct {
	Name string `json:"quantity"`
	Unit string `json:"unit"`
	a, b float64
}

// The quantities. The products are those of R. Gonzalez and M. Horowitz (IEEE
// J. Solid-State Circuits 31 (1996) 1277–1284), and A. J. Martin's with the time
// squared, which does not change with voltage.
var (
	Energy = Quantity{"energy", "J", 1, 0}
	Time   = Quantity{"time", "s", 0, 1}
	Power  = Quantity{"mean power", "W", 1, -1}
	EDP    = Quantity{"energy-delay product", "J·s", 1, 1}
	ED2P   = Quantity{"energy-delay² product", "J·s²", 1, 2}
)

// check refuses values without a logarithm. Errors wrap ErrRuns.
func check(side string, runs []Run) error {
	if len(runs) == 0 {
		return fmt.Errorf("%w: %s has no runs", ErrRuns, side)
	}
	for _, r := range runs {
		for _, v := range []float64{float64(r.Energy), float64(r.Time)} {
			if !(v > 0) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: %s of %s: energy %v in %v: both must be positive", ErrRuns, r.Name, side,
					r.Energy, r.Time)
			}
		}
		for _, e := range r.Errors {
			if math.IsNaN(e.Energy+e.Time) || math.IsInf(e.Energy+e.Time, 0) {
				return fmt.Errorf("%w: %s of %s: an error (%q) is not finite", ErrRuns, r.Name, side, e.Behind)
			}
		}
	}
	return nil
}

// side is one version's runs, seen by one quantity, on logarithms.
type side struct {
	logs   []float64
	mean   float64
	spread float64 // standard deviation of a run, from the runs; NaN of one
	own    float64 // standard uncertainty by errors new with every run
	shared map[string]float64
}

// newSide sums up runs: errors of one source add up over the runs before they are averaged.
func newSide(runs []Run, q Quantity) side {
	s := side{spread: math.NaN(), shared: map[string]float64{}}
	var own float64
	n := float64(len(runs))
	for _, r := range runs {
		s.logs = append(s.logs, q.a*math.Log(float64(r.Energy))+q.b*math.Log(float64(r.Time)))
		for _, e := range r.Errors {
			// The relative change of the quantity by a standard deviation of the error.
			c := q.a*e.Energy + q.b*e.Time
			if e.Behind == "" {
				own += c * c / n
			} else {
				s.shared[e.Behind] += c / n
			}
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

// chance returns the variance of the mean by errors new with every run: the runs'
// scatter, or the budget of a single one.
func (s *side) chance() term {
	if n := float64(len(s.logs)); n > 1 {
		return term{s.spread * s.spread / n, n - 1}
	}
	return term{s.own * s.own, math.Inf(1)}
}

// chances returns the same of a difference of independent runs, with the degrees of
// freedom of B. L. Welch (Biometrika 34 (1947) 28–35). A single run on one side is taken
// to scatter as the other side does, where that exceeds its budget. Beside a side of two
// runs the degrees of freedom are at most two: two may lie close together by chance.
func chances(a, b *side) term {
	lone, many := a, b
	if len(b.logs) == 1 {
		lone, many = b, a
	}
	if len(lone.logs) == 1 && len(many.logs) > 1 && many.spread > lone.own {
		n := float64(len(many.logs))
		return term{many.spread * many.spread * (1 + 1/n), n - 1}
	}
	u, dof := combine(a.chance(), b.chance())
	if min(len(a.logs), len(b.logs)) == 2 {
		dof = min(dof, 2)
	}
	return term{u * u, dof}
}

// common is the variance of a difference by errors that stand behind several runs:
// one that changes both sides by the same factor is not in it.
func common(a, b *side) (v float64) {
	all := maps.Clone(a.shared)
	maps.Copy(all, b.shared)
	for _, by := range slices.Sorted(maps.Keys(all)) {
		d := b.shared[by] - a.shared[by]
		v += d * d
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

// Mean is a version's mean over its runs.
type Mean struct {
	// Value is the geometric mean over the runs, in the quantity's unit; Low and High
	// hold it at Level, with all errors of the meter.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Spread is the relative standard deviation of a run; NaN of a single one.
	Spread measure.Ratio `json:"spread_pct"`
	Runs   int           `json:"runs"`
}

// U is half of the interval.
func (m Mean) U() float64 { return (m.High - m.Low) / 2 }

// figure returns the mean with all errors of the meter.
func (s *side) figure() Mean {
	terms := []term{s.chance()}
	for _, by := range slices.Sorted(maps.Keys(s.shared)) {
		c := s.shared[by]
		terms = append(terms, term{c * c, math.Inf(1)})
	}
	u, dof := combine(terms...)
	k := stats.Student((1+Level)/2, dof) * u
	return Mean{math.Exp(s.mean), math.Exp(s.mean - k), math.Exp(s.mean + k), measure.Ratio(s.spread), len(s.logs)}
}

// Figure returns the mean of repeated runs of one version. Its interval holds the scatter
// of the runs, taken as independent, and the meter's errors.
func Figure(runs []Run, q Quantity) (Mean, error) {
	if err := check("the work", runs); err != nil {
		return Mean{}, err
	}
	s := newSide(runs, q)
	return s.figure(), nil
}

// Cancelled is an error that A and B have in common.
type Cancelled struct {
	Behind string `json:"source"`
	// A and B are its relative standard uncertainties of each, and Left that of their
	// ratio.
	A    measure.Ratio `json:"a_pct"`
	B    measure.Ratio `json:"b_pct"`
	Left measure.Ratio `json:"left_pct"`
}

// Work is the amounts of work that a run of A and of B does, exactly known, in one unit:
// 4.4e12 flop.
type Work struct {
	Unit string
	A, B float64
}

// PerWork is energy by work.
type PerWork struct {
	Unit   string  `json:"unit"`
	WorkA  float64 `json:"work_a"`
	WorkB  float64 `json:"work_b"`
	A      Mean    `json:"a_j_per_unit"`
	B      Mean    `json:"b_j_per_unit"`
	Change         // of the energies, each by its own work
	// P is not corrected. Corrected is that of the energies where A and B do the same work,
	// else P.
	P         measure.Number `json:"p"`
	Corrected measure.Number `json:"p_corrected"`
	RateA     float64        `json:"a_per_s"` // units a second
	RateB     float64        `json:"b_per_s"`
}

// Per divides the energies by the work of a run of A and of B. energy and time are the
// effects in these quantities.
func Per(energy, time *Effect, w Work) (PerWork, error) {
	for _, amount := range []float64{w.A, w.B} {
		if !(amount > 0) || math.IsInf(amount, 0) || w.Unit == "" {
			return PerWork{}, fmt.Errorf("%w: work %q of %v: want a unit and a positive amount", ErrRuns, w.Unit,
				amount)
		}
	}
	scale := w.A / w.B
	out := PerWork{
		Unit: w.Unit, WorkA: w.A, WorkB: w.B, A: energy.A.by(w.A), B: energy.B.by(w.B),
		Change: newChange(energy.Ratio*scale, energy.Low*scale, energy.High*scale, energy.U),
		RateA:  w.A / time.A.Value, RateB: w.B / time.B.Value, P: energy.P, Corrected: energy.Corrected,
	}
	if scale != 1 {
		out.P = energy.chanceOf(-math.Log(scale))
		out.Corrected = out.P
	}
	return out, nil
}

// by divides a mean by an amount of work.
func (m Mean) by(amount float64) Mean {
	m.Value, m.Low, m.High = m.Value/amount, m.Low/amount, m.High/amount
	return m
}

// ParseWork reads UNIT=AMOUNT, the work of a run of either, and UNIT=A,B. Amounts are
// positive and finite.
func ParseWork(s string) (Work, error) {
	unit, amounts, ok := strings.Cut(s, "=")
	a, b, two := strings.Cut(amounts, ",")
	if !two {
		b = a
	}
	w := Work{Unit: strings.TrimSpace(unit)}
	var err1, err2 error
	w.A, err1 = strconv.ParseFloat(strings.TrimSpace(a), 64)
	w.B, err2 = strconv.ParseFloat(strings.TrimSpace(b), 64)
	// The negated comparison refuses NaN too.
	if !ok || w.Unit == "" || err1 != nil || err2 != nil || !(min(w.A, w.B) > 0) || math.IsInf(max(w.A, w.B), 0) {
		return Work{}, fmt.Errorf("%q: want a unit and positive amounts, as in flop=4.4e12 or token=512,640", s)
	}
	return w, nil
}
