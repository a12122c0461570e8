package measure

import (
	"math"
	"math/bits"
)

// noiseMeter estimates the scatter of a channel's readings from the median of
// the differences of neighbouring readings: steps and drifts of the signal
// are rare among the differences and do not move their median. Once it has seen
// enough it looks at the first noisePairs differences of each group, which is
// plenty and costs little.
type noiseMeter struct {
	bins  [linearBins + 28*subBins]uint32
	total uint64
}

const (
	noisePairs  = 32
	noiseEnough = 1024
	linearBins  = 256 // differences below are counted exactly
	subBins     = 8   // bins an octave above
	maxHold     = groupScans / 2
)

// holdScans returns the distance in scans of two readings that are independent:
// more than one where a sensor shows each value several times.
func holdScans(s *Setup) int {
	hold := math.Round(float64(s.Response.Update) * float64(s.Timebase.SampleRate()))
	return int(min(max(hold, 1), maxHold))
}

// observe takes a group of counts; readings stride scans apart are compared.
func (m *noiseMeter) observe(x []Count, stride int) {
	n := len(x) - stride
	if m.total >= noiseEnough {
		n = min(n, noisePairs)
	}
	for i := range max(n, 0) {
		d := int64(x[i+stride]) - int64(x[i])
		if d < 0 {
			d = -d
		}
		m.bins[noiseBin(uint64(d))]++
		m.total++
	}
}

// noiseBin returns the bin of a difference: exact, then eight bins an octave.
func noiseBin(d uint64) int {
	if d < linearBins {
		return int(d)
	}
	octave := bits.Len64(d) - 9 // 0 for 256..511
	return min(linearBins+octave*subBins+int(d>>(octave+5))-subBins, linearBins+28*subBins-1)
}

// binRange returns the differences that fall into a bin, as reals: a
// difference of whole counts stands for all that round to it.
func binRange(bin int) (from, to float64) {
	if bin < linearBins {
		return max(float64(bin)-0.5, 0), float64(bin) + 0.5
	}
	octave, sub := (bin-linearBins)/subBins, (bin-linearBins)%subBins
	return math.Ldexp(float64(subBins+sub), octave+5), math.Ldexp(float64(subBins+sub+1), octave+5)
}

// sigma returns the standard deviation of one reading in counts, without the
// part that rounding to whole counts adds (1/12 count²).
func (m *noiseMeter) sigma() float64 {
	if m.total == 0 {
		return 0
	}
	// For a normal scatter the median of |difference| is 0.6745·√2·σ.
	s := m.median() / (0.674489750196082 * math.Sqrt2)
	v := s * s
	if s < 1 {
		// So few bins hold the scatter that a median is coarse: take the mean
		// square, up to differences that a scatter so small does not make.
		v = m.meanSquare(8) / 2
	}
	return math.Sqrt(max(v-1.0/12, 0))
}

// dof returns the degrees of freedom of sigma: a median of differences holds
// 0.37 of what a standard deviation of as many independent ones does, and
// differences of neighbours share readings.
func (m *noiseMeter) dof() float64 { return max(0.3*float64(m.total), 1) }

// median returns the median difference, interpolated within its bin.
func (m *noiseMeter) median() float64 {
	half, below := float64(m.total)/2, 0.0
	for bin, n := range m.bins {
		c := float64(n)
		if c > 0 && below+c >= half {
			from, to := binRange(bin)
			return from + (to-from)*(half-below)/c
		}
		below += c
	}
	return 0
}

// meanSquare returns the mean square of the differences up to limit counts.
func (m *noiseMeter) meanSquare(limit int) float64 {
	var squares, n float64
	for d, c := range m.bins[:limit+1] {
		squares += float64(c) * float64(d*d)
		n += float64(c)
	}
	return squares / max(n, 1)
}
