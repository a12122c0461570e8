package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A processor that takes eight scans at a time finds what one finds that takes one, but
// for rounding.
func TestVectorExtremes(t *testing.T) {
	if !vector {
		t.Skip("this processor has no AVX2 and FMA")
	}
	defer func() { vector = true }()
	rng := rand.New(rand.NewPCG(2, 9))
	for n := 1; n <= RunScans*MaxRuns; n++ {
		s := swing{float32(rng.NormFloat64()), float32(rng.NormFloat64()), float32(rng.NormFloat64()), float32(rng.NormFloat64()), float32(rng.NormFloat64()), Count(rng.Int32()), -Count(rng.Int32())}
		x, y, was := make([]Count, n), make([]Count, n), make([]float32, n)
		for i := range x {
			x[i], y[i], was[i] = s.x0+Count(rng.IntN(1<<16)-1<<15), s.y0+Count(rng.IntN(1<<16)-1<<15), float32(rng.NormFloat64())
		}
		var all [2]distance
		var of [2][MaxRuns]distance
		var totals [2][]float32
		for k, on := range []bool{false, true} {
			vector = on
			totals[k] = append([]float32(nil), was...)
			s.over(x, y, totals[k], &of[k], on)
			all[k] = distances(totals[k])
		}
		for r := 0; r*RunScans < n; r++ {
			one, eight := of[0][r], of[1][r]
			size := 1e-6 * math.Max(math.Abs(float64(one.lo)), math.Abs(float64(one.hi)))
			near := func(a, b float32, times float64) bool { return math.Abs(float64(a)-float64(b)) <= times*size }
			for i := r * RunScans; i < min(n, (r+1)*RunScans); i++ {
				if !near(totals[0][i], totals[1][i], 1) {
					t.Fatalf("%d scans: total %d is %v, one at a time %v", n, i, totals[1][i], totals[0][i])
				}
			}
			if !near(one.lo, eight.lo, 1) || !near(one.hi, eight.hi, 1) || !near(one.sum, eight.sum, RunScans) {
				t.Fatalf("%d scans, run %d: %+v, one at a time %+v", n, r, eight, one)
			}
		}
		vector = true
		size := 1e-6 * max(math.Abs(float64(all[0].lo)), math.Abs(float64(all[0].hi)))
		if all[0] == nowhere || math.Abs(float64(all[0].lo-all[1].lo)) > size || math.Abs(float64(all[0].hi-all[1].hi)) > size {
			t.Fatalf("%d scans: from %v to %v, one at a time %v to %v", n, all[1].lo, all[1].hi, all[0].lo, all[0].hi)
		}
	}
}
