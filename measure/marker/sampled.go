package marker

import (
	"math"

	"wattmark/measure"
)

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

// sampled finds markers in the trace of an instrument that shows what is
// there: chips are resolved, and so are their edges.
type sampled struct {
	spec  Spec
	resp  measure.Response
	box   float64 // width of the window that a point averages over, seconds
	delay float64 // of a reading behind the power that it shows, seconds
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
	s := &sampled{
		spec: spec, resp: r, on: on, whole: float64(spec.Duration()), space: scan * float64(per), last: math.Inf(-1),
		// A mean of n point readings has the variance of place of a window of
		// √(n²−1) scans; windows that follow each other add in variance.
		box:    math.Sqrt(scan*scan*float64(per*per-1) + float64(r.Window*r.Window+r.Update*r.Update)),
		delay:  float64(r.Window+lag(r))/2 + skew(setup),
		uClock: math.Hypot(setup.Timebase.UTickHz, hostClock),
	}
	margin := spec.Len() + settleChips + guardUsed + 4
	points := newRing[point](int(1.25*float64(margin)*float64(spec.Chip)/s.space) + 64)
	s.points = &points
	bins := min(binsPerChip, int(float64(spec.Chip)/s.space))
	s.lags = newLags(spec, bins, spec.CodeLen()+min(spec.Guard, guardUsed), 0, s.judge)
	s.corr = newCorrelator(spec, bins, float64(spec.Chip)/float64(bins), s.lags)
	if s.plain = newPlain(s); s.plain != nil {
		s.corr.also = &s.plain.corr
	}
	return s
}

// lag is for how long a value is shown behind its own time.
func lag(r measure.Response) measure.Seconds {
	if r.Centred {
		return 0
	}
	return r.Update
}

// skew returns the mean delay of the channels that carry the current.
func skew(setup *measure.Setup) float64 {
	var sum measure.Seconds
	for _, r := range setup.Rails {
		sum += setup.Channels[r.X].Skew
	}
	return -float64(sum) / float64(len(setup.Rails))
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
	if f := s.fit(kind, s.corr.time(p.at)); f != nil {
		f.PSLR = p.pslr
		s.on(*f)
	}
}
