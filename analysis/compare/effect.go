package compare

import "math"

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
	// P is the chance of a difference as large where there is none; NaN where nothing
	// is known of chance.
	P float64
	// Holm is P in view of all tests of a family; P itself of a single one.
	Holm float64
	// Cancelled are the errors that A and B share.
	Cancelled []Cancelled

	a, b side
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
	e := Effect{Quantity: q, A: sa.figure(), B: sb.figure(), a: sa, b: sb, Cancelled: cancelled(&sa, &sb)}
	fixed := common(&sa, &sb)
	e.U, e.DoF = combine(append(chances(&sa, &sb), term{fixed, math.Inf(1)})...)
	e.Common = math.Sqrt(fixed)
	d := sb.mean - sa.mean
	k := quantile((1+Level)/2, e.DoF) * e.U
	e.Ratio, e.Low, e.High = math.Exp(d), math.Exp(d-k), math.Exp(d+k)
	e.P = math.NaN()
	if e.U > 0 {
		e.P = twoSided(d/e.U, e.DoF)
	}
	e.Holm = e.P
	return e, nil
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
