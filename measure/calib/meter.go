package calib

import (
	"math"

	"wattmark/measure"
)

// bins is how many means of a run are kept: enough to see how it wanders, and
// always the same however long it lasts.
const bins = 256

// Meter takes in a run of readings at a constant input, channel by channel. Its
// memory does not grow. It is not safe for concurrent use.
type Meter struct {
	setup    *measure.Setup
	channels []gauge
}

// gauge is one channel's run.
type gauge struct {
	n           uint64
	over        uint64
	first       measure.Count // counts are taken from the first: small numbers stay exact
	sum, square float64
	sums        [2 * bins]float64 // of the bins that are full, and the one that fills
	levels      [32]uint64        // how often each count came, around the first
	size        uint64            // readings a bin
	full        int               // bins that are full
	filled      uint64            // readings in the bin that fills
}

// NewMeter makes a meter for the channels of a setup.
func NewMeter(s *measure.Setup) *Meter {
	m := &Meter{setup: s, channels: make([]gauge, len(s.Channels))}
	for i := range m.channels {
		m.channels[i].size = 1
	}
	return m
}

// Add takes a block that fits the setup.
func (m *Meter) Add(b *measure.Block) {
	for i := range m.channels {
		m.channels[i].add(m.setup.Channels[i], b.Counts[i])
	}
}

func (g *gauge) add(c measure.Channel, counts []measure.Count) {
	for _, n := range counts {
		if g.n == 0 {
			g.first = n
		}
		g.n++
		if c.OverRange(n) {
			g.over++
		}
		d := float64(n) - float64(g.first)
		g.sum += d
		g.square += d * d
		g.sums[g.full] += d
		g.levels[min(max(int64(n)-int64(g.first)+16, 0), 31)]++
		if g.filled++; g.filled == g.size {
			g.next()
		}
	}
}

// next begins a bin; where all are full, pairs of them become one.
func (g *gauge) next() {
	g.full, g.filled = g.full+1, 0
	if g.full < 2*bins {
		return
	}
	for i := range bins {
		g.sums[i] = g.sums[2*i] + g.sums[2*i+1]
	}
	clear(g.sums[bins:])
	g.full, g.size = bins, 2*g.size
}

// Stat is what a channel's run came to, in counts.
type Stat struct {
	Samples   uint64
	OverRange uint64 // readings at an end of the converter's range
	Mean, Std float64
	// U is the mean's standard uncertainty: what the readings scatter, by the Allan
	// deviation where they scatter more slowly than white noise, how far they
	// drifted, and what rounding to counts hides.
	U float64
	// Drift is by how much the second half lies above the first.
	Drift float64
	// Restless is by how many times the Allan deviation, or the drift, is larger
	// than that of white noise of the same Std may be.
	Restless float64
}

// tolerance is what a resting input may wander without a question, in counts.
const tolerance = 0.5

// Stat returns the run of channel i so far.
func (m *Meter) Stat(i int) Stat {
	g := &m.channels[i]
	s := Stat{Samples: g.n, OverRange: g.over}
	if g.n < 2 {
		return s
	}
	n := float64(g.n)
	mean := g.sum / n
	s.Mean = float64(g.first) + mean
	s.Std = math.Sqrt(max(g.square-n*mean*mean, 0) / (n - 1))
	white := s.Std / math.Sqrt(n)
	means := make([]float64, g.full)
	for k := range means {
		means[k] = g.sums[k] / float64(g.size)
	}
	u := g.wander(means, s.Std, &s)
	s.Drift = drift(means)
	s.Restless = max(s.Restless, math.Abs(s.Drift)/max(8*white, tolerance))
	fixed, _ := measure.Quantisation(g.dither(s.Std))
	s.U = math.Sqrt(u*u + s.Drift*s.Drift/4 + fixed*fixed)
	return s
}

// dither is how much the readings scatter at least before they are rounded. Their
// own scatter does not tell where it is small: an input that rests between two
// counts toggles by half a count without any noise. But noise that reaches over
// several counts is there: all but a thousandth of normal readings take 6.6 σ,
// and rounding adds at most one count.
func (g *gauge) dither(std float64) float64 {
	if std > 2 {
		return std
	}
	tail := g.n / 2000
	end := func(step, i int) int {
		for left := g.levels[i]; left <= tail; left += g.levels[i] {
			i += step
		}
		return i
	}
	width := end(-1, len(g.levels)-1) - end(1, 0)
	return min(std, max(0, float64(width-1))/6.6)
}

// wander returns the mean's uncertainty by the Allan deviation at all lengths up
// to half the run: of white noise they all say the same. Lengths that the run
// has eight of tell whether it rests.
func (g *gauge) wander(means []float64, std float64, s *Stat) (u float64) {
	u = std / math.Sqrt(float64(g.n))
	for m := 1; m <= len(means)/2; m *= 2 {
		dev := allan(means, m)
		u = max(u, dev*math.Sqrt(float64(m)/float64(len(means))))
		if m > len(means)/8 {
			continue // too few to judge by
		}
		white := std / math.Sqrt(float64(m)*float64(g.size))
		s.Restless = max(s.Restless, dev/max(4*white, tolerance))
	}
	return u
}

// allan returns the Allan deviation of means of m: the root of half the mean
// square of the differences of neighbours (D. W. Allan, Proc. IEEE 54 (1966) 221).
func allan(means []float64, m int) float64 {
	groups := len(means) / m
	if groups < 2 {
		return 0
	}
	var last, sum float64
	for k := range groups {
		mean := 0.0
		for _, v := range means[k*m : (k+1)*m] {
			mean += v / float64(m)
		}
		if k > 0 {
			sum += (mean - last) * (mean - last)
		}
		last = mean
	}
	return math.Sqrt(sum / float64(2*(groups-1)))
}

// drift is the mean of the second half less that of the first.
func drift(means []float64) float64 {
	half := len(means) / 2
	if half == 0 {
		return 0
	}
	var a, b float64
	for k := range half {
		a += means[k] / float64(half)
		b += means[len(means)-half+k] / float64(half)
	}
	return b - a
}
