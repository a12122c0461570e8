package swings

import (
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/dsp/fourier"
	"gonum.org/v1/gonum/dsp/window"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

const (
	longest  = measure.Seconds(40) // of a segment: four periods of the lowest frequency
	mostScan = 1 << 20             // of a segment
	leastOf  = 64
	parts    = 4 // of the span, at least so many segments
)

// The power of a band of many bins, of noise that is flat there, is a mean of squares weighted in time by the square of
// the Hann window, sin⁴: bins is by how much neighbouring bins, which the window correlates, raise its variance,
// mean(sin⁸)/mean(sin⁴)²; overlap is its correlation between two segments that overlap by half, mean(sin⁴·cos⁴) over
// the half to mean(sin⁸) over the whole. (P. Welch, IEEE Trans. Audio Electroacoust. 15, 1967, has those of one bin.)
const (
	bins    = 35.0 / 18
	overlap = 3.0 / 70
)

// spectrum averages the periodograms of segments that overlap by half.
type spectrum struct {
	step     measure.Seconds
	fft      *fourier.FFT // nil for a span too short
	taper    []float64
	gain     float64 // sum of the squares of the taper
	buffer   []float64
	work     []float64
	coef     []complex128
	power    []float64 // sum over the segments of |coefficient|²
	segments int
}

func newSpectrum(step, length measure.Seconds) *spectrum {
	n := min(int(min(length/parts, longest)/step), mostScan) &^ 1
	s := &spectrum{step: step}
	if n < leastOf {
		return s
	}
	s.fft, s.taper = fourier.NewFFT(n), window.Hann(slices.Repeat([]float64{1}, n))
	s.gain = floats.Dot(s.taper, s.taper)
	s.buffer, s.work = make([]float64, 0, n), make([]float64, n)
	s.power, s.coef = make([]float64, n/2+1), make([]complex128, n/2+1)
	return s
}

func (s *spectrum) add(p measure.Watt, hole bool) {
	if s.fft == nil {
		return
	}
	if hole {
		s.buffer = s.buffer[:0]
	}
	s.buffer = append(s.buffer, float64(p))
	n := cap(s.buffer)
	if len(s.buffer) < n {
		return
	}
	level := stat.Mean(s.buffer, nil)
	for i, v := range s.buffer {
		s.work[i] = (v - level) * s.taper[i]
	}
	for i, c := range s.fft.Coefficients(s.coef, s.work) {
		s.power[i] += real(c)*real(c) + imag(c)*imag(c)
	}
	s.segments++
	s.buffer = s.buffer[:copy(s.buffer, s.buffer[n/2:])]
}

// bands returns the bands that the segments and the meter reach; nil without a segment.
func (s *spectrum) bands(cfg Config) (out []Band) {
	if s.segments == 0 {
		return nil
	}
	n := len(s.work)
	width := 1 / (float64(n) * float64(s.step)) // of a bin, in Hz
	top := measure.Hertz(0.4 / float64(s.step)) // above it the meter's own filter is unknown
	if cfg.Limit > 0 {
		top = min(top, cfg.Limit)
	}
	k := float64(s.segments)
	freedom := 2 * k / (1 + 2*overlap*(k-1)/k)
	// One-sided density in W²/Hz is 2·step·|c|²/gain; white noise of a mean over 1 s has 2·Noise².
	scale := 2 * float64(s.step) / s.gain / k * width
	for i, lo := range edges[:len(edges)-1] {
		from, to := max(lo, measure.Hertz(2*width)), min(edges[i+1], top)
		a, b := int(math.Ceil(float64(from)/width)), min(int(math.Ceil(float64(to)/width)), n/2)
		if a >= b {
			continue
		}
		var power, squares float64
		for _, c := range s.power[a:b] {
			power += c * scale
			squares += c * scale * c * scale
		}
		x := Band{From: from, To: to, RMS: measure.Watt(math.Sqrt(power))}
		noise := float64(cfg.Noise)
		x.Floor = measure.Watt(math.Sqrt(2 * noise * noise * float64(b-a) * width))
		if power > 0 {
			u := math.Sqrt(bins*squares*2/freedom) / (2 * float64(x.RMS))
			x.U = measure.Watt(2 * math.Hypot(u, cfg.Gain*float64(x.RMS)))
		}
		out = append(out, x)
	}
	return out
}
