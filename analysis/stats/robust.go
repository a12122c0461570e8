package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// normal is what the median of absolute deviations is multiplied with to be the
// standard deviation of a normal distribution.
const normal = 1.4826022185056018

// Median returns the middle of x, NaN for none. x stays as it is.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Clone(x)
	slices.Sort(s)
	return quantile(s, 0.5)
}

// Huber returns Huber's level of x with the scale that it was found under: values
// further than k scales out pull no harder than those at k. k is 1.345 where it
// is zero, which loses 5 % of the mean's efficiency on a normal distribution.
// The scale is the median of absolute deviations, times 1.4826.
func Huber(x []float64, k float64) (level, scale float64) {
	if k <= 0 {
		k = 1.345
	}
	level = Median(x)
	off := make([]float64, len(x))
	for i, v := range x {
		off[i] = math.Abs(v - level)
	}
	scale = normal * Median(off)
	if !(scale > 0) {
		return level, scale
	}
	for range 100 {
		var sum, weights float64
		for _, v := range x {
			w := 1.0
			if d := math.Abs(v-level) / scale; d > k {
				w = k / d
			}
			sum += w * v
			weights += w
		}
		next := sum / weights
		if math.Abs(next-level) <= 1e-12*scale {
			return next, scale
		}
		level = next
	}
	return level, scale
}

// TheilSen returns the line through points that a minority of them (29 %) cannot
// move: the median slope of pairs, and the median of what is left. All pairs
// count up to 1500 points; beyond, as many pairs drawn with the seed. NaN where
// all x are equal.
func TheilSen(x, y []float64, seed uint64) (slope, intercept float64) {
	if len(x) != len(y) {
		panic("stats: series of different lengths")
	}
	slopes := pairs(x, y, seed)
	if len(slopes) == 0 {
		return math.NaN(), math.NaN()
	}
	slope = Median(slopes)
	rest := make([]float64, len(x))
	for i := range rest {
		rest[i] = y[i] - slope*x[i]
	}
	return slope, Median(rest)
}

const mostPoints = 1500

func pairs(x, y []float64, seed uint64) (slopes []float64) {
	add := func(i, j int) {
		if d := x[j] - x[i]; d != 0 {
			slopes = append(slopes, (y[j]-y[i])/d)
		}
	}
	if n := len(x); n > mostPoints {
		rng := rand.New(rand.NewPCG(seed, 1))
		for range mostPoints * (mostPoints - 1) / 2 {
			add(rng.IntN(n), rng.IntN(n))
		}
		return slopes
	}
	for i := range x {
		for j := i + 1; j < len(x); j++ {
			add(i, j)
		}
	}
	return slopes
}
