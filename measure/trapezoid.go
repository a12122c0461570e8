package measure

import (
	"fmt"
	"math"
)

// inside integrates within a block: whole intervals in bulk, the two that the
// window's ends cut one by one.
func (g *Integrator) inside(s *stretch, firstScan uint64) error {
	lo := s.find(func(t float64) bool { return t >= g.lo })
	hi := s.find(func(t float64) bool { return t > g.hi })
	if lo > 0 && lo < s.n {
		g.interval(s.cols, lo-1, s.at(lo-1), s.cols, lo, s.at(lo))
	}
	if hi > 0 && hi < s.n && hi != lo {
		g.interval(s.cols, hi-1, s.at(hi-1), s.cols, hi, s.at(hi))
	}
	if hi <= lo {
		return nil
	}
	if g.samples == 0 {
		g.firstSample = firstScan + uint64(lo)
	}
	g.samples += uint64(hi - lo)
	for from := lo; from < hi; from += groupScans {
		if err := g.group(s, lo, from, min(from+groupScans, hi), hi); err != nil {
			return fmt.Errorf("scan %d: %w", firstScan+uint64(from), err)
		}
	}
	if s.ticks == nil {
		// The bulk gave every scan a whole step; the outermost two have half of one.
		g.put(s.cols, lo, -s.step/2)
		g.put(s.cols, hi-1, -s.step/2)
		g.one2.add(float64(hi-lo-1) * s.step * s.step)
	}
	return nil
}

// group takes scans [from, to) of the whole intervals between scans lo and hi−1.
func (g *Integrator) group(s *stretch, lo, from, to, hi int) error {
	n, w, step := to-from, []float64(nil), s.step
	if s.ticks != nil {
		if err := g.weigh(s.ticks, lo, from, to, hi); err != nil {
			return err
		}
		w, step = g.weights[:n], 1
	} else {
		g.one.add(float64(n) * step)
	}
	power := g.power[:n]
	clear(power)
	for r := range g.rails {
		rail := &g.rails[r]
		rail.take(g.meter.rails[r].group(s.cols, from, to, w, power, &rail.peak), step)
	}
	var pp float64
	peak := g.total.peak
	for i, p := range power {
		k := 1.0
		if w != nil {
			k = w[i]
		}
		pp += k * p * p
		if p > peak {
			peak = p
		}
	}
	g.total.peak = peak
	g.total.pp.add(step * pp)
	for c := range g.noise {
		g.noise[c].observe(s.cols[c][from:to], g.stride)
	}
	return nil
}

// weigh fills the trapezoid's weights of scans [from, to): half the distance
// between the neighbours on either side, within [lo, hi).
func (g *Integrator) weigh(ticks []int64, lo, from, to, hi int) error {
	var one, one2 float64
	for i := from; i < to; i++ {
		before, after := ticks[i], ticks[i]
		if i > lo {
			before = ticks[i-1]
		}
		if i+1 < hi {
			after = ticks[i+1]
		}
		if before > ticks[i] || ticks[i] > after {
			return fmt.Errorf("tick %d between %d and %d: %w", ticks[i], before, after, ErrOrder)
		}
		w, d := float64(after-before)/2, float64(after-ticks[i])
		g.weights[i-from] = w
		one += w
		one2 += d * d
	}
	g.one.add(one)
	g.one2.add(one2)
	return nil
}

// interval integrates the straight line between two neighbouring scans over
// its part within the window. It returns the length of that part, in ticks.
func (g *Integrator) interval(c0 [][]Count, i0 int, t0 float64, c1 [][]Count, i1 int, t1 float64) float64 {
	a, b := max(t0, g.lo), min(t1, g.hi)
	if !(b > a) {
		return 0
	}
	// The weights are the integrals of the two hat functions over [a, b].
	k := (b - a) / (2 * (t1 - t0))
	g.put(c0, i0, k*((t1-a)+(t1-b)))
	g.put(c1, i1, k*((a-t0)+(b-t0)))
	g.one2.add((b - a) * (b - a))
	return b - a
}

// put adds one scan with weight w.
func (g *Integrator) put(cols [][]Count, i int, w float64) {
	g.one.add(w)
	var total float64
	for r := range g.rails {
		m := &g.meter.rails[r]
		total += m.powerAt(cols, i)
		g.rails[r].take(m.at(cols, i), w)
	}
	g.total.pp.add(w * total * total)
}

// bridge integrates from the last scan of the blocks before to the first of
// this one, and accounts for a gap of lost scans between them.
func (g *Integrator) bridge(s *stretch, lost uint64) {
	t := s.at(0)
	length := g.interval(g.prev, 0, g.lastTick, s.cols, 0, t)
	if lost == 0 || length == 0 {
		return
	}
	g.gaps++
	g.lost += uint64(math.Round(float64(lost) * length / (t - g.lastTick)))
	g.gap2 += length * length
	var step float64
	for r := range g.rails {
		m := &g.meter.rails[r]
		d := m.powerAt(s.cols, 0) - m.powerAt(g.prev, 0)
		g.rails[r].step2 += d * d * length * length / 12
		step += d
	}
	g.total.step2 += step * step * length * length / 12
}
