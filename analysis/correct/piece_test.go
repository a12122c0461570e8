package correct

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// The command finds the work in noisy corrected power: the energies of a K20's kernels
// lie within U as often as stated, by the whole of [Run].
func TestCoverageOfWorkThatIsFound(t *testing.T) {
	for _, c := range []struct {
		name string
		lag  Lag
	}{
		{"constant known", Lag{C: 0.8333, Noise: 0.15}},
		{"constant uncertain", Lag{C: 0.8333, U: 0.005, Noise: 0.15}},
		{"noise not stated", Lag{C: 0.8333, U: 0.005}},
		{"five-point", Lag{C: 0.8333, U: 0.005, Noise: 0.15, Slope: Parabola(2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			covered(t, 1000, func(r *rand.Rand) (float64, Energy) {
				const rest, work, start = 52.5, 158.5, 3.0
				end := start + 1 + 2*r.Float64()
				tau := float64(c.lag.C) + r.NormFloat64()*float64(c.lag.U)/2
				fall := work - (work-rest)*math.Exp(-(end-start)/tau)
				var rs []Reading
				for at := r.Float64() * 0.015; at < end+4; at += 0.013 + 0.004*r.Float64() {
					y := rest
					switch {
					case at > end:
						y = rest + (fall-rest)*math.Exp(-(at-end)/tau)
					case at > start:
						y = work - (work-rest)*math.Exp(-(at-start)/tau)
					}
					rs = append(rs, Reading{At: measure.Seconds(at), Power: measure.Watt(y + 0.15*r.NormFloat64())})
				}
				got, err := Run(rs, Options{Lag: c.lag, Level: rest, Margin: 25})
				if err != nil {
					t.Fatal(err)
				}
				if len(got.Work) != 1 {
					t.Fatalf("%d pieces of work, want one", len(got.Work))
				}
				e := got.Work[0].Energy
				// This sensor's values have no age, for which the instants' line stands: without it
				// the rest must be right by itself, and with it U holds the truth more often.
				e.budget(slices.DeleteFunc(e.Budget, func(c measure.Contribution) bool {
					return c.Source == "instants of the steps"
				}))
				return work * (end - start), e
			})
		})
	}
}
