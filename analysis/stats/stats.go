// Package stats holds the statistics that the analyses share. Its nouns:
//
//   - Deviation: bias, RMSE, MAE and MAPE of readings against a truth.
//   - Bootstrap → Interval: the confidence interval of a mean or a ratio of dependent
//     terms, from resampled blocks; BCa for independent values.
//   - Delay: the lag between two series, by cross-correlation.
//   - Median and SD: robust location and scale.
//   - Student: coverage factors.
//
// Values are plain float64 in the caller's unit; a result is in the same unit. Every
// random draw comes from a seed, so results repeat. An undetermined result is NaN,
// never zero. All functions are pure and safe for concurrent use.
//
// Sources: the block bootstrap is Politis and Romano's (1992, circular; 1994, stationary), its block length Politis
// and White's (2004) as corrected by Patton, Politis and White (2009), the bias-corrected and accelerated interval
// Efron's (1987), the widening for few blocks Hesterberg's (2015), that for dependence cut at block ends Künsch's
// (1989).
package stats

import (
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Deviation sums up the differences of readings from a truth, in the readings' unit.
// Its figures are NaN without any pair.
type Deviation struct {
	N    int     // pairs that counted
	Bias float64 // mean of reading − truth
	RMSE float64 // root of the mean of its square
	MAE  float64 // mean of its absolute value
	// MAPE is the mean of |reading − truth| / |truth|, in per cent, over the pairs
	// whose truth is not zero.
	MAPE float64
}

// Deviations compares readings with the truth, pair by pair. weights may be nil for
// equal ones; a pair with a weight that is not positive, or with a value that is not
// finite, is left out. It panics where lengths differ.
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

// varies reports whether any term differs from the first.
func varies(x []float64) bool {
	return slices.ContainsFunc(x, func(v float64) bool { return v != x[0] })
}

// Median returns the median of x, NaN for none. x is left as it is.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Clone(x)
	slices.Sort(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// SD returns 1.4826 times the median size of deviations: the standard deviation of a
// normal distribution, unmoved by a minority of outliers. NaN for none.
func SD(deviations []float64) float64 { return 1.4826 * Median(lists.Map(deviations, math.Abs)) }

// Autocorrelation returns the correlation of each residual with the next, without taking off
// a mean; zero where all are zero.
func Autocorrelation(residuals []float64) float64 {
	all := floats.Dot(residuals, residuals)
	if all == 0 {
		return 0
	}
	return floats.Dot(residuals[1:], residuals[:len(residuals)-1]) / all
}

// manyDoF is the number of degrees of freedom from which on Student's distribution is
// taken for the normal one; their quantiles differ by less than 1e-6 there.
const manyDoF = 1e6

// Student returns the quantile p, 0 < p < 1, of Student's t distribution with dof
// degrees of freedom, which may be +Inf and need not be an integer.
func Student(p, dof float64) float64 {
	if dof > manyDoF {
		return distuv.UnitNormal.Quantile(p)
	}
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: dof}.Quantile(p)
}

// StudentTail returns the probability of a |t| at least as large, with dof degrees of
// freedom.
func StudentTail(t, dof float64) float64 {
	if dof > manyDoF {
		return 2 * distuv.UnitNormal.Survival(math.Abs(t))
	}
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: dof}.Survival(math.Abs(t))
}

// Cumulate returns running sums of v and of its squares: element i is the sum over the
// first i terms, so both have one element more than v.
func Cumulate(v []float64) (sums, squares []float64) {
	sums, squares = make([]float64, len(v)+1), make([]float64, len(v)+1)
	for i, x := range v {
		sums[i+1], squares[i+1] = sums[i]+x, squares[i]+x*x
	}
	return sums, squares
}

// Differences returns by how much each term but the first lies above the one before it.
func Differences[T ~float64](x []T) (out []float64) {
	for i := 1; i < len(x); i++ {
		out = append(out, float64(x[i]-x[i-1]))
	}
	return out
}

// Centred returns x less its mean.
func Centred(x []float64) []float64 {
	mean := stat.Mean(x, nil)
	return lists.Map(x, func(v float64) float64 { return v - mean })
}
