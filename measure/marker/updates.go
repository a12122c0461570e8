package marker

import (
	"math"

	"github.com/wattmark/wattmark/measure"
)

// lagsPerChip is the resolution of the search in a sensor's updates.
const lagsPerChip = 16

// update is a new value of a slow sensor: the mean power over the window that
// ends when the value appears.
type update struct {
	t       float64 // when it appeared, between two polls
	half    float64 // half the distance of the two polls
	p       float64 // watts
	u       float64 // standard uncertainty of t that is the update's own, seconds
	clipped bool    // as of a point
	// guess marks an update that was not seen, as its value was the same again.
	guess bool
}

// updates finds markers in the readings of a sensor that shows a new value
// once a chip or less often, as NVML does, or of an instrument that samples as
// slowly. The trace is collapsed to the instants at which the value changes.
type updates struct {
	spec   Spec
	window float64 // boxcar average before a value, seconds
	tau    float64 // of the sensor's lag, seconds; very small where it has none
	period float64 // nominal distance of updates, seconds
	hold   bool    // values are held; else every scan is new
	shift  float64 // skew of the channels
	on     func(Found)

	ring  ring[update]
	prev  point // the last scan
	begun bool

	lags   *lags
	origin float64 // time of lag 0
	shapes [2]shape
	work   updateWork
}

func newUpdates(spec Spec, setup *measure.Setup, on func(Found)) *updates {
	r := setup.Response
	skew, _ := setup.MeanSkew() // its u is far below that of a marker here
	u := &updates{
		spec: spec, on: on, window: float64(r.Window), shift: -float64(skew),
		period: float64(r.Update), hold: r.Update > 0,
	}
	if !u.hold {
		u.period = 1 / float64(setup.Timebase.SampleRate())
	}
	u.tau = max(float64(r.Tau), 1e-5*u.window, 1e-6*float64(spec.Chip))
	margin := float64(spec.Len()+2*settleChips+4)*float64(spec.Chip) + u.memory()
	u.ring = newRing[update](int(2.5*margin/u.period) + 16)
	u.shapes = [2]shape{u.shape(Start), u.shape(Stop)}
	chips := int(float64(spec.CodeLen()+spec.Guard) * min(1, float64(spec.Chip)/u.period))
	u.lags = newLags(spec, lagsPerChip, max(chips, 6), u.memory()/float64(spec.Chip), u.judge)
	return u
}

// memory is how long a past value influences the present one.
func (u *updates) memory() float64 { return u.window + 5*u.tau }

// point takes the next scan and notes the values that are new.
func (u *updates) point(p point) {
	p.t -= u.shift
	if !u.begun {
		u.begun, u.prev, u.origin = true, p, p.t
		return
	}
	gap := p.t - u.prev.t
	if !(gap > 0) {
		return // a device clock that jumps back: keep what came first
	}
	if gap > 3*u.period {
		// Updates were missed: the trace is forgotten.
		u.finish()
		u.lags.restart()
		u.ring.clear()
		u.prev, u.origin = p, p.t
		return
	}
	last := math.Inf(-1)
	if u.ring.n > 0 {
		last = u.ring.at(u.ring.n - 1).t
	}
	now := update{t: p.t - gap/2, half: gap / 2, p: p.p, clipped: p.clipped}
	switch {
	case !u.hold:
		u.push(update{t: p.t, p: p.p, clipped: p.clipped})
	case p.p != u.prev.p && now.t-last < 0.4*u.period:
		// Another rail of the same update.
		x := u.ring.at(u.ring.n - 1)
		x.p, x.clipped = p.p, x.clipped || p.clipped
	case p.p != u.prev.p:
		u.push(now)
	case now.t-last > 1.6*u.period && !math.IsInf(last, -1):
		// The same value again is an update that cannot be seen.
		u.push(update{t: last + u.period, half: now.half, p: p.p, clipped: p.clipped, guess: true})
	}
	u.prev = p
}

func (u *updates) finish() { u.lags.finish() }

// fallback finds none: with one new value a chip, or fewer, any work looks like
// a plain pattern now and then.
func (u *updates) fallback([]Found) []Found { return nil }

// push takes an update and looks at every lag that it completes: those whose
// code has ended before the update's window.
func (u *updates) push(x update) {
	u.ring.push(x)
	step := float64(u.spec.Chip) / lagsPerChip
	ends := x.t - u.window/2 - u.shapes[0].to
	for n := int64((ends - u.origin) / step); u.lags.newest() < n; {
		u.correlate(u.origin + float64(u.lags.newest()+1)*step)
	}
}

// shape is a marker's guard and code as the sensor shows them, tabulated: the
// level at the centre of a window, counted from the begin of the code.
type shape struct {
	from, to float64 // where no window reaches beyond guard or into the tag
	step     float64
	level    []float64
}

func (u *updates) shape(kind Kind) shape {
	chip := float64(u.spec.Chip)
	s := shape{
		from: min(-float64(u.spec.Guard)*chip+u.window/2+5*u.tau, -chip/2),
		to:   float64(u.spec.CodeLen())*chip - u.window/2,
		step: chip / (4 * lagsPerChip),
	}
	code := u.spec
	code.TagBits = 0
	m := model{box: u.window, edges: edgesOf(code.Chips(kind), code.CodeStart(), chip, nil)}
	m.par = vector{parTau: math.Log(u.tau), parStep: 1}
	for t := s.from; t <= s.to+s.step; t += s.step {
		m.pts = append(m.pts, point{t: t})
	}
	m.each(&m.par, func(level, _ float64, _ *vector, _ int, _ bool) {
		s.level = append(s.level, level)
	})
	return s
}

// correlate works out the correlation of both kinds for a code that begins at t0.
func (u *updates) correlate(t0 float64) {
	start, stop := &u.shapes[0], &u.shapes[1]
	var n, y, yy float64
	var x, xx, xy [2]float64
	for i := u.ring.n - 1; i >= u.ring.first(); i-- {
		v := u.ring.at(i)
		rel := v.t - u.window/2 - t0
		if rel > start.to {
			continue
		}
		if rel < start.from {
			break
		}
		n, y, yy = n+1, y+v.p, yy+v.p*v.p
		for k, s := range [2]*shape{start, stop} {
			j := int((rel-s.from)/s.step + 0.5)
			a := s.level[max(0, min(j, len(s.level)-1))]
			x[k], xx[k], xy[k] = x[k]+a, xx[k]+a*a, xy[k]+a*v.p
		}
	}
	var rho [2]float64
	if spread := yy - y*y/n; n >= 0.7*(start.to-start.from)/u.period && n >= 6 && spread > 1e-12*yy {
		for k := range rho {
			if vx := xx[k] - x[k]*x[k]/n; vx > 0 {
				rho[k] = (xy[k] - x[k]*y/n) / math.Sqrt(vx*spread)
			}
		}
	}
	u.lags.push(rho[0], rho[1])
}

// judge reports a candidate that the fit confirms.
func (u *updates) judge(kind Kind, p peak) {
	t0 := u.origin + p.at*float64(u.spec.Chip)/lagsPerChip
	if f := u.fit(kind, t0); f != nil {
		f.PSLR = p.pslr
		u.on(*f)
	}
}

const (
	// binsPerChip is the resolution of the correlator; the fit that follows uses
	// the points themselves.
	binsPerChip = 16
	// leastBins is the number of points a chip below which every scan is fitted
	// by itself, as the updates of a slow sensor are.
	leastBins = 6
	// pointsPerChip is the least number of points that a chip is cut into where
	// the scans suffice; fewer than twice as many are kept.
	pointsPerChip = 20
	// guardUsed bounds the guard chips that the correlator reads.
	guardUsed = 6
)

// sampled finds markers in the trace of an instrument that shows instantaneous
// values: chips are resolved, and so are their edges.
type sampled struct {
	spec  Spec
	resp  measure.Response
	box   float64 // width of the window that a point averages over, seconds
	delay float64 // of a reading behind the power that it shows, seconds
	uSkew float64 // of the channels' mean delay, seconds
	space float64 // nominal distance of points, seconds
	whole float64 // length of the marker, seconds
	// uClock is the relative standard uncertainty of a chip's length on the
	// instrument's clock.
	uClock float64
	on     func(Found)

	points *ring[point]
	last   float64 // time of the last point; −Inf before the first

	lags  *lags
	corr  correlator
	plain *plain // nil for none
	work  fitWork
}

func newSampled(spec Spec, setup *measure.Setup, per int, on func(Found)) *sampled {
	r := setup.Response
	scan := 1 / float64(setup.Timebase.SampleRate())
	skew, uSkew := setup.MeanSkew()
	s := &sampled{
		spec: spec, resp: r, on: on, whole: float64(spec.Duration()), space: scan * float64(per), last: math.Inf(-1),
		// A mean of n point readings has the variance of place of a window of
		// √(n²−1) scans; windows that follow each other add in variance.
		box:    math.Sqrt(scan*scan*float64(per*per-1) + float64(r.Window*r.Window+r.Update*r.Update)),
		delay:  float64(r.Window+r.Update)/2 - float64(skew),
		uSkew:  float64(uSkew),
		uClock: math.Hypot(setup.Timebase.UTickHz, hostClock),
	}
	if r.Centred { // a value is not shown behind its own time
		s.delay = float64(r.Window)/2 - float64(skew)
	}
	margin := spec.Len() + settleChips + guardUsed + 4
	s.points = new(newRing[point](int(1.25*float64(margin)*float64(spec.Chip)/s.space) + 64))
	bins := min(binsPerChip, int(float64(spec.Chip)/s.space))
	s.lags = newLags(spec, bins, spec.CodeLen()+min(spec.Guard, guardUsed), 0, s.judge)
	s.corr = newCorrelator(spec, bins, float64(spec.Chip)/float64(bins), s.lags)
	if s.plain = newPlain(s); s.plain != nil {
		s.corr.also = &s.plain.corr
	}
	return s
}

// point takes the next point of the trace.
func (s *sampled) point(p point) {
	p.t -= s.delay
	if !(p.t > s.last) {
		return // a device clock that jumps back: keep what came first
	}
	if s.last > math.Inf(-1) && p.t-s.last > s.whole {
		s.restart()
	}
	s.last = p.t
	s.points.push(p)
	s.corr.add(p)
}

// restart forgets the trace: nothing of a marker can span so long a gap.
func (s *sampled) restart() {
	s.finish()
	s.points.clear()
	s.lags.restart()
	if s.plain != nil {
		s.plain.lags.restart()
	}
	s.corr.restart()
}

func (s *sampled) finish() {
	s.lags.finish()
	if s.plain != nil {
		s.plain.lags.finish()
	}
}

func (s *sampled) fallback(found []Found) []Found { return s.plain.bound(found) }

// judge reports a candidate that the fit confirms.
func (s *sampled) judge(kind Kind, p peak) {
	if f := s.fit(kind, s.corr.time(p.at), func(*fitted, []Edge, []bool) bool { return true }); f != nil {
		f.PSLR = p.pslr
		s.on(*f)
	}
}

// clock replaces the instants by those of a steady clock where the sensor keeps
// one: polls place one update to a few milliseconds, and sixty of them together
// thirty times better. Where the clock wanders, each stays between its polls.
// It returns the standard uncertainty of that clock.
func (u *updates) clock() float64 {
	all := u.work.all
	index := make([]float64, len(all))
	var k, n float64
	for i, v := range all {
		if i > 0 {
			k += max(1, math.Round((v.t-all[i-1].t)/u.period))
		}
		index[i] = k
		if !v.guess {
			n++
		}
	}
	if n < 4 {
		return u.period / math.Sqrt(12)
	}
	first, slope, sigma, jitter := steady(all, index)
	begin := all[0].t
	for i := range all {
		v := &all[i]
		t := begin + first + slope*index[i]
		v.u = jitter
		if !v.guess {
			// A sensor whose clock wanders is still believed as to its polls.
			t = min(max(t, v.t-v.half), v.t+v.half)
			v.u = min(jitter, v.half/math.Sqrt(3))
		}
		v.t = t
	}
	return sigma
}

// steady finds the clock, first + slope·index behind the first update, that
// ticks between the two polls of every update. The one whose phase has the most
// room is taken; that room is its uncertainty. Where none fits, as the sensor's
// own clock jitters, it is the least-squares line, and the rms of that jitter.
func steady(all []update, index []float64) (first, slope, sigma, jitter float64) {
	first, slope, sigma, jitter = clockLine(all, index)
	last := index[len(index)-1]
	lo, hi := slope-4*sigma/last, slope+4*sigma/last
	for range 60 {
		a, b := lo+(hi-lo)/3, hi-(hi-lo)/3
		_, below := room(all, index, a)
		if _, above := room(all, index, b); below < above {
			lo = a
		} else {
			hi = b
		}
	}
	if middle, wide := room(all, index, (lo+hi)/2); wide > 0 {
		// The slope has room as well; towards the ends it counts as much again.
		return middle, (lo + hi) / 2, wide / math.Sqrt(6), 0
	}
	return first, slope, sigma, jitter
}

// room returns the middle and the width of the phases that a clock of the given
// period can have; the width is negative where it can have none.
func room(all []update, index []float64, slope float64) (middle, wide float64) {
	lo, hi := math.Inf(-1), math.Inf(1)
	for i, v := range all {
		if !v.guess {
			t := v.t - all[0].t - slope*index[i]
			lo, hi = max(lo, t-v.half), min(hi, t+v.half)
		}
	}
	return (lo + hi) / 2, hi - lo
}

// clockLine fits the instants by least squares, each weighted by how closely
// its polls enclose it. sigma is the larger of the bounds by polls and by scatter;
// jitter is the scatter that polls do not explain.
func clockLine(all []update, index []float64) (first, slope, sigma, jitter float64) {
	var n, sw, sk, st, skk, skt float64
	for i, v := range all {
		if v.guess {
			continue
		}
		w, k, t := 3/(v.half*v.half), index[i], v.t-all[0].t
		n, sw, sk, st, skk, skt = n+1, sw+w, sk+w*k, st+w*t, skk+w*k*k, skt+w*k*t
	}
	slope = (sw*skt - sk*st) / (sw*skk - sk*sk)
	first = (st - slope*sk) / sw
	var chi2, beyond float64
	for i, v := range all {
		if !v.guess {
			r := v.t - all[0].t - first - slope*index[i]
			chi2 += 3 * r * r / (v.half * v.half)
			beyond += r*r - v.half*v.half/3
		}
	}
	return first, slope, math.Sqrt(max(1, chi2/(n-2)) / sw), math.Sqrt(max(0, beyond/n))
}
