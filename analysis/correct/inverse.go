package correct

import (
	"math"

	"wattmark/measure"
)

// Inverse undoes a lag exactly, if the power was steady from each reading to the next:
// with a = e^(−Δt/C) that power is P_i + (P_i+1 − P_i)/(1 − a). The result has one
// value for each interval, at its middle. It is the sharpest there is, and the
// noisiest: see [Amplification].
func Inverse(rs []Reading, c measure.Seconds) []Reading {
	if len(rs) < 2 {
		return nil
	}
	out := make([]Reading, len(rs)-1)
	for i := range out {
		a, b := rs[i], rs[i+1]
		k := -1 / math.Expm1(-float64((b.At-a.At)/c))
		out[i] = Reading{At: (a.At + b.At) / 2, Power: a.Power + measure.Watt(k)*(b.Power-a.Power)}
	}
	return out
}

// Amplification is how many times more a value of [Inverse] scatters than a reading
// does: √(1 + a²)/(1 − a), near √2·C/Δt where readings are dense.
func Amplification(c, spacing measure.Seconds) float64 {
	a := math.Exp(-float64(spacing / c))
	return math.Sqrt(1+a*a) / -math.Expm1(-float64(spacing/c))
}
