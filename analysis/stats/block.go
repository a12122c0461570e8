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
	if len(x) < 4 {
		return 1, 1
	}
	return dependenceOf(autocovariance(x)).lengths()
}

// dependence is how the terms of a series hang together: Σ R(k) and Σ |k| R(k) over
// k of both signs, under the lag window.
type dependence struct {
	n           int
	sum, moment float64
}

func dependenceOf(r []float64) dependence {
	d := dependence{n: len(r), sum: r[0]}
	if !(r[0] > 0) {
		return d
	}
	m := bandwidth(r, d.n)
	for k := 1; k <= m && k < d.n; k++ {
		w := flatTop(float64(k) / float64(m))
		d.sum += 2 * w * r[k]
		d.moment += 2 * w * float64(k) * r[k]
	}
	return d
}

func (d dependence) lengths() (circular, stationary float64) {
	n := float64(d.n)
	most := math.Ceil(min(3*math.Sqrt(n), n/3))
	length := func(v float64) float64 {
		if b := math.Cbrt(2 * d.moment * d.moment / v * n); !math.IsNaN(b) {
			return max(1, min(b, most))
		}
		return 1
	}
	return length(4.0 / 3 * d.sum * d.sum), length(2 * d.sum * d.sum)
}

// widening is what the spread of resampled means has to be multiplied with: blocks
// of a length b cut what hangs together, and the variance that they show is too
// small by Σ|k|R(k) / (b·ΣR(k)), to first order (Künsch 1989).
func (d dependence) widening(block float64) float64 {
	lost := d.moment / (d.sum * block)
	if math.IsNaN(lost) || !(d.sum > 0) {
		return 1
	}
	return 1 / math.Sqrt(1-max(0, min(lost, 0.5)))
}

// repeats is the least autocorrelation at its period of a series that repeats itself.
const repeats = 0.5

// Period returns after how many terms a series repeats itself, zero where it does
// not: the lag of the largest autocorrelation from where it first fell to zero, up
// to a third of the series, if that is at least one half.
func Period(x []float64) float64 {
	if len(x) < fewest || !varies(x) {
		return 0
	}
	return periodOf(autocovariance(x))
}

func periodOf(r []float64) float64 {
	n := len(r)
	most := n / 3
	if !(r[0] > 0) {
		return 0
	}
	k := 1
	for k < most && r[k] > 0 {
		k++
	}
	// Fewer terms overlap at longer lags; what overlaps counts.
	at := func(k int) float64 { return r[k] / r[0] * float64(n) / float64(n-k) }
	best := 0
	for k < most {
		if at(k) < repeats {
			k++
			continue
		}
		top := k // of this hill
		for ; k < most && at(k) >= repeats; k++ {
			if at(k) > at(top) {
				top = k
			}
		}
		// Multiples of a period are as high as it: a later hill has to be higher by far.
		if best == 0 || at(top) > 1.1*at(best) {
			best = top
		}
	}
	if best == 0 || best+1 >= n {
		return 0
	}
	a, b, c := at(best-1), at(best), at(best+1)
	if d := a - 2*b + c; d < 0 {
		return float64(best) + max(-0.5, min(0.5, (a-c)/(2*d)))
	}
	return float64(best)
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
