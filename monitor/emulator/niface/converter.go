package niface

import (
	"math"
	"math/rand/v2"
	"time"

	"wattmark/measure"
)

// ranges of a USB-6259 in volts, both ways.
var ranges = []float64{0.1, 0.2, 0.5, 1, 2, 5, 10}

const (
	beyond  = 1.05 // codes reach so far beyond the range
	half    = 1 << 15
	clock   = 20e6  // Hz, all rates divide it
	padding = 10e-6 // s, put between conversions where it fits
	chunk   = 4096  // scans converted at once
)

// drawScale draws a range's polynomial from codes to volts: an offset of some
// tenths of a per mille, and higher terms that make some ten ppm of the range.
func drawScale(rng *rand.Rand, r float64) []float64 {
	return []float64{
		2e-4 * r * rng.NormFloat64(),
		beyond * r / half * (1 + 1e-3*rng.NormFloat64()),
		1e-5 * r / (half * half) * (2*rng.Float64() - 1),
		3e-5 * r / (half * half * half) * (2*rng.Float64() - 1),
	}
}

// volts evaluates a polynomial.
func volts(c []float64, code float64) (v float64) {
	for p := len(c) - 1; p >= 0; p-- {
		v = v*code + c[p]
	}
	return v
}

// codeOf is the code, not yet rounded, that a polynomial makes so many volts of.
func codeOf(c []float64, v float64) float64 {
	x := (v - c[0]) / c[1]
	for range 2 { // the higher terms are tiny
		x -= (volts(c, x) - v) / c[1]
	}
	return x
}

// nextRange is the smallest that holds both ends; 0 where none does.
func nextRange(low, high float64) float64 {
	for _, r := range ranges {
		if high <= r && low >= -r {
			return r
		}
	}
	return 0
}

// quantum is a time that the device's clock can count, in seconds.
func quantum(s float64) float64 { return math.Round(s*clock) / clock }

// scanPeriod and convertPeriod are what the driver makes of a rate with n inputs,
// in seconds: conversions follow each other as fast as the converter can plus a
// padding, or evenly where that does not fit.
func (f *Face) scanPeriod(rate float64) float64 { return max(1, math.Round(clock/rate)) / clock }

func (f *Face) convertPeriod(rate float64, n int) float64 {
	if padded := 1/float64(f.cfg.MaxRate) + padding; padded*float64(n) <= f.scanPeriod(rate) {
		return quantum(padded)
	}
	return math.Floor(f.scanPeriod(rate)/float64(n)*clock) / clock
}

// read is a run of scans that are converted.
type read struct {
	f     *Face
	chans []channel
	first uint64 // sample
	at    time.Duration
	step  float64 // ns a scan
	skew  float64 // ns from one input to the next
	rng   *rand.Rand
	power []measure.Watt
}

// convert gives the codes of scans [0, n), scan by scan, to put.
func (r *read) convert(n int, put func(scan, ch int, code int16)) {
	if r.power == nil {
		r.power = make([]measure.Watt, chunk)
	}
	for from := 0; from < n; from += chunk {
		m := min(chunk, n-from)
		for k, c := range r.chans {
			at := r.at + time.Duration(math.Round(float64(from)*r.step+float64(k)*r.skew))
			r.f.board.Trace(r.power[:m], at, r.step)
			for i, p := range r.power[:m] {
				put(from+i, k, r.code(c, r.first+uint64(from+i), p))
			}
		}
	}
}

// code converts a channel when the board draws p.
func (r *read) code(c channel, sample uint64, p measure.Watt) int16 {
	if r.f.cfg.Codes != nil {
		return r.f.cfg.Codes(c.ai, sample)
	}
	in := &r.f.ai[c.ai]
	v := in.offset
	if in.rail >= 0 {
		rail := r.f.board.Rail(in.rail, p)
		x := float64(rail.V) / Divider
		if in.current {
			x = float64(rail.I) / PerVolt
		}
		v += x * in.gain
	}
	code := codeOf(c.poly, v)
	if r.f.cfg.Noise > 0 {
		code += r.f.cfg.Noise * r.rng.NormFloat64()
	}
	return int16(min(max(math.Round(code), -half), half-1))
}
