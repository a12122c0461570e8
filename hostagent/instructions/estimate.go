package instructions

import (
	"cmp"
	"slices"
	"time"

	"wattmark/measure"
)

// Estimate is what one method says of one instruction in one setting.
type Estimate struct {
	Instruction string `json:"instruction"`
	Setting
	Method Method `json:"method"`
	// Energy is the instruction's by Arafa et al.: the energy of the kernel with the
	// block less that of the kernel without it, over the instructions that were
	// executed. It has the whole GPU's power while the instruction takes its time.
	Energy measure.Joule `json:"energy_j"`
	// Dynamic is the same of the power above that of the idle GPU.
	Dynamic measure.Joule `json:"dynamic_j"`
	// Spread is the standard deviation of Energy over the passes, DynamicSpread that
	// of Dynamic; zero of a single pass.
	Spread        measure.Joule `json:"spread_j"`
	DynamicSpread measure.Joule `json:"dynamic_spread_j"`
	Passes        int           `json:"passes"`
	// Power with the block, and of the idle GPU, means over the passes.
	Power measure.Watt `json:"power_w"`
	Idle  measure.Watt `json:"idle_w"`
	// Cycles that a step added to thread 0, over its instructions: the latency
	// where one thread runs.
	Cycles  float64 `json:"cycles"`
	Checked bool    `json:"checked"`
}

// baseKey is what a run and the run without its block have in common.
type baseKey struct {
	campaign int64 // when it began; a time.Time compares its zone as well
	pass     int
	s        Setting
	base     string
}

func (r *Run) baseKey() baseKey {
	return baseKey{r.Campaign.UnixNano(), r.Pass, r.Setting, r.Base}
}

// idleKey names the power at rest that a run is held against.
type idleKey struct {
	campaign int64
	layout   Layout
	method   Method
}

func (r *Run) idleKey(m Method) idleKey {
	return idleKey{r.Campaign.UnixNano(), r.Layout, m}
}

// cell is one place of the table.
type cell struct {
	instruction string
	s           Setting
	m           Method
}

// Estimates makes the table of a plan's runs, in the catalogue's order. Runs of
// several campaigns count as further passes. Runs without a partner, or without a
// measurement of the idle GPU in their campaign, are left out.
func Estimates(runs []Run) []Estimate {
	order := map[string]int{}
	for n, i := range Catalogue() {
		order[i.Name] = n
	}
	var out []Estimate
	for c, s := range cells(runs) {
		out = append(out, s.estimate(c))
	}
	slices.SortFunc(out, func(a, b Estimate) int {
		return cmp.Or(
			cmp.Compare(a.Layout, b.Layout), cmp.Compare(order[a.Instruction], order[b.Instruction]),
			cmp.Compare(b.Level, a.Level), cmp.Compare(a.Steps, b.Steps),
			cmp.Compare(slices.Index(Methods(), a.Method), slices.Index(Methods(), b.Method)),
		)
	})
	return out
}

// partners returns the runs without a block, and the idle powers.
func partners(runs []Run) (map[baseKey]*Run, map[idleKey]*mean) {
	bases, idle := map[baseKey]*Run{}, map[idleKey]*mean{}
	for n := range runs {
		r := &runs[n]
		switch {
		case r.Error != "":
		case r.Instruction == Idle:
			for m, p := range r.Power {
				k := r.idleKey(m)
				if idle[k] == nil {
					idle[k] = new(mean)
				}
				idle[k].add(p)
			}
		case !r.Block:
			bases[r.baseKey()] = r
		}
	}
	return bases, idle
}

// cells pairs runs and gathers what each says.
func cells(runs []Run) map[cell]*series {
	known := map[string]Instruction{}
	for _, i := range Catalogue() {
		known[i.Name] = i
	}
	bases, idle := partners(runs)
	out := map[cell]*series{}
	for n := range runs {
		r := &runs[n]
		base, i := bases[r.baseKey()], known[r.Instruction]
		if !r.Block || r.Error != "" || base == nil || i.Name == "" || !r.counted() || !base.counted() {
			continue
		}
		for m, p := range r.Power {
			without, both := base.Power[m]
			rest := idle[r.idleKey(m)]
			if !both || rest == nil {
				continue
			}
			c := cell{r.Instruction, r.Setting, m}
			if out[c] == nil {
				out[c] = &series{}
			}
			out[c].add(i, r, base, powers{p, without, rest.value()})
		}
	}
	return out
}

// counted reports whether a run has what energies are divided by: a file from
// elsewhere may lack it.
func (r *Run) counted() bool { return r.Turns > 0 && r.Threads > 0 && r.Steps > 0 }

// Campaigns lists when the runs' campaigns began, oldest first.
func Campaigns(runs []Run) []time.Time {
	var out []time.Time
	for n := range runs {
		if at := runs[n].Campaign; !slices.ContainsFunc(out, at.Equal) {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

// Cards lists the GPUs that runs were made on, by UUID.
func Cards(runs []Run) []string {
	var out []string
	for n := range runs {
		if id := runs[n].UUID; !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
