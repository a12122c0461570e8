package instructions

import "slices"

// Beside is one row of several tables side by side.
type Beside struct {
	Instruction string `json:"instruction"`
	Layout      Layout `json:"layout"`
	Level       int    `json:"level"`
	Method      Method `json:"method"`
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
	type key struct {
		instruction string
		layout      Layout
		level       int
		m           Method
	}
	var out []Beside
	at := map[key]int{}
	for n, table := range tables {
		for _, e := range table {
			k := key{e.Instruction, e.Layout, e.Level, e.Method}
			i, ok := at[k]
			if !ok {
				i = len(out)
				at[k] = i
				out = append(out, Beside{e.Instruction, e.Layout, e.Level, e.Method, make([]*BesideCell, len(tables))})
			}
			out[i].Cells[n] = &BesideCell{Side: q.side(e)}
		}
	}
	out = slices.DeleteFunc(out, func(b Beside) bool { return b.figures() < 2 })
	for i := range out {
		out[i].relate()
	}
	return out
}

func (b *Beside) figures() (n int) {
	for _, c := range b.Cells {
		if c != nil {
			n++
		}
	}
	return n
}

// relate holds every figure against the first.
func (b *Beside) relate() {
	var first *BesideCell
	for _, c := range b.Cells {
		switch {
		case c == nil:
			continue
		case first == nil:
			first = c
		default:
			c.Welch = welch(first.Side, c.Side)
		}
		if first.Energy != 0 {
			r := float64(c.Energy / first.Energy)
			c.Ratio = &r
		}
	}
}
