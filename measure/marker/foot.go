package marker

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/measure"
)

// A card's power follows its load by a response that no formula gives: recorded falls are
// straight ramps, S-curves and two steps in turn, rises overshoot. The model of fit takes
// exponentials, and so places the begin of a code wrong by a third of a time constant. A
// chip begins where the response begins, at its foot, which this file looks for in the trace
// itself. All edges of one direction are laid over each other, and
//
//	y(u) = m for u < x,  m + a·(u − x) + b·(u − x)² for x ≤ u ≤ reach
//
// averaged over the time that it takes to set in, is fitted to the points up to a reach that grows
// for as long as the foot x stays where it is (Lepski's method, O. Lepskii, Theory Probab. Appl. 35
// (1991) 454): a short reach needs no shape but sees little, a long one sees more but must be a parabola.
const (
	// exponentialFoot is the error of the foot, in time constants, of the least-squares
	// exponential of a straight ramp: for a ramp of length 1 it is 0.152, with a time constant
	// of 0.394. exponentialMisfit is its squared residual over the squared step, integrated over
	// time, in time constants. Both are computed.
	exponentialFoot   = 0.39
	exponentialMisfit = 0.0193
	// Behind an average over a time W, (W/τ)² = h, the error grows to exponentialFoot + averagedFoot·h/(1.5 + h)
	// and the misfit shrinks by 1 + averagedMisfit·h: both computed for W/τ from 0 to 13, and right to a fifth.
	averagedFoot, averagedMisfit = 0.28, 0.75
	// Of two poles, of any ratio, the exponential is late by smoothFoot times the cube root of its misfit, both in time
	// constants, and an average shrinks that by 1 + smoothMisfit·h: computed. Three equal poles are 1.5 times as late.
	smoothFoot, smoothMisfit = 2.3, 2.5

	fewBefore = 32  // points that may show less noise than there is
	settled   = 4   // time constants behind which an exponential is level
	footSteps = 24  // trials of a foot on either side of the guess
	footStays = 1.5 // standard uncertainties by which a foot may differ from that of a shorter reach
	footReach = 1.4 // time constants that a reach may have at most
	// gained is the power of the reach by which a foot's u shrinks at most, that of a response which begins as a
	// parabola. Where the likelihood narrows faster it has decided for a shape, not for a place.
	gained = 1.5
	// sure is the degrees of freedom of the u of fit and feet: they are known to a quarter (GUM, G.4.2).
	sure    = 8
	noticed = 5 // standard deviations at which an edge is noticed: noise does so once in three million runs
)

// stacked is a point beside an edge: seconds behind the edge's place, and watts above the level
// before it, positive for rises and falls alike.
type stacked struct{ u, y float64 }

// foot is an estimate of the place where a response begins, in seconds behind the place of
// the fit, with its standard uncertainty.
type foot struct{ x, u float64 }

// stack is the edges of one direction, laid over each other in the order of u.
type stack struct {
	pts    []stacked
	sums   []sums // of the first i points
	edges  int
	before int     // points well before the edge
	noise  float64 // variance of those points
	box    float64 // width of the window that a point averages over, seconds
	tau    float64 // time constant by the fit
	step   float64 // of the power, by the fit
	gap    float64 // mean distance of points beside an edge, seconds
}

// sums are those of powers and of their squares.
type sums struct{ y, yy float64 }

// findBegin moves the begin of the code, and with it the edges, from the place that the
// exponentials give it to the foot of the edges, and sets its uncertainty. An instrument
// whose own lag hides the card's response is left alone.
func (s *sampled) findBegin(f *fitted, edges []Edge) {
	if s.resp.Tau > 0 {
		return
	}
	places := f.placements(edges)
	slope, us, scatter := f.stretch(places)
	late := lateness(edges, places)
	var stacks [2]stack
	for i, direction := range [2]float64{1, -1} {
		// Where the response is no exponential and points are few, edges seem late that are not.
		stacks[i] = s.stack(f, direction, nil, near)
		if moved := s.stack(f, direction, late, near); moved.roughness() < stacks[i].roughness()/2 {
			stacks[i] = moved
		}
		if back := s.stack(f, direction, nil, far); back.onStep(float64(s.spec.Chip)) {
			stacks[i] = back
		}
	}
	begin := s.begin(&stacks, f.uT0)
	x, u := begin.x, begin.u
	// What all edges share: the scatter of the chips themselves, and the length of a chip.
	u = math.Hypot(u, f.uT0*math.Sqrt(1-1/(scatter*scatter)))
	if v := f.inverse[parStretch][parStretch]; v > 0 {
		lever := f.inverse[parT0][parStretch] * math.Sqrt(f.variance/v)
		if !f.scale { // where the clocks differ by more than they may, the fit lies between that and the edges
			lever *= max(1, math.Abs(slope)/math.Hypot(us, s.uClock))
		}
		u = math.Hypot(u, lever)
	}
	bent := s.bent(places, slope, us)
	x, u = x+bent.x, math.Hypot(u, bent.u)
	f.par[parT0] += x
	f.uT0 = u
	for i := range edges {
		edges[i].T += measure.Seconds(x)
	}
	if len(edges) == 1 {
		edges[0].U = measure.Seconds(u)
	}
}

// begin returns where the code begins, behind the place of the fit, by that and by the feet of rises and
// falls. u is the standard uncertainty of the fit by noise.
func (s *sampled) begin(stacks *[2]stack, u float64) foot {
	var shape, feetW, w, wx, chi2, n float64
	sharp := false // no point lies on an edge, but by chance
	edges, sudden := float64(max(stacks[0].edges+stacks[1].edges, 1)), 0.0
	for i, st := range stacks {
		if st.edges == 0 {
			st = stacks[1-i]
		}
		if st.tau < st.box { // the average hides which of the two responses is slow
			st.tau = max(st.tau, stacks[1-i].tau)
		}
		shape += st.shape() / 2
		sharp = sharp || st.tau+st.box/2 < s.space/4
		if st.tau < st.gap { // each edge lies anywhere within a scan, and the fit is no better than the mean of all
			sudden = s.space * s.space / 12 / edges
		}
	}
	fit := foot{0, math.Hypot(u, shape)}
	found := []foot{fit}
	for i := range stacks {
		if e, ok := stacks[i].foot(float64(s.spec.Chip)); ok {
			found = append(found, e)
			feetW += 1 / (e.u * e.u)
		}
	}
	for _, e := range found {
		w, wx = w+1/(e.u*e.u), wx+e.x/(e.u*e.u)
	}
	x := wx / w
	for _, e := range found {
		chi2, n = chi2+(e.x-x)*(e.x-x)/(e.u*e.u), n+1
	}
	// Fit and feet see the same noise: together they are no more certain than the better of them, and of sharp edges no
	// more than the fit by noise. Where they differ by more than their u allow, all are less certain (Birge's ratio).
	// Where they differ by less, a part of u allowed for shapes that this response does not have, and is reduced. Noise
	// is not, nor u of sharp edges: those lie anywhere between two points.
	v, ratio := max(1/w, min(fit.u*fit.u, 1/feetW)), (sure+chi2)/(sure+n-1)
	switch noise := min(u*u, v); {
	case sharp:
		v = max(v, u*u, sudden) * max(ratio, 1)
	case ratio < 1:
		v = noise + (v-noise)*ratio
	default:
		v *= ratio
	}
	return foot{x, math.Sqrt(v)}
}

// lateness returns by chip how far, in seconds, each edge lies behind its place among those of
// its direction, as far as that is more than noise: a GPU may begin its chips late. The edges
// of each direction are moved so that their mean lies in its place: the exponentials place rises
// and falls wrong by different amounts.
func lateness(edges []Edge, places []placement) map[int]float64 {
	late := make(map[int]float64, len(edges))
	for direction := range 2 {
		var w, wd, square, n float64
		for _, p := range places {
			if p.direction == direction {
				w, wd, n = w+p.w, wd+p.w*p.off, n+1
			}
		}
		mean := wd / w
		for _, p := range places {
			if p.direction == direction {
				square += (p.off-mean)*(p.off-mean) - 1/p.w
			}
		}
		excess := max(0, square/max(n-1, 1)) // the variance that noise does not explain
		// Of the mean itself as much may be scatter.
		shift := mean * max(0, 1-(1/w+excess/max(n, 1))/(mean*mean))
		for i, p := range places {
			if p.direction == direction {
				late[edges[i].Chip] = (p.off - shift) * excess / (excess + 1/p.w)
				edges[i].T -= measure.Seconds(shift)
			}
		}
	}
	return late
}

// look is how far before an edge a stack begins, and where its level before ends, in chips.
type look struct{ from, to float64 }

// An exponential is placed at the last step of a response that takes two, within half a chip: then far is looked for
// the first. As the edge before must be over, that leaves fewer edges than near.
var near, far = look{1. / 3, 0.1}, look{0.8, 0.55}

// stack lays the edges of one direction over each other, to most of a chip behind each.
func (s *sampled) stack(f *fitted, direction float64, late map[int]float64, back look) stack {
	chip := float64(s.spec.Chip)
	rise, fall := f.tau(&f.par)
	out := stack{box: f.box, step: f.par[parStep], tau: rise}
	level, other := f.par[parLow], fall
	if direction < 0 {
		out.tau, level, other = fall, level+f.par[parStep], rise
	}
	// The level before an edge is one that the last edge has reached.
	room := max(1, (settled*other+out.box)/chip+back.from)
	for i := range f.edges {
		e := &f.edges[i]
		if e.sign != direction || i > 0 && float64(e.chip-f.edges[i-1].chip) < room {
			continue
		}
		out.edges++
		at := f.origin + f.par[parT0] + e.at*(1+f.par[parStretch]) + late[e.chip]
		for k := search(f.pts, at-back.from*chip); k < len(f.pts) && f.pts[k].t < at+0.9*chip; k++ {
			p := &f.pts[k]
			out.pts = append(out.pts, stacked{p.t - at, direction * (p.p - level - f.par[parDrift]*(p.t-f.middle))})
		}
	}
	out.gap = s.space / float64(max(out.edges, 1))
	slices.SortFunc(out.pts, func(a, b stacked) int { return cmp.Compare(a.u, b.u) })
	out.sums = make([]sums, 1, len(out.pts)+1)
	for i, p := range out.pts {
		out.sums = append(out.sums, sums{out.sums[i].y + p.y, out.sums[i].yy + p.y*p.y})
	}
	out.before = out.index(-back.to*chip - f.box)
	mean, square := 0.0, 0.0
	for _, p := range out.pts[:out.before] {
		mean, square = mean+p.y/float64(out.before), square+p.y*p.y
	}
	n := float64(out.before)
	// Noise below a millionth of the step is that of no converter.
	out.noise = max((square-n*mean*mean)/max(n-1, 1), 1e-12*out.step*out.step)
	if n < fewBefore {
		out.noise = max(out.noise, f.white)
	}
	return out
}

// roughness is the sum of squares of the differences of neighbours beside the edge.
func (s *stack) roughness() (sum float64) {
	for i := s.index(-s.tau) + 1; i < s.index(3*s.tau+s.box); i++ {
		sum += (s.pts[i].y - s.pts[i-1].y) * (s.pts[i].y - s.pts[i-1].y)
	}
	return sum
}

// index returns the number of points before u.
func (s *stack) index(u float64) int {
	i, _ := slices.BinarySearchFunc(s.pts, u, func(p stacked, u float64) int { return cmp.Compare(p.u, u) })
	return i
}

// shape returns the standard uncertainty of a foot, in seconds, that comes of the difference
// between the response and an exponential: the error for a straight ramp, in proportion to the
// misfit. A misfit that noise would hide counts up to that of a ramp. One that noise does not explain, by two
// standard deviations, may be that of a smooth onset, which shows little of a large error.
func (s *stack) shape() float64 {
	// Points a bin: one of each edge, as far as a bin is no longer than half of the time constant.
	m := max(min(s.edges, int(s.tau/(2*s.gap))), 1)
	var misfit, variance float64
	to := s.index(4*s.tau + s.box)
	for i := s.index(-s.tau - s.box/2); i+m < min(to, len(s.pts)); i += m {
		var mean float64
		for _, p := range s.pts[i : i+m] {
			e, _, _ := stepAt(p.u, s.box, s.tau)
			mean += (p.y - s.step*e) / float64(m)
		}
		width, noise := s.pts[i+m].u-s.pts[i].u, s.noise/float64(m)
		misfit += (mean*mean - noise) * width
		variance += 2 * noise * noise * width * width
	}
	h, unit, hidden := s.box*s.box/(s.tau*s.tau), s.step*s.step*s.tau, math.Sqrt(variance)
	ramp := exponentialMisfit / (1 + averagedMisfit*h) * unit
	most := (exponentialFoot + averagedFoot*h/(1.5+h)) * s.tau
	smooth := smoothFoot * s.tau * math.Cbrt(max(misfit-2*hidden, 0)*(1+smoothMisfit*h)/unit)
	u := max(min(smooth, most), most*math.Sqrt(max(misfit-hidden, 0)/ramp+min(1, hidden/ramp)))
	if first, _ := s.notice(); first >= 0 { // what is noticed before the place shows that the place is late
		u = max(u, -s.pts[first].u-s.box/2)
	}
	// The edge lies somewhere between two points, and so does the place that the fit gives it: 1/6 is the mean square of
	// their distance.
	if i := s.index(0); i > 0 && i < len(s.pts) {
		if hole := s.pts[i].u - s.pts[i-1].u; s.tau < hole {
			u = max(u, hole/math.Sqrt(6))
		}
	}
	if s.tau < s.gap {
		u = max(u, s.gap/2)
	}
	return u
}

// onStep reports whether the power has left the level before, by a twelfth of the step or more and by three standard
// deviations, where a near stack would still read that level.
func (s *stack) onStep(chip float64) bool {
	i, before := s.index(-near.to*chip-s.box), float64(s.before)
	last := max(i-max(s.edges, 4), 0)
	if s.before < 4 || last < s.before {
		return false
	}
	n := float64(i - last)
	rise := (s.sums[i].y-s.sums[last].y)/n - s.sums[s.before].y/before
	return rise > max(s.step/12, 3*math.Sqrt(s.noise*(1/n+1/before)))
}

// foot returns the foot of the stacked edges; false where noise hides it.
func (s *stack) foot(chip float64) (best foot, ok bool) {
	first, run := s.notice()
	if first < 0 {
		return foot{}, false
	}
	limit := min(s.index(s.pts[first].u+footReach*s.tau), len(s.pts))
	var seen []foot
	var reached, u float64
	last := 0
	for k := 0; ; k = max(k+run, 7*k/5) {
		end := min(first+1+k, limit)
		reach := s.pts[end-1].u - s.pts[s.before].u
		now, chi2 := s.weigh(s.cost, end, s.pts[first].u-reach/5, reach/4)
		n := float64(end - s.before)
		fits := len(seen) == 0 || chi2-float64(s.before) < n+3*math.Sqrt(2*n)
		for _, e := range seen {
			fits = fits && math.Abs(now.x-e.x) <= footStays*e.u
		}
		if fits {
			far := s.pts[end-1].u - now.x
			u = max(now.u, u*math.Pow(min(1, reached/far), gained))
			seen, reached, last = append(seen, now), far, end
		}
		if !fits && len(seen) == 1 {
			return foot{}, false // what was noticed is noise
		}
		if !fits || end == limit {
			break
		}
	}
	best = foot{seen[len(seen)-1].x, u}
	// A creep before the edge looks as a time to set in: the foot of a sharp onset is as likely a place.
	sharp, _ := s.weigh(func(n int, x float64) float64 { return s.chi2(n, x, 0) }, last, best.x, 2*best.u)
	best.u = math.Hypot(best.u, sharp.x-best.x)
	if n := len(seen); n > 1 {
		// The bias grows with the square of the reach: the last one is about twice its last growth.
		best.u = math.Hypot(best.u, 2*(best.x-seen[n-2].x))
	}
	return best, best.u < chip/4
}

// notice returns the first point at which the mean of the last run points exceeds the level
// before the edge by noticed standard deviations; −1 for none. A run is long enough to see a
// twelfth of the step.
func (s *stack) notice() (first, run int) {
	sigma := math.Sqrt(s.noise)
	run = max(3, int(math.Ceil(math.Pow(12*sigma/s.step, 2))))
	if s.before < 4 {
		return -1, run
	}
	var mean, sum float64
	for _, p := range s.pts[:s.before] {
		mean += p.y / float64(s.before)
	}
	for i := s.before; i < len(s.pts); i++ {
		sum += s.pts[i].y - mean
		if i >= s.before+run {
			sum -= s.pts[i-run].y - mean
		}
		if i >= s.before+run-1 && sum > noticed*sigma*math.Sqrt(float64(run)) {
			return i, run
		}
	}
	return -1, run
}

// weigh returns mean and standard deviation of the foot over a grid around the guess that is made
// finer until it fits, weighted by likelihood, for the first n points, and the least χ². cost is −2·ln of it.
func (s *stack) weigh(cost func(n int, x float64) float64, n int, guess, spread float64) (best foot, chi2 float64) {
	best = foot{guess, spread}
	for range 5 {
		var costs [2*footSteps + 1]float64
		cell := 4 * best.u / footSteps
		for i := range costs {
			costs[i] = cost(n, best.x+cell*float64(i-footSteps))
		}
		chi2 = slices.Min(costs[:])
		var w, wd, wdd float64
		for i, c := range costs {
			p, d := math.Exp((chi2-c)/2), cell*float64(i-footSteps)
			w, wd, wdd = w+p, wd+p*d, wdd+p*d*d
		}
		mean := wd / w
		u := math.Sqrt(max(wdd/w-mean*mean, 0) + cell*cell/12)
		done := u > 0.8*best.u
		if best = (foot{best.x + mean, u}); done {
			break
		}
	}
	return best, chi2
}

// cost returns −2·ln of the likelihood of a foot at x for the first n points, but for a constant: its mean over
// the times that the response may take to set in, which an average of some size hides.
func (s *stack) cost(n int, x float64) float64 {
	least := s.chi2(n, x, 0)
	if s.box > s.tau/2 {
		return least
	}
	costs := [5]float64{least}
	for i, w := range [...]float64{s.tau / 4, s.tau / 2, s.tau, 2 * s.tau} {
		costs[i+1] = s.chi2(n, x, w)
	}
	least = slices.Min(costs[:])
	sum := 3 * math.Exp((least-costs[0])/2) // as much as all others together
	for _, c := range costs {
		sum += math.Exp((least - c) / 2)
	}
	return least - 2*math.Log(sum)
}

// chi2 returns χ² of the best level, slope and bend for a foot at x that takes some time to set in. Nearly all of a
// marker's time goes here: points before the foot are not visited, and the rest is spelt out.
func (s *stack) chi2(n int, x, setIn float64) float64 {
	scale := s.pts[n-1].u - s.pts[0].u
	box, cost := math.Hypot(s.box, setIn)/scale, s.sums[n].yy
	at := func(i int) float64 { return (s.pts[i].u - x - setIn/2) / scale }
	first := sort.Search(n, func(i int) bool { return at(i)+box/2 > 0 })
	inside := first + sort.Search(n-first, func(i int) bool { return at(first+i) >= box/2 })
	g0, g1, g2 := s.sums[first].y, 0.0, 0.0
	var h10, h11, h20, h21, h22 float64
	for i := first; i < n; i++ {
		t, y := at(i), s.pts[i].y
		line, square := t, t*t+box*box/12 // means of t and of t², for t > 0, over a centred box
		if i < inside {
			high := t + box/2
			line, square = high*high/(2*box), high*high*high/(3*box)
		}
		g0, g1, g2 = g0+y, g1+line*y, g2+square*y
		h10, h11 = h10+line, h11+line*line
		h20, h21, h22 = h20+square, h21+square*line, h22+square*square
	}
	g := [3]float64{g0, g1, g2}
	h := [3][3]float64{{float64(n)}, {h10, h11}, {h20, h21, h22}}
	var l [3][3]float64
	var z [3]float64
	// By Cholesky's factor; a term that no point shows is left out.
	for a := range l {
		for b := range a + 1 {
			v := h[a][b]
			for k := range b {
				v -= l[a][k] * l[b][k]
			}
			switch {
			case a == b && v > 1e-9*h[a][a]:
				l[a][a] = math.Sqrt(v)
			case a != b && l[b][b] > 0:
				l[a][b] = v / l[b][b]
			}
		}
		if l[a][a] > 0 {
			z[a] = g[a]
			for k := range a {
				z[a] -= l[a][k] * z[k]
			}
			z[a] /= l[a][a]
			cost -= z[a] * z[a]
		}
	}
	return cost / s.noise
}
