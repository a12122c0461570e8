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

// loneBin sums distances of like size, in counts.
type loneBin struct{ n, sum, squares float64 }

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
		a, b := int64(x[i-stride]), int64(x[i+stride])
		q := 2*int64(x[i]) - a - b
		if q < floor && q > -floor {
			continue
		}
		if apart := max(a-b, b-a); q != 0 && 4*apart <= max(q, -q) {
			d := float64(q) / 2
			bin := noiseBin(uint64(max(q, -q)))
			s := m.bins[bin]
			m.bins[bin] = loneBin{s.n + 1, s.sum + d, s.squares + d*d}
		}
	}
}

// lone is the part of the lone readings in the mean of the readings, and in their variance, in
// counts.
type lone struct{ mean, variance float64 }

// of returns the lone readings for a scatter of one reading in counts. With c standard deviations of
// the distance, √1.5·σ, as the threshold, n normal readings hold one beyond it with the
// probability n·erfc(c/√2) = loneAlarm.
func (m *loneMeter) of(sigma float64) (out lone) {
	if m.total == 0 {
		return out
	}
	n := float64(m.total)
	v := 1.5 * (sigma*sigma + 1.0/12) // the readings are rounded
	threshold := math.Sqrt2 * math.Erfcinv(min(loneAlarm/n, 1)) * math.Sqrt(v)
	// Sums over a map come in any order; the bins are taken in theirs.
	for bin := range len(differences{}.bins) {
		s, ok := m.bins[bin]
		if from, _ := binRange(bin); !ok || from/2 <= max(threshold, float64(m.floor)/2) {
			continue
		}
		out.mean += s.sum / n
		out.variance += max(s.squares-s.n*v, 0) / n
	}
	return out
}
