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

// Welch is Welch's t-test of two means with variances of their own.
type Welch struct {
	T float64 `json:"t"`
	// DoF are the degrees of freedom after Welch and Satterthwaite.
	DoF float64 `json:"dof"`
	// Differ: chance alone makes a difference as large in less than 1 of 20 comparisons
	// (4.55 %, two-sided). Of 300 rows some 14 do by chance.
	Differ bool `json:"differ"`
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

// SideBySide puts tables beside each other, by instruction, layout, level and method, and
// holds every figure against the first of its row. Rows come in the order in which the tables
// have them; those that a single table has are left out.
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
		var first *BesideCell
		figures := 0
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
				c.Ratio = new(float64(c.Energy / first.Energy))
			}
		}
		if figures > 1 {
			out = append(out, *b)
		}
	}
	return out
}

// Row names a row of a table.
type Row struct {
	Instruction string `json:"instruction"`
	Layout      Layout `json:"layout"`
	Level       int    `json:"level"`
	Method      Method `json:"method"`
}

func (e *Estimate) row() Row { return Row{e.Instruction, e.Layout, e.Level, e.Method} }

// Check is one expectation that a table must meet: that one energy is larger than
// another.
type Check struct {
	Rule     Rule     `json:"rule"`
	Layout   Layout   `json:"layout"`
	Method   Method   `json:"method"`
	Quantity Quantity `json:"quantity"`
	Dearer   Figure   `json:"dearer"`
	Cheaper  Figure   `json:"cheaper"`
	// U is the expanded uncertainty of the difference (k for 95.45 %) by the spread over the
	// passes, or by an assumed spread where there is a single one.
	U       measure.Joule `json:"u_j"`
	Verdict Verdict       `json:"verdict"`
}

// Figure is one of the two energies.
type Figure struct {
	Instruction string        `json:"instruction"`
	Level       int           `json:"level"`
	Energy      measure.Joule `json:"energy_j"`
}

// Verdict is the outcome of an expectation.
type Verdict string

// The verdicts.
const (
	Holds       Verdict = "holds"
	WithinNoise Verdict = "within noise"
	Fails       Verdict = "fails"
)

// Rule is why one energy must be larger than another.
type Rule string

// The rules.
const (
	// Harder: a division is a loop of multiplications, and a multiplication many
	// additions.
	Harder Rule = "harder arithmetic costs more"
	// Wider: twice as many bits.
	Wider Rule = "f64 costs no less than f32"
	// Unoptimised: the compiler's work is not for nothing (Arafa et al., section VI).
	Unoptimised Rule = "-O0 costs no less than -O3"
	// Farther: data from further away.
	Farther Rule = "memory further away costs more"
)

// onePass is the standard uncertainty that is assumed of an energy measured once,
// as a part of the whole energy: powers repeat to half a watt in 126 on an H200,
// and the idle power drifts by a watt or two with the temperature.
const onePass = 0.01

// checker looks estimates of one method up.
type checker struct {
	m     Method
	table map[Row]Estimate
	out   []Check
}

// Checks compares a table with the order of energies that physics and the compiler imply, by
// one method. Pairs of which one was not measured are left out.
func Checks(table []Estimate, m Method) []Check {
	c := &checker{m: m, table: map[Row]Estimate{}}
	for _, e := range table {
		c.table[e.row()] = e
	}
	for _, chain := range [][]string{
		{"div.s32", "mul.lo.s32", "add.s32"},
		{"div.u32", "mul.lo.s32"},
		{"rem.s32", "mul.lo.s32"},
		{"rem.u32", "mul.lo.s32"},
		{"div.rn.f32", "mul.f32", "add.f32"},
		{"div.rn.f64", "mul.f64", "add.f64"},
	} {
		c.chain(Harder, OneThread, EnergyOf, chain...)
	}
	for _, op := range []string{"add.", "sub.", "min.", "max.", "mul.", "fma.rn.", "div.rn."} {
		c.chain(Wider, OneThread, EnergyOf, op+"f64", op+"f32")
		c.chain(Wider, WholeGPU, DynamicOf, op+"f64", op+"f32")
	}
	for _, i := range Catalogue() {
		c.add(Unoptimised, OneThread, EnergyOf, Figure{Instruction: i.Name}, Figure{Instruction: i.Name, Level: 3})
	}
	c.chain(Farther, WholeGPU, DynamicOf,
		"ld.global.cg.u64, from DRAM", "ld.global.cg.u64, hits L2", "ld.global.ca.u64, hits L1", "ld.shared.u32")
	return c.out
}

// chain checks each of a list against the next, the dearest first, at each level.
func (c *checker) chain(r Rule, layout Layout, q Quantity, names ...string) {
	for _, level := range []int{3, 0} {
		for n := range len(names) - 1 {
			c.add(r, layout, q, Figure{Instruction: names[n], Level: level},
				Figure{Instruction: names[n+1], Level: level})
		}
	}
}

// add checks that one figure is above another by more than their noise. Pairs of which one
// is missing are left out.
func (c *checker) add(r Rule, layout Layout, q Quantity, dearer, cheaper Figure) {
	a, okA := c.table[Row{dearer.Instruction, layout, dearer.Level, c.m}]
	b, okB := c.table[Row{cheaper.Instruction, layout, cheaper.Level, c.m}]
	if !okA || !okB {
		return
	}
	x, y := q.side(a), q.side(b)
	dearer.Energy, cheaper.Energy = x.Energy, y.Energy
	k := Check{Rule: r, Layout: layout, Method: c.m, Quantity: q, Dearer: dearer, Cheaper: cheaper}
	if a.Passes < 2 || b.Passes < 2 {
		k.U = measure.Joule(2 * (onePass * math.Hypot(float64(a.Energy), float64(b.Energy))))
	} else if x.Spread != 0 || y.Spread != 0 {
		u, dof := difference(x, y)
		k.U = measure.Joule(measure.CoverageFactor(dof) * u)
	}
	switch d := dearer.Energy - cheaper.Energy; {
	case d > k.U:
		k.Verdict = Holds
	case d >= -k.U:
		k.Verdict = WithinNoise
	default:
		k.Verdict = Fails
	}
	c.out = append(c.out, k)
}

// Failed counts the checks that fail.
func Failed(checks []Check) (n int) {
	for _, c := range checks {
		if c.Verdict == Fails {
			n++
		}
	}
	return n
}
