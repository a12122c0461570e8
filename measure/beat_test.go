package measure

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
)

// Power without a periodic part makes no beat in 99 windows of 100: noise of any colour, loads that switch or climb
// at random, and cards that warm up.
func TestNoBeatWithoutOne(t *testing.T) {
	trials := coverage.Trials(1000)
	for name, draw := range map[string]func(rng *rand.Rand, n int) func() float64{
		"white":       func(rng *rand.Rand, _ int) func() float64 { return func() float64 { return rng.NormFloat64() } },
		"AR(1) 0.9":   func(rng *rand.Rand, _ int) func() float64 { return markov(rng, 0.9) },
		"AR(1) 0.99":  func(rng *rand.Rand, _ int) func() float64 { return markov(rng, 0.99) },
		"random walk": func(rng *rand.Rand, _ int) func() float64 { return markov(rng, 1) },
		"telegraph": func(rng *rand.Rand, n int) func() float64 {
			mean, on, left, power := math.Exp(1+rng.Float64()*math.Log(float64(n)/5)), 0.0, 0.0, 0.0
			return func() float64 {
				for ; left < 0; left += mean * rng.ExpFloat64() {
					on = 100 - on
				}
				left--
				power += (on - power) / 4
				return power + 2*rng.NormFloat64()
			}
		},
		"slopes": func(rng *rand.Rand, n int) func() float64 {
			var from, to float64
			mean, i, end := math.Exp(1+rng.Float64()*math.Log(float64(n)/5)), 0.0, 0.0
			return func() float64 {
				if i++; i >= end {
					from, to, i, end = to, 100*rng.Float64(), 0, 1+2*mean*rng.Float64()
				}
				return from + (to-from)*i/end + 2*rng.NormFloat64()
			}
		},
		"warm-up": func(rng *rand.Rand, n int) func() float64 {
			i, tau := 0.0, float64(n)*(0.02+rng.Float64())
			return func() float64 { i++; return -20*math.Exp(-i/tau) + 2*rng.NormFloat64() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			for seed := range uint64(trials) {
				rng := rand.New(rand.NewPCG(seed, 3))
				n := 100 + rng.IntN(1000)
				next := draw(rng, n)
				p := make([]float64, n)
				for i := range p {
					p[i] = next()
				}
				if beatOf(p, 0.1e-3) > 0 {
					found++
				}
			}
			t.Logf("%d of %d", found, trials)
			if !coverage.Within(float64(found)/float64(trials), 0, 0.01, trials) {
				t.Errorf("a beat in %d of %d", found, trials)
			}
		})
	}
}

func markov(rng *rand.Rand, rho float64) func() float64 {
	y := 0.0
	return func() float64 { y = rho*y + rng.NormFloat64(); return y }
}

func beatOf(p []float64, dt Seconds) Joule {
	var b beats
	b.take(p, 0)
	return b.find(dt)
}

// Recorded cards have ripples, in step with their kernels or with the scans: too small for a word of the verdict beside
// the 1 % that these meters know.
func TestNoBeatInRecordings(t *testing.T) {
	const scan = 613 / 2.9345e6
	for _, run := range []string{"3090-step", "a100-step", "k40m-step", "3090-square"} {
		t.Run(run, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(sharedData(t, "pmd", run), "PMD_data.bin"))
			if err != nil {
				t.Fatal(err)
			}
			m, err := NewPowerMeter(pmdSetup())
			if err != nil {
				t.Fatal(err)
			}
			var p []float64
			for _, w := range m.Total(pmdBlock(t, raw), nil) {
				p = append(p, float64(w))
			}
			rng, n, found, named := rand.New(rand.NewPCG(1, 4)), coverage.Trials(1000), 0, 0
			for range n {
				n := 200 + rng.IntN(4000)
				from := rng.IntN(len(p) - n)
				energy := 0.0
				for _, w := range p[from : from+n] {
					energy += w * scan
				}
				if u := float64(beatOf(p[from:from+n], scan)); u > 0 {
					found++
					if 2*u > 0.5*0.01*energy {
						named++
					}
				}
			}
			t.Logf("found in %d, named in %d of %d", found, named, n)
			if !coverage.Within(float64(named)/float64(n), 0, 0.01, n) {
				t.Errorf("a beat of more than half of U in %d of %d", named, n)
			}
		})
	}
}
