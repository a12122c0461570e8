package correct

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

// kernel is one of 158.5 W on a card of 52.5 W that a sensor of the lag's time constant follows. With a period
// the register holds a value for that long; polls come every so often, ± an eighth. A length of zero is drawn.
type kernel struct {
	name                  string
	lag                   Lag
	period, every, length float64
}

// found returns the kernel's true energy and that of its power as [Run] finds it in the polls, or between the
// times that are given.
func (k kernel) found(t *testing.T, r *rand.Rand, given bool) (float64, Energy) {
	t.Helper()
	const rest, work, noise = 52.5, 158.5, 0.15
	c, period, every := float64(k.lag.C), k.period, k.every
	start := 3 * math.Max(c, 0.3)
	end := start + math.Max(c, 0.3)*(1.2+2.4*r.Float64())
	if k.length > 0 {
		end = start + k.length
	}
	tau := c + r.NormFloat64()*float64(k.lag.U)/2
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
	o := Options{Lag: k.lag, Level: rest, Margin: 25}
	if given {
		o.Kernel = Span{From: measure.Seconds(start), To: measure.Seconds(end)}
	}
	got, err := Run(rs, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Work) != 1 {
		t.Fatalf("%d pieces of work, want one", len(got.Work))
	}
	return work * (end - start), got.Work[0].Energy
}

// TestCoverageOfWorkThatIsFound: the command finds the work in noisy corrected power, or is given the kernel's
// times. The energies of a K20's kernels lie within U as often as stated, 93 to 98 %, whether values have an age or not.
func TestCoverageOfWorkThatIsFound(t *testing.T) {
	coverage.Long(t)
	k20, tau3, tau1 := Lag{C: 0.8333, U: 0.005, Noise: 0.15}, Lag{C: 0.3, U: 0.002, Noise: 0.15}, Lag{C: 0.1, U: 0.001}
	for _, c := range []kernel{
		{"constant known", Lag{C: 0.8333, Noise: 0.15}, 0, 0.015, 0},
		{"constant uncertain", k20, 0, 0.015, 0},
		{"noise not stated", Lag{C: 0.8333, U: 0.005}, 0, 0.015, 0},
		{"five-point", Lag{C: 0.8333, U: 0.005, Noise: 0.15, Slope: Parabola(2)}, 0, 0.015, 0},
		{"0.3 s", tau3, 0, 0.015, 0},
		{"0.1 s", tau1, 0, 0.015, 0},
		{"held", k20, 0.015, 0.015, 0},
		{"held, polled faster", k20, 0.015, 0.006, 0},
		{"held, polled slower", k20, 0.015, 0.022, 0},
		{"held, five-point", Lag{C: 0.8333, U: 0.005, Noise: 0.15, Slope: Parabola(2)}, 0.015, 0.015, 0},
		{"held, 0.3 s", tau3, 0.015, 0.015, 0},
		{"held, 0.1 s", tau1, 0.015, 0.015, 0},
		{"20 ms", k20, 0, 0.015, 0.02},
		{"0.1 s", k20, 0, 0.015, 0.1},
	} {
		for _, given := range []bool{false, true} {
			if c.length > 0 && !given { // hardly to be found
				continue
			}
			t.Run(fmt.Sprintf("%s, given %v", c.name, given), func(t *testing.T) {
				in, n := counted(t, 1000, func(r *rand.Rand) (float64, Energy) { return c.found(t, r, given) })
				if !coverage.Within(float64(in)/float64(n), 0.93, 0.98, n) {
					t.Errorf("%d of %d truths lie within ± U, want 93 to 98 %%", in, n)
				}
			})
		}
	}
}
