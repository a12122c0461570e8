package instructions

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// Estimate is the energy of one instruction in one setting by one method.
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

// baseKey is common to a run and the run without its block.
type baseKey struct {
	campaign int64 // when it began; a time.Time compares its zone as well
	pass     int
	s        Setting
	base     string
}

// baseKey names the run without the block that belongs to this one.
func (r *Run) baseKey() baseKey { return baseKey{r.Campaign.UnixNano(), r.Pass, r.Setting, r.Base} }

// idleKey names the power at rest that a run is held against.
type idleKey struct {
	campaign int64
	layout   Layout
	method   Method
}

// idleKey names the mean power at rest that belongs to this run.
func (r *Run) idleKey(m Method) idleKey { return idleKey{r.Campaign.UnixNano(), r.Layout, m} }

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

// cells pairs each run with its run without the block, and gathers them by cell.
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

// counted reports whether a run has the counts that energies are divided by: a file from
// elsewhere may lack them.
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

// powers are one method's means: with the block, without it, and at rest.
type powers struct{ with, without, idle measure.Watt }

// series is one cell of the table over the passes.
type series struct {
	energy, dynamic, power, idle, cycles []float64
	checked                              bool
}

// add adds one pass: with a block of n steps, t the time of a turn of the loop,
//
//	E = (P·t − P′·t′) / (n·threads),  dynamic E the same of P − P(idle) and P′ − P(idle)
//
// where the primes are of the kernel without the block.
func (s *series) add(i Instruction, r, base *Run, p powers) {
	steps := float64(r.Steps * i.Ops)
	per := steps * float64(r.Threads) / float64(i.Threads)
	tw, tb := float64(r.Time)/float64(r.Turns), float64(base.Time)/float64(base.Turns)
	s.energy = append(s.energy, (float64(p.with)*tw-float64(p.without)*tb)/per)
	s.dynamic = append(s.dynamic, (float64(p.with-p.idle)*tw-float64(p.without-p.idle)*tb)/per)
	s.power, s.idle = append(s.power, float64(p.with)), append(s.idle, float64(p.idle))
	s.cycles = append(s.cycles, (float64(r.Cycles)/float64(r.Turns)-float64(base.Cycles)/float64(base.Turns))/steps)
	s.checked = r.Checked
}

// estimate takes the means over the passes.
func (s *series) estimate(c cell) Estimate {
	e, se := meanOf(s.energy)
	d, sd := meanOf(s.dynamic)
	p, _ := meanOf(s.power)
	idle, _ := meanOf(s.idle)
	cycles, _ := meanOf(s.cycles)
	return Estimate{
		Instruction: c.instruction, Setting: c.s, Method: c.m, Energy: measure.Joule(e), Dynamic: measure.Joule(d),
		Spread: measure.Joule(se), DynamicSpread: measure.Joule(sd), Passes: len(s.energy),
		Power: measure.Watt(p), Idle: measure.Watt(idle), Cycles: cycles, Checked: s.checked,
	}
}

// meanOf returns mean and sample standard deviation, zero of a single value.
func meanOf(v []float64) (m, s float64) {
	for _, x := range v {
		m += x
	}
	m /= float64(len(v))
	for _, x := range v {
		s += (x - m) * (x - m)
	}
	if len(v) < 2 {
		return m, 0
	}
	return m, math.Sqrt(s / float64(len(v)-1))
}
