package validate

import (
	"math"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"gonum.org/v1/gonum/stat"
)

// follower pairs a method's readings with the meter's power at the instants that they show:
// the power through a response and late by a delay. Between two renewals of the readings it
// takes the integral of both, so that the pairs of a span add up to the integrals over it, and
// the lag and the memory of the sensor count at its ends alone.
//
// The response is that of a running mean or of a first-order low-pass, whichever correlates
// best with the readings; the grid of delays and lengths begins at the lag of the largest
// correlation.
type follower struct {
	update   float64     // of the sensor, s
	start, h float64     // of the grid, in seconds
	passed   []float64   // joules that had passed at each point of the grid, by the meter
	cuts     []float64   // renewals of the readings, with the begin and end of the work
	said     []float64   // joules between the cuts, by the readings
	work     [2]int      // the cuts of the work
	truth    []float64   // joules between them by the meter, through the best response; NaN where not known
	fits     []following // that came near the best of their time
	best     following
	poll     float64        // from one reading to the next, s
	band     stats.Interval // of the ratio of the readings to the meter over the work
	block    float64        // of the resampling, in pairs

	tried, a, b, weights []float64 // of one trial, to use again
}

// shape is how a reading weighs the past.
type shape int

const (
	runningMean shape = iota // of an update or longer
	lowPass
)

// following is one response with its delay. off is 1 − r², with Pearson's r of the mean powers
// between the cuts.
type following struct {
	length     int // in steps of the grid
	shape      shape
	delay, off float64
	lag        float64 // mean
	ratio      float64 // of the readings to the truth over the work
}

// mostPairs bounds the number of pairs. More renewals are taken together.
const mostPairs = 4096

// follow fits the response of readings by a lag and an update that are known about. It returns
// nil where the update is not known or too few readings can be paired.
func (r *run) follow(readings []Reading, lag, update float64) *follower {
	if math.IsNaN(update) {
		return nil
	}
	f := &follower{update: update, h: (r.to - r.from) / float64(len(r.edges)-1)}
	energy := lists.Map(r.wide, r.truth.at)
	from, to := overlap(energy, energy, len(energy)/2)
	f.start, f.passed = r.wide[from], energy[from:to]
	f.cut(r, readings)
	if len(f.said) < fewestPairs {
		return nil
	}
	f.truth, f.tried = make([]float64, len(f.said)), make([]float64, len(f.said))
	f.search(lag)
	if math.IsNaN(f.best.ratio) {
		return nil
	}
	f.poll = (float64(readings[len(readings)-1].At) - float64(readings[0].At)) / float64(len(readings)-1)
	f.resample(r.bootstrap())
	return f
}

// fewestPairs is how many pairs a fit or a resampling needs.
const fewestPairs = 8

// cut sets the renewals within the grid, each half way between the last reading of a value and
// the first of the next.
func (f *follower) cut(r *run, readings []Reading) {
	least := max(2*f.h, (r.to-r.from)/mostPairs)
	end := f.start + f.h*float64(len(f.passed)-1)
	ends := []float64{r.from, r.to, math.Inf(1)}
	at := math.Inf(-1)
	add := func(t float64) { f.cuts, at = append(f.cuts, t), t }
	for i := 1; i < len(readings); i++ {
		t := (float64(readings[i-1].At) + float64(readings[i].At)) / 2
		for t >= ends[0] { // a renewal next to an end of the work gives way to it
			if len(f.cuts) > 0 && ends[0]-at < least {
				f.cuts = f.cuts[:len(f.cuts)-1]
			}
			f.work[3-len(ends)] = len(f.cuts)
			add(ends[0])
			ends = ends[1:]
		}
		if readings[i].Power != readings[i-1].Power && t-at >= least && t >= f.start && t <= end && ends[0]-t >= f.h {
			add(t)
		}
	}
	for ; len(ends) > 1; ends = ends[1:] {
		f.work[3-len(ends)] = len(f.cuts)
		add(ends[0])
	}
	f.said = ofReadings(f.cuts, readings, reach).cells(f.cuts)
}

// search tries responses from none up to mostLag long, then finer ones around the best.
func (f *follower) search(lag float64) {
	f.best = following{off: math.Inf(1), ratio: math.NaN()}
	update := f.update
	steps := func(t float64) int { return int(math.Round(t / f.h)) }
	best := [...]following{f.sweep(0, runningMean, lag, 2*update), {off: math.Inf(1)}}
	try := func(t float64, shape shape, middle, reach float64) {
		if x := f.sweep(steps(t), shape, middle, reach); x.off < best[shape].off {
			best[shape] = x
		}
	}
	for t := max(update/4, f.h); t < mostLag; t *= 1.5 {
		try(t, runningMean, lag-t/2, update+t/2)
		try(t, lowPass, lag-0.8*t, update+t/2)
	}
	for _, by := range []float64{1.2, 1.1, 1.04, 1.02} {
		for i := range best {
			best[i] = f.refine(best[i], by)
		}
	}
}

// refine tries responses of the lengths beside one's, in steps of a factor, with delays around
// that which keeps the mean lag, and returns the best.
func (f *follower) refine(b following, by float64) following {
	length := float64(b.length)
	reach := (2*f.update + length*f.h) * (by - 1)
	best := b
	for _, x := range []float64{length / by, length, length * by} {
		slower := (x - length) * f.h / 2
		if got := f.sweep(int(math.Round(x)), b.shape, b.delay-slower, reach); got.off < best.off {
			best = got
		}
	}
	return best
}

// sweep tries 25 delays about a middle and returns the best response.
func (f *follower) sweep(length int, shape shape, middle, reach float64) following {
	best := following{off: math.Inf(1)}
	passed := f.through(length, shape)
	for i := -12; i <= 12; i++ {
		x := following{length: length, shape: shape, delay: middle + reach*float64(i)/12}
		if f.try(&x, passed) && x.off < best.off {
			best = x
		}
	}
	return best
}

// through is the meter's energy that passed through a response at each point of the grid: the
// running mean over so many steps, or a low-pass of that constant, exact for a power that is
// steady within each step.
func (f *follower) through(length int, shape shape) []float64 {
	c := f.passed
	if length == 0 {
		return c
	}
	out := constant(math.NaN(), len(c))
	if shape == lowPass {
		tau := float64(length)
		decay := math.Exp(-1 / tau)
		last := c[0] - tau*(c[1]-c[0]) // at rest before, which is forgotten after some constants
		for i := 1; i < len(c); i++ {
			rise := tau * (c[i] - c[i-1])
			last = c[i] - rise + decay*(last-c[i-1]+rise)
			if i > 4*length {
				out[i] = last
			}
		}
		return out
	}
	sum := 0.0
	for i := 1; i < len(c); i++ {
		sum += (c[i] + c[i-1]) / 2
		if i > length {
			sum -= (c[i-length] + c[i-length-1]) / 2
		}
		if i >= length {
			out[i] = sum / float64(length)
		}
	}
	return out
}

// try pairs the readings with the power through a response, and keeps it if it comes near the
// best so far. It reports whether enough pairs are known.
func (f *follower) try(x *following, passed []float64) bool {
	x.lag = x.delay + float64(x.length)*f.h/2
	if x.shape == lowPass {
		x.lag += float64(x.length) * f.h / 2
	}
	a, b, weights := f.a[:0], f.b[:0], f.weights[:0]
	var said, truth float64
	last := at(passed, (f.cuts[0]-x.delay-f.start)/f.h)
	for k, s := range f.said {
		now := at(passed, (f.cuts[k+1]-x.delay-f.start)/f.h)
		d, e := f.cuts[k+1]-f.cuts[k], now-last
		f.tried[k], last = e, now
		if math.IsNaN(e + s) {
			continue
		}
		a, b, weights = append(a, e/d), append(b, s/d), append(weights, d)
		if k >= f.work[0] && k < f.work[1] {
			said, truth = said+s, truth+e
		}
	}
	f.a, f.b, f.weights = a, b, weights
	if len(a) < max(fewestPairs, len(f.said)/2) || !(truth > 0) {
		return false
	}
	c := stat.Correlation(a, b, weights)
	x.off, x.ratio = 1-c*c, said/truth
	if !(c > 0) {
		return false
	}
	if x.off < 2*f.best.off {
		f.fits = append(f.fits, *x)
	}
	if x.off < f.best.off {
		f.best = *x
		f.truth, f.tried = f.tried, f.truth
	}
	return true
}

// at interpolates a series at a place between its terms; NaN beyond them.
func at(x []float64, place float64) float64 {
	i := int(place)
	if !(place >= 0) || i+1 >= len(x) {
		return math.NaN()
	}
	return x[i] + (place-float64(i))*(x[i+1]-x[i])
}

// resample sets the ratio of the readings' energy to the meter's over the work, at the instants
// that the readings show, with its interval: from resampled pairs, and from all responses that
// fit about as well.
func (f *follower) resample(b stats.Bootstrap) {
	var said, truth []float64
	for k := f.work[0]; k < f.work[1]; k++ {
		if e := f.truth[k]; !math.IsNaN(e + f.said[k]) {
			said, truth = append(said, f.said[k]), append(truth, e)
		}
	}
	f.band = b.Ratio(said, truth)
	f.block = max(1, f.band.Block)
	less, more := f.band.Point, f.band.Point
	for _, x := range f.alike() {
		less, more = min(less, x.ratio), max(more, x.ratio)
	}
	f.band.Lo = f.band.Point - math.Hypot(f.band.Point-f.band.Lo, f.band.Point-less)
	f.band.Hi = f.band.Point + math.Hypot(f.band.Hi-f.band.Point, more-f.band.Point)
	f.band.Block *= (f.cuts[f.work[1]] - f.cuts[f.work[0]]) / float64(f.work[1]-f.work[0])
}

// alike returns the responses that fit as well as the best, with 95 % of confidence: 1 − r² may
// grow by t²/n, with Student's t of the n blocks less three parameters (profile likelihood).
func (f *follower) alike() []following {
	n := max(1, float64(len(f.said))/f.block-3)
	limit := f.best.off * (1 + math.Pow(stats.Student(0.975, n), 2)/n)
	return lists.Filter(f.fits, func(x *following) bool { return x.off <= limit })
}

// lag returns the mean lag of the readings with its standard uncertainty: half the spread of
// the responses that fit as well, and that of a renewal between two readings, rectangular, which
// does not average out where polls and renewals are in step. A sensor that is no slower than its
// updates may look for a part of each alone: then the lag is known to least at best.
func (f *follower) lag(least float64) (lag, u float64) {
	lag = f.best.lag
	for _, x := range f.alike() {
		u = max(u, math.Abs(x.lag-lag)/2)
	}
	if float64(f.best.length)*f.h < f.update {
		u = max(u, least)
	}
	return lag, math.Hypot(u, f.poll/math.Sqrt(12))
}
