package quality

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat"
)

// direct is the definition, without any cleverness: averages anew from every
// start, from 16 starts in an average where it is longer than that.
func direct(x []measure.Count, m int) (dev float64, n uint64) {
	mean := func(from int) (s float64) {
		for _, c := range x[from : from+m] {
			s += float64(c) / float64(m)
		}
		return s
	}
	var squares float64
	for j := 0; j+2*m <= len(x); j += max(m/overlap, 1) {
		d := mean(j+m) - mean(j)
		squares += d * d
		n++
	}
	return math.Sqrt(squares / (2 * float64(n))), n
}

// Generators make readings with known behaviour over the averaging time.
var generators = map[string]struct {
	slope float64
	tol   float64
	next  func(rng *rand.Rand) func() float64
}{
	"white": {-0.5, 0.03, func(rng *rand.Rand) func() float64 {
		return func() float64 { return 1000 * rng.NormFloat64() }
	}},
	"flicker": {0, 0.06, func(rng *rand.Rand) func() float64 {
		// R. F. Voss's sum of values that are drawn anew every 1, 2, 4 … readings.
		var parts [18]float64
		n := 0
		return func() (s float64) {
			for k := range parts {
				if n%(1<<k) == 0 {
					parts[k] = 1000 * rng.NormFloat64()
				}
				s += parts[k]
			}
			n++
			return s
		}
	}},
	"random walk": {0.5, 0.06, func(rng *rand.Rand) func() float64 {
		at := 0.0
		return func() float64 { at += 1000 * rng.NormFloat64(); return at }
	}},
	"drift": {1, 0.01, func(*rand.Rand) func() float64 {
		at := -1e8
		return func() float64 { at += 500; return at }
	}},
}

func readings(name string, n int, seed uint64) []measure.Count {
	next := generators[name].next(rand.New(rand.NewPCG(seed, 17)))
	x := make([]measure.Count, n)
	for i := range x {
		x[i] = measure.Count(math.Round(next()))
	}
	return x
}

func TestAgainstTheDefinition(t *testing.T) {
	for name := range generators {
		x := readings(name, 3000, 1)
		a := NewAllan(0.001)
		for part := range slices.Chunk(x, 7) {
			a.Add(part)
		}
		for k, p := range a.Deviation() {
			m := 1 << k
			want, n := direct(x, m)
			if p.N != n {
				t.Errorf("%s, %d readings: %d pairs, want %d", name, m, p.N, n)
			}
			if math.Abs(p.Dev-want) > 1e-9*want || math.Abs(float64(p.Tau)-0.001*float64(m)) > 1e-12 {
				t.Errorf("%s, %d readings: %v at τ = %v, want %v", name, m, p.Dev, p.Tau, want)
			}
		}
	}
}

// slope returns the slope of log Dev by log Tau through the points, each weighted by its
// independent pairs.
func slope(points []AllanPoint) float64 {
	var x, y, w []float64
	for _, p := range points {
		x, y = append(x, math.Log(float64(p.Tau))), append(y, math.Log(p.Dev))
		w = append(w, p.independent(points[0].Tau))
	}
	_, b := stat.LinearRegression(x, y, w, false)
	return b
}

func TestKnownNoiseHasItsSlope(t *testing.T) {
	for name, g := range generators {
		a := NewAllan(1e-4)
		a.Add(readings(name, 1<<18, 2))
		curve := a.Deviation()
		// The shortest times of flicker lack what would be drawn more often still,
		// the longest of a random walk have few pairs.
		if got := slope(curve[2:12]); math.Abs(got-g.slope) > g.tol {
			t.Errorf("%s: slope %.3f, want %.2f ± %.2f", name, got, g.slope, g.tol)
		}
	}
}

func TestWhiteNoiseHasItsDeviation(t *testing.T) {
	a := NewAllan(1)
	a.Add(readings("white", 1<<18, 3))
	for _, p := range a.Deviation()[:10] {
		want := 1000 / math.Sqrt(float64(p.Tau))
		if math.Abs(p.Dev-want) > 0.06*want {
			t.Errorf("τ = %v: %v, want %v", p.Tau, p.Dev, want)
		}
	}
}

// White noise on a random walk has its floor where the two are equal.
func TestFloor(t *testing.T) {
	const white, walk = 2000.0, 20.0
	rng := rand.New(rand.NewPCG(4, 4))
	a, at := NewAllan(0.01), 0.0
	x := make([]measure.Count, 1<<19)
	for i := range x {
		at += walk * rng.NormFloat64()
		x[i] = measure.Count(math.Round(at + white*rng.NormFloat64()))
	}
	a.Add(x)
	f, ok := FloorOf(a.Deviation())
	// σ² = white²/m + walk²·m/3 is least at m = √3·white/walk = 173.
	if !ok || f.Best.Tau < 0.64 || f.Best.Tau > 5.12 {
		t.Fatalf("floor %+v, %v: want %v counts a reading and the least near 1.73 s", f, ok, white)
	}
	for _, short := range [][]AllanPoint{nil, {{Tau: 1, Dev: 3, N: 2}}} {
		if f, ok := FloorOf(short); ok {
			t.Errorf("a floor %+v of too short a recording", f)
		}
	}
}

// A break keeps the step across it out of every average.
func TestBreak(t *testing.T) {
	a := NewAllan(1)
	low, high := make([]measure.Count, 5000), make([]measure.Count, 5000)
	for i := range high {
		high[i] = 1 << 20
	}
	a.Add(low)
	a.Break()
	a.Add(high)
	for _, p := range a.Deviation() {
		if p.Dev != 0 {
			t.Errorf("τ = %v: %v counts of a signal that rests on either side of the break", p.Tau, p.Dev)
		}
	}
}

// The ends of the range add up without overflow, and a resting signal has none.
func TestExtremes(t *testing.T) {
	a := NewAllan(1)
	x := make([]measure.Count, 1<<12)
	for i := range x {
		x[i] = math.MaxInt32
		if i >= len(x)/2 {
			x[i] = math.MinInt32
		}
	}
	a.Add(x)
	curve := a.Deviation()
	if last := curve[len(curve)-1]; last.Dev != math.MaxUint32/math.Sqrt2 || last.N != 1 {
		t.Errorf("halves at both ends of the range: %v of %d pairs, want %v of one", last.Dev, last.N, math.MaxUint32/math.Sqrt2)
	}
	if NewAllan(1).Deviation() != nil {
		t.Error("nothing has a deviation")
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	a, x := NewAllan(1), readings("white", 4096, 5)
	if n := testing.AllocsPerRun(20, func() { a.Add(x) }); n != 0 {
		t.Errorf("%v allocations a block", n)
	}
}

func BenchmarkAllan(b *testing.B) {
	a, x := NewAllan(1), readings("white", 1<<14, 6)
	b.ReportAllocs()
	for b.Loop() {
		a.Add(x)
	}
	b.ReportMetric(float64(b.N)*float64(len(x))/b.Elapsed().Seconds()/1e6, "MS/s")
}
