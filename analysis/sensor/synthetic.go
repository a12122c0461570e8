package sensor

import (
	"math"
	"math/rand/v2"

	"wattmark/measure"
)

// Synthetic reads a load as a sensor of a profile would, with its noise and jitter,
// polled every so often: a series whose answer is known. Polls lie up to a third of
// their distance from their place. The first renewal comes at phase.
func Synthetic(p *Profile, l *Load, phase, poll measure.Seconds, rng *rand.Rand) []Poll {
	var at []measure.Seconds
	for t := phase; t <= l.End()+p.Period; t += p.Period {
		at = append(at, max(t+measure.Seconds(rng.NormFloat64())*p.Jitter, phase))
	}
	for i := 1; i < len(at); i++ {
		at[i] = max(at[i], at[i-1])
	}
	exact := *p
	exact.Quantum = 0
	w := exact.PredictAt(l, at)
	for i := range w {
		w[i] += measure.Watt(rng.NormFloat64()) * p.Noise
		if p.Quantum > 0 {
			w[i] = p.Quantum * measure.Watt(math.Round(float64(w[i]/p.Quantum)))
		}
	}
	var out []Poll
	k := 0
	for t := phase; t <= l.End(); t += poll * measure.Seconds(2.0/3+rng.Float64()*2/3) {
		for k+1 < len(at) && at[k+1] <= t {
			k++
		}
		out = append(out, Poll{At: t, Power: w[k]})
	}
	return out
}
