package clocksync

import (
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

const (
	maxJumps = 8
	// falseJumps is the accepted chance of a jump in a recording that has none.
	falseJumps = 1e-3
	// sameLag is the least lag, relative to that of a suspected jump, at which the wander
	// is taken for comparison: a random walk makes 5 % less of it there, a drift 10 %.
	sameLag = 0.9
	// clip is the size of a step, in robust standard deviations, beyond which it is
	// suspected, and does not count as wander: 6e-5 of a normal distribution.
	clip = 4
	// overlapping is the sum of the squared autocorrelations of the steps of white
	// residuals at neighbouring places, by width: 2·(∫(1−3x/2)² + ∫(1−x)²/4), x from 0 to 1.
	overlapping = 2.0 / 3
)

// beside are the numbers of edges on either side whose levels are compared. Few edges see
// a jump within a wander, many one within white scatter. Three bear with one outlier.
var beside = [...]int{3, 5, 10}

// findJump returns the place of the most significant jump that the fit lacks: a step of
// the residuals that their own wander does not make. Steps are taken at every place
// alike, and the scatter of the others at the same lag is the measure of a suspected
// one, so that neither the wander's spectrum nor the edges' scatter need be known.
func (s *solver) findJump() (at float64, ok bool) {
	best := 1.0
	for _, m := range beside {
		for _, k := range s.suspects(m) {
			z, place := s.significance(k, m), s.between(s.place(k, m))
			if z > best && !slices.Contains(s.jumps, place) {
				best, at, ok = z, place, true
			}
		}
	}
	return at, ok
}

// suspects returns the places, at most maxJumps and at least m edges apart, where the
// step between m edges and the next m stands out, the largest first.
func (s *solver) suspects(m int) (out []int) {
	var size []float64 // by place, less m
	for k := m; k+m <= len(s.x); k++ {
		size = append(size, s.step(k, m, 0))
	}
	if len(size) == 0 {
		return nil
	}
	floats.AddConst(-stats.Median(size), size)
	least := clip * stats.SD(size)
	for len(out) < maxJumps {
		largest := -1
		for i, v := range size {
			far := !slices.ContainsFunc(out, func(k int) bool { return max(k-m-i, i-k+m) < m })
			if v = math.Abs(v); far && v > least && (largest < 0 || v > math.Abs(size[largest])) {
				largest = i
			}
		}
		if largest < 0 {
			break
		}
		out = append(out, largest+m)
	}
	return out
}

// significance returns the step at edge k over the largest that chance and wander make
// at any place of a recording with the probability falseJumps. That is Student's t for
// the effective number of the other steps, times their standard deviation; falseJumps is
// shared out among all places and widths (Bonferroni). The other steps are those that do
// not see edge k, over at least about the same time: after a pause the edges beside
// another place are left out until they lie as far apart. Zero where they are too few.
func (s *solver) significance(k, m int) float64 {
	var others []float64
	least := sameLag * s.lag(k, m, 0)
	for i := m; i+m <= len(s.x); i++ {
		skip := 0
		for i+skip+m <= len(s.x) && s.lag(i, m, skip) < least {
			skip++
		}
		if i+skip+m <= len(s.x) && (i+skip+m <= k || i-m >= k || i-k >= m || k-i-skip >= m) {
			others = append(others, s.step(i, m, skip))
		}
	}
	free := float64(len(others)) / (overlapping * float64(m))
	if free < 1 {
		return 0
	}
	typical := stats.Median(others) // of a slope that an unknown jump leaves in the residuals
	floats.AddConst(-typical, others)
	limit := clip * stats.SD(others)
	others = slices.DeleteFunc(others, func(v float64) bool { return math.Abs(v) > limit })
	sigma := max(floats.Norm(others, 2)/math.Sqrt(float64(len(others))), 1e-6) // 1 µs: stamps are no finer
	places := float64(len(beside) * len(s.x))
	return math.Abs(s.step(k, m, 0)-typical) / sigma / stats.Student(1-falseJumps/2/places, free)
}

// place returns the edge, near k, that divides the residuals best between the levels
// before and after, by their absolute deviations. Trimmed means alone place a jump only
// within the number of edges that they leave out.
func (s *solver) place(k, m int) int {
	trim := trimmed(m)
	from, to := max(m, k-trim), min(len(s.x)-m, k+trim)
	before, after := level(s.residual[from-m:from]), level(s.residual[to:to+m])
	best, least, sum := from, 0.0, 0.0
	for i := from; i < to; i++ { // the change of the deviations by counting edge i before the jump
		sum += math.Abs(s.residual[i]-before) - math.Abs(s.residual[i]-after)
		if sum < least {
			best, least = i+1, sum
		}
	}
	return best
}

// lag returns the time in seconds from the middle of the m edges before k to that of the
// m edges from k + skip on.
func (s *solver) lag(k, m, skip int) float64 {
	return stat.Mean(s.x[k+skip:k+skip+m], nil) - stat.Mean(s.x[k-m:k], nil)
}

// step returns the difference in seconds of the residuals' levels before and after.
func (s *solver) step(k, m, skip int) float64 {
	return level(s.residual[k+skip:k+skip+m]) - level(s.residual[k-m:k])
}

// level returns the mean of values but for the extreme fifth on both sides.
func level(values []float64) float64 {
	n := trimmed(len(values))
	return stat.Mean(slices.Sorted(slices.Values(values))[n:len(values)-n], nil)
}

// trimmed returns how many of m values are left out on each side of a mean, at least one.
func trimmed(m int) int { return max(1, m/5) }

// between is the place half-way between edges k − 1 and k.
func (s *solver) between(k int) float64 { return (s.x[k-1] + s.x[k]) / 2 }
