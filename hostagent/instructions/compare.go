package instructions

import (
	"math"

	"wattmark/measure"
)

// Quantity is which of an estimate's two energies is meant.
type Quantity string

// The quantities.
const (
	EnergyOf  Quantity = "energy"  // the whole GPU's, while the instruction takes its time
	DynamicOf Quantity = "dynamic" // above the idle GPU's
)

// of returns the energy of an estimate and its standard deviation over the passes.
func (q Quantity) of(e Estimate) (value, spread measure.Joule) {
	if q == DynamicOf {
		return e.Dynamic, e.DynamicSpread
	}
	return e.Energy, e.Spread
}

// Side is one of two figures that are compared.
type Side struct {
	Energy measure.Joule `json:"energy_j"`
	Spread measure.Joule `json:"spread_j"`
	Passes int           `json:"passes"`
}

// Comparison holds two estimates of one instruction against each other.
type Comparison struct {
	Instruction string `json:"instruction"`
	Layout      Layout `json:"layout"`
	Level       int    `json:"level"`
	Method      Method `json:"method"`
	A           Side   `json:"a"`
	B           Side   `json:"b"`
	// Ratio is B over A; zero where A is zero.
	Ratio float64 `json:"ratio"`
	// Welch is the test on the passes; nil where a side has one pass only.
	Welch *Welch `json:"welch,omitempty"`
}

// Welch is Welch's t-test of two means with variances of their own.
type Welch struct {
	T float64 `json:"t"`
	// DoF are the degrees of freedom after Welch and Satterthwaite.
	DoF float64 `json:"dof"`
	// Differ says that chance alone makes a difference as large in less than 1 of 20
	// comparisons (4.55 %, two-sided). Of 300 rows some 14 do by chance.
	Differ bool `json:"differ"`
}

// Compare pairs two tables' rows of the same instruction, layout, level and
// method, in A's order. Rows that only one has are left out.
func Compare(a, b []Estimate, q Quantity) []Comparison {
	type key struct {
		instruction string
		layout      Layout
		level       int
		m           Method
	}
	keyOf := func(e Estimate) key { return key{e.Instruction, e.Layout, e.Level, e.Method} }
	others := map[key]Estimate{}
	for _, e := range b {
		others[keyOf(e)] = e
	}
	var out []Comparison
	for _, e := range a {
		o, ok := others[keyOf(e)]
		if !ok {
			continue
		}
		c := Comparison{Instruction: e.Instruction, Layout: e.Layout, Level: e.Level, Method: e.Method, A: q.side(e), B: q.side(o)}
		if c.A.Energy != 0 {
			c.Ratio = float64(c.B.Energy / c.A.Energy)
		}
		c.Welch = welch(c.A, c.B)
		out = append(out, c)
	}
	return out
}

func (q Quantity) side(e Estimate) Side {
	v, s := q.of(e)
	return Side{v, s, e.Passes}
}

// welch tests whether two means differ. Nil where one pass, or passes that are
// all the same, tell nothing of chance.
func welch(a, b Side) *Welch {
	if a.Passes < 2 || b.Passes < 2 || a.Spread == 0 && b.Spread == 0 {
		return nil
	}
	u, dof := difference(a, b)
	w := &Welch{T: float64(b.Energy-a.Energy) / u, DoF: dof}
	w.Differ = math.Abs(w.T) > measure.CoverageFactor(w.DoF)
	return w
}

// difference is the standard uncertainty of the difference of two means, and its
// degrees of freedom after Welch and Satterthwaite.
func difference(a, b Side) (u, dof float64) {
	na, nb := float64(a.Passes), float64(b.Passes)
	va, vb := float64(a.Spread*a.Spread)/na, float64(b.Spread*b.Spread)/nb
	return math.Sqrt(va + vb), (va + vb) * (va + vb) / (va*va/(na-1) + vb*vb/(nb-1))
}
