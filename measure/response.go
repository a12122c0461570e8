package measure

import (
	"math"
	"sort"

	"github.com/wattmark/wattmark/internal/lists"
)

// The trapezoid rule errs at a step of the power by ΔP·Δt/√12 rms, where the power changes within an instant. A card's
// does not: the smoother a step is, the less it counts where the scans lie. A marker shows how much less. It has many
// steps of one shape, at regular times, which lie anywhere between two scans; the energy that the rule gives behind a
// step shows where the rule places it. These places scatter about regular ones, beyond noise, by the rule's error, of
// any shape. The same regulators and filters smooth the work, so that its steps are no sharper.

const (
	// leastSteps is how many degrees of freedom the scatter needs: eight know it to a quarter.
	leastSteps = 8
	// mostScans is how many scans a step may have around it: a faster meter sees the whole response, and the rule errs
	// by little.
	mostScans = 512
)

// smoothness is the rule's error at steps of the load, over that of sudden ones: of the steps as jumps counts them,
// which for a step in two halves is less than all of it, so that the part may exceed 1; and of whole steps.
type smoothness struct{ jumps, whole float64 }

// stepped is a marker: its steps, and the scans around them.
type stepped struct {
	at             []float64 // ticks
	before, behind float64   // ticks around a step that hold no other
	ticks          []float64
	cols           [][]Count
}

// Steps announces the steps of a marker in device time, in their order, and the time before and behind each that holds
// no other. It is called before the first Add.
func (g *Integrator) Steps(at []Seconds, before, behind Seconds) {
	tb := g.setup.Timebase
	scan := tb.TicksPerScan
	if len(at) < leastSteps || tb.Stamped || g.stride > 1 || tb.Ticks(before) < 2.5*scan ||
		tb.Ticks(before+behind) > mostScans*scan {
		return
	}
	g.steps = append(g.steps, stepped{
		at: lists.Map(at, tb.Ticks), before: tb.Ticks(before), behind: tb.Ticks(behind),
		cols: make([][]Count, len(g.setup.Channels)),
	})
}

// observe keeps the scans of a block that lie in the marker.
func (m *stepped) observe(s *stretch[Count]) {
	lo := s.find(func(t float64) bool { return t >= m.at[0]-m.before })
	hi := s.find(func(t float64) bool { return t >= m.at[len(m.at)-1]+m.behind })
	for i := lo; i < hi; i++ {
		m.ticks = append(m.ticks, s.at(i))
	}
	for c := range m.cols {
		m.cols[c] = append(m.cols[c], s.cols[c][lo:hi]...)
	}
}

// smooth returns the smoothness of rail r, or of the sum for r = −1: 1 where no marker shows it.
func (g *Integrator) smooth(r int) smoothness {
	var all, apart scattered
	for i := range g.steps {
		g.place(&all, r, &g.steps[i], false)
		g.place(&apart, r, &g.steps[i], true)
	}
	if all.dof < leastSteps || all.jumps == 0 {
		return smoothness{1, 1}
	}
	square, noise, dof := all.square/all.dof, all.noise/all.dof, all.dof
	// Steps that begin before the one before is over seem irregular.
	if apart.dof >= leastSteps && apart.square/apart.dof < square/3 {
		square, noise, dof = apart.square/apart.dof, apart.noise/apart.dof, apart.dof
	}
	// Of normal errors the scatter is known to √(2/ν). Noise that hides it counts; that a step is worse than a sudden
	// one must be seen.
	seen, doubt := max(square-noise, 0), math.Sqrt(2/dof)
	jumps, whole := all.jumps/all.dof, all.whole/all.dof
	return smoothness{
		math.Sqrt(max(min((seen+noise*doubt)/jumps, 1), (min(seen, whole)-square*doubt)/jumps)),
		math.Sqrt(min((seen+noise*doubt)/whole, 1)),
	}
}

// Smoothness returns the error of the total by sampling at steps of the load, over that at sudden ones, as the markers
// read so far show it: 0 to 1.
func (g *Integrator) Smoothness() float64 { return min(g.smooth(-1).jumps, 1) }

// scattered sums over the steps of markers, in (W·scans)²: the squared errors, what noise adds to them, and the errors
// of sudden steps.
type scattered struct{ square, noise, jumps, whole, dof float64 }

// marked returns rail r's power in a marker, or that of the sum for r = −1.
func (g *Integrator) marked(m *stepped, r int) []float64 {
	out := make([]float64, len(m.ticks))
	for k := range g.meter.rails {
		if rail := &g.meter.rails[k]; r < 0 || k == r {
			for i := range out {
				out[i] += rail.power(pairAt(rail, m.cols, i))
			}
		}
	}
	return out
}

// around is a step with the scans around it: [lo, mid) before it, [mid, hi) behind it.
type around struct {
	at          float64
	lo, mid, hi int
	direction   int // 0 up, 1 down
	late        float64
}

// cut returns the steps all of whose scans are there; with apart, only those that come two chips or more behind the one
// before.
func (m *stepped) cut(scan float64, apart bool) (out []around) {
	before := func(t float64) int { return sort.SearchFloat64s(m.ticks, t) }
	for i, t := range m.at {
		if apart && i > 0 && t-m.at[i-1] < 1.5*m.behind {
			continue
		}
		x := around{at: t, lo: before(t - m.before), mid: before(t - scan/2), hi: before(t + m.behind)}
		if x.mid-x.lo < 2 || x.hi-x.mid < 3 {
			continue
		}
		first, last := m.ticks[x.lo], m.ticks[x.hi-1]
		if first < t-m.before+1.5*scan && last > t+m.behind-1.5*scan && last-first < (float64(x.hi-x.lo)-0.5)*scan {
			out = append(out, x)
		}
	}
	return out
}

// place adds a marker's steps, all or those apart.
func (g *Integrator) place(out *scattered, r int, m *stepped, apart bool) {
	scan := g.setup.Timebase.TicksPerScan
	p, all := g.marked(m, r), m.cut(scan, apart)
	var level, count [2]float64 // before steps up and steps down
	var noise, dof float64
	for i := range all {
		x := &all[i]
		var s, ss float64
		for _, w := range p[x.lo:x.mid] {
			s, ss = s+w, ss+w*w
		}
		n := float64(x.mid - x.lo)
		if p[x.hi-1] < s/n {
			x.direction = 1
		}
		level[x.direction], count[x.direction] = level[x.direction]+s, count[x.direction]+n
		noise, dof = noise+max(ss-s*s/n, 0), dof+n-1
	}
	free := float64(len(all)) - 3
	if count[0] == 0 || count[1] == 0 || free < 1 {
		return
	}
	step := level[1]/count[1] - level[0]/count[0]
	if step == 0 {
		return
	}
	for i := range all {
		x := &all[i]
		area, from := 0.0, level[x.direction]/count[x.direction]
		for k := x.lo; k < x.hi; k++ {
			area += p[k] - from
		}
		area -= (p[x.lo]+p[x.hi-1])/2 - from
		if x.direction == 1 {
			area = -area
		}
		x.late = (m.ticks[x.hi-1]-x.at)/scan - area/step
		var j jumps
		j.take(p[x.lo:x.hi])
		k := free / float64(len(all))
		out.noise += k * noise / dof * float64(x.hi-x.lo-1)
		out.jumps += k * j.sum() / 12
		out.whole += k * step * step / 12
	}
	out.square += step * step * irregular(all)
	out.dof += free
}

// irregular returns the sum of squares of how late the steps are, less the mean of each direction and the difference of
// two clocks' rates.
func irregular(all []around) (square float64) {
	var n, x, y [2]float64
	for i := range all {
		d := all[i].direction
		n[d], x[d], y[d] = n[d]+1, x[d]+all[i].at, y[d]+all[i].late
	}
	var xx, xy, yy float64
	for i := range all {
		d := all[i].direction
		dx, dy := all[i].at-x[d]/n[d], all[i].late-y[d]/n[d]
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	return max(yy-xy*xy/xx, 0)
}
