package page

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// ticker labels about so many round values.
type ticker struct{ about int }

// Ticks implements plot.Ticker.
func (t ticker) Ticks(lo, hi float64) (out []plot.Tick) {
	step := round((hi - lo) / float64(t.about))
	if !(step > 0) || math.IsInf(step, 0) {
		return nil
	}
	for k := math.Ceil(lo / step); k*step <= hi+step*1e-9; k++ {
		out = append(out, plot.Tick{Value: k * step, Label: strconv.FormatFloat(math.Round(k)*step+0, 'g', 6, 64)})
	}
	return out
}

// round is the least of 1, 2, 5 and 10 times a power of ten that is not below v.
func round(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*base >= v*(1-1e-9) {
			return m * base
		}
	}
	return 10 * base
}
