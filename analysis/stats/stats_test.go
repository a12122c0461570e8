package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/wattmark/wattmark/internal/coverage"
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

// meanOf is the mean as a ratio whose denominator has unit terms.
func meanOf(b Bootstrap, x []float64) Interval {
	one := make([]float64, len(x))
	for i := range one {
		one[i] = 1
	}
	return b.Ratio(x, one)
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
		var c []float64
		for range times {
			c = append(c, dependenceOf(autocovariance(ar(rng, n, phi, 0))).length())
		}
		r := 2 * phi / (1 - phi*phi)
		want := max(1, math.Cbrt(1.5*r*r*n))
		if got := Median(c); got < want*0.6 || got > want*1.6+3 {
			t.Errorf("φ = %v: %v, want about %v", phi, got, want)
		}
	}
	if c := dependenceOf(autocovariance([]float64{1, 1, 1, 1, 1, 1})).length(); c != 1 {
		t.Errorf("of a constant: %v", c)
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
		near(t, "the period", periodOf(autocovariance(x)), p, 0.5)
	}
	for range 20 {
		if p := periodOf(autocovariance(ar(rng, 1000, 0.9, 0))); p != 0 {
			t.Errorf("a wandering series has the period %v", p)
		}
	}
}

// held returns the share of intervals that hold the truth.
func held(times int, one func(i int) (Interval, float64)) float64 {
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
	times := coverage.Trials(1000)
	rng := rand.New(rand.NewPCG(7, 8))
	for _, c := range []struct {
		name string
		n    int
		phi  float64
	}{{"independent", 400, 0}, {"φ = 0.5", 600, 0.5}, {"φ = 0.8", 1500, 0.8}} {
		got := held(times, func(i int) (Interval, float64) {
			b := Bootstrap{Resamples: 300, Seed: uint64(i)}
			return meanOf(b, ar(rng, c.n, c.phi, 5)), 5
		})
		if !coverage.Within(got, 0.93, 0.97, times) {
			t.Errorf("%s: mean held in %.1f %%", c.name, 100*got)
		}
		t.Logf("%s: %.1f %%", c.name, 100*got)
	}
	got := held(times, func(i int) (Interval, float64) {
		load, noise := ar(rng, 800, 0.7, 20), ar(rng, 800, 0.7, 0)
		for k := range noise {
			noise[k] += 0.8 * load[k]
		}
		return Bootstrap{Resamples: 300, Seed: uint64(i)}.Ratio(noise, load), 0.8
	})
	if !coverage.Within(got, 0.93, 0.97, times) {
		t.Errorf("ratio held in %.1f %%", 100*got)
	}
}

// Few terms that spread the mean of 30 among many that hardly do, as the renewals at a load's edges: the interval is
// that of as few.
func TestCoverageOfFewTerms(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	got := held(4000, func(i int) (Interval, float64) {
		x := make([]float64, 30)
		for k := range x {
			x[k] = 5 + 0.05*rng.NormFloat64()
			if rng.IntN(5) == 0 {
				x[k] += rng.NormFloat64()
			}
		}
		return meanOf(Bootstrap{Resamples: 300, Seed: uint64(i)}, x), 5
	})
	if t.Logf("%.1f %%", 100*got); got < 0.93 || got > 0.97 {
		t.Errorf("held in %.1f %%", 100*got)
	}
}

// A skewed distribution's mean, by bias-corrected and accelerated intervals.
func TestBCaCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	mean := func(x []float64) float64 { return stat.Mean(x, nil) }
	times := coverage.Trials(1000)
	got := held(times, func(i int) (Interval, float64) {
		x := make([]float64, 60)
		for k := range x {
			x[k] = rng.ExpFloat64()
		}
		return Bootstrap{Resamples: 500, Seed: uint64(i)}.BCa(x, mean), 1
	})
	if !coverage.Within(got, 0.93, 0.97, times) {
		t.Errorf("held in %.1f %%", 100*got)
	}
}

func TestBootstrapEnds(t *testing.T) {
	if v := meanOf(Bootstrap{}, []float64{1, 2, 3}); v.Point != 2 || !math.IsNaN(v.Lo) {
		t.Errorf("of three terms: %+v", v)
	}
	if v := meanOf(Bootstrap{}, nil); !math.IsNaN(v.Point) {
		t.Errorf("of none: %+v", v)
	}
	x := ar(rand.New(rand.NewPCG(1, 1)), 300, 0.5, 0)
	a, b, c := meanOf(Bootstrap{Seed: 4}, x), meanOf(Bootstrap{Seed: 4}, x), meanOf(Bootstrap{Seed: 5}, x)
	if a != b || a == c {
		t.Errorf("seeds: %+v, %+v, %+v", a, b, c)
	}
	// Blocks of a load that repeats itself are whole periods, whose sums hardly differ.
	for i := range x {
		x[i] = float64(i / 10 % 2)
	}
	if v := meanOf(Bootstrap{}, x); math.Mod(v.Block, 20) != 0 || v.Hi-v.Lo > 1e-9 {
		t.Errorf("a square wave of 20 terms: %+v", v)
	}
	if v := meanOf(Bootstrap{Least: math.NaN()}, x); !(v.Block >= 1) {
		t.Errorf("blocks of %v terms", v.Block)
	}
	if v := meanOf(Bootstrap{Least: 47}, ar(rand.New(rand.NewPCG(1, 1)), 300, 0, 0)); v.Block != 47 {
		t.Errorf("blocks of %v terms, want 47", v.Block)
	}
	if v := (Bootstrap{}).BCa([]float64{1, 2}, Median); !math.IsNaN(v.Lo) || v.Point != 1.5 {
		t.Errorf("of two values: %+v", v)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}, {[]float64{7}, 7}} {
		before := slices.Clone(c.x)
		if got := Median(c.x); got != c.want || !slices.Equal(before, c.x) {
			t.Errorf("median of %v is %v, want %v; left %v", before, got, c.want, c.x)
		}
	}
	if v := Median(nil); !math.IsNaN(v) {
		t.Errorf("of nothing: %v", v)
	}
	// A twentieth of wild values moves neither level nor scale of a normal sample.
	rng := rand.New(rand.NewPCG(11, 12))
	off := make([]float64, 4001)
	for i := range off {
		off[i] = math.Abs(rng.NormFloat64())
		if i%20 == 0 {
			off[i] = 1e6
		}
	}
	near(t, "scale", SD(off), 1, 0.15)
}

func TestStudent(t *testing.T) {
	near(t, "97.5 % at 4 degrees of freedom", Student(0.975, 4), 2.776445, 1e-6)
	near(t, "of infinitely many", Student(0.975, math.Inf(1)), 1.959964, 1e-6)
	near(t, "two-sided tail", StudentTail(-2.776445, 4), 0.05, 1e-7)
	near(t, "two-sided normal tail", StudentTail(1.959964, math.Inf(1)), 0.05, 1e-7)
}
