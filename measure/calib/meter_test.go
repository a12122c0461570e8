package calib

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

func ampere() measure.Channel {
	return measure.Channel{Name: "a.current", Unit: measure.UnitAmpere, Gain: 0.05, Offset: -26, UGain: 0.01, UOffset: 0.1, Noise: 0.06, MinCount: 0, MaxCount: 1023}
}

func setup(c ...measure.Channel) measure.Setup {
	return measure.Setup{Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 50}, Channels: c}
}

// run takes n readings of f, in blocks of odd lengths.
func run(c measure.Channel, n int, f func(i int) float64) Stat {
	s := setup(c)
	m := NewMeter(&s)
	for i := 0; i < n; {
		k := min(n-i, 1+i%333)
		b := measure.Block{FirstScan: uint64(i), Counts: [][]measure.Count{make([]measure.Count, k)}}
		for j := range k {
			b.Counts[0][j] = measure.Count(math.Round(f(i + j)))
		}
		m.Add(&b)
		i += k
	}
	return m.Stat(0)
}

func TestMeanAndScatter(t *testing.T) {
	for _, n := range []int{2, 3, 511, 512, 513, 1023, 1024, 50_000} {
		s := run(ampere(), n, func(i int) float64 { return float64(500 + 3*(i%2)) })
		want := 501.5
		if n%2 == 1 {
			want -= 1.5 / float64(n)
		}
		if s.Samples != uint64(n) || math.Abs(s.Mean-want) > 1e-9 {
			t.Errorf("%d readings: %+v, want the mean %v", n, s, want)
		}
		if n > 500 && math.Abs(s.Std-1.5) > 0.01 {
			t.Errorf("%d readings: σ %v, want 1.5", n, s.Std)
		}
	}
}

// The mean's uncertainty must be what the mean really scatters by: of many runs
// some 95 % lie within twice of it. Coarse steps hide up to half a count.
func TestTheMeansUncertaintyHolds(t *testing.T) {
	for name, c := range map[string]struct {
		noise, walk float64
		least       float64
	}{
		"white noise":        {noise: 1.3, least: 0.94},
		"noise below a step": {noise: 0.2, least: 0.94},
		"no noise":           {least: 0.94},
		// A run of four times as long as its input wanders cannot know all of it.
		"a slow wander": {noise: 1, walk: 0.004, least: 0.8},
	} {
		rng := rand.New(rand.NewPCG(7, 7))
		const runs = 400
		inside, rested := 0, 0
		for range runs {
			at, walk := 500+rng.Float64(), 0.0
			s := run(ampere(), 4000, func(int) float64 {
				walk = 0.999*walk + c.walk*rng.NormFloat64()
				return at + walk + c.noise*rng.NormFloat64()
			})
			if s.Restless <= 1 {
				rested++
			}
			if math.Abs(s.Mean-at) <= 2*s.U {
				inside++
			}
		}
		share := float64(inside) / runs
		t.Logf("%s: %.1f %% of the means within 2 u, %d of %d runs at rest", name, 100*share, rested, runs)
		if share < c.least || rested < runs-2 {
			t.Errorf("%s: %.3f within 2 u, want %.2f; %d of %d runs at rest", name, share, c.least, rested, runs)
		}
	}
}

func TestWhatDoesNotRest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	noise := func() float64 { return 1.3 * rng.NormFloat64() }
	for name, f := range map[string]func(i int) float64{
		"drift":    func(i int) float64 { return 520 + 3*float64(i)/20000 + noise() },
		"a step":   func(i int) float64 { return 520 + float64(i/15000)*2 + noise() },
		"a ripple": func(i int) float64 { return 520 + 4*math.Sin(float64(i)/800) + noise() },
		"pulses":   func(i int) float64 { return 520 + 30*float64(i/2500%2) + noise() },
	} {
		_, err := ZeroOf(ampere(), ampere(), "", run(ampere(), 20000, f))
		if !errors.Is(err, ErrRestless) || !strings.Contains(err.Error(), "a.current") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		at   float64
		n    int
		want error
	}{
		"too few":     {520, 63, ErrFew},
		"a load":      {560, 1000, ErrNotZero},
		"the bottom":  {-5, 1000, ErrOverRange},
		"the top end": {1023, 1000, ErrOverRange},
	} {
		_, err := ZeroOf(ampere(), ampere(), "", run(ampere(), c.n, func(int) float64 { return c.at + noise()/10 }))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	good := run(ampere(), 20000, func(int) float64 { return 521 + noise() })
	z, err := ZeroOf(ampere(), ampere(), "before", good)
	if err != nil || math.Abs(z.Scale.Offset+0.05*521) > 0.005 || z.Scale.UGain != 0.01 || z.Basis != "before" {
		t.Errorf("%+v, %v", z.Scale, err)
	}
	for value, want := range map[float64]error{0: nil, 5: ErrFar, -5: ErrFar} {
		if _, err := PointOf(ampere(), value, 0.01, good); !errors.Is(err, want) {
			t.Errorf("%v A: %v", value, err)
		}
	}
}

func TestTheMeterAllocatesNothing(t *testing.T) {
	s := setup(ampere(), ampere())
	m := NewMeter(&s)
	b := measure.Block{Counts: [][]measure.Count{make([]measure.Count, 1000), make([]measure.Count, 1000)}}
	if n := testing.AllocsPerRun(100, func() { m.Add(&b) }); n > 0 {
		t.Errorf("%v allocations a block", n)
	}
}

func BenchmarkMeter(b *testing.B) {
	s := setup(ampere())
	m := NewMeter(&s)
	blk := measure.Block{Counts: [][]measure.Count{make([]measure.Count, 1000)}}
	b.ReportAllocs()
	for b.Loop() {
		m.Add(&blk)
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds()/1e6, "MS/s")
}
