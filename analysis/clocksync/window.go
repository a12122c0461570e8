package clocksync

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

const (
	// reach bounds the window on either side of an edge, in seconds.
	reach = 60e-3
	// share of the distance to the next edge that belongs to an edge's window.
	share = 0.45
	// minWindow is the fewest samples on either side of an edge.
	minWindow = 5
	// maxEdges bounds the edges that are measured; more do not improve the fit.
	maxEdges = 4096
	// recent is the number of edges that predict the next one.
	recent = 5
	// wild is the scatter, as a share of the half windows, from which on the edges are
	// taken for noise: chance alone makes 1/√3 = 0.58.
	wild = 0.2
	// leastSlack is the least allowed deviation of an edge from its prediction, in
	// seconds.
	leastSlack = 1.5e-3
)

// window is a stretch of the trace in which an edge is searched.
type window struct {
	host measure.Seconds // the host's time stamp
	half measure.Seconds // half of its length
	end  bool            // an end of work
}

// windows lays a window around each edge that has room for 5 samples on either side;
// unseen counts the others. Above maxEdges it keeps every n-th span.
func windows(spans []validate.Span, interval measure.Seconds) (out []window, unseen int) {
	keep := (2*len(spans) + maxEdges - 1) / maxEdges
	for i, s := range spans {
		before, after := measure.Seconds(reach/share), measure.Seconds(reach/share)
		if i > 0 {
			before = s.From - spans[i-1].To
		}
		if i+1 < len(spans) {
			after = spans[i+1].From - s.To
		}
		if keep > 1 && i%keep != 0 && i+1 < len(spans) {
			continue
		}
		for _, w := range []window{
			{s.From, min(reach, share*min(before, s.Length())), false},
			{s.To, min(reach, share*min(after, s.Length())), true},
		} {
			if w.half < minWindow*interval {
				unseen++
				continue
			}
			out = append(out, w)
		}
	}
	return out, unseen
}

// finely measures the edges around a lag and fits the clock to them.
func finely(trace Trace, spans []validate.Span, l lag, c *coarse) (*Fit, error) {
	ws, unseen := windows(spans, c.interval)
	if len(ws) == 0 {
		return nil, fmt.Errorf("%w: no stretch of work or rest lasts ten of the meter's samples, %.2g s each",
			ErrActivity, float64(c.interval))
	}
	t := tracker{lag: l, ref: spans[0].From, interval: float64(c.interval)}
	if err := t.run(trace, ws); err != nil {
		return nil, err
	}
	f := &Fit{Edges: t.edges, Unseen: unseen + t.unseen, interval: c.interval}
	if err := f.solve(spans[0].From); err != nil {
		return nil, err
	}
	halves := lists.Map(ws, func(w window) float64 { return float64(w.half) })
	if f.Used >= shaped && float64(f.Scatter) > wild*stats.Median(halves) {
		return nil, fmt.Errorf("%w: %d edges scatter by %.2g ms around any line, as far as they were looked for",
			ErrActivity, f.Used, 1e3*float64(f.Scatter))
	}
	return f, nil
}

// tracker measures the edges in one pass over the trace. Each edge predicts the next,
// so that the clock may drift by more than a window.
type tracker struct {
	lag      lag
	ref      measure.Seconds // host time at which lag holds
	interval float64
	late     []float64 // of the last edges against the lag, in seconds
	edges    []Edge
	unseen   int
	last     measure.Seconds // host time of the last edge
	work     float64         // W, the highest departure so far
	t, p     []float64       // samples of the present window
}

// expect predicts the meter's time of a host time: by the coarse lag and the median
// deviation of the last edges.
func (t *tracker) expect(host measure.Seconds) float64 {
	m := float64(host-t.lag.by) + t.lag.rate*float64(host-t.ref)
	if n := len(t.late); n > 0 {
		m += stats.Median(t.late[max(0, n-recent):])
	}
	return m
}

// run collects the samples of each window in turn and measures its edge.
func (t *tracker) run(trace Trace, ws []window) error {
	from := t.expect(ws[0].host) - float64(ws[0].half)
	for s, err := range trace() {
		if err != nil {
			return err
		}
		at := float64(s.At)
		for at > from+2*float64(ws[0].half) {
			t.look(ws[0])
			if ws = ws[1:]; len(ws) == 0 {
				return nil
			}
			from = t.expect(ws[0].host) - float64(ws[0].half)
		}
		if at >= from {
			t.t, t.p = append(t.t, at), append(t.p, float64(s.Power))
		}
	}
	for _, w := range ws { // the windows that the trace ends in
		t.look(w)
	}
	return nil
}

// look measures the edge in the present window and clears it. An end of work is a
// departure from rest in reversed time, whatever the power did in between.
func (t *tracker) look(w window) {
	expected := t.expect(w.host)
	slack := math.Inf(1) // allowed deviation of an edge from its prediction: any of the first
	if len(t.late) > 0 {
		slack = leastSlack + 3*uRate*float64(w.host-t.last)
	}
	sign := 1.0
	if w.end {
		sign = -1
		slices.Reverse(t.t)
		slices.Reverse(t.p)
		floats.Scale(-1, t.t)
	}
	var d departure
	ok := len(t.t) >= 2*minWindow-1
	if ok {
		d, ok = depart(t.t, t.p, t.interval, sign*expected, slack, t.work)
	}
	d.onset, d.mid = sign*d.onset, sign*d.mid
	t.t, t.p = t.t[:0], t.p[:0]
	if !ok || math.Abs(d.mid-expected) > float64(w.half) {
		t.unseen++
		return
	}
	t.late = append(t.late, d.mid-float64(w.host-t.lag.by)-t.lag.rate*float64(w.host-t.ref))
	if len(t.late) > 4*recent {
		t.late = t.late[:copy(t.late, t.late[len(t.late)-recent:])]
	}
	t.last, t.work = w.host, max(t.work, d.step)
	t.edges = append(t.edges, Edge{
		Host: w.host, Meter: measure.Seconds(d.onset), U: measure.Seconds(d.u), End: w.end,
		Rise: measure.Seconds(d.rise), middle: measure.Seconds(d.mid),
	})
}

const (
	// filter is the length in samples of the means whose difference is a step.
	filter = 8
	// significant is how many standard deviations a step must be high.
	significant = 5
	// tail is the share of the whole step below which a step before it is part of the
	// rest.
	tail = 0.04
	// maxSteps is how many steps a departure may have.
	maxSteps = 8
	// around is how long a ramp may last, in seconds and in samples.
	aroundTime              = 3e-3
	aroundLeast, aroundMost = 5, 24
	// faint scales significant for a smaller step beside the largest.
	faint = 0.8
	// uTail is the standard uncertainty of the end of a stepwise decay, as a share of its
	// length. On a public recording with a known drift it was 2.7 ms after 50 ms.
	uTail = 0.05
)

// ramps are the rises that are tried, in samples. A ramp of one sample is a step
// somewhere between two.
var ramps = [...]float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16}

// departure is one measured step of the power away from its resting level.
type departure struct {
	onset, mid float64 // s
	rise       float64 // s
	step       float64 // W, of the whole departure
	u          float64 // s, standard uncertainty of mid
}

// depart finds the first departure from rest in a window, of which it needs the
// level before and after. Times are in seconds and grow. Smaller steps before the
// largest count only where they lie within slack of the expected time: the resting
// power has steps of its own. Work is the usual height of a departure, if known.
func depart(t, p []float64, interval, expected, slack, work float64) (departure, bool) {
	h := min(filter, len(p)/3)
	sums, _ := stats.Cumulate(p)
	mean := func(a, b int) float64 { return (sums[b] - sums[a]) / float64(b-a) }
	step := func(j int) float64 { return mean(j, j+h) - mean(j-h, j) }
	j := highest(step, h, len(p)-h)
	sigma := noise(p[:j])
	limit := significant * restless(step, h, j-h, sigma*math.Sqrt(2/float64(h)))
	if j < h || step(j) <= limit || step(j) <= 0 {
		return departure{}, false
	}
	if math.IsInf(slack, 1) { // the largest step is all that is known
		expected, slack = t[j], leastSlack
	}
	far := mean(max(j, len(p)-max(h, (len(p)-j)/2)), len(p))
	whole := step(j)
	for range maxSteps {
		rest := mean(0, max(h, j/2))
		whole = max(whole, far-rest)
		from := h
		for from < j-h && t[from] < expected-slack {
			from++
		}
		k := highest(step, from, j-h)
		if k >= j-h || step(k) <= limit*faint || step(k) < tail*whole {
			break
		}
		j = k
	}
	d := fitRamp(t, p, j, interval, sigma)
	d.step = whole
	// The time from the step at j until the power reaches four fifths of its working
	// level is long where a kernel's blocks end one after the other.
	k, level := j, mean(0, max(h, j/2))+0.8*max(whole, work)
	for k+h <= len(t) && mean(k, k+h) < level {
		k++
	}
	d.u = math.Hypot(d.u, uTail*max(0, t[min(k, len(t)-1)]-t[j]-aroundTime))
	return d, true
}

// highest returns the index within [from, to) at which f is largest; from where the
// range is empty.
func highest(f func(int) float64, from, to int) int {
	best := -1
	for j := from; j < to; j++ {
		if best < 0 || f(j) > f(best) {
			best = j
		}
	}
	return max(best, from)
}

// restless returns the robust standard deviation of the apparent steps during rest; the
// value for white noise where the rest is shorter than four filters.
func restless(step func(int) float64, from, to int, white float64) float64 {
	if to-from < 4*filter {
		return white
	}
	v := make([]float64, 0, to-from)
	for j := from; j < to; j++ {
		v = append(v, step(j))
	}
	return stats.SD(v)
}

// noise returns the standard deviation of a stretch by its first differences, which
// slow changes hardly affect: their median absolute value times 1.4826/√2.
func noise(p []float64) float64 {
	if len(p) < 3 {
		return math.Inf(1)
	}
	return stats.SD(stats.Differences(p)) / math.Sqrt2
}

// fitRamp fits a ramp between two levels to the samples around j by least
// squares: a coarse grid of beginnings and rises, then a fine one.
func fitRamp(t, p []float64, j int, interval, sigma float64) departure {
	k := min(aroundMost, max(aroundLeast, int(aroundTime/interval)))
	lo, hi := max(0, j-k), min(len(t), j+k)
	t, p = t[lo:hi], p[lo:hi]
	at := (t[j-lo] + t[max(0, j-lo-1)]) / 2
	best := ramp{sse: math.Inf(1)}
	for _, r := range ramps {
		if r > float64(k) {
			break
		}
		for x := -float64(k) * 0.75; x <= float64(k)*0.75; x += 0.5 {
			best.try(t, p, at+x*interval, r*interval)
		}
	}
	mid, rise := best.mid, best.rise
	for _, r := range []float64{0.8, 0.9, 1, 1.1, 1.2} {
		for x := -0.5; x <= 0.5; x += 0.05 {
			best.try(t, p, mid+x*interval, max(interval, rise*r))
		}
	}
	step := math.Abs(best.b - best.a)
	// A step between two samples looks like a ramp as long as their distance.
	foot := math.Sqrt(max(0, best.rise*best.rise-interval*interval)) / 2
	return departure{
		onset: best.mid - foot, mid: best.mid, rise: best.rise,
		u: math.Hypot(interval/math.Sqrt(12), sigma*math.Sqrt(best.rise*interval)/max(step, 1e-9)),
	}
}

// ramp is a fitted ramp: middle and rise in seconds, levels before and after in watts,
// and the sum of squared residuals.
type ramp struct{ mid, rise, a, b, sse float64 }

// try fits the levels of a ramp of given middle and rise, and keeps it if it rises and
// fits better: p ≈ a + g·f with f from 0 before the ramp to 1 behind it.
func (r *ramp) try(t, p []float64, mid, rise float64) {
	var n, sf, sff, sp, spp, sfp float64
	begin := mid - rise/2
	for i, at := range t {
		f := min(1, max(0, (at-begin)/rise))
		n++
		sf += f
		sff += f * f
		sp += p[i]
		spp += p[i] * p[i]
		sfp += f * p[i]
	}
	v := sff - sf*sf/n
	if v < 1e-9 {
		return
	}
	g := (sfp - sf*sp/n) / v
	sse := spp - sp*sp/n - g*g*v
	if g > 0 && sse < r.sse*(1-1e-12) {
		a := (sp - g*sf) / n
		*r = ramp{mid: mid, rise: rise, a: a, b: a + g, sse: sse}
	}
}

const (
	maxJumps = 8
	// falseJumps is the accepted chance of a jump in a recording that has none.
	falseJumps = 1e-3
	// sameLag is the least lag, relative to that of a suspected jump, at which the wander
	// is taken for comparison: a random walk makes 5 % less of it there, a drift 10 %.
	sameLag = 0.9
	// clip is the size of a step, in robust standard deviations, beyond which it is
	// suspected, and does not count as wander: 6e-5 of a normal distribution.
	clip = 4
	// overlapping is the sum of the squared autocorrelations of the steps of white
	// residuals at neighbouring places, by width: 2·(∫(1−3x/2)² + ∫(1−x)²/4), x from 0 to 1.
	overlapping = 2.0 / 3
)

// beside are the numbers of edges on either side whose levels are compared. Few edges see
// a jump within a wander, many one within white scatter. Three bear with one outlier.
var beside = [...]int{3, 5, 10}

// findJump returns the place of the most significant jump that the fit lacks: a step of
// the residuals that their own wander does not make. Steps are taken at every place
// alike, and the scatter of the others at the same lag is the measure of a suspected
// one, so that neither the wander's spectrum nor the edges' scatter need be known.
func (s *solver) findJump() (at float64, ok bool) {
	best := 1.0
	for _, m := range beside {
		for _, k := range s.suspects(m) {
			z, next := s.significance(k, m), s.place(k, m)
			place := (s.x[next-1] + s.x[next]) / 2
			if z > best && !slices.Contains(s.jumps, place) {
				best, at, ok = z, place, true
			}
		}
	}
	return at, ok
}

// suspects returns the places, at most maxJumps and at least m edges apart, where the
// step between m edges and the next m stands out, the largest first.
func (s *solver) suspects(m int) (out []int) {
	var size []float64 // by place, less m
	for k := m; k+m <= len(s.x); k++ {
		size = append(size, s.step(k, m, 0))
	}
	if len(size) == 0 {
		return nil
	}
	floats.AddConst(-stats.Median(size), size)
	least := clip * stats.SD(size)
	for len(out) < maxJumps {
		largest := -1
		for i, v := range size {
			far := !slices.ContainsFunc(out, func(k int) bool { return max(k-m-i, i-k+m) < m })
			if v = math.Abs(v); far && v > least && (largest < 0 || v > math.Abs(size[largest])) {
				largest = i
			}
		}
		if largest < 0 {
			break
		}
		out = append(out, largest+m)
	}
	return out
}

// significance returns the step at edge k over the largest that chance and wander make at any place of a recording
// with the probability falseJumps. That is Student's t for the effective number of the other steps, times their
// standard deviation; falseJumps is shared out among all places and widths (Bonferroni). The other steps are those
// that do not see edge k, over at least about the same time: after a pause the edges beside another place are left
// out until they lie as far apart. Zero where they are too few.
func (s *solver) significance(k, m int) float64 {
	var others []float64
	least := sameLag * s.lag(k, m, 0)
	for i := m; i+m <= len(s.x); i++ {
		skip := 0
		for i+skip+m <= len(s.x) && s.lag(i, m, skip) < least {
			skip++
		}
		if i+skip+m <= len(s.x) && (i+skip+m <= k || i-m >= k || i-k >= m || k-i-skip >= m) {
			others = append(others, s.step(i, m, skip))
		}
	}
	free := float64(len(others)) / (overlapping * float64(m))
	if free < 1 {
		return 0
	}
	typical := stats.Median(others) // of a slope that an unknown jump leaves in the residuals
	floats.AddConst(-typical, others)
	limit := clip * stats.SD(others)
	others = slices.DeleteFunc(others, func(v float64) bool { return math.Abs(v) > limit })
	sigma := max(floats.Norm(others, 2)/math.Sqrt(float64(len(others))), 1e-6) // 1 µs: stamps are no finer
	places := float64(len(beside) * len(s.x))
	return math.Abs(s.step(k, m, 0)-typical) / sigma / stats.Student(1-falseJumps/2/places, free)
}

// place returns the edge, near k, that divides the residuals best between the levels
// before and after, by their absolute deviations. Trimmed means alone place a jump only
// within the number of edges that they leave out.
func (s *solver) place(k, m int) int {
	trim := trimmed(m)
	from, to := max(m, k-trim), min(len(s.x)-m, k+trim)
	before, after := level(s.residual[from-m:from]), level(s.residual[to:to+m])
	best, least, sum := from, 0.0, 0.0
	for i := from; i < to; i++ { // the change of the deviations by counting edge i before the jump
		sum += math.Abs(s.residual[i]-before) - math.Abs(s.residual[i]-after)
		if sum < least {
			best, least = i+1, sum
		}
	}
	return best
}

// lag returns the time in seconds from the middle of the m edges before k to that of the
// m edges from k + skip on.
func (s *solver) lag(k, m, skip int) float64 {
	return stat.Mean(s.x[k+skip:k+skip+m], nil) - stat.Mean(s.x[k-m:k], nil)
}

// step returns the difference in seconds of the residuals' levels before and after.
func (s *solver) step(k, m, skip int) float64 {
	return level(s.residual[k+skip:k+skip+m]) - level(s.residual[k-m:k])
}

// level returns the mean of values but for the extreme fifth on both sides.
func level(values []float64) float64 {
	n := trimmed(len(values))
	return stat.Mean(slices.Sorted(slices.Values(values))[n:len(values)-n], nil)
}

// trimmed returns how many of m values are left out on each side of a mean, at least one.
func trimmed(m int) int { return max(1, m/5) }
