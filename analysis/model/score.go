package model

import (
	"math"

	"wattmark/measure"
)

// SquareWatt is a squared power, in W².
type SquareWatt float64

// Score tells how estimates fared against measured powers.
type Score struct {
	Rows int        `json:"rows"`
	MSE  SquareWatt `json:"mse_w2"`   // mean squared error, over all rows
	MAPE float64    `json:"mape_pct"` // mean of |error| over the measured power: the paper's error ratio
	// R2 is 1 − SSE over the squared distances from the mean; NaN where all powers are
	// the same.
	R2   float64      `json:"-"`
	RMSE measure.Watt `json:"rmse_w"`
	MAE  measure.Watt `json:"mae_w"`
	Bias measure.Watt `json:"bias_w"` // mean of estimated − measured
}

// NewScore holds estimates against what was measured; both are as long, and not
// empty.
func NewScore(measured, estimated []measure.Watt) Score {
	n := float64(len(measured))
	s := Score{Rows: len(measured)}
	mean, sd := moments(len(measured), func(i int) float64 { return float64(measured[i]) })
	_ = mean
	var sse, abs, ratio, sum float64
	for i, m := range measured {
		e := float64(estimated[i] - m)
		sse, abs, sum = sse+e*e, abs+math.Abs(e), sum+e
		ratio += math.Abs(e) / float64(m)
	}
	s.MSE, s.RMSE = SquareWatt(sse/n), measure.Watt(math.Sqrt(sse/n))
	s.MAE, s.Bias, s.MAPE = measure.Watt(abs/n), measure.Watt(sum/n), 100*ratio/n
	s.R2 = math.NaN()
	if sd > 0 {
		s.R2 = 1 - sse/(n*sd*sd)
	}
	return s
}
