package correct

import (
	"math"
	"math/rand/v2"
	"testing"

	"wattmark/measure"
)

// A power that is steady between readings comes back to the last digit.
func TestInverseIsExact(t *testing.T) {
	const c = 0.3
	r := rand.New(rand.NewPCG(4, 5))
	y := 50.0
	rs := []Reading{{At: 0, Power: measure.Watt(y)}}
	var want []float64
	for range 500 {
		d, p := 0.002+0.03*r.Float64(), 50+300*r.Float64()
		y = p + (y-p)*math.Exp(-d/c)
		rs = append(rs, Reading{At: rs[len(rs)-1].At + measure.Seconds(d), Power: measure.Watt(y)})
		want = append(want, p)
	}
	for i, x := range Inverse(rs, c) {
		if math.Abs(float64(x.Power)-want[i]) > 1e-8 {
			t.Fatalf("interval %d: %v, want %v", i, x.Power, want[i])
		}
	}
	if Inverse(rs[:1], c) != nil {
		t.Error("one reading has no interval")
	}
}

func TestAmplification(t *testing.T) {
	const c, dt, sigma = 0.8333, 0.0155, 0.01
	r := rand.New(rand.NewPCG(6, 7))
	var rs []Reading
	for i := range 20000 {
		rs = append(rs, Reading{At: measure.Seconds(i) * dt, Power: measure.Watt(100 + sigma*r.NormFloat64())})
	}
	sum := 0.0
	out := Inverse(rs, c)
	for _, x := range out {
		sum += square(float64(x.Power) - 100)
	}
	near(t, "amplification", math.Sqrt(sum/float64(len(out)))/sigma, Amplification(c, dt), 0.02)
	near(t, "of dense readings", Amplification(c, dt), math.Sqrt2*c/dt, 0.02)
}

func BenchmarkLag(b *testing.B) {
	rs := Collapse(K20().Readings(), Near, K20Period)
	l := Lag{C: 0.8333, U: 0.01}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Energy(rs, Span{From: 2, To: 7.346}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCollapse(b *testing.B) {
	rs := K20().Readings()
	b.SetBytes(int64(16 * len(rs)))
	b.ReportAllocs()
	for b.Loop() {
		Collapse(rs, Near, K20Period)
	}
}
