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
	Block     float64 // length of the blocks; zero for the rule of Ratio
	Least     float64 // of the rule's lengths; zero for none
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

// mostBlocks is more than an interval can gain from: longer blocks than are needed
// do no harm while there are so many.
const mostBlocks = 300

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
// is the ratio's (the delta method): BlockLength's, or Least or a
// three hundredth of the series if that is more, and then up to whole periods where the series repeats itself (Period), for parts of
// a period are no sample of it. The percentiles are taken further out than
// the level says, by what Student's t of as many degrees of freedom as there are
// blocks, less one, has over the normal distribution, because the spread of few
// blocks is too small (Hesterberg 2015); and they are moved out by what blocks hide
// of the dependence across their ends (Künsch 1989). It panics where lengths differ.
func (b Bootstrap) Ratio(num, den []float64) Interval {
	if len(num) != len(den) {
		panic("stats: series of different lengths")
	}
	b = b.defaults()
	n := len(num)
	sums := running(num, den)
	out := Interval{Point: sums[n].x / sums[n].y, Lo: math.NaN(), Hi: math.NaN(), SE: math.NaN(), Block: b.Block}
	if n < fewest || math.IsNaN(out.Point) || math.IsInf(out.Point, 0) {
		return out
	}
	wider := 1.0
	out.Block, wider = b.length(num, den, out.Point)
	rng := rand.New(rand.NewPCG(b.Seed, 0x9e3779b97f4a7c15))
	draw := b.drawer(sums, out.Block)
	draws := make([]float64, 0, b.Resamples)
	for range b.Resamples {
		s := draw(rng)
		if v := s.x / s.y; !math.IsNaN(v) && !math.IsInf(v, 0) {
			draws = append(draws, v)
		}
	}
	if len(draws) < b.Resamples/2 {
		return out
	}
	slices.Sort(draws)
	out.SE = wider * stat.StdDev(draws, nil)
	lo, hi := expanded(b.Level, float64(n)/out.Block)
	out.Lo, out.Hi = out.Point+wider*(quantile(draws, lo)-out.Point), out.Point+wider*(quantile(draws, hi)-out.Point)
	return out
}

// length is the length of the blocks, and by how much the spread that they show is
// too small.
func (b Bootstrap) length(num, den []float64, ratio float64) (block, wider float64) {
	rest := make([]float64, len(num))
	for i := range rest {
		rest[i] = num[i] - ratio*den[i]
	}
	r := autocovariance(rest)
	d, most := dependenceOf(r), float64(len(num))/3
	if b.Block > 0 {
		block = min(b.Block, most)
		return block, d.widening(block)
	}
	c, s := d.lengths()
	if b.Scheme == Stationary {
		c = s
	}
	c = max(math.Round(c), math.Ceil(float64(len(num))/mostBlocks))
	if b.Least > c { // not where it is no number
		c = math.Round(b.Least)
	}
	if p := periodOf(r); p > 0 {
		return min(math.Round(p*math.Ceil(c/p)), most), 1
	}
	c = min(c, most)
	return c, d.widening(c)
}

// two are the sums of a ratio.
type two struct{ x, y float64 }

// running are the sums of the terms before each, and of all.
func running(num, den []float64) []two {
	s := make([]two, len(num)+1)
	for i := range num {
		s[i+1] = two{s[i].x + num[i], s[i].y + den[i]}
	}
	return s
}

// ring is the sum of k terms from one on, around the ring that the series is.
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

// drawer returns what draws the sums of one resample.
func (b Bootstrap) drawer(sums []two, block float64) func(*rand.Rand) two {
	n := len(sums) - 1
	if b.Scheme == Stationary {
		return func(rng *rand.Rand) (s two) {
			for left := n; left > 0; {
				k := min(geometric(rng, block), left)
				t := ring(sums, rng.IntN(n), k)
				s.x, s.y, left = s.x+t.x, s.y+t.y, left-k
			}
			return s
		}
	}
	size := max(1, int(block))
	blocks := make([]two, n) // by where they begin
	for i := range blocks {
		blocks[i] = ring(sums, i, size)
	}
	return func(rng *rand.Rand) (s two) {
		for range n / size {
			t := &blocks[rng.Uint32N(uint32(n))]
			s.x, s.y = s.x+t.x, s.y+t.y
		}
		t := ring(sums, rng.IntN(n), n%size)
		return two{s.x + t.x, s.y + t.y}
	}
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

// quantile interpolates sorted values linearly; the i-th of n stands at i/(n+1),
// which is what it is on the average.
func quantile(sorted []float64, q float64) float64 {
	at := max(0, min(q*float64(len(sorted)+1)-1, float64(len(sorted)-1)))
	i := max(0, min(int(at), len(sorted)-1))
	j := min(i+1, len(sorted)-1)
	return sorted[i] + (at-float64(i))*(sorted[j]-sorted[i])
}
