package compare

import "math"

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

func coverage(a, b *side) Coverage {
	switch {
	case len(a.logs) > 1 && len(b.logs) > 1:
		return BothSides
	case len(a.logs) > 1 || len(b.logs) > 1:
		return OneSide
	}
	return Meters
}

// Effect is by how much B differs from A in one quantity.
type Effect struct {
	Quantity Quantity
	A, B     Mean
	// Ratio is B over A; Low and High hold it at Level.
	Ratio, Low, High float64
	// U is the standard uncertainty of the ratio's logarithm, DoF its degrees of
	// freedom (+Inf for a budget's), Common the part of U by errors that stand behind
	// several runs and do not cancel.
	U, DoF, Common float64
	// Holds says what the interval of the ratio covers.
	Holds Coverage
	// P is the chance of a difference as large where there is none. It is NaN where a
	// side has one run, or where the runs do not scatter and have no budget.
	P float64
	// Holm is P in view of all tests of a family; P itself of a single one.
	Holm float64
	// Cancelled are the errors that A and B share.
	Cancelled []Cancelled

	a, b  side
	turns bool // the runs took turns
}

// Change is what B has more than A, relatively: −0.1 for ten percent less.
func (e *Effect) Change() float64 { return e.Ratio - 1 }

// ChangeU is half of the interval of Change.
func (e *Effect) ChangeU() float64 { return (e.High - e.Low) / 2 }

// Shown reports whether a difference was shown at Level, in view of all tests of
// the family.
func (e *Effect) Shown() bool { return e.Holm < 1-Level }

// Between compares B with A in one quantity.
func Between(a, b []Run, q Quantity) (Effect, error) {
	if err := check("A", a); err != nil {
		return Effect{}, err
	}
	if err := check("B", b); err != nil {
		return Effect{}, err
	}
	sa, sb := newSide(a, q), newSide(b, q)
	e := Effect{Quantity: q, A: sa.figure(), B: sb.figure(), a: sa, b: sb, Cancelled: cancelled(&sa, &sb), Holds: coverage(&sa, &sb), turns: Interleaved(a, b)}
	fixed := common(&sa, &sb)
	e.U, e.DoF = combine(chances(&sa, &sb), term{fixed, math.Inf(1)})
	e.Common = math.Sqrt(fixed)
	d := sb.mean - sa.mean
	k := quantile((1+Level)/2, e.DoF) * e.U
	e.Ratio, e.Low, e.High = math.Exp(d), math.Exp(d-k), math.Exp(d+k)
	e.P = e.chanceOf(d)
	e.Holm = e.P
	return e, nil
}

// chanceOf is the chance of a difference of logarithms as large where there is none.
// With one run on either side nothing was seen of how that side's work scatters, and
// there is no such figure: NaN.
func (e *Effect) chanceOf(difference float64) float64 {
	if e.Holds != BothSides || !(e.U > 0) {
		return math.NaN()
	}
	return twoSided(difference/e.U, e.DoF)
}

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
