package stats

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is an estimate with what the resampling tells of it.
type Interval struct {
	Point  float64
	Lo, Hi float64 // NaN where there is too little to resample
	SE     float64 // standard deviation of the resamples
	Block  float64 // length of the blocks, in terms of the series; 1 for independent ones
}

// Scheme is how blocks are drawn.
type Scheme uint8

// The schemes.
const (
	Circular   Scheme = iota // blocks of one length, the series closed to a ring
	Stationary               // blocks of geometrically distributed lengths
)

// Bootstrap resamples series whose terms depend on their neighbours. The zero
// value is ready: 1000 circular resamples, 95 %, the length of BlockLength, seed 0.
type Bootstrap struct {
	Scheme    Scheme
	Resamples int
	Level     float64 // as in 0.95
	Block     float64 // length of the blocks; zero for that of BlockLength
	Seed      uint64
}

func (b Bootstrap) defaults() Bootstrap {
	if b.Resamples <= 0 {
		b.Resamples = 1000
	}
	if !(b.Level > 0 && b.Level < 1) {
		b.Level = 0.95
	}
	return b
}

// fewest is how many terms a series needs to be resampled.
const fewest = 8

// Mean returns the mean of a series with its interval.
func (b Bootstrap) Mean(x []float64) Interval {
	one := make([]float64, len(x))
	for i := range one {
		one[i] = 1
	}
	return b.Ratio(x, one)
}

// Ratio returns Σnum/Σden with its interval; the terms are drawn in pairs. The
// length of the blocks follows from num − (Σnum/Σden)·den, whose mean's spread
// is the ratio's (the delta method). The percentiles are taken further out than
// the level says, by what Student's t of as many degrees of freedom as there are
// blocks, less one, has over the normal distribution, because the spread of few
// blocks is too small (Hesterberg 2015). It panics where lengths differ.
func (b Bootstrap) Ratio(num, den []float64) Interval {
	if len(num) != len(den) {
		panic("stats: series of different lengths")
	}
	b = b.defaults()
	n := len(num)
	sn, sd := prefix(num), prefix(den)
	out := Interval{Point: sn[n] / sd[n], Lo: math.NaN(), Hi: math.NaN(), SE: math.NaN(), Block: b.Block}
	if n < fewest || math.IsNaN(out.Point) || math.IsInf(out.Point, 0) {
		return out
	}
	if out.Block <= 0 {
		out.Block = b.length(num, den, out.Point)
	}
	out.Block = min(out.Block, float64(n)/3)
	rng := rand.New(rand.NewPCG(b.Seed, 0x9e3779b97f4a7c15))
	draws := make([]float64, 0, b.Resamples)
	for range b.Resamples {
		x, y := b.draw(rng, sn, sd, out.Block)
		if v := x / y; !math.IsNaN(v) && !math.IsInf(v, 0) {
			draws = append(draws, v)
		}
	}
	if len(draws) < b.Resamples/2 {
		return out
	}
	slices.Sort(draws)
	out.SE = stat.StdDev(draws, nil)
	lo, hi := expanded(b.Level, float64(n)/out.Block)
	out.Lo, out.Hi = quantile(draws, lo), quantile(draws, hi)
	return out
}

// length is the block length of the ratio's residuals.
func (b Bootstrap) length(num, den []float64, ratio float64) float64 {
	rest := make([]float64, len(num))
	for i := range rest {
		rest[i] = num[i] - ratio*den[i]
	}
	c, s := BlockLength(rest)
	if b.Scheme == Stationary {
		return s
	}
	return math.Round(c)
}

// draw returns the sums of one resample, out of the series' running sums.
func (b Bootstrap) draw(rng *rand.Rand, sn, sd []float64, block float64) (x, y float64) {
	n := len(sn) - 1
	size := max(1, int(block))
	for left := n; left > 0; {
		if b.Scheme == Stationary {
			size = geometric(rng, block)
		}
		from, k := rng.IntN(n), min(size, left, n)
		to := from + k
		x += sn[min(to, n)] - sn[from]
		y += sd[min(to, n)] - sd[from]
		if to > n { // around the ring
			x += sn[to-n]
			y += sd[to-n]
		}
		left -= k
	}
	return x, y
}

// geometric draws a length of a mean.
func geometric(rng *rand.Rand, mean float64) int {
	if mean <= 1 {
		return 1
	}
	u := 1 - rng.Float64() // in (0, 1]
	return 1 + int(math.Log(u)/math.Log(1-1/mean))
}

// expanded returns the percentiles of an interval that rests on so many blocks.
func expanded(level, blocks float64) (lo, hi float64) {
	if !(blocks > 1.5) {
		return 0, 1
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: blocks - 1}.Quantile((1 - level) / 2)
	lo = distuv.UnitNormal.CDF(t * math.Sqrt(blocks/(blocks-1)))
	return lo, 1 - lo
}

// BCa returns a statistic of independent values with its bias-corrected and
// accelerated interval. stat gets resamples, which it must not keep.
func (b Bootstrap) BCa(x []float64, statistic func([]float64) float64) Interval {
	b = b.defaults()
	out := Interval{Point: math.NaN(), Lo: math.NaN(), Hi: math.NaN(), SE: math.NaN(), Block: 1}
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
	out.SE = stat.StdDev(draws, nil)
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

// acceleration is the skewness of the jackknife's values, over six.
func acceleration(x []float64, statistic func([]float64) float64) float64 {
	n := len(x)
	left, rest := make([]float64, n), make([]float64, n-1)
	for i := range x {
		copy(rest, x[:i])
		copy(rest[i:], x[i+1:])
		left[i] = statistic(rest)
	}
	mean := stat.Mean(left, nil)
	var two, three float64
	for _, v := range left {
		d := mean - v
		two += d * d
		three += d * d * d
	}
	if two == 0 {
		return 0
	}
	return three / (6 * math.Pow(two, 1.5))
}

// prefix returns running sums: s[i] is the sum of the first i terms.
func prefix(x []float64) []float64 {
	s := make([]float64, len(x)+1)
	for i, v := range x {
		s[i+1] = s[i] + v
	}
	return s
}

// quantile interpolates sorted values linearly.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := max(0, min(int(at), len(sorted)-1))
	j := min(i+1, len(sorted)-1)
	return sorted[i] + (at-float64(i))*(sorted[j]-sorted[i])
}
