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
}

// groupSums are the sums over one group, each scan weighted with one.
type groupSums struct{ x, y, xx, xy, yy, pp float64 }

// take adds a group's sums times its weight.
func (s *railSums) take(g groupSums, w float64) {
	s.x.add(w * g.x)
	s.y.add(w * g.y)
	s.xx.add(w * g.xx)
	s.xy.add(w * g.xy)
	s.yy.add(w * g.yy)
	s.pp.add(w * g.pp)
}

// at returns the sums of a single scan.
func (r *railMeter) at(cols [][]Count, i int) groupSums {
	x, y := float64(cols[r.x][i]), 0.0
	if r.y >= 0 {
		y = float64(cols[r.y][i])
	}
	p := r.powerAt(cols, i)
	return groupSums{x, y, x * x, x * y, y * y, p * p}
}

// powerAt returns the rail's power at one scan, in watts.
func (r *railMeter) powerAt(cols [][]Count, i int) float64 {
	if r.y < 0 {
		return float64(r.lin.Power(cols[r.x][i], 0))
	}
	return float64(r.lin.Power(cols[r.x][i], cols[r.y][i]))
}

// group sums scans [from, to) with weight one each, or with the weights w where
// they are given. It adds the power to total and raises the rail's peak.
func (r *railMeter) group(cols [][]Count, from, to int, w, total []float64, peak *float64) groupSums {
	x := cols[r.x][from:to]
	var y []Count
	if r.y >= 0 {
		y = cols[r.y][from:to]
	}
	var g groupSums
	var top float64
	switch {
	case y == nil && w == nil:
		g, top = singleSums(x, r.lin, total[:len(x)])
	case y == nil:
		g, top = singleWeighted(x, w[:len(x)], r.lin, total[:len(x)])
	case w == nil:
		g, top = pairSums(x, y[:len(x)], r.lin, total[:len(x)])
	default:
		g, top = pairWeighted(x, y[:len(x)], w[:len(x)], r.lin, total[:len(x)])
	}
	*peak = max(*peak, top)
	return g
}

func singleSums(x []Count, l Linear, total []float64) (g groupSums, peak float64) {
	p0, px := l.I0*l.V0, l.IX*l.V0
	peak = math.Inf(-1)
	for i, c := range x {
		fx := float64(c)
		p := p0 + px*fx
		total[i] += p
		g.x += fx
		g.xx += fx * fx
		g.pp += p * p
		if p > peak {
			peak = p
		}
	}
	return g, peak
}

func singleWeighted(x []Count, w []float64, l Linear, total []float64) (g groupSums, peak float64) {
	p0, px := l.I0*l.V0, l.IX*l.V0
	peak = math.Inf(-1)
	for i, c := range x {
		fx, k := float64(c), w[i]
		p := p0 + px*fx
		total[i] += p
		g.x += k * fx
		g.xx += k * fx * fx
		g.pp += k * p * p
		if p > peak {
			peak = p
		}
	}
	return g, peak
}

func pairSums(x, y []Count, l Linear, total []float64) (g groupSums, peak float64) {
	peak = math.Inf(-1)
	for i, c := range x {
		fx, fy := float64(c), float64(y[i])
		p := (l.I0 + l.IX*fx + l.IY*fy) * (l.V0 + l.VY*fy)
		total[i] += p
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

func pairWeighted(x, y []Count, w []float64, l Linear, total []float64) (g groupSums, peak float64) {
	peak = math.Inf(-1)
	for i, c := range x {
		fx, fy, k := float64(c), float64(y[i]), w[i]
		p := (l.I0 + l.IX*fx + l.IY*fy) * (l.V0 + l.VY*fy)
		total[i] += p
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
