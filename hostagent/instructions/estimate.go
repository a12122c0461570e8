package instructions

import (
	"cmp"
	"math"
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

// key is what runs are paired by.
type key struct {
	at   time.Time // of the campaign
	pass int
	s    Setting
	base string
}

// Estimates makes the table of a plan's runs, in the catalogue's order. Runs
// without a partner are left out.
func Estimates(runs []Run) []Estimate {
	bases, idle := map[key]Run{}, map[Layout]map[Method]*mean{}
	for _, r := range runs {
		switch {
		case r.Instruction == Idle:
			if idle[r.Layout] == nil {
				idle[r.Layout] = map[Method]*mean{}
			}
			for m, p := range r.Power {
				if idle[r.Layout][m] == nil {
					idle[r.Layout][m] = new(mean)
				}
				idle[r.Layout][m].add(p)
			}
		case !r.Block && r.Error == "":
			bases[key{r.Campaign, r.Pass, r.Setting, r.Base}] = r
		}
	}
	type cell struct {
		i string
		s Setting
		m Method
	}
	ops, order := map[string]Instruction{}, map[string]int{}
	for n, i := range Catalogue() {
		ops[i.Name], order[i.Name] = i, n
	}
	samples := map[cell]*series{}
	for _, r := range runs {
		base, ok := bases[key{r.Campaign, r.Pass, r.Setting, r.Base}]
		i, known := ops[r.Instruction]
		if !r.Block || r.Error != "" || !ok || !known {
			continue
		}
		for m, p := range r.Power {
			if _, both := base.Power[m]; !both || idle[r.Layout][m] == nil {
				continue
			}
			c := cell{r.Instruction, r.Setting, m}
			if samples[c] == nil {
				samples[c] = &series{}
			}
			samples[c].add(i, r, base, p, base.Power[m], idle[r.Layout][m].value())
		}
	}
	var out []Estimate
	for c, s := range samples {
		out = append(out, s.estimate(c.i, c.s, c.m))
	}
	slices.SortFunc(out, func(a, b Estimate) int {
		return cmp.Or(
			cmp.Compare(a.Layout, b.Layout), cmp.Compare(order[a.Instruction], order[b.Instruction]),
			cmp.Compare(b.Level, a.Level), cmp.Compare(slices.Index(Methods(), a.Method), slices.Index(Methods(), b.Method)),
		)
	})
	return out
}

// series is one cell of the table over the passes.
type series struct {
	energy, dynamic, power, cycles []float64
	idle                           measure.Watt
	checked                        bool
}

func (s *series) add(i Instruction, r, base Run, with, without, idle measure.Watt) {
	per := float64(r.Steps*i.Ops) * float64(r.Threads) / float64(i.Threads)
	tw, tb := float64(r.Time)/float64(r.Turns), float64(base.Time)/float64(base.Turns)
	s.energy = append(s.energy, (float64(with)*tw-float64(without)*tb)/per)
	s.dynamic = append(s.dynamic, (float64(with-idle)*tw-float64(without-idle)*tb)/per)
	s.power = append(s.power, float64(with))
	s.cycles = append(s.cycles, (float64(r.Cycles)/float64(r.Turns)-float64(base.Cycles)/float64(base.Turns))/float64(r.Steps*i.Ops))
	s.idle, s.checked = idle, r.Checked
}

func (s *series) estimate(name string, set Setting, m Method) Estimate {
	e, se := meanOf(s.energy)
	d, sd := meanOf(s.dynamic)
	p, _ := meanOf(s.power)
	c, _ := meanOf(s.cycles)
	return Estimate{
		Instruction: name, Setting: set, Method: m, Energy: measure.Joule(e), Dynamic: measure.Joule(d),
		Spread: measure.Joule(se), DynamicSpread: measure.Joule(sd), Passes: len(s.energy),
		Power: measure.Watt(p), Idle: s.idle, Cycles: c, Checked: s.checked,
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
