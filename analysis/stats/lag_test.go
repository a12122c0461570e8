package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// load is a random telegraph: it turns on and off after times of chance.
func load(rng *rand.Rand, n int, mean float64) []float64 {
	x := make([]float64, n)
	v, left := 0.0, 0
	for i := range x {
		if left == 0 {
			v, left = 1-v, 1+int(mean*rng.ExpFloat64())
		}
		left--
		x[i] = v
	}
	return x
}

// delayed is a series late by so many terms, linear between them, with noise.
func delayed(rng *rand.Rand, x []float64, lag, noise float64) []float64 {
	out := make([]float64, len(x))
	for i := range out {
		at := max(0, min(float64(i)-lag, float64(len(x)-1)))
		k := min(int(at), len(x)-2)
		out[i] = 3 + 5*(x[k]+(at-float64(k))*(x[k+1]-x[k])) + noise*rng.NormFloat64()
	}
	return out
}

// A known lag is found between the terms, and lies within two U of the truth about
// as often as it should.
func TestLag(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	in, times := 0, 200
	for i := range times {
		lag := 40 * (rng.Float64() - 0.3)
		x := load(rng, 3000, 60)
		d := Lag(delayed(rng, x, lag, 1), x, 200, Bootstrap{Resamples: 200, Seed: uint64(i)})
		if !(math.Abs(d.Lag-lag) < 1.5) || !(d.Correlation > 0.8) {
			t.Fatalf("lag %.3f is found at %.3f ± %.3f, correlation %.3f", lag, d.Lag, 2*d.U, d.Correlation)
		}
		if math.Abs(d.Lag-lag) <= 2*d.U {
			in++
		}
	}
	if share := float64(in) / float64(times); share < 0.85 {
		t.Errorf("the lag lies within 2 U in %.0f %% of the cases", 100*share)
	} else {
		t.Logf("within 2 U in %.0f %%", 100*share)
	}
}

func TestLagOfWhatRepeats(t *testing.T) {
	x := make([]float64, 2000)
	for i := range x {
		x[i] = math.Sin(2 * math.Pi * float64(i) / 100)
	}
	d := Lag(delayed(rand.New(rand.NewPCG(1, 1)), x, 12.25, 0), x, 300, Bootstrap{})
	if near(t, "the lag modulo its period", math.Mod(d.Lag+1000, 100), 12.25, 0.1); !(d.Rival > 0.95*d.Correlation) {
		t.Errorf("no rival: %+v", d)
	}
	if d := Lag(load(rand.New(rand.NewPCG(2, 2)), 3000, 20), load(rand.New(rand.NewPCG(3, 3)), 3000, 20), 100, Bootstrap{}); d.Correlation > 0.3 {
		t.Errorf("two that know nothing of each other: %+v", d)
	}
}

func TestLagCannotBeTold(t *testing.T) {
	flat, step := make([]float64, 100), load(rand.New(rand.NewPCG(1, 1)), 100, 10)
	for _, d := range []Delay{Lag(flat, step, 20, Bootstrap{}), Lag(step, flat, 20, Bootstrap{}), Lag(nil, nil, 5, Bootstrap{}), Lag(step[:5], step[:5], 2, Bootstrap{})} {
		if !math.IsNaN(d.Lag) || !math.IsNaN(d.Correlation) {
			t.Errorf("%+v", d)
		}
	}
	// Late by more than is looked at.
	x := load(rand.New(rand.NewPCG(4, 4)), 2000, 100)
	if d := Lag(delayed(rand.New(rand.NewPCG(1, 1)), x, 60, 0), x, 20, Bootstrap{}); !math.IsNaN(d.U) {
		t.Errorf("%+v", d)
	}
}

func BenchmarkLag(b *testing.B) {
	x := load(rand.New(rand.NewPCG(1, 1)), 1<<16, 100)
	b.ReportAllocs()
	for b.Loop() {
		Lag(x, x, 1500, Bootstrap{})
	}
}

func BenchmarkRatio(b *testing.B) {
	x := load(rand.New(rand.NewPCG(1, 1)), 1<<16, 100)
	b.ReportAllocs()
	for b.Loop() {
		Bootstrap{}.Ratio(x, x)
	}
}
