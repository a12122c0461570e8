package quality

import (
	"math"
	"math/bits"

	"github.com/wattmark/wattmark/measure"
)

const (
	// octaves is the number of averaging times: 1 to 2³⁰ readings. Sums of so many
	// counts of 32 bits still fit into 64.
	octaves = 31
	// overlap is how many starts of an average lie within its length, at most. All
	// of them for up to 16 readings; 16 hold nearly all the information of more.
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
}

// level is one averaging time: the phases of the last two averages, at up to
// overlap instants in each.
type level struct {
	phases  [ring]uint64
	squares float64
	n       uint64
}

// AllanPoint is the Allan deviation at one averaging time.
type AllanPoint struct {
	// Tau is the averaging time.
	Tau measure.Seconds `json:"tau_s"`
	// Dev is the deviation in counts; multiplied by the size of a channel's gain
	// it is in the channel's unit.
	Dev float64 `json:"deviation"`
	// N is how many pairs of averages it was taken from. They overlap: about
	// N/min(16, τ/τ₀) of them are independent.
	N uint64 `json:"n"`
}

// NewAllan begins with readings so far apart. An interval that is not positive
// and finite makes averaging times of no meaning.
func NewAllan(interval measure.Seconds) *Allan { return &Allan{interval: interval} }

// Add takes the next readings of one channel, without a gap to those before.
// It does not allocate.
func (a *Allan) Add(counts []measure.Count) {
	for _, c := range counts {
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

// Break marks missing readings: no average reaches across.
func (a *Allan) Break() {
	a.readings, a.phase = 0, 0
	for k := range a.levels {
		a.levels[k].phases[0] = 0
	}
}

// Deviation returns the curve so far, shortest averaging time first. Times that
// no two averages were seen of are left out.
func (a *Allan) Deviation() []AllanPoint {
	var out []AllanPoint
	for k := range a.levels {
		l, m := &a.levels[k], math.Ldexp(1, k)
		if l.n == 0 {
			continue
		}
		out = append(out, AllanPoint{
			Tau: measure.Seconds(m) * a.interval, Dev: math.Sqrt(l.squares/(2*float64(l.n))) / m, N: l.n,
		})
	}
	return out
}

// Floor is the noise floor of a resting channel.
type Floor struct {
	// Best is the lowest point of the curve: averaging longer than Best.Tau makes
	// a reading no steadier.
	Best AllanPoint
}

// trusted is how many independent pairs a point needs to be looked at: with
// fewer the deviation itself is uncertain by more than a quarter.
const trusted = 8

// FloorOf reads the noise floor off a curve. ok is false for a curve without a
// point of eight independent pairs of averages, as too short a recording has.
func FloorOf(curve []AllanPoint) (f Floor, ok bool) {
	for _, p := range curve {
		if p.independent(curve[0].Tau) >= trusted && (!ok || p.Dev < f.Best.Dev) {
			f.Best, ok = p, true
		}
	}
	return f, ok
}

// independent returns about how many of a point's pairs are independent.
func (p AllanPoint) independent(shortest measure.Seconds) float64 {
	return float64(p.N) / min(overlap, float64(p.Tau/shortest))
}
