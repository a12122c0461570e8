package attribute

import (
	"math"

	"wattmark/measure"
	"wattmark/measure/clock"
)

// sum is a compensated sum (A. Neumaier, ZAMM 54 (1974) 39–51).
type sum struct{ s, c float64 }

func (a *sum) add(v float64) {
	t := a.s + v
	if math.Abs(a.s) >= math.Abs(v) {
		a.c += (a.s - t) + v
	} else {
		a.c += (v - t) + a.s
	}
	a.s = t
}

func (a *sum) value() float64 { return a.s + a.c }

func (a *sum) take(b *sum) {
	a.add(b.s)
	a.add(b.c)
}

// slope is the derivative of an energy by the clock fit's A and by its B, where
// the power beside each edge is taken from one side.
type slope struct{ a, b sum }

func (s *slope) add(p, host float64) {
	s.a.add(p)
	s.b.add(p * host)
}

func (s *slope) take(o *slope) {
	s.a.take(&o.a)
	s.b.take(&o.b)
}

// u is the standard uncertainty that the clock fit makes in the energy.
func (s *slope) u(f *clock.Fit) float64 {
	a, b := s.a.value(), s.b.value()
	return math.Sqrt(max(a*a*f.VarA+2*a*b*f.CovAB+b*b*f.VarB, 0))
}

// account is what is booked for one name.
type account struct {
	launches, short uint64
	busy            sum
	share, energy   sum
	// An edge often lies on a step of power: what a shift of it gains or loses
	// depends on the side. So the power is taken on either side.
	before, after slope
	// The share's change times the step of power, over the edges, in watts: what a
	// kernel that is hotter than those beside it loses to them has one sign.
	spill   sum
	scatter sum // of its square
	running int
}

// edge books that the account's share of the power changes by d at an edge with
// these powers beside it.
func (a *account) edge(d, before, after, host float64) {
	if d == 0 {
		return
	}
	a.before.add(-d*before, host)
	a.after.add(-d*after, host)
	step := d * (after - before)
	a.spill.add(step)
	a.scatter.add(step * step)
}

// take moves all of another account here.
func (a *account) take(o *account) {
	for _, p := range [][2]*sum{
		{&a.busy, &o.busy}, {&a.share, &o.share}, {&a.energy, &o.energy}, {&a.spill, &o.spill}, {&a.scatter, &o.scatter},
	} {
		p[0].take(p[1])
	}
	a.before.take(&o.before)
	a.after.take(&o.after)
}

// scatterShare is the standard deviation of what one step of 1 W spills over an
// edge, by its place within a scan of 1 s: √(1/20 − 1/36), see
// docs/auto.md.
const scatterShare = 0.14907

func (a *account) use(c *Config) Use {
	return Use{
		Launches: a.launches, Short: a.short,
		Busy: measure.Seconds(a.busy.value()), Share: measure.Seconds(a.share.value()), Energy: measure.Joule(a.energy.value()),
		UEdges: measure.Joule(max(a.before.u(&c.Clock), a.after.u(&c.Clock))),
		USampling: measure.Joule(math.Hypot(float64(c.Spill)*a.spill.value(),
			scatterShare*float64(c.Resolution)*math.Sqrt(max(a.scatter.value(), 0)))),
	}
}
