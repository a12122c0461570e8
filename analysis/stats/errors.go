package stats

import (
	"math"

	"gonum.org/v1/gonum/stat"
)

// Deviation is how far readings lie from a truth.
type Deviation struct {
	N    int     // pairs that counted
	Bias float64 // mean of reading − truth
	RMSE float64 // root of the mean of its square
	MAE  float64 // mean of its absolute value
	// MAPE is the mean of |reading − truth| / |truth|, in per cent, over the pairs
	// whose truth is not zero.
	MAPE float64
}

// Deviations compares readings with the truth, pair by pair. weights may be nil
// for equal ones; a pair with a weight that is not positive, or with a value that
// is no number, does not count. It panics where lengths differ.
func Deviations(readings, truth, weights []float64) Deviation {
	if len(readings) != len(truth) || weights != nil && len(weights) != len(truth) {
		panic("stats: series of different lengths")
	}
	var d Deviation
	var sum, share float64
	for i, r := range readings {
		w := 1.0
		if weights != nil {
			w = weights[i]
		}
		e := r - truth[i]
		if !(w > 0) || math.IsNaN(e) || math.IsInf(e, 0) {
			continue
		}
		d.N++
		sum += w
		d.Bias += w * e
		d.RMSE += w * e * e
		d.MAE += w * math.Abs(e)
		if t := math.Abs(truth[i]); t > 0 {
			share += w
			d.MAPE += w * math.Abs(e) / t
		}
	}
	d.Bias, d.RMSE, d.MAE, d.MAPE = d.Bias/sum, math.Sqrt(d.RMSE/sum), d.MAE/sum, 100*d.MAPE/share
	return d
}

// Correlation returns Pearson's correlation, NaN where a series does not vary.
func Correlation(x, y []float64) float64 {
	if len(x) < 2 || !varies(x) || !varies(y) {
		return math.NaN()
	}
	return stat.Correlation(x, y, nil)
}

func varies(x []float64) bool {
	for _, v := range x {
		if v != x[0] {
			return true
		}
	}
	return false
}
