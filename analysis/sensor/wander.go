package sensor

import (
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/interp"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// wander is how a sensor's delay goes over a run, in seconds.
type wander struct {
	at, delay []float64 // of the run's blocks, about the run's mean
	sd        float64   // between blocks, without that of their errors
	u         float64   // standard uncertainty of the run's mean by that
}

// A block of a run has this many renewals at least; there are at most mostBlocks.
const (
	blockRenewals = 30
	mostBlocks    = 12
	wanderReach   = 40e-3 // s, to either side of the run's delay
)

// wanders fits the delay in each block of the run by itself, all else as in r. The scatter between blocks
// beyond their own uncertainties is the wander (DerSimonian and Laird 1986), and each block's delay is drawn
// towards the mean by as much as it is uncertain. Blocks whose load determines no delay are left out.
func (l *linear) wanders(r response) (w wander) {
	n := min(len(l.y)/blockRenewals, mostBlocks)
	if n < 3 {
		return w
	}
	step := max(float64(r.constant)/100, 0.5e-3)
	losses, side := l.losses(r, n, step)
	var u2 []float64
	for k, f := range losses {
		first, last := (k*len(l.y)+n-1)/n, ((k+1)*len(l.y)+n-1)/n-1
		best := floats.MinIdx(f)
		if best == 0 || best == len(f)-1 {
			continue
		}
		// The delays whose loss exceeds the least by four variances bound twice its standard uncertainty.
		limit := f[best] + 4*max(f[best]/float64(last-first), 1)
		lo, hi := 0, len(f)-1
		for f[lo] > limit {
			lo++
		}
		for f[hi] > limit {
			hi--
		}
		if lo == 0 || hi == len(f)-1 {
			continue
		}
		bend := max(f[best-1]+f[best+1]-2*f[best], 1e-12)
		middle := (f[best-1] - f[best+1]) / (2 * bend)
		w.at = append(w.at, (l.at[first]+l.at[last])/2)
		w.delay = append(w.delay, (float64(best-side)+middle)*step)
		u2 = append(u2, square(float64(hi-lo+1)/4*step))
	}
	w.shrink(u2)
	return w
}

// losses returns the loss of each of n blocks at delays in steps to either side of that of r.
func (l *linear) losses(r response, n int, step float64) (loss [][]float64, side int) {
	l.solve(r)
	x := slices.Clone(l.x.RawVector().Data)
	side = int(math.Ceil(wanderReach / step))
	loss = make([][]float64, n)
	for i := range loss {
		loss[i] = make([]float64, 2*side+1)
	}
	for j := range loss[0] {
		at := r
		at.delay += measure.Seconds(float64(j-side) * step)
		l.k.columns(at, l.at, l.cols)
		for i, y := range l.y {
			d := y - floats.Dot(x, l.cols[i*l.k.k:(i+1)*l.k.k])
			loss[i*n/len(l.y)][j] += min(d*d/l.variance[i], far*far)
		}
	}
	return loss, side
}

// shrink takes the scatter of errors of variances u2 out of the delays of blocks.
func (w *wander) shrink(u2 []float64) {
	n := len(u2)
	if n < 3 {
		*w = wander{}
		return
	}
	weight := lists.Map(u2, func(v float64) float64 { return 1 / v })
	mean, sum, q := stat.Mean(w.delay, weight), floats.Sum(weight), 0.0
	for i, d := range w.delay {
		q += weight[i] * square(d-mean)
	}
	if (distuv.ChiSquared{K: float64(n - 1)}).Survival(q) > 0.01 {
		*w = wander{} // by chance as often as one time in a hundred
		return
	}
	between := max(0, (q-float64(n-1))/(sum-floats.Dot(weight, weight)/sum))
	for i := range weight {
		weight[i] = between / (between + u2[i])
		w.delay[i] = weight[i] * (w.delay[i] - mean)
	}
	floats.AddConst(-stat.Mean(w.delay, nil), w.delay)
	w.sd = math.Sqrt(between)
	w.u = math.Sqrt(between / float64(n))
}

// take moves the instants of renewals by as much as the delay is off its mean.
func (w *wander) take(at []float64) {
	var line interp.PiecewiseLinear
	if w.sd == 0 || line.Fit(w.at, w.delay) != nil {
		return
	}
	for i, t := range at {
		at[i] = t - line.Predict(t)
	}
}
