package correct

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// found is a kernel of 158.5 W on a card of 52.5 W that a sensor of time constant c follows, its power as
// [Run] finds it in the polls, and its true energy. With a period the register holds a value for that
// long; polls come every so often, ± an eighth.
func found(t *testing.T, r *rand.Rand, lag Lag, period, every float64) (float64, Energy) {
	t.Helper()
	const rest, work, noise = 52.5, 158.5, 0.15
	c := float64(lag.C)
	start := 3 * math.Max(c, 0.3)
	end := start + math.Max(c, 0.3)*(1.2+2.4*r.Float64())
	tau := c + r.NormFloat64()*float64(lag.U)/2
	top := work - (work-rest)*math.Exp(-(end-start)/tau)
	shows := func(at float64) float64 {
		switch {
		case at > end:
			return rest + (top-rest)*math.Exp(-(at-end)/tau)
		case at > start:
			return work - (work-rest)*math.Exp(-(at-start)/tau)
		}
		return rest
	}
	var rs []Reading
	held, value := -1.0, 0.0
	phase := r.Float64() * period
	for at := r.Float64() * every; at < end+5*c; at += every * (0.875 + 0.25*r.Float64()) {
		if renewed := math.Floor((at-phase)/math.Max(period, 1e-9))*period + phase; period == 0 {
			value = shows(at) + noise*r.NormFloat64()
		} else if renewed > held {
			held, value = renewed, shows(renewed)+noise*r.NormFloat64()
		}
		rs = append(rs, Reading{At: measure.Seconds(at), Power: measure.Watt(value)})
	}
	got, err := Run(rs, Options{Lag: lag, Level: rest, Margin: 25})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Work) != 1 {
		t.Fatalf("%d pieces of work, want one", len(got.Work))
	}
	return work * (end - start), got.Work[0].Energy
}

// TestCoverageOfWorkThatIsFound: the command finds the work in noisy corrected power. The energies of a
// K20's kernels lie within U as often as stated, whether values have an age or not.
func TestCoverageOfWorkThatIsFound(t *testing.T) {
	k20, tau3, tau1 := Lag{C: 0.8333, U: 0.005, Noise: 0.15}, Lag{C: 0.3, U: 0.002, Noise: 0.15}, Lag{C: 0.1, U: 0.001}
	for _, c := range []struct {
		name          string
		lag           Lag
		period, every float64
	}{
		{"constant known", Lag{C: 0.8333, Noise: 0.15}, 0, 0.015},
		{"constant uncertain", k20, 0, 0.015},
		{"noise not stated", Lag{C: 0.8333, U: 0.005}, 0, 0.015},
		{"five-point", Lag{C: 0.8333, U: 0.005, Noise: 0.15, Slope: Parabola(2)}, 0, 0.015},
		{"0.3 s", tau3, 0, 0.015},
		{"0.1 s", tau1, 0, 0.015},
		{"held", k20, 0.015, 0.015},
		{"held, polled faster", k20, 0.015, 0.006},
		{"held, polled slower", k20, 0.015, 0.022},
		{"held, five-point", Lag{C: 0.8333, U: 0.005, Noise: 0.15, Slope: Parabola(2)}, 0.015, 0.015},
		{"held, 0.3 s", tau3, 0.015, 0.015},
		{"held, 0.1 s", tau1, 0.015, 0.015},
	} {
		t.Run(c.name, func(t *testing.T) {
			covered(t, 1000, func(r *rand.Rand) (float64, Energy) { return found(t, r, c.lag, c.period, c.every) })
		})
	}
}
