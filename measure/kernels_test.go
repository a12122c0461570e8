package measure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
)

// coverageSeen says how often the truth lay within E ± U.
type coverageSeen struct{ inside, of int }

// observe counts one measurement, with U times scale.
func (c *coverageSeen) observe(e Estimate, truth, scale float64) {
	c.of++
	if math.Abs(float64(e.Energy)-truth) <= scale*float64(e.U) {
		c.inside++
	}
}

// verdict is the check: an honest U holds the truth in 94 to 97 % of the cases.
// Less is too small an uncertainty, more too large a one.
func (c *coverageSeen) verdict() error {
	if share := 100 * float64(c.inside) / float64(c.of); share < 94 || share > 97 {
		return fmt.Errorf("the truth lies within U in %.2f %% of %d cases, want 94 to 97 %%", share, c.of)
	}
	return nil
}

// clear tells that 2000 cases leave no doubt of the verdict: they lie inside of its
// limits by more than what so many scatter by, 0.5 %.
func (c *coverageSeen) clear() bool {
	share := 100 * float64(c.inside) / float64(c.of)
	return share >= 94.5 && share <= 96.5
}

func (c *coverageSeen) String() string {
	return fmt.Sprintf("%.2f %%", 100*float64(c.inside)/float64(c.of))
}

// kernelLengths are the lengths of the work, each with a rate that such work is
// read at and that keeps the test short.
var kernelLengths = []struct{ seconds, rate float64 }{
	{1e-3, 200e3}, {10e-3, 40e3}, {0.1, 5e3}, {1, 800}, {10, 100},
}

// randomBench draws a bench: what it is made of, how well it is known, how it
// is read. The first rail is of the wiring asked for.
func randomBench(rng *rand.Rand, w Wiring, seconds, rate float64) simBench {
	between := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, rng.Float64()) }
	sb := simBench{
		wirings: []Wiring{w}, seconds: seconds, rate: rate, kernel: true,
		noise: between(0.3, 20), stated: rng.IntN(2) == 0,
		uTick: between(1e-6, 3e-3), drift: 0.5 * rng.Float64(), mux: 0.2 * rng.Float64(),
	}
	sb.scale.calibration, sb.scale.count = between(0.3, 3), between(0.5, 2)
	// The ends are known to a part of a marker's chip, or of the work itself.
	u := Seconds(between(1e-3, 1e-2) * seconds)
	sb.edges = Edges{UFrom: u, UTo: u * Seconds(between(0.7, 1.4)), Correlation: rng.Float64()}
	for range rng.IntN(3) {
		sb.wirings = append(sb.wirings, Wiring(1+rng.IntN(4)))
	}
	return sb
}

// Random benches measure kernels of 1 ms to 10 s: the true energy lies within
// E ± U as often as k = 2 says, of the rail and of the total, and the same check
// finds a budget that is too small.
func TestRandomBenchesHoldTheTruth(t *testing.T) {
	coverage.Long(t)
	enough, benches := uint64(2000), uint64(5000) // the latter where the former leave a doubt
	if !coverage.Slow {
		benches = 150 // enough for all lengths together, not for each
	}
	for _, w := range []Wiring{WiringShunt, WiringClamp, WiringAssumed, WiringPower} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			var all coverageSeen
			for l, length := range kernelLengths {
				var rail, sum, short coverageSeen
				for i := range benches {
					if i == enough && rail.clear() && sum.clear() {
						break
					}
					seed := uint64(w)<<40 | uint64(l)<<32 | i // no two cases share their draws
					sb := randomBench(rand.New(rand.NewPCG(seed, 1)), w, length.seconds, length.rate)
					r, truth := sb.run(t, seed)
					var total float64
					for _, e := range truth {
						total += e
					}
					rail.observe(r.Rails[0].Energy, truth[0], 1)
					sum.observe(r.Total, total, 1)
					short.observe(r.Total, total, 0.7)
				}
				all.inside, all.of = all.inside+sum.inside, all.of+sum.of
				t.Logf("%v: rail %v, total %v, with 0.7 U %v", Seconds(length.seconds), &rail, &sum, &short)
				if short.verdict() == nil {
					t.Errorf("%v: a budget of 0.7 U passes the same check", Seconds(length.seconds))
				}
				if !coverage.Slow {
					continue
				}
				for name, c := range map[string]*coverageSeen{"rail": &rail, "total": &sum} {
					if err := c.verdict(); err != nil {
						t.Errorf("%v, %s: %v", Seconds(length.seconds), name, err)
					}
				}
			}
			if err := all.verdict(); err != nil {
				t.Errorf("all lengths: %v", err)
			}
		})
	}
}

// Ends that are all there is, shifted alike, over steps: what such a shift loses
// is one-sided, and the levels beside an end that is off are not those beside
// the true one. Coverage then falls to just under 94 %, not further.
func TestEndsAlone(t *testing.T) {
	if !coverage.Slow {
		t.Skip("the bounds need all cases: -tags slow")
	}
	var c coverageSeen
	for seed := range uint64(4000) {
		sb := randomBench(rand.New(rand.NewPCG(seed, 2)), WiringClamp, 0.1, 5e3)
		sb.wirings, sb.scale.calibration, sb.uTick, sb.noise = sb.wirings[:1], 1e-3, 1e-6, 1
		sb.edges = Edges{UFrom: 1e-3, UTo: 1e-3, Correlation: 0.95}
		r, truth := sb.run(t, seed)
		c.observe(r.Total, truth[0], 1)
	}
	t.Log(&c)
	if share := float64(c.inside) / float64(c.of); share < 0.93 || share > 0.97 {
		t.Errorf("the truth lies within U in %v, want 93 to 97 %%", &c)
	}
}

// Noise that is seen in few readings is known badly, and k makes up for it.
func TestFewReadingsHaveALargerFactor(t *testing.T) {
	sb := simBench{wirings: []Wiring{WiringPower}, seconds: 5e-3, rate: 2000, noise: 300}
	sb.scale.count = 1
	var honest, two coverageSeen
	const seeds = 4000
	var factor float64
	for seed := range uint64(seeds) {
		r, truth := sb.run(t, seed)
		k := FactorOf(r.Total, r.Budget)
		factor += k / seeds
		honest.observe(r.Total, truth[0], 1)
		two.observe(r.Total, truth[0], 2/k)
	}
	t.Logf("k = %.2f: %v; k = 2: %v", factor, &honest, &two)
	if err := honest.verdict(); err != nil || factor < 2.05 {
		t.Errorf("%v, with k = %.3f", err, factor)
	}
	if two.inside >= honest.inside {
		t.Errorf("k = 2 holds the truth in %v, k = %.2f in %v", &two, factor, &honest)
	}
}

// The factor against GUM's table G.2, for 95.45 %.
func TestCoverageFactor(t *testing.T) {
	for dof, want := range map[float64]float64{
		0.3: 13.97, 1: 13.97, 2: 4.53, 3: 3.31, 4: 2.87, 5.9: 2.65, 6: 2.52, 8: 2.37, 10: 2.28, 20: 2.13, 50: 2.05, math.Inf(1): 2,
	} {
		closeTo(t, fmt.Sprintf("%v degrees of freedom", dof), CoverageFactor(dof), want, 0.01)
	}
	if !math.IsNaN(FactorOf(Estimate{}, nil)) {
		t.Error("an empty budget has a factor")
	}
}

// A source that the budget leaves out is found by the same check.
func TestLeavingASourceOutIsFound(t *testing.T) {
	for _, w := range []Wiring{WiringShunt, WiringClamp, WiringAssumed, WiringPower} {
		for leave, dominant := range map[string]func(*simBench){
			"gain": func(sb *simBench) {
				sb.edges = Edges{}
				sb.scale.calibration = 3
			},
			"edges": func(sb *simBench) { sb.scale.calibration = 0.1 },
		} {
			if w == WiringShunt && leave == "gain" {
				continue // the shunt itself weighs more
			}
			var honest, short coverageSeen
			for seed := range uint64(400) {
				rng := rand.New(rand.NewPCG(seed, uint64(w)))
				sb := randomBench(rng, w, 0.1, 2e3)
				sb.wirings = slices.Clip(sb.wirings[:1])
				dominant(&sb)
				for _, out := range []string{"", leave} {
					sb.leave = out
					c := &honest
					if out != "" {
						c = &short
					}
					r, truth := sb.run(t, seed)
					c.observe(r.Total, truth[0], 1)
				}
			}
			t.Logf("%v: all sources %v, without %s %v", w, &honest, leave, &short)
			if short.verdict() == nil || short.inside >= honest.inside {
				t.Errorf("%v: a budget without its %s passes the check with %v", w, leave, &short)
			}
		}
	}
}
