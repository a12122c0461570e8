package marker

import "math"

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
		if _, wide := room(all, index, a); wide < second(room(all, index, b)) {
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

func second(_, b float64) float64 { return b }

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
// its polls enclose it. sigma is the larger of what polls and scatter allow;
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
