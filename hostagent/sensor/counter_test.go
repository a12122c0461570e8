package sensor

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/referee"
)

// A counter's energy lies within its U in 93 % of works or more, beside the scatter of a share,
// and U is at most four times the error's root mean square: of a counter that is renewed every
// 100 ms, in steps of 1 mJ or 1 J, under loads of its own.
func TestCounterWithinU(t *testing.T) {
	const trials = 300
	for _, c := range []struct {
		name    string
		length  float64
		quantum float64
		load    func(rng *rand.Rand, to float64) *referee.Load
	}{
		{"steady", 1, 1e-3, func(_ *rand.Rand, to float64) *referee.Load { return referee.SteadyLoad(0, to, 80, 350) }},
		{"steady, steps of 1 J", 0.5, 1, func(_ *rand.Rand, to float64) *referee.Load {
			return referee.SteadyLoad(0, to, 80, 350)
		}},
		{"random", 2, 1e-3, func(rng *rand.Rand, to float64) *referee.Load {
			return referee.RandomLoad(rng, 0, to, 80, 400, true)
		}},
		{"random, without rests", 0.7, 1e-3, func(rng *rand.Rand, to float64) *referee.Load {
			return referee.RandomLoad(rng, 0, to, 80, 400, false)
		}},
	} {
		var in, u, off [2]float64
		for i := range trials {
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			l := c.load(rng, c.length)
			s := referee.Sensor{Update: 0.1, Window: 0.1, Gain: 1, Poll: 0.01, Jitter: 0.004}
			at, joules := s.Counter(rng, l, -1, c.length+1, c.quantum)
			tr := trace{steps: true}
			ns := func(s float64) int64 { return 1e18 + int64(s*1e9) }
			for k := range at {
				tr.add(time.Unix(0, ns(at[k])), joules[k])
			}
			work, truth := span{ns(0), ns(c.length)}, l.Energy(c.length)-l.Energy(0)
			for k, a := range []answer{answerSlope(&tr, work), answerEnds(&tr, work)} {
				d := float64(a.energy) - truth
				if math.Abs(d) <= float64(a.u) {
					in[k]++
				}
				u[k], off[k] = u[k]+float64(a.u)/trials, off[k]+d*d/trials
			}
		}
		for k, name := range []Method{Counter, CounterEnds} {
			t.Logf("%s, %s: %.1f %% within U, ± %.2f J, error %.2f J rms", c.name, name, 100*in[k]/trials, u[k],
				math.Sqrt(off[k]))
			if in[k]/trials < 0.93-2*math.Sqrt(0.93*0.07/trials) || u[k] > 4*math.Sqrt(off[k]) {
				t.Errorf("%s, %s: %.1f %% within U, which is %.1f times the error", c.name, name, 100*in[k]/trials,
					u[k]/math.Sqrt(off[k]))
			}
		}
	}
}

// A counter whose first change comes after the work has begun is uncertain by its updates all
// the same.
func TestCounterWithoutAChangeBefore(t *testing.T) {
	tr := trace{steps: true}
	for i := range 60 { // 300 W, renewed every 100 ms and read every 20 ms
		tr.add(time.Unix(1000, int64(i)*20e6), 30*float64(i/5)+1e-3*float64(i/5%2)) // in steps of 1 mJ
	}
	start := time.Unix(1000, 0).UnixNano()
	a := answerEnds(&tr, span{start + 50e6, start + 1000e6})
	if want := 2 * 0.1 * 300 / math.Sqrt(6); math.Abs(float64(a.u)-want) > 0.3*want {
		t.Errorf("%v ± %v, want ± %.1f J", a.energy, a.u, want)
	}
}
