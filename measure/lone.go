package measure

import "math"

// loneAlarm is the probability that white, normal noise makes one lone reading of a channel
// within the window.
const loneAlarm = 1e-3

// loneMeter looks for readings that stand alone: further from the mean of their two neighbours
// than normal noise allows, while those agree with each other to half of that. A step of the
// load is none, even where it falls within a scan: there the neighbours differ by at least twice
// as much. A pulse of the load that is shorter than a scan is one: the meter cannot tell it from
// a disturbance.
//
// The threshold follows from the scatter, which is known at the end. So the distances are kept by
// size, those above floor alone once the scatter is known roughly. The first and the last
// reading of a block are not judged.
type loneMeter struct {
	bins  map[int]loneBin // by noiseBin
	total uint64          // readings looked at
	floor int64           // of twice the distance, in counts
}

// loneBin sums distances of like size, in counts; pairs is the sum of squares of those of two readings alike.
type loneBin struct{ n, sum, squares, pairs float64 }

// observe takes a run of readings that lie stride scans apart; scatter is their standard deviation
// so far in counts, zero for not known.
func (m *loneMeter) observe(x []Count, stride int, scatter float64) {
	if m.bins == nil {
		m.bins = map[int]loneBin{}
	}
	if scatter > 0 {
		// Twice the distance of a reading has √6 times its scatter. Four of that is below any threshold.
		m.floor = max(m.floor, int64(4*math.Sqrt(6)*scatter))
	}
	m.total += uint64(len(x))
	floor := m.floor
	for i := stride; i < len(x)-stride; i++ {
		a, b, c := int64(x[i-stride]), int64(x[i]), int64(x[i+stride])
		if q := 2*b - a - c; apart(q, floor, a-c) {
			d := float64(q) / 2
			bin := noiseBin(uint64(max(q, -q)))
			s := m.bins[bin]
			m.bins[bin] = loneBin{s.n + 1, s.sum + d, s.squares + d*d, s.pairs}
		}
		if i+2*stride >= len(x) {
			continue
		}
		d := int64(x[i+2*stride])
		if q := b + c - a - d; apart(q, floor, a-d) && apart(q, floor, b-c) {
			bin := noiseBin(uint64(max(q, -q)))
			s := m.bins[bin]
			s.pairs += float64(q) * float64(q) / 4
			m.bins[bin] = s
		}
	}
}

// apart reports that twice a distance q is not below floor, and that two readings d apart agree beside it.
func apart(q, floor, d int64) bool {
	return q != 0 && (q >= floor || q <= -floor) && 4*max(d, -d) <= max(q, -q)
}

// lone is the part of the lone readings in the mean of the readings, and in their variance, in counts; n is their
// number, and pairs the part of two readings alike in the variance.
type lone struct{ mean, variance, n, pairs float64 }

// distanceVariance returns the variance of the distance of readings that scatter by sigma counts and are rounded.
func distanceVariance(sigma float64) float64 { return 1.5 * (sigma*sigma + 1.0/12) }

// threshold returns the distance in counts beyond which a reading stands alone, for a scatter of one reading. With c
// standard deviations of the distance as the threshold, n normal readings hold one beyond it with the probability
// n·erfc(c/√2) = loneAlarm.
func (m *loneMeter) threshold(sigma float64) float64 {
	c := math.Sqrt2 * math.Erfcinv(min(loneAlarm/float64(max(m.total, 1)), 1))
	return max(c*math.Sqrt(distanceVariance(sigma)), float64(m.floor)/2)
}

// beyond returns the lone readings beyond a threshold, for a scatter of one reading.
func (m *loneMeter) beyond(threshold, sigma float64) (out lone) {
	n, v := float64(max(m.total, 1)), distanceVariance(sigma)
	// Sums over a map come in any order; the bins are taken in theirs.
	for bin := range len(differences{}.bins) {
		if from, _ := binRange(bin); from/2 > threshold {
			s := m.bins[bin]
			out.n += s.n
			out.mean += s.sum / n
			out.variance += max(s.squares-s.n*v, 0) / n
			out.pairs += s.pairs / n
		}
	}
	return out
}

// alone returns the lone readings of a channel that scatters by sigma; whole is smoothness.whole.
//
// A meter that makes them makes them while the card rests and amid a marker's chips, too. With k there, where the
// window's rate gives λ, the meter's part is (k + ½)/λ in the mean (H. Jeffreys' prior for a rate). The others are
// pulses of the load, shorter than a scan. One of w < 1 scans and height h is seen with the probability w and errs by
// (1 − w)·h then, by w·h else: w·(1 − w)·h² in the mean square, as the steps at its ends are smooth. Where w is small
// that is w·h², all of the variance; where any w is as frequent, as many pulses show two readings alike as one, and it
// is a third.
func (g *Integrator) alone(channel int, sigma, whole float64) lone {
	m := &g.lone[channel]
	threshold := m.threshold(sigma)
	out := m.beyond(threshold, sigma)
	var calm loneMeter
	for i := range g.rest.runs {
		calm.observe(g.rest.runs[i].cols[channel], g.stride, 0)
	}
	for i := range g.steps {
		calm.observe(g.steps[i].cols[channel], g.stride, 0)
	}
	if out.variance == 0 || calm.total == 0 {
		return out
	}
	expected := out.n * float64(calm.total) / float64(m.total)
	meter := min(1, (calm.beyond(threshold, sigma).n+0.5)/expected)
	spread := min(1, out.pairs/out.variance)
	out.variance *= meter + (1-meter)*whole*whole*(1-spread*2/3)
	return out
}
