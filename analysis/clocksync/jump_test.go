package clocksync

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
)

// smooth is a stationary random function of time with the autocorrelation
// exp(−t²/2τ²) and a standard deviation of one: waves whose frequencies are normal, 1/τ.
func smooth(r *rand.Rand, tau float64) func(float64) float64 {
	var w, phase [60]float64
	for i := range w {
		w[i], phase[i] = r.NormFloat64()/tau, 2*math.Pi*r.Float64()
	}
	const apart = 0.01 // s, between which a line serves
	var grid [2000]float64
	for k := range grid {
		for i := range w {
			grid[k] += math.Cos(w[i]*float64(k)*apart+phase[i]) * math.Sqrt(2.0/float64(len(w)))
		}
	}
	return func(t float64) float64 {
		whole, part := math.Modf((t + 1) / apart)
		return grid[int(whole)]*(1-part) + grid[int(whole)+1]*part
	}
}

// wandering is a measurement of 80 kernels whose meter's clock wanders by sd seconds with
// correlation times of 0.2 to 3 s, and whose time stamps scatter by jitter.
func wandering(seed uint64, sd, jitter float64) (*bench, *rand.Rand) {
	b, r := usual(seed)
	b.jitter = jitter
	b.kernels = square(r, 80, 0.05, 0.05, 0.2)
	b.to = float64(b.kernels[len(b.kernels)-1].To) + 0.4
	f := smooth(r, 0.2*math.Pow(15, r.Float64()))
	b.wander = func(t float64) float64 { return sd * f(t) }
	return b, r
}

// A clock that wanders smoothly does not jump, however far it goes.
func TestFindsNoJumpsInWander(t *testing.T) {
	coverage.Long(t)
	for _, c := range []struct{ sd, jitter float64 }{{40e-6, 30e-6}, {60e-6, 10e-6}, {100e-6, 0}} {
		n, jumped := coverage.Trials(200), 0
		for seed := range uint64(n) {
			b, _ := wandering(seed, c.sd, c.jitter)
			if f := find(t, b); len(f.Jumps) > 0 {
				jumped++
				t.Logf("seed %d: %+v", seed, f.Jumps)
			}
		}
		if jumped > 0 {
			t.Errorf("wander of %.0f µs, scatter of %.0f µs: jumps in %d of %d", 1e6*c.sd, 1e6*c.jitter, jumped, n)
		}
	}
}

// Jumps of 0.2 ms are found within white scatter of 30 µs, and within wander of 40 µs.
func TestFindsSmallJumps(t *testing.T) {
	for _, c := range []struct{ sd, jitter float64 }{{0, 30e-6}, {40e-6, 0}} {
		n, found := coverage.Trials(200), 0
		for seed := range uint64(n) {
			b, r := wandering(seed, c.sd, c.jitter)
			i := 15 + r.IntN(50)
			b.jumpAt, b.jump = (float64(b.kernels[i].To)+float64(b.kernels[i+1].From))/2, 0.2e-3
			if seed%2 == 1 {
				b.jump = -b.jump
			}
			f := find(t, b)
			for _, j := range f.Jumps {
				if math.Abs(float64(j.At)+b.offset-b.jumpAt) < 0.3 && math.Abs(float64(j.Size)-b.jump) < 0.1e-3 {
					found++
					break
				}
			}
		}
		name := fmt.Sprintf("wander of %.0f µs, scatter of %.0f µs", 1e6*c.sd, 1e6*c.jitter)
		t.Logf("%s: found %d of %d", name, found, n)
		if share := float64(found) / float64(n); !coverage.Within(share, 0.95, 1, n) {
			t.Errorf("%s: found %d of %d", name, found, n)
		}
	}
}
