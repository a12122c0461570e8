package measure

import (
	"fmt"
	"math"
)

// groupScans is how many scans are summed plainly before the compensated sum
// takes them. Products of counts of up to 22 bits stay exact in a float64 over
// a group, so on a uniform timebase the grouping cannot change the result.
const groupScans = 256

// railSums are the running sums of one rail, in ticks instead of seconds.
type railSums struct {
	x, y, xx, xy, yy Sum
	pp               Sum // of power squared, for the spread of the power
	peak             float64
	// step2 sums (step × length)²/12 over the gaps, in (W·ticks)².
	step2 float64
	// bridged is the energy within the gaps, in W·ticks.
	bridged float64
	// slope sums the square of the second reading's slope, in count²/tick, where
	// the rail's readings are of two instants.
	slope Sum
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
	s.x.Add(w * g.x)
	s.y.Add(w * g.y)
	s.xx.Add(w * g.xx)
	s.xy.Add(w * g.xy)
	s.yy.Add(w * g.yy)
	s.pp.Add(w * g.pp)
}

// sumsOf returns the sums of a single scan of that power.
func sumsOf(p pair, watts float64) groupSums {
	return groupSums{p.x, p.y, p.x * p.x, p.x * p.y, p.y * p.y, watts * watts}
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
func (r *railMeter) power(p pair) float64 { return r.lin.Power(p.x, p.y) }

// group sums scans [from, to) with weight one each, or with the weights w where
// they are given. It returns the power in power and raises the rail's peak.
func group[T reading](r *railMeter, cols [][]T, from, to int, w, power []float64, peak *float64) (g groupSums) {
	top := math.Inf(-1)
	for i := from; i < to; i++ {
		p, k := pairAt(r, cols, i), 1.0
		if w != nil {
			k = w[i-from]
		}
		watts := r.power(p)
		power[i-from], top = watts, max(top, watts)
		kx, ky := k*p.x, k*p.y
		g.x += kx
		g.y += ky
		g.xx += kx * p.x
		g.xy += kx * p.y
		g.yy += ky * p.y
		g.pp += k * watts * watts
	}
	*peak = max(*peak, top)
	return g
}

// summer adds stretches of scans up. It works on the running sums, which do not
// depend on the kind of reading.
type summer[T reading] struct {
	*running
	prev [][]T // the last scan, planar
}

func newSummer[T reading](r *running, channels int) *summer[T] {
	g := &summer[T]{running: r, prev: make([][]T, channels)}
	for c := range g.prev {
		g.prev[c] = make([]T, 1)
	}
	return g
}

// add takes the next scans.
func (g *summer[T]) add(s *stretch[T]) error {
	if first, last := s.at(0), s.at(s.n-1); last < first || (g.seen && first < g.lastTick) {
		return fmt.Errorf("scan %d: tick %v after tick %v: %w", s.first, first, g.lastTick, ErrOrder)
	}
	if g.seen {
		g.bridge(s, s.first-g.next)
	} else {
		g.firstTick = s.at(0)
	}
	for i := range g.ends {
		observe(&g.ends[i], s)
	}
	if err := g.inside(s); err != nil {
		return err
	}
	for c := range g.prev {
		g.prev[c][0] = s.cols[c][s.n-1]
	}
	g.seen, g.next, g.lastTick = true, s.first+uint64(s.n), s.at(s.n-1)
	return nil
}

// inside integrates within a block: whole intervals in bulk, the two that the
// window's ends cut one by one.
func (g *summer[T]) inside(s *stretch[T]) error {
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
	for _, r := range g.skewed { // how the second readings of rails with a lag change
		y := s.cols[g.meters[r].y]
		for i := lo + 1; i < hi; i++ {
			g.slope(r, float64(y[i])-float64(y[i-1]), s.at(i)-s.at(i-1))
		}
	}
	if g.samples == 0 {
		g.firstSample = s.first + uint64(lo)
	}
	g.samples += uint64(hi - lo)
	for from := lo; from < hi; from += groupScans {
		if err := g.group(s, lo, from, min(from+groupScans, hi), hi); err != nil {
			return fmt.Errorf("scan %d: %w", s.first+uint64(from), err)
		}
	}
	if s.ticks == nil {
		// The bulk gave every scan a whole step; the outermost two have half of one.
		g.put(s.cols, lo, -s.step/2)
		g.put(s.cols, hi-1, -s.step/2)
		g.one2.Add(float64(hi-lo-1) * s.step * s.step)
	}
	return nil
}

// group takes scans [from, to) of the whole intervals between scans lo and hi−1.
func (g *summer[T]) group(s *stretch[T], lo, from, to, hi int) error {
	n, w, step := to-from, []float64(nil), s.step
	if s.ticks != nil {
		if err := g.weigh(s.ticks, lo, from, to, hi); err != nil {
			return err
		}
		w, step = g.weights[:n], 1
	} else {
		g.one.Add(float64(n) * step)
	}
	power, total := g.power[:n], g.totals[:n]
	clear(total)
	for r := range g.rails {
		rail := &g.rails[r]
		rail.take(group(&g.meters[r], s.cols, from, to, w, power, &rail.peak), step)
		rail.jumps.take(power)
		for i, p := range power {
			total[i] += p
		}
	}
	g.total.jumps.take(total)
	if g.folds {
		g.beats.take(total, s.first+uint64(from))
	}
	var pp float64
	peak := g.total.peak
	for i, p := range total {
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
	g.total.pp.Add(step * pp)
	return nil
}

// weigh fills the trapezoid's weights of scans [from, to): half the distance
// between the neighbours on either side, within [lo, hi).
func (g *running) weigh(ticks []int64, lo, from, to, hi int) error {
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
	g.one.Add(one)
	g.one2.Add(one2)
	return nil
}

// interval integrates the straight line between two neighbouring scans over
// its part within the window. It returns the length of that part, in ticks.
func (g *summer[T]) interval(c0 [][]T, i0 int, t0 float64, c1 [][]T, i1 int, t1 float64) float64 {
	a, b := max(t0, g.lo), min(t1, g.hi)
	if !(b > a) {
		return 0
	}
	// The weights are the integrals of the two hat functions over [a, b].
	k := (b - a) / (2 * (t1 - t0))
	g.put(c0, i0, k*((t1-a)+(t1-b)))
	g.put(c1, i1, k*((a-t0)+(b-t0)))
	g.one2.Add((b - a) * (b - a))
	return b - a
}

// put adds one scan with weight w.
func (g *summer[T]) put(cols [][]T, i int, w float64) {
	g.one.Add(w)
	var total float64
	for r := range g.rails {
		m := &g.meters[r]
		p := pairAt(m, cols, i)
		total += m.power(p)
		g.rails[r].take(sumsOf(p, m.power(p)), w)
	}
	g.total.pp.Add(w * total * total)
}

// bridge integrates from the last scan of the blocks before to the first of
// this one, and accounts for a gap of lost scans between them.
func (g *summer[T]) bridge(s *stretch[T], lost uint64) {
	t := s.at(0)
	length := g.interval(g.prev, 0, g.lastTick, s.cols, 0, t)
	if lost == 0 && g.lastTick >= g.lo && t <= g.hi {
		for _, r := range g.skewed {
			y := g.meters[r].y
			g.slope(r, float64(s.cols[y][0])-float64(g.prev[y][0]), t-g.lastTick)
		}
	}
	if lost == 0 {
		return
	}
	g.total.jumps.end() // the runs of neighbouring scans end
	for r := range g.rails {
		g.rails[r].jumps.end()
	}
	if length == 0 {
		return
	}
	g.gaps++
	g.lost += uint64(math.Round(float64(lost) * length / (t - g.lastTick)))
	g.gap1 += length
	g.gap2 += length * length
	var step float64
	for r := range g.rails {
		m := &g.meters[r]
		from, to := m.power(pairAt(m, g.prev, 0)), m.power(pairAt(m, s.cols, 0))
		d, bridged := to-from, (from+to)/2*length
		g.rails[r].step2 += d * d * length * length / 12
		g.rails[r].bridged += bridged
		g.total.bridged += bridged
		step += d
	}
	g.total.step2 += step * step * length * length / 12
}

func (g *running) slope(r int, change, ticks float64) {
	if ticks > 0 {
		g.rails[r].slope.Add(change * change / ticks)
	}
}

// Moments are a rail's integrals over a window under the trapezoid rule: of 1,
// of its two raw counts and of their products. Power is a product of two
// linear forms of the counts (Linear), so they are a sufficient statistic:
// energy and its derivative by every parameter of the calibration follow from
// them, and a task can be calibrated anew without reading its samples again.
type Moments struct {
	One        Seconds // the window's length
	X, Y       float64 // count·seconds; Y is 0 for a rail of one channel
	XX, XY, YY float64 // count²·seconds
}

// Energy returns the rail's energy under the given calibration.
func (m Moments) Energy(l Linear) Joule {
	i, v := l.forms()
	return Joule(m.product(i, v))
}

// form is a linear form of a rail's two counts: c + x·X + y·Y.
type form struct{ c, x, y float64 }

// forms returns the two factors of power.
func (l Linear) forms() (current, voltage form) {
	return form{l.I0, l.IX, l.IY}, form{l.V0, 0, l.VY}
}

// scale returns k·f.
func (f form) scale(k float64) form { return form{k * f.c, k * f.x, k * f.y} }

// plus returns f + g.
func (f form) plus(g form) form { return form{f.c + g.c, f.x + g.x, f.y + g.y} }

// integral returns the integral of f over the window.
func (m Moments) integral(f form) float64 {
	return f.c*float64(m.One) + f.x*m.X + f.y*m.Y
}

// product returns the integral of f·g over the window.
func (m Moments) product(f, g form) float64 {
	return f.c*g.c*float64(m.One) +
		(f.c*g.x+f.x*g.c)*m.X + (f.c*g.y+f.y*g.c)*m.Y +
		f.x*g.x*m.XX + (f.x*g.y+f.y*g.x)*m.XY + f.y*g.y*m.YY
}

// Sum is a compensated sum (A. Neumaier, ZAMM 54 (1974) 39–51): its error does
// not grow with the number of terms.
type Sum struct{ s, c float64 }

// Add adds a term.
func (a *Sum) Add(v float64) {
	t := a.s + v
	if math.Abs(a.s) >= math.Abs(v) {
		a.c += (a.s - t) + v
	} else {
		a.c += (v - t) + a.s
	}
	a.s = t
}

// Take adds another sum k times.
func (a *Sum) Take(b *Sum, k float64) {
	a.Add(k * b.s)
	a.Add(k * b.c)
}

// Value returns the sum.
func (a *Sum) Value() float64 { return a.s + a.c }
