package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// ar makes a series x[i] = phi·x[i−1] + noise around a mean, of standard deviation one.
func ar(rng *rand.Rand, n int, phi, mean float64) []float64 {
	x := make([]float64, n)
	v := rng.NormFloat64()
	for i := range x {
		x[i] = mean + v
		v = phi*v + math.Sqrt(1-phi*phi)*rng.NormFloat64()
	}
	return x
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %.6g, want %.6g within %.2g", what, got, want, within)
	}
}

func TestDeviations(t *testing.T) {
	d := Deviations([]float64{9, 22, math.NaN(), 5}, []float64{10, 20, 30, 0}, []float64{1, 3, 1, 0})
	near(t, "bias", d.Bias, (-1+3*2)/4.0, 1e-12)
	near(t, "RMSE", d.RMSE, math.Sqrt((1+3*4)/4.0), 1e-12)
	near(t, "MAE", d.MAE, (1+3*2)/4.0, 1e-12)
	near(t, "MAPE", d.MAPE, 10, 1e-12)
	if d.N != 2 {
		t.Errorf("%d pairs", d.N)
	}
	// A truth of zero has no percentage, but an error.
	d = Deviations([]float64{1, 11}, []float64{0, 10}, nil)
	near(t, "MAPE beside zero", d.MAPE, 10, 1e-12)
	near(t, "bias beside zero", d.Bias, 1, 1e-12)
	if d := Deviations(nil, nil, nil); !math.IsNaN(d.Bias) || !math.IsNaN(d.MAPE) || !math.IsNaN(d.RMSE) {
		t.Errorf("of nothing: %+v", d)
	}
}

func TestCorrelation(t *testing.T) {
	near(t, "of a falling line", Correlation([]float64{1, 2, 3}, []float64{5, 3, 1}), -1, 1e-12)
	if v := Correlation([]float64{1, 2}, []float64{3, 3}); !math.IsNaN(v) {
		t.Errorf("of a constant: %v", v)
	}
}

// The autocovariance through the spectrum is the sum by its definition.
func TestAutocovariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := ar(rng, 137, 0.6, 3)
	m := stat.Mean(x, nil)
	for k, got := range autocovariance(x) {
		var want float64
		for i := k; i < len(x); i++ {
			want += (x[i] - m) * (x[i-k] - m)
		}
		near(t, "R", got, want/float64(len(x)), 1e-12)
	}
}

// The theoretical optimum for an AR(1) series is known: with ρ, G/g = 2ρ/(1−ρ²) and
// b = (3·(2ρ/(1−ρ²))²·n)^⅓ for the circular bootstrap (Politis and White 2004).
func TestBlockLength(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, phi := range []float64{0, 0.5, 0.8} {
		const n, times = 4000, 40
		var c, s []float64
		for range times {
			a, b := BlockLength(ar(rng, n, phi, 0))
			c, s = append(c, a), append(s, b)
		}
		r := 2 * phi / (1 - phi*phi)
		want := max(1, math.Cbrt(1.5*r*r*n))
		if got := Median(c); got < want*0.6 || got > want*1.6+3 {
			t.Errorf("φ = %v: circular %v, want about %v", phi, got, want)
		}
		if got, want := Median(s), max(1, math.Cbrt(r*r*n)); got < want*0.6 || got > want*1.6+3 {
			t.Errorf("φ = %v: stationary %v, want about %v", phi, got, want)
		}
	}
	if c, s := BlockLength([]float64{1, 1, 1, 1, 1, 1}); c != 1 || s != 1 {
		t.Errorf("of a constant: %v, %v", c, s)
	}
}

func TestPeriod(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, p := range []float64{20, 47.3, 100} {
		x := make([]float64, 1000)
		for i := range x {
			if math.Mod(float64(i), p) < p/2 {
				x[i] = 10
			}
			x[i] += rng.NormFloat64()
		}
		near(t, "the period", Period(x), p, 0.5)
	}
	for range 20 {
		if p := Period(ar(rng, 1000, 0.9, 0)); p != 0 {
			t.Errorf("a wandering series has the period %v", p)
		}
	}
}

// coverage is how often an interval holds the truth.
func coverage(times int, one func(i int) (Interval, float64)) float64 {
	in := 0
	for i := range times {
		if v, truth := one(i); v.Lo <= truth && truth <= v.Hi {
			in++
		}
	}
	return float64(in) / float64(times)
}

// Intervals of 95 % hold the truth in 93 to 97 % of the cases, whether or not the
// terms depend on their neighbours.
func TestCoverage(t *testing.T) {
	const times = 1000
	rng := rand.New(rand.NewPCG(7, 8))
	for _, c := range []struct {
		name   string
		n      int
		phi    float64
		scheme Scheme
	}{
		{"independent", 400, 0, Circular},
		{"φ = 0.5", 600, 0.5, Circular},
		{"φ = 0.8", 1500, 0.8, Circular},
		{"φ = 0.8, stationary", 1500, 0.8, Stationary},
	} {
		got := coverage(times, func(i int) (Interval, float64) {
			b := Bootstrap{Scheme: c.scheme, Resamples: 300, Seed: uint64(i)}
			return b.Mean(ar(rng, c.n, c.phi, 5)), 5
		})
		if got < 0.93 || got > 0.97 {
			t.Errorf("%s: mean held in %.1f %%", c.name, 100*got)
		}
		t.Logf("%s: %.1f %%", c.name, 100*got)
	}
	got := coverage(times, func(i int) (Interval, float64) {
		load, noise := ar(rng, 800, 0.7, 20), ar(rng, 800, 0.7, 0)
		for k := range noise {
			noise[k] += 0.8 * load[k]
		}
		return Bootstrap{Resamples: 300, Seed: uint64(i)}.Ratio(noise, load), 0.8
	})
	if got < 0.93 || got > 0.97 {
		t.Errorf("ratio held in %.1f %%", 100*got)
	}
}

// A skewed distribution's mean, by bias-corrected and accelerated intervals.
func TestBCaCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	mean := func(x []float64) float64 { return stat.Mean(x, nil) }
	got := coverage(1000, func(i int) (Interval, float64) {
		x := make([]float64, 60)
		for k := range x {
			x[k] = rng.ExpFloat64()
		}
		return Bootstrap{Resamples: 500, Seed: uint64(i)}.BCa(x, mean), 1
	})
	if got < 0.93 || got > 0.97 {
		t.Errorf("held in %.1f %%", 100*got)
	}
}

func TestBootstrapEnds(t *testing.T) {
	if v := (Bootstrap{}).Mean([]float64{1, 2, 3}); v.Point != 2 || !math.IsNaN(v.Lo) || !math.IsNaN(v.SE) {
		t.Errorf("of three terms: %+v", v)
	}
	if v := (Bootstrap{}).Mean(nil); !math.IsNaN(v.Point) {
		t.Errorf("of none: %+v", v)
	}
	x := ar(rand.New(rand.NewPCG(1, 1)), 300, 0.5, 0)
	a, b, c := Bootstrap{Seed: 4}.Mean(x), Bootstrap{Seed: 4}.Mean(x), Bootstrap{Seed: 5}.Mean(x)
	if a != b || a == c {
		t.Errorf("seeds: %+v, %+v, %+v", a, b, c)
	}
	// Blocks of a load that repeats itself are whole periods, whose sums hardly differ.
	for i := range x {
		x[i] = float64(i / 10 % 2)
	}
	if v := (Bootstrap{}).Mean(x); math.Mod(v.Block, 20) != 0 || v.SE > 1e-9 {
		t.Errorf("a square wave of 20 terms: %+v", v)
	}
	if v := (Bootstrap{Least: math.NaN()}).Mean(x); !(v.Block >= 1) {
		t.Errorf("blocks of %v terms", v.Block)
	}
	if v := (Bootstrap{Least: 47}).Mean(ar(rand.New(rand.NewPCG(1, 1)), 300, 0, 0)); v.Block != 47 {
		t.Errorf("blocks of %v terms, want 47", v.Block)
	}
	if v := (Bootstrap{}).BCa([]float64{1, 2}, Median); !math.IsNaN(v.Lo) || v.Point != 1.5 {
		t.Errorf("of two values: %+v", v)
	}
}

func TestRobust(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	x, y := make([]float64, 400), make([]float64, 400)
	for i := range x {
		x[i] = rng.Float64() * 10
		y[i] = 3 - 2*x[i] + 0.1*rng.NormFloat64()
		if i%5 == 0 {
			y[i] = 100 * rng.Float64()
		}
	}
	slope, intercept := TheilSen(x, y, 1)
	near(t, "slope", slope, -2, 0.03)
	near(t, "intercept", intercept, 3, 0.15)
	if s, _ := TheilSen([]float64{1, 1}, []float64{2, 3}, 1); !math.IsNaN(s) {
		t.Errorf("a slope of %v along one x", s)
	}
	var many, line []float64
	for i := range 4000 {
		many, line = append(many, float64(i)), append(line, 5*float64(i))
	}
	slope, _ = TheilSen(many, line, 1)
	near(t, "slope of many", slope, 5, 1e-9)

	level := make([]float64, 1001)
	for i := range level {
		level[i] = 7 + rng.NormFloat64()
		if i%20 == 0 {
			level[i] = 1e6
		}
	}
	got, scale := Huber(level, 0)
	near(t, "level", got, 7, 0.2)
	near(t, "scale", scale, 1, 0.15)
	if v, s := Huber([]float64{4, 4, 4}, 0); v != 4 || s != 0 {
		t.Errorf("of a constant: %v, %v", v, s)
	}
	if v, _ := Huber(nil, 0); !math.IsNaN(v) {
		t.Errorf("of nothing: %v", v)
	}
}
