package sensor

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// Polls in step with the renewals, or nearly, see all of them late by the same part of their distance: UPhase is that of
// a rectangular distribution as wide, and small where the phases travel.
func TestPhaseOfPollsInStep(t *testing.T) {
	const poll, length, trials = 0.010, 12, 20
	for _, c := range []struct {
		period, jitter float64
		least, most    float64 // of the mean of UPhase
	}{
		{0.1, 0, 2e-3, poll / 3.4},
		{0.10001, 0, 2e-3, poll / 3.4},
		{0.10003, 0.5e-3, 1e-3, poll / 3.4}, // a third of the distance
		{0.1, 2e-3, 0.5e-3, 2e-3},
		{0.0997, 0, 0, 0.3e-3},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		held, sum := 0, measure.Seconds(0)
		for range trials {
			phase := c.period * rng.Float64()
			var at []float64
			for k := 0.0; phase+k*c.period < length; k++ {
				at = append(at, phase+k*c.period+c.jitter*rng.NormFloat64())
			}
			var polls []Poll
			renewals := 0
			for at0 := poll * rng.Float64(); at0 < length; at0 += poll {
				now := at0 + 0.5e-3*rng.Float64()
				for renewals < len(at) && at[renewals] <= now {
					renewals++
				}
				polls = append(polls, Poll{At: measure.Seconds(now), Power: measure.Watt(renewals)})
			}
			u, err := FindUpdates(polls)
			if err != nil {
				t.Fatal(err)
			}
			var off float64
			for _, x := range u.List {
				off += math.Remainder(float64(x.At)-phase, c.period) / float64(len(u.List))
			}
			if math.Abs(off) <= 2*float64(u.UPhase)+0.3e-3 { // what residuals show
				held++
			}
			sum += u.UPhase / trials
		}
		t.Logf("%v: held in %d of %d, u %v", c, held, trials, sum)
		if held < trials*9/10 || float64(sum) < c.least || float64(sum) > c.most {
			t.Errorf("period %v ms, jitter %v ms: held in %d of %d, u %v, want %v to %v s", 1e3*c.period, 1e3*c.jitter,
				held, trials, sum, c.least, c.most)
		}
	}
}
