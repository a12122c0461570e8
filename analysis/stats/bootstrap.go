package stats

import (
	"cmp"
	"math"
	"math/bits"
	"math/cmplx"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is an estimate with its confidence interval from resampling.
type Interval struct {
	Point  float64
	Lo, Hi float64 // NaN where there is too little to resample
	Block  float64 // length of the blocks, in terms of the series; 1 for independent ones
}

// Bootstrap resamples series whose terms depend on their neighbours, in blocks of one
// length, the series closed to a ring. The zero value is ready: 1000 resamples, level 95 %,
// seed 0.
type Bootstrap struct {
	Resamples int
	Level     float64 // as in 0.95
	Least     float64 // length of the blocks; zero for none
	Seed      uint64
}

func (b Bootstrap) defaults() Bootstrap {
	b.Resamples = cmp.Or(max(b.Resamples, 0), 1000)
	if !(b.Level > 0 && b.Level < 1) {
		b.Level = 0.95
	}
	return b
}

// mostBlocks bounds the number of blocks: more of them narrow an interval no further,
// and longer blocks than needed do no harm while there are this many.
const mostBlocks = 300

// fewest is how many terms a series needs to be resampled.
const fewest = 8

// Ratio returns Σnum/Σden with its interval; the terms are drawn in pairs. It needs 8
// terms for an interval, and panics where lengths differ.
//
// The block length follows from num − (Σnum/Σden)·den, whose mean spreads as the ratio does (the delta method): by
// dependence.length, at least Least and a three hundredth of the series, rounded up to whole periods where the series
// repeats itself, since parts of a period are no sample of it.
//
// Two corrections widen the percentile interval: few blocks spread too little, hence
// Student's t with blocks − 1 degrees of freedom in place of the normal distribution
// (Hesterberg 2015), where few terms that make up the spread count as fewer blocks: the
// variance of a sample of excess kurtosis g has 1/(1 + g/2) of the degrees of freedom;
// and blocks hide the dependence across their ends (Künsch 1989).
func (b Bootstrap) Ratio(num, den []float64) Interval {
	if len(num) != len(den) {
		panic("stats: series of different lengths")
	}
	b = b.defaults()
	n := len(num)
	sums := running(num, den)
	out := Interval{Point: sums[n].x / sums[n].y, Lo: math.NaN(), Hi: math.NaN()}
	if n < fewest || math.IsNaN(out.Point) || math.IsInf(out.Point, 0) {
		return out
	}
	wider := 1.0
	off := floats.AddScaledTo(make([]float64, n), num, -out.Point, den)
	out.Block, wider = b.length(off)
	rng := rand.New(rand.NewPCG(b.Seed, 0x9e3779b97f4a7c15))
	draws := make([]float64, 0, b.Resamples)
	for range b.Resamples {
		s := resample(sums, max(1, int(out.Block)), rng)
		if v := s.x / s.y; !math.IsNaN(v) && !math.IsInf(v, 0) {
			draws = append(draws, v)
		}
	}
	if len(draws) < b.Resamples/2 {
		return out
	}
	slices.Sort(draws)
	few := max(0, stat.ExKurtosis(off, nil)) / 2 // of one block, as it falls by the number of terms in it
	lo, hi := expanded(b.Level, float64(n)/(out.Block+few))
	at := func(q float64) float64 { return out.Point + wider*(quantile(draws, q)-out.Point) }
	out.Lo, out.Hi = at(lo), at(hi)
	return out
}

// length returns the block length and the factor by which the resampled spread is too
// small.
func (b Bootstrap) length(x []float64) (block, wider float64) {
	r := autocovariance(x)
	d, most := dependenceOf(r), float64(len(x))/3
	c := max(math.Round(d.length()), math.Ceil(float64(len(x))/mostBlocks))
	if b.Least > c { // not where it is no number
		c = math.Round(b.Least)
	}
	if p := periodOf(r); p > 0 {
		return min(math.Round(p*math.Ceil(c/p)), most), 1
	}
	c = min(c, most)
	return c, d.widening(c)
}

// two holds the numerator and denominator of a ratio.
type two struct{ x, y float64 }

// running returns running sums of both series, with one element more than they have.
func running(num, den []float64) []two {
	s := make([]two, len(num)+1)
	for i := range num {
		s[i+1] = two{s[i].x + num[i], s[i].y + den[i]}
	}
	return s
}

// ring sums k terms from index from on; the series is closed to a ring.
func ring(sums []two, from, k int) two {
	n := len(sums) - 1
	to := min(from+k, n)
	s := two{sums[to].x - sums[from].x, sums[to].y - sums[from].y}
	if left := from + k - to; left > 0 {
		s.x += sums[left].x
		s.y += sums[left].y
	}
	return s
}

// resample draws one resample of blocks of a size and returns its sums.
func resample(sums []two, size int, rng *rand.Rand) (s two) {
	n := len(sums) - 1
	for range n / size {
		t := ring(sums, int(rng.Uint32N(uint32(n))), size)
		s.x, s.y = s.x+t.x, s.y+t.y
	}
	t := ring(sums, rng.IntN(n), n%size)
	return two{s.x + t.x, s.y + t.y}
}

// expanded returns the percentiles to read off for an interval of a level that rests
// on so many blocks (Hesterberg 2015): 0 and 1 for fewer than two.
func expanded(level, blocks float64) (lo, hi float64) {
	if !(blocks > 1.5) {
		return 0, 1
	}
	t := Student((1-level)/2, blocks-1)
	lo = distuv.UnitNormal.CDF(t * math.Sqrt(blocks/(blocks-1)))
	return lo, 1 - lo
}

// BCa returns a statistic of independent values with its bias-corrected and accelerated
// interval (Efron 1987), which needs 3 values. statistic receives resamples and must
// not keep them.
//
// With z₀ the normal quantile of the share of resamples below the estimate and a the
// acceleration, the percentile at the normal quantile z is Φ(z₀ + (z₀+z)/(1−a(z₀+z))).
func (b Bootstrap) BCa(x []float64, statistic func([]float64) float64) Interval {
	b = b.defaults()
	out := Interval{Point: math.NaN(), Lo: math.NaN(), Hi: math.NaN(), Block: 1}
	if len(x) > 0 {
		out.Point = statistic(slices.Clone(x))
	}
	if len(x) < 3 || math.IsNaN(out.Point) {
		return out
	}
	rng := rand.New(rand.NewPCG(b.Seed, 0x9e3779b97f4a7c15))
	draws, sample := make([]float64, b.Resamples), make([]float64, len(x))
	below := 0.0
	for i := range draws {
		for j := range sample {
			sample[j] = x[rng.IntN(len(x))]
		}
		draws[i] = statistic(sample)
		switch {
		case draws[i] < out.Point:
			below++
		case draws[i] == out.Point:
			below += 0.5
		}
	}
	slices.Sort(draws)
	z0 := distuv.UnitNormal.Quantile(max(0.5, min(below, float64(b.Resamples)-0.5)) / float64(b.Resamples))
	a := acceleration(x, statistic)
	lo, hi := expanded(b.Level, float64(len(x)))
	at := func(q float64) float64 {
		z := z0 + distuv.UnitNormal.Quantile(q)
		return quantile(draws, distuv.UnitNormal.CDF(z0+z/(1-a*z)))
	}
	out.Lo, out.Hi = at(lo), at(hi)
	return out
}

// acceleration is a sixth of the skewness of the jackknife values (Efron 1987).
func acceleration(x []float64, statistic func([]float64) float64) float64 {
	n := len(x)
	left, rest := make([]float64, n), make([]float64, n-1)
	for i := range x {
		copy(rest, x[:i])
		copy(rest[i:], x[i+1:])
		left[i] = statistic(rest)
	}
	two, three := stat.Moment(2, left, nil), stat.Moment(3, left, nil)
	if two == 0 {
		return 0
	}
	return -three / (6 * math.Sqrt(float64(n)) * math.Pow(two, 1.5))
}

// quantile interpolates sorted values linearly; the i-th of n stands at i/(n+1), the
// mean probability below it.
func quantile(sorted []float64, q float64) float64 {
	at := max(0, min(q*float64(len(sorted)+1)-1, float64(len(sorted)-1)))
	i := max(0, min(int(at), len(sorted)-1))
	j := min(i+1, len(sorted)-1)
	return sorted[i] + (at-float64(i))*(sorted[j]-sorted[i])
}

// dependence measures the correlation between the terms of a series: Σ R(k) and
// Σ |k| R(k) over k of both signs, under the lag window.
type dependence struct {
	n           int
	sum, moment float64
}

// dependenceOf weighs the autocovariances r by a flat-topped window twice as wide as
// the lag beyond which no autocorrelation is significant (Politis and White 2004).
func dependenceOf(r []float64) dependence {
	d := dependence{n: len(r), sum: r[0]}
	if !(r[0] > 0) {
		return d
	}
	m := bandwidth(r, d.n)
	for k := 1; k <= m && k < d.n; k++ {
		w := max(0, min(1, 2*(1-float64(k)/float64(m)))) // Politis' and Romano's trapezoid
		d.sum += 2 * w * r[k]
		d.moment += 2 * w * float64(k) * r[k]
	}
	return d
}

// length returns the best block length for the mean, in terms of the series: with
// G = Σ|k|R(k), b = (2G²n/D)^⅓, where D = 4/3·(ΣR)² (Patton, Politis and White 2009). It lies
// between 1 and the lesser of 3·√n and n/3.
func (d dependence) length() float64 {
	n := float64(d.n)
	if b := math.Cbrt(2 * d.moment * d.moment / (4.0 / 3 * d.sum * d.sum) * n); !math.IsNaN(b) {
		return max(1, min(b, math.Ceil(min(3*math.Sqrt(n), n/3))))
	}
	return 1
}

// widening returns the factor for the spread of resampled means: cutting into blocks of
// length b loses dependence, which makes the variance too small by
// Σ|k|R(k) / (b·ΣR(k)), to first order (Künsch 1989).
func (d dependence) widening(block float64) float64 {
	lost := d.moment / (d.sum * block)
	if math.IsNaN(lost) || !(d.sum > 0) {
		return 1
	}
	return 1 / math.Sqrt(1-max(0, min(lost, 0.5)))
}

// repeats is the least autocorrelation at the period of a periodic series.
const repeats = 0.5

// periodOf returns the period of a series in terms, from its autocovariance r; zero where it does not repeat: the lag
// of the largest autocorrelation beyond its first zero crossing, up to a third of the series, if that is at least one
// half. A parabola through the peak places it between the terms.
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
	// Fewer terms overlap at longer lags: normalise by the overlap.
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

// autocovariance returns R(0) … R(n−1) with the divisor n.
func autocovariance(x []float64) []float64 {
	x = Centred(x)
	r := CrossProducts(x, x, 0, len(x)-1)
	floats.Scale(1/float64(len(x)), r)
	return r
}

// Delay is the lag of one series behind another, in terms of the series.
type Delay struct {
	Lag         float64 // NaN where undetermined
	U           float64 // standard uncertainty, from resampling; NaN where unknown
	Correlation float64 // Pearson's, at the lag
	// Rival is the largest correlation beyond the valleys on either side of the peak:
	// a series that repeats itself has one nearly as high.
	Rival float64
}

// Lag returns the delay of late behind early, with late[i] ≈ a + b·early[i − lag] and b > 0: the lag within ±most
// terms at which Pearson's correlation of the overlap is largest, and between the terms the top of a parabola through
// the peak and its shoulders, where the correlation has lost a fiftieth. U is the spread (68 %) of that top when the
// terms of the correlation are resampled in blocks, and a tenth of a term, the error of a parabola between the terms.
// At least half of the series overlap. It needs 8 terms, and panics where lengths differ.
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
	peak := floats.MaxIdx(c)
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
	cross := CrossProducts(x, y, -most, most)
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

// CrossProducts returns Σ x[i]·y[i−k] for k from least to most, with least ≤ 0 ≤ most, by the
// product of their spectra. Terms beyond a series count as zero.
func CrossProducts(x, y []float64, least, most int) []float64 {
	// A power of two, which a transform takes well, so long that shifts do not wrap around.
	size := 1 << bits.Len(uint(max(len(x)-least, len(y)+most)-1))
	fft := fourier.NewFFT(size)
	pad := make([]float64, size)
	transform := func(v []float64) []complex128 {
		clear(pad[copy(pad, v):])
		return fft.Coefficients(nil, pad)
	}
	a, b := transform(x), transform(y)
	for i := range a {
		a[i] *= cmplx.Conj(b[i])
	}
	fft.Sequence(pad, a)
	out := make([]float64, most-least+1)
	for i := range out {
		out[i] = pad[(i+least+size)%size] / float64(size)
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
