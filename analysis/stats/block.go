package stats

import (
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/dsp/fourier"
	"gonum.org/v1/gonum/stat"
)

// BlockLength returns the lengths of blocks, in terms of the series, that the mean
// of a dependent series is best resampled with: of the circular bootstrap and the
// mean length of the stationary one. The rule is Politis and White's (2004) with
// the correction of 2009: the autocovariances count under a flat-topped lag window
// as wide as twice the lag behind which no autocorrelation can be told from
// none. The lengths lie between 1 and the lesser of 3·√n and n/3.
func BlockLength(x []float64) (circular, stationary float64) {
	n := len(x)
	if n < 4 {
		return 1, 1
	}
	r := autocovariance(x)
	if !(r[0] > 0) {
		return 1, 1
	}
	m := bandwidth(r, n)
	var sum, moment float64 // Σ λ R(k) and Σ λ |k| R(k), over k of both signs
	sum = r[0]
	for k := 1; k <= m && k < n; k++ {
		w := flatTop(float64(k) / float64(m))
		sum += 2 * w * r[k]
		moment += 2 * w * float64(k) * r[k]
	}
	most := math.Ceil(min(3*math.Sqrt(float64(n)), float64(n)/3))
	length := func(d float64) float64 {
		b := math.Cbrt(2 * moment * moment / d * float64(n))
		if math.IsNaN(b) {
			return 1
		}
		return max(1, min(b, most))
	}
	return length(4.0 / 3 * sum * sum), length(2 * sum * sum)
}

// bandwidth is twice the smallest lag behind which K autocorrelations in a row
// are within 2·√(log₁₀ n / n) of zero.
func bandwidth(r []float64, n int) int {
	run := max(5, int(math.Ceil(math.Sqrt(math.Log10(float64(n))))))
	most := int(math.Ceil(math.Sqrt(float64(n)))) + run
	limit := 2 * math.Sqrt(math.Log10(float64(n))/float64(n))
	quiet, last := 0, 0
	for k := 1; k <= most && k < n; k++ {
		if math.Abs(r[k]/r[0]) >= limit {
			quiet, last = 0, k
			continue
		}
		if quiet++; quiet == run {
			return max(1, min(2*(k-run), most))
		}
	}
	return max(1, min(2*last, most))
}

// flatTop is the trapezoidal lag window of Politis and Romano.
func flatTop(t float64) float64 {
	return max(0, min(1, 2*(1-math.Abs(t))))
}

// autocovariance returns R(0) … R(n−1) with the divisor n, through the power
// spectrum of the series padded with zeros.
func autocovariance(x []float64) []float64 {
	n := len(x)
	mean := stat.Mean(x, nil)
	padded := make([]float64, fast(2*n))
	for i, v := range x {
		padded[i] = v - mean
	}
	fft := fourier.NewFFT(len(padded))
	c := fft.Coefficients(nil, padded)
	for i, v := range c {
		a := cmplx.Abs(v)
		c[i] = complex(a*a, 0)
	}
	fft.Sequence(padded, c)
	scale := 1 / (float64(len(padded)) * float64(n))
	for i := range n {
		padded[i] *= scale
	}
	return padded[:n]
}

// fast returns the least length from n on that a transform takes well: a power of two.
func fast(n int) int {
	k := 1
	for k < n {
		k <<= 1
	}
	return k
}
