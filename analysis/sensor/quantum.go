package sensor

import (
	"math"
	"slices"

	"wattmark/measure"
)

// Quantum is the register's resolution: the largest step of which nearly all
// differences of values are multiples; zero where the values are too few to tell.
// A register of odd steps that is printed with two digits is told too: the
// measure is Rayleigh's again, over values instead of times.
func Quantum(polls []Poll) measure.Watt {
	var v []float64
	for _, p := range polls {
		v = append(v, float64(p.Power))
	}
	slices.Sort(v)
	v = slices.Compact(v)
	if len(v) < 8 {
		return 0
	}
	gaps := make([]float64, 0, len(v))
	for i := 1; i < len(v); i++ {
		gaps = append(gaps, v[i]-v[i-1])
	}
	least := commonStep(gaps)
	if len(v) < 20 {
		return measure.Watt(least)
	}
	if len(v) > 120 { // as much as is needed, from all of the range
		step := len(v)/120 + 1
		var w []float64
		for i := 0; i < len(v); i += step {
			w = append(w, v[i])
		}
		v = w
	}
	span := v[len(v)-1] - v[0]
	var few []float64 // most steps are refused by a few values
	for i := 0; i < len(v); i += len(v)/16 + 1 {
		few = append(few, v[i])
	}
	for q := span / 10; q > max(2.5*least, 0.01); q /= 1 + q/(6*span) {
		if near(few, q) && gather(v, q) > 0.9 {
			for d := q * q / (6 * span); d > 1e-9; d /= 2 {
				for _, c := range []float64{q - d, q + d} {
					if gather(v, c) > gather(v, q) {
						q = c
					}
				}
			}
			return measure.Watt(roundTo(q, 4))
		}
	}
	return measure.Watt(least)
}

// near reports whether all values lie within a third of a step of a multiple of it,
// counted from the first: a quick refusal.
func near(v []float64, q float64) bool {
	for _, x := range v {
		n := (x - v[0]) / q
		if math.Abs(n-math.Round(n)) > 0.33 {
			return false
		}
	}
	return true
}

func gather(v []float64, q float64) float64 {
	var re, im float64
	for _, x := range v {
		s, c := math.Sincos(2 * math.Pi * (x - v[0]) / q)
		re, im = re+c, im+s
	}
	return math.Hypot(re, im) / float64(len(v))
}

// commonStep is the greatest common divisor in whole milliwatts.
func commonStep(gaps []float64) float64 {
	var g int64
	for _, d := range gaps {
		a := int64(math.Round(d * 1e3))
		for g, a = max(g, a), min(g, a); a > 0; g, a = a, g%a {
		}
	}
	return float64(g) / 1e3
}

// roundTo rounds to significant digits.
func roundTo(v float64, digits int) float64 {
	k := math.Pow(10, float64(digits)-1-math.Floor(math.Log10(v)))
	return math.Round(v*k) / k
}
