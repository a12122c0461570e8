package stability

import (
	"math"

	"wattmark/measure"
)

// Floor is what a resting channel shows of its noise.
type Floor struct {
	// Scan is the Allan deviation at the shortest averaging time, in counts: the
	// standard deviation of one reading, free of what drifts slowly.
	Scan float64
	// Best is the lowest point of the curve: averaging longer than Best.Tau makes
	// a reading no steadier.
	Best Point
	// Short and Long are the slopes of log Dev by log Tau up to Best and from
	// there on: −1/2 for white noise, 0 for flicker, +1/2 for a random walk, +1
	// for a drift. NaN where there are fewer than two points.
	Short, Long float64
}

// trusted is how many independent pairs a point needs to be looked at: with
// fewer the deviation itself is uncertain by more than a quarter.
const trusted = 8

// FloorOf reads the noise floor off a curve. ok is false for a curve without a
// point of eight independent pairs of averages, as too short a recording has.
func FloorOf(curve []Point) (f Floor, ok bool) {
	var good []Point
	for _, p := range curve {
		if p.independent(curve[0].Tau) >= trusted {
			good = append(good, p)
		}
	}
	if len(good) == 0 {
		return Floor{}, false
	}
	best := 0
	for i, p := range good {
		if p.Dev < good[best].Dev {
			best = i
		}
	}
	return Floor{Scan: good[0].Dev, Best: good[best], Short: Slope(good[:best+1]), Long: Slope(good[best:])}, true
}

// independent returns about how many of a point's pairs are independent.
func (p Point) independent(shortest measure.Seconds) float64 {
	return float64(p.N) / min(overlap, float64(p.Tau/shortest))
}

// Slope returns the slope of log Dev by log Tau through the points, each
// weighted by its independent pairs; NaN for fewer than two points whose
// deviation is above zero.
func Slope(points []Point) float64 {
	var n, sx, sy, sxx, sxy float64
	used := 0
	for _, p := range points {
		if !(p.Dev > 0) {
			continue
		}
		// The relative variance of a deviation goes with one over its pairs.
		w := p.independent(points[0].Tau)
		x, y := math.Log(float64(p.Tau)), math.Log(p.Dev)
		n, sx, sy, sxx, sxy = n+w, sx+w*x, sy+w*y, sxx+w*x*x, sxy+w*x*y
		used++
	}
	if used < 2 {
		return math.NaN()
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
