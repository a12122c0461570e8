package clocksync

import "math"

const (
	// filter is how many samples on either side the step is looked for with.
	filter = 8
	// significant is how many standard deviations a step must be high.
	significant = 5
	// tail is the share of the whole step below which what is left between the
	// rest and a step is no step of its own.
	tail = 0.04
	// maxSteps is how many steps a departure may have.
	maxSteps = 8
	// around is how long a ramp may last, in seconds and in samples.
	aroundTime              = 3e-3
	aroundLeast, aroundMost = 5, 24
	// faint is how much of that a smaller step beside the largest needs.
	faint = 0.8
	// uTail is the standard uncertainty of the end of a decay in steps, as a share of
	// how long it lasts. On a public recording whose drift was known from another one
	// of the same minute it was 2.7 ms at the end of 50 ms.
	uTail = 0.05
)

// ramps are the rises that are tried, in samples. A ramp of one sample is a step
// somewhere between two.
var ramps = [...]float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16}

// departure is where the power leaves its resting level.
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
	sums, _ := cumulate(p)
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
	d.u = math.Hypot(d.u, uTail*max(0, lasts(t, mean(0, max(h, j/2)), max(whole, work), h, j, mean)-aroundTime))
	return d, true
}

// lasts is how long the power takes from the step at j to four fifths of the way
// to what it is at work: long where a kernel's blocks end one after the other.
func lasts(t []float64, rest, whole float64, h, j int, mean func(a, b int) float64) float64 {
	k := j
	for k+h <= len(t) && mean(k, k+h) < rest+0.8*whole {
		k++
	}
	return t[min(k, len(t)-1)] - t[j]
}

// highest returns where within [from, to) f is highest, or −1.
func highest(f func(int) float64, from, to int) int {
	best := -1
	for j := from; j < to; j++ {
		if best < 0 || f(j) > f(best) {
			best = j
		}
	}
	return max(best, from)
}

// restless is the standard deviation of the steps that rest itself seems to have,
// or what white noise would make them where the rest is too short to tell.
func restless(step func(int) float64, from, to int, white float64) float64 {
	if to-from < 4*filter {
		return white
	}
	v := make([]float64, 0, to-from)
	for j := from; j < to; j++ {
		v = append(v, math.Abs(step(j)))
	}
	return madToSigma * median(v)
}

// noise is the standard deviation of a stretch by its differences, which slow
// changes do not bear on.
func noise(p []float64) float64 {
	if len(p) < 3 {
		return math.Inf(1)
	}
	d := make([]float64, len(p)-1)
	for i := range d {
		d[i] = math.Abs(p[i+1] - p[i])
	}
	return madToSigma * median(d) / math.Sqrt2
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

// ramp is a fitted one.
type ramp struct{ mid, rise, a, b, sse float64 }

// try keeps a ramp if it fits better, and goes up.
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
