package stats

import (
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/dsp/fourier"
)

// Delay is the lag of one series behind another, in terms of the series.
type Delay struct {
	Lag         float64 // NaN where undetermined
	U           float64 // standard uncertainty, from resampling; NaN where unknown
	Correlation float64 // Pearson's, at the lag
	// Rival is the largest correlation beyond the valleys on either side of the peak:
	// a series that repeats itself has one nearly as high.
	Rival float64
}

// Lag returns the delay of late behind early, with late[i] ≈ a + b·early[i − lag] and
// b > 0: the lag within ±most terms at which Pearson's correlation of the overlap is
// largest, and between the terms the top of a parabola through the peak and its
// shoulders, where the correlation has lost a fiftieth. U is the spread (68 %) of that
// top when the terms of the correlation are resampled in blocks, and a tenth of a term,
// the error of a parabola between the terms. At least half of the series overlap. It
// needs 8 terms, and panics where lengths differ.
func Lag(late, early []float64, most int, b Bootstrap) Delay {
	if len(late) != len(early) {
		panic("stats: series of different lengths")
	}
	none := Delay{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	n := len(late)
	most = min(most, n/2)
	if n < fewest || most < 1 || !varies(late) || !varies(early) {
		return none
	}
	c := correlations(late, early, most)
	peak := 0
	for k := range c {
		if !math.IsNaN(c[k]) && !(c[k] <= c[peak]) {
			peak = k
		}
	}
	d := Delay{Lag: float64(peak - most), U: math.NaN(), Correlation: c[peak], Rival: rival(c, peak)}
	if math.IsNaN(d.Correlation) {
		return none
	}
	h := 1 // to the shoulders, where the correlation has lost a fiftieth
	for ; peak-h > 0 && peak+h < len(c)-1; h++ {
		if (c[peak-h]+c[peak+h])/2 < 0.98*c[peak] {
			break
		}
	}
	if peak-h < 0 || peak+h >= len(c) {
		return d // the largest lies at an end: the lag may be longer
	}
	num, den := topTerms(late, early, peak-most, h)
	// Resamples that miss the few edges of a steady load lie anywhere and blow up the
	// standard deviation; the interval of the middle 68 % is unmoved by them.
	b.Level = 0.6827
	if r := b.Ratio(num, den); math.Abs(r.Point) <= float64(h) {
		d.Lag, d.U = d.Lag+r.Point, math.Hypot((r.Hi-r.Lo)/2, between)
	}
	return d
}

// between is the standard uncertainty of a parabola's top between the terms.
const between = 0.1

// correlations are Pearson's of late[i] with early[i−k], for k from −most to most.
func correlations(late, early []float64, most int) []float64 {
	n := len(late)
	x, y := Centred(late), Centred(early)
	cross := crossProducts(x, y, most)
	sx, sxx := Cumulate(x)
	sy, syy := Cumulate(y)
	out := make([]float64, 2*most+1)
	for i := range out {
		k := i - most
		from, to := max(0, k), min(n, n+k) // of late
		m := float64(to - from)
		ax, ay := sx[to]-sx[from], sy[to-k]-sy[from-k]
		vx, vy := sxx[to]-sxx[from]-ax*ax/m, syy[to-k]-syy[from-k]-ay*ay/m
		out[i] = math.NaN()
		if vx > 1e-12*sxx[n] && vy > 1e-12*syy[n] {
			out[i] = (cross[i] - ax*ay/m) / math.Sqrt(vx*vy)
		}
	}
	return out
}

// crossProducts are Σ x[i]·y[i−k], for k from −most to most.
func crossProducts(x, y []float64, most int) []float64 {
	size := powerOfTwo(len(x) + most)
	fft := fourier.NewFFT(size)
	pad := make([]float64, size)
	copy(pad, x)
	a := fft.Coefficients(nil, pad)
	clear(pad)
	copy(pad, y)
	b := fft.Coefficients(nil, pad)
	for i := range a {
		a[i] *= cmplx.Conj(b[i])
	}
	fft.Sequence(pad, a)
	out := make([]float64, 2*most+1)
	for i := range out {
		out[i] = pad[(i-most+size)%size] / float64(size)
	}
	return out
}

// topTerms are the terms of numerator and denominator of a parabola's top, from
// the correlation at lag and h to either side.
func topTerms(late, early []float64, lag, h int) (num, den []float64) {
	x, y := Centred(late), Centred(early)
	n := len(x)
	for i := max(0, lag+h); i < min(n, n+lag-h); i++ {
		before, at, after := y[i-lag+h], y[i-lag], y[i-lag-h] // of lags less by h, this one, more by h
		num = append(num, float64(h)/2*x[i]*(before-after))
		den = append(den, x[i]*(before-2*at+after))
	}
	return num, den
}

// rival is the largest value beyond the valleys beside a peak. A valley is where
// the values have risen again by a fiftieth of the peak.
func rival(c []float64, peak int) float64 {
	out := math.NaN()
	for _, step := range []int{-1, 1} {
		low, passed := c[peak], false
		for i := peak + step; i >= 0 && i < len(c); i += step {
			if math.IsNaN(c[i]) {
				continue
			}
			low = min(low, c[i])
			passed = passed || c[i] > low+0.02*math.Abs(c[peak])
			if passed && !(c[i] <= out) {
				out = c[i]
			}
		}
	}
	return out
}
