// Package stability tells how steady an instrument's readings are: the Allan
// deviation of a resting channel over the averaging time, and the noise floor
// that follows from it. Counts come in as a stream; memory is flat.
package stability

import (
	"math"
	"math/bits"

	"wattmark/measure"
)

const (
	// octaves is the number of averaging times: 1 to 2³⁰ readings. Sums of so many
	// counts of 32 bits still fit into 64.
	octaves = 31
	// overlap is how many starts of an average lie within its length, at most. All
	// of them for up to 16 readings; 16 hold nearly all that more would tell.
	overlap     = 16
	fullOctaves = 5 // averages of 1, 2, 4, 8 and 16 readings start at every reading
	ring        = 2 * overlap
)

// Allan is the overlapping Allan deviation of a stream of readings at
// octave-spaced averaging times (NIST SP 1065, W. Riley and D. Howe, 2008,
// section 5.2.4): for averages ȳ of m readings each, one behind the other,
//
//	σ²(m·τ₀) = ½ · mean of (ȳ[j+m] − ȳ[j])²
//
// over overlapping starts j. It adds up counts as whole numbers, so nothing is
// rounded before the squares. It is not safe for concurrent use.
type Allan struct {
	interval measure.Seconds
	readings uint64 // since the last break
	phase    uint64 // sum of the counts since then; may wrap, differences do not care
	levels   [octaves]level

	all        uint64 // readings altogether
	first      measure.Count
	sum        int64 // of counts less the first
	sumSquares float64
}

// level is one averaging time: the phases of the last two averages, at up to
// overlap instants in each.
type level struct {
	phases  [ring]uint64
	squares float64
	n       uint64
}

// Point is the Allan deviation at one averaging time.
type Point struct {
	// Tau is the averaging time.
	Tau measure.Seconds
	// Dev is the deviation in counts; multiplied by the size of a channel's gain
	// it is in the channel's unit.
	Dev float64
	// N is how many pairs of averages it was taken from. They overlap: about
	// N/min(16, τ/τ₀) of them are independent.
	N uint64
}

// NewAllan begins with readings so far apart. An interval that is not positive
// and finite makes averaging times of no meaning.
func NewAllan(interval measure.Seconds) *Allan { return &Allan{interval: interval} }

// Add takes the next readings of one channel, without a gap to those before.
// It does not allocate.
func (a *Allan) Add(counts []measure.Count) {
	if len(counts) == 0 {
		return
	}
	if a.all == 0 {
		a.first = counts[0]
	}
	a.all += uint64(len(counts))
	for _, c := range counts {
		d := int64(c) - int64(a.first)
		a.sum += d
		a.sumSquares += float64(d) * float64(d)
		a.readings++
		a.phase += uint64(int64(c))
		// Octave 5 takes every second reading, octave 6 every fourth, and so on.
		due := min(fullOctaves+bits.TrailingZeros64(a.readings), octaves)
		for k := range due {
			a.levels[k].take(k, a.readings, a.phase)
		}
	}
}

// take adds the pair of averages that ends with this reading.
func (l *level) take(octave int, readings, phase uint64) {
	stride := max(octave-(fullOctaves-1), 0) // as a power of two
	i, q := readings>>stride, uint64(1)<<(octave-stride)
	if i >= 2*q {
		d := float64(int64(phase - 2*l.phases[(i-q)%ring] + l.phases[(i-2*q)%ring]))
		l.squares += d * d
		l.n++
	}
	l.phases[i%ring] = phase
}

// Break says that readings are missing here: no average reaches across.
func (a *Allan) Break() {
	a.readings, a.phase = 0, 0
	for k := range a.levels {
		a.levels[k].phases[0] = 0
	}
}

// Readings returns how many readings were added.
func (a *Allan) Readings() uint64 { return a.all }

// Deviation returns the curve so far, shortest averaging time first. Times that
// no two averages were seen of are left out.
func (a *Allan) Deviation() []Point {
	var out []Point
	for k := range a.levels {
		l, m := &a.levels[k], math.Ldexp(1, k)
		if l.n == 0 {
			continue
		}
		out = append(out, Point{
			Tau: measure.Seconds(m) * a.interval,
			Dev: math.Sqrt(l.squares/(2*float64(l.n))) / m,
			N:   l.n,
		})
	}
	return out
}

// Mean returns the mean reading in counts, NaN before the first.
func (a *Allan) Mean() float64 {
	if a.all == 0 {
		return math.NaN()
	}
	return float64(a.first) + float64(a.sum)/float64(a.all)
}

// StdDev returns the standard deviation of all readings in counts, slow drifts
// included; NaN for fewer than two.
func (a *Allan) StdDev() float64 {
	if a.all < 2 {
		return math.NaN()
	}
	n, s := float64(a.all), float64(a.sum)
	return math.Sqrt(max(a.sumSquares-s*s/n, 0) / (n - 1))
}
