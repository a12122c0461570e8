package measure

import "math"

// groupScans is how many scans are summed plainly before the compensated sum
// takes them. Products of counts of up to 22 bits stay exact in a float64 over
// a group, so on a uniform timebase the grouping cannot change the result.
const groupScans = 256

// railSums are the running sums of one rail, in ticks instead of seconds.
type railSums struct {
	x, y, xx, xy, yy sum
	pp               sum // of power squared, for the spread of the power
	peak             float64
	// step2 sums (step × length)²/12 over the gaps, in (W·ticks)².
	step2 float64
	// bridged is the energy within the gaps, in W·ticks.
	bridged float64
	// slope sums the square of the second reading's slope, in count²/tick, where
	// the rail's readings are of two instants.
	slope sum
	jumps jumps
}

// groupSums are the sums over one group, each scan weighted with one.
type groupSums struct{ x, y, xx, xy, yy, pp float64 }

// plus returns s + w·g.
func (s groupSums) plus(g groupSums, w float64) groupSums {
	return groupSums{s.x + w*g.x, s.y + w*g.y, s.xx + w*g.xx, s.xy + w*g.xy, s.yy + w*g.yy, s.pp + w*g.pp}
}

// take adds a group's sums times its weight.
func (s *railSums) take(g groupSums, w float64) {
	s.x.add(w * g.x)
	s.y.add(w * g.y)
	s.xx.add(w * g.xx)
	s.xy.add(w * g.xy)
	s.yy.add(w * g.yy)
	s.pp.add(w * g.pp)
}

// sums returns the sums of a single scan.
func (r *railMeter) sums(p pair) groupSums {
	w := r.power(p)
	return groupSums{p.x, p.y, p.x * p.x, p.x * p.y, p.y * p.y, w * w}
}

// pair is a rail's two readings; y is zero for a rail of one channel.
type pair struct{ x, y float64 }

// pairAt returns the rail's readings at one scan.
func pairAt[T reading](r *railMeter, cols [][]T, i int) pair {
	if r.y < 0 {
		return pair{x: float64(cols[r.x][i])}
	}
	return pair{float64(cols[r.x][i]), float64(cols[r.y][i])}
}

// power returns the rail's power for its readings, in watts.
func (r *railMeter) power(p pair) float64 {
	l := &r.lin
	return (l.I0 + l.IX*p.x + l.IY*p.y) * (l.V0 + l.VY*p.y)
}

// group sums scans [from, to) with weight one each, or with the weights w where
// they are given. It returns the power in power and raises the rail's peak.
func group[T reading](r *railMeter, cols [][]T, from, to int, w, power []float64, peak *float64) groupSums {
	x := cols[r.x][from:to]
	var y []T
	if r.y >= 0 {
		y = cols[r.y][from:to]
	}
	var g groupSums
	var top float64
	switch {
	case y == nil && w == nil:
		g, top = singleSums(x, r.lin, power[:len(x)])
	case y == nil:
		g, top = singleWeighted(x, w[:len(x)], r.lin, power[:len(x)])
	case w == nil:
		g, top = pairSums(x, y[:len(x)], r.lin, power[:len(x)])
	default:
		g, top = pairWeighted(x, y[:len(x)], w[:len(x)], r.lin, power[:len(x)])
	}
	*peak = max(*peak, top)
	return g
}

func singleSums[T reading](x []T, l Linear, power []float64) (g groupSums, peak float64) {
	p0, px := l.I0*l.V0, l.IX*l.V0
	peak = math.Inf(-1)
	for i, c := range x {
		fx := float64(c)
		p := p0 + px*fx
		power[i] = p
		g.x += fx
		g.xx += fx * fx
		g.pp += p * p
		if p > peak {
			peak = p
		}
	}
	return g, peak
}

func singleWeighted[T reading](x []T, w []float64, l Linear, power []float64) (g groupSums, peak float64) {
	p0, px := l.I0*l.V0, l.IX*l.V0
	peak = math.Inf(-1)
	for i, c := range x {
		fx, k := float64(c), w[i]
		p := p0 + px*fx
		power[i] = p
		g.x += k * fx
		g.xx += k * fx * fx
		g.pp += k * p * p
		if p > peak {
			peak = p
		}
	}
	return g, peak
}

func pairSums[T reading](x, y []T, l Linear, power []float64) (g groupSums, peak float64) {
	peak = math.Inf(-1)
	for i, c := range x {
		fx, fy := float64(c), float64(y[i])
		p := (l.I0 + l.IX*fx + l.IY*fy) * (l.V0 + l.VY*fy)
		power[i] = p
		g.x += fx
		g.y += fy
		g.xx += fx * fx
		g.xy += fx * fy
		g.yy += fy * fy
		g.pp += p * p
		if p > peak {
			peak = p
		}
	}
	return g, peak
}

func pairWeighted[T reading](x, y []T, w []float64, l Linear, power []float64) (g groupSums, peak float64) {
	peak = math.Inf(-1)
	for i, c := range x {
		fx, fy, k := float64(c), float64(y[i]), w[i]
		p := (l.I0 + l.IX*fx + l.IY*fy) * (l.V0 + l.VY*fy)
		power[i] = p
		kx, ky := k*fx, k*fy
		g.x += kx
		g.y += ky
		g.xx += kx * fx
		g.xy += kx * fy
		g.yy += ky * fy
		g.pp += k * p * p
		if p > peak {
			peak = p
		}
	}
	return g, peak
}
