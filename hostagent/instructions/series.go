package instructions

import (
	"math"

	"wattmark/measure"
)

// powers are what one method read: with the block, without it, and at rest.
type powers struct{ with, without, idle measure.Watt }

// series is one cell of the table over the passes.
type series struct {
	energy, dynamic, power, idle, cycles []float64
	checked                              bool
}

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
