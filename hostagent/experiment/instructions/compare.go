package instructions

import (
	"math"

	"github.com/wattmark/wattmark/measure"
)

// Quantity is which of an estimate's two energies is meant.
type Quantity string

// The quantities.
const (
	EnergyOf  Quantity = "energy"  // the whole GPU's, while the instruction takes its time
	DynamicOf Quantity = "dynamic" // above the idle GPU's
)

// Side is one of two figures that are compared.
type Side struct {
	Energy measure.Joule `json:"energy_j"`
	Spread measure.Joule `json:"spread_j"`
	Passes int           `json:"passes"`
}

// Comparison holds two estimates of one instruction against each other.
type Comparison struct {
	Row
	A Side `json:"a"`
	B Side `json:"b"`
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
	// Differ: chance alone makes a difference as large in less than 1 of 20 comparisons
	// (4.55 %, two-sided). Of 300 rows some 14 do by chance.
	Differ bool `json:"differ"`
}

// Compare pairs two tables' rows of the same instruction, layout, level and
// method, in A's order. Rows that only one has are left out.
func Compare(a, b []Estimate, q Quantity) (out []Comparison) {
	for _, r := range SideBySide([][]Estimate{a, b}, q) {
		c := Comparison{Row: r.Row, A: r.Cells[0].Side, B: r.Cells[1].Side, Welch: r.Cells[1].Welch}
		if r.Cells[1].Ratio != nil {
			c.Ratio = *r.Cells[1].Ratio
		}
		out = append(out, c)
	}
	return out
}

// side takes the quantity's mean and spread of an estimate.
func (q Quantity) side(e Estimate) Side {
	if q == DynamicOf {
		return Side{e.Dynamic, e.DynamicSpread, e.Passes}
	}
	return Side{e.Energy, e.Spread, e.Passes}
}

// welch tests whether two means differ, by Welch's test. It is nil for a single pass, and
// for passes without any spread: they give no measure of chance.
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

// Beside is one row of several tables side by side.
type Beside struct {
	Row
	// Cells has one entry a table; nil where it has no such row.
	Cells []*BesideCell `json:"cells"`
}

// BesideCell is a figure of one table.
type BesideCell struct {
	Side
	// Ratio is the figure over that of the first table that has the row; nil where
	// that is zero, and 1 for that table itself.
	Ratio *float64 `json:"ratio"`
	// Welch tests it against that table's; nil where a side has one pass only.
	Welch *Welch `json:"welch,omitempty"`
}

// SideBySide puts tables beside each other, by instruction, layout, level and method.
// Rows come in the order in which the tables have them; those that a single table
// has are left out.
func SideBySide(tables [][]Estimate, q Quantity) []Beside {
	var all []*Beside
	at := map[Row]*Beside{}
	for n, table := range tables {
		for _, e := range table {
			b := at[e.row()]
			if b == nil {
				b = &Beside{e.row(), make([]*BesideCell, len(tables))}
				at[b.Row], all = b, append(all, b)
			}
			b.Cells[n] = &BesideCell{Side: q.side(e)}
		}
	}
	var out []Beside
	for _, b := range all {
		if b.relate() > 1 {
			out = append(out, *b)
		}
	}
	return out
}

// relate holds every figure against the first, and returns how many there are.
func (b *Beside) relate() (figures int) {
	var first *BesideCell
	for _, c := range b.Cells {
		if c == nil {
			continue
		}
		if figures++; figures == 1 {
			first = c
		} else {
			c.Welch = welch(first.Side, c.Side)
		}
		if first.Energy != 0 {
			r := float64(c.Energy / first.Energy)
			c.Ratio = &r
		}
	}
	return figures
}

// Row names a row of a table.
type Row struct {
	Instruction string `json:"instruction"`
	Layout      Layout `json:"layout"`
	Level       int    `json:"level"`
	Method      Method `json:"method"`
}

func (e *Estimate) row() Row { return Row{e.Instruction, e.Layout, e.Level, e.Method} }
