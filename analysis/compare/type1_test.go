package compare

import (
	"flag"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/analysis/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

// noises are what happens to runs without a difference: n relative deviations of runs
// that scatter by 1 %, in the order of time.
var noises = map[string]func(n int, rng *rand.Rand) []float64{
	"independent": func(n int, rng *rand.Rand) []float64 { return chain(n, 0, 1, rng) },
	"AR(1) 0.5":   func(n int, rng *rand.Rand) []float64 { return chain(n, 0.5, math.Sqrt(0.75), rng) },
	"AR(1) 0.9":   func(n int, rng *rand.Rand) []float64 { return chain(n, 0.9, math.Sqrt(0.19), rng) },
	"random walk": func(n int, rng *rand.Rand) []float64 { return chain(n, 1, 1, rng) },
	"walk, noise": func(n int, rng *rand.Rand) []float64 {
		y := chain(n, 1, 0.5, rng)
		for i, v := range chain(n, 0, 1, rng) {
			y[i] += v
		}
		return y
	},
	"warm-up 3 %":     func(n int, rng *rand.Rand) []float64 { return warm(chain(n, 0, 1, rng)) },
	"quiet, warm-up":  func(n int, rng *rand.Rand) []float64 { return warm(chain(n, 0, 0.3, rng)) },
	"AR 0.9, warm-up": func(n int, rng *rand.Rand) []float64 { return warm(chain(n, 0.9, math.Sqrt(0.19), rng)) },
}

// chain is y_i = ρ y_(i−1) + step·N(0, 1) in percent, from N(0, 1).
func chain(n int, rho, step float64, rng *rand.Rand) []float64 {
	y := make([]float64, n)
	for i := range y {
		y[i] = 0.01 * step * rng.NormFloat64()
		if i == 0 && rho > 0 {
			y[i] = 0.01 * rng.NormFloat64()
		}
		if i > 0 {
			y[i] += rho * y[i-1]
		}
	}
	return y
}

// warm adds a card that warms up by 3 %, with a time constant of a third of the campaign.
func warm(y []float64) []float64 {
	for i := range y {
		y[i] += 0.03 * (1 - math.Exp(-3*float64(i)/float64(len(y))))
	}
	return y
}

// typeITrials is the number of null trials a case with the build tag slow. The figures of docs/compare.md
// took 10 000, with which a share of 5 % is known to 0.2 %: minutes.
var typeITrials = flag.Int("trials", 1000, "null trials a case in TestTypeI")

// Runs without a difference, in turns: the test of one quantity has 4 to 6 % of false
// alarms where runs are independent, and at most 6 % anywhere else. Of the five quantities together, as they are said, at most 6 %.
func TestTypeI(t *testing.T) {
	t.Parallel()
	repeat := strings.Repeat
	for _, letters := range []string{
		repeat("AB", 3), repeat("AB", 5), repeat("AB", 10), "ABBAABBAAB", repeat("ABBA", 5), "AAABAAAABAAA",
	} {
		for name, noise := range noises {
			t.Run(letters+", "+name, func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(19, 20))
				trials := coverage.Trials(*typeITrials)
				single, said, covered := 0, 0, 0
				for range trials {
					effects := null(t, letters, noise, rng)
					e := &effects[0]
					if e.P < 0.05 {
						single++
					}
					if e.Low <= 1 && e.High >= 1 {
						covered++
					}
					for i := range effects {
						if effects[i].Shown {
							said++
							break
						}
					}
				}
				least := 0.0
				if name == "independent" {
					least = 0.04
				}
				share := func(n int) float64 { return float64(n) / float64(trials) }
				t.Logf("energy alone %.1f %%, any of five as said %.1f %%, the interval holds 1 in %.1f %%", 100*share(single), 100*share(said), 100*share(covered))
				// A share of 5 % scatters by 0.7 % in 1000 trials: three of that.
				slack := 3 * math.Sqrt(0.05*0.95/float64(trials))
				if s := share(single); !coverage.Within(s, max(least-slack, 0), 0.06+slack, trials) {
					t.Errorf("the test of energy has %.1f %% of false alarms", 100*s)
				}
				if s := share(said); !coverage.Within(s, 0, 0.06+slack, trials) {
					t.Errorf("a difference is said in %.1f %%", 100*s)
				}
				if s := share(covered); !coverage.Within(s, 0.94-slack, 1, trials) {
					t.Errorf("the interval holds 1 in %.1f %%", 100*s)
				}
			})
		}
	}
}

// null compares runs without a difference in the order of letters. The time scatters as
// the energy does, on its own.
func null(t *testing.T, letters string, noise func(int, *rand.Rand) []float64, rng *rand.Rand) []Effect {
	t.Helper()
	n := len(letters)
	energy, duration := noise(n, rng), noise(n, rng)
	sides := [2][]Run{}
	for i, c := range letters {
		r := Run{Energy: measure.Joule(100 * math.Exp(energy[i])), Time: measure.Seconds(math.Exp(duration[i]))}
		sides[c-'A'] = append(sides[c-'A'], r)
	}
	inOrder(letters, sides[0], sides[1])
	effects, err := All(sides[0], sides[1])
	if err != nil {
		t.Fatal(err)
	}
	return effects
}

// In blocks, and with one run of either, nothing is said, whatever the runs do.
func TestBlocksSayNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(21, 22))
	for _, letters := range []string{"AB", "ABBBBB", "AAABBB", "AAAAABBBBB", "BBBBBAAAAA", "AABBBBBBBBBB", "AAABBBAAABBB"} {
		for name, noise := range noises {
			for i := range coverage.Trials(2000) {
				effects := null(t, letters, noise, rng)
				for _, e := range effects {
					if measure.Known(e.P) || measure.Known(e.Corrected) || e.Shown {
						t.Fatalf("%s, %s: %+v", letters, name, e)
					}
				}
				if i%50 > 0 { // the number of runs that a verdict names takes a millisecond
					continue
				}
				if said := Verdict(&effects[0], &effects[1]); strings.Contains(said, "uses") || strings.Contains(said, "(p") {
					t.Fatalf("%s, %s: %q", letters, name, said)
				}
			}
		}
	}
}
