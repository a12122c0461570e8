package predict

import (
	"fmt"
	"math"
)

// Errors are relative errors of predictions in percent, after Eq. 8.
//
// Eq. 8 as printed is a sum of signed errors, without 1/n: errors of both signs
// would cancel, and more data would make it worse. The figures of the paper's
// tables cannot come from that. Average is the mean of the absolute values.
type Errors struct {
	Worst   float64 `json:"wre_pct"` // WRE
	Best    float64 `json:"bre_pct"` // BRE
	Average float64 `json:"are_pct"` // ARE
	// Mean keeps the signs: what is left of it when Average is taken away is bias.
	Mean float64 `json:"mean_signed_pct"`
	N    int     `json:"n"`
}

// RelativeErrors compares predictions with what was measured, which is positive.
func RelativeErrors[T ~float64](measured, predicted []T) (Errors, error) {
	if len(measured) != len(predicted) || len(measured) == 0 {
		return Errors{}, fmt.Errorf("%w: %d measured and %d predicted values to compare", ErrInput, len(measured), len(predicted))
	}
	out := Errors{Best: math.Inf(1), N: len(measured)}
	for i := range measured {
		y, p := float64(measured[i]), float64(predicted[i])
		e := 100 * (p - y) / y
		if !(y > 0) || math.IsNaN(e) || math.IsInf(e, 0) {
			return Errors{}, fmt.Errorf("%w: predicted %v where %v was measured: no relative error", ErrInput, p, y)
		}
		out.Mean += e / float64(len(measured))
		e = math.Abs(e)
		out.Average += e / float64(len(measured))
		out.Worst, out.Best = max(out.Worst, e), min(out.Best, e)
	}
	return out, nil
}
