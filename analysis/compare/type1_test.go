package compare

import (
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
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

// judge compares a share of null trials with what is wanted, on 2 standard deviations of
// a share of 5 %.
func judge(t *testing.T, what string, n, trials int, lo, hi float64) {
	t.Helper()
	share, slack := float64(n)/float64(trials), 2*math.Sqrt(0.05*0.95/float64(trials))
	if !coverage.Within(share, max(lo-slack, 0), min(hi+slack, 1), trials) {
		t.Errorf("%s: %.1f %% of %d trials, want %.0f to %.0f %%", what, 100*share, trials, 100*lo, 100*hi)
	}
}

// Runs without a difference. In pairs of random order the test of one quantity has 4 to 6 %
// of false alarms whatever the noise; in turns where runs are independent, and at most
// 6 % anywhere else. Of the five quantities together, as they are said, at most 6 %.
func TestTypeI(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	repeat := strings.Repeat
	for _, letters := range []string{
		repeat("?", 4), repeat("?", 5), repeat("?", 8), repeat("?", 10), repeat("?", 20),
		repeat("AB", 3), repeat("AB", 5), repeat("AB", 10), repeat("ABBA", 5), "AAABAAAABAAA",
	} {
		for name, noise := range noises {
			t.Run(letters+", "+name, func(t *testing.T) {
				t.Parallel()
				rng := seeded(letters + name)
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
					if slices.ContainsFunc(effects, func(e Effect) bool { return e.Shown }) {
						said++
					}
				}
				percent := func(n int) float64 { return 100 * float64(n) / float64(trials) }
				t.Logf("energy alone %.1f %%, any of five as said %.1f %%, the interval holds 1 in %.1f %%",
					percent(single), percent(said), percent(covered))
				least := 0.0
				if letters[0] == '?' || name == "independent" {
					least = 0.04
				}
				judge(t, "the test of energy", single, trials, least, 0.06)
				judge(t, "said of any of five", said, trials, 0, 0.06)
				judge(t, "the interval holds 1", covered, trials, 0.94, 1-least)
			})
		}
	}
}

// Pairs whose number the scatter of the first eight set: the end of the series leaves the
// test and the interval as they are.
func TestTypeIOfPrecision(t *testing.T) {
	t.Parallel()
	for name, noise := range noises {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := seeded(name)
			trials := coverage.Trials(*typeITrials)
			single, covered, pairs := 0, 0, 0
			for trial := range trials {
				letters := strings.Repeat("?", 60)
				energy := noise(2*len(letters), rng)
				run := func(n int) Effect { // each trial has one order, however long
					a, b := drawn(letters[:n], energy, energy, seeded(fmt.Sprint(trial)))
					for i := range a {
						a[i].Turn.Second, b[i].Turn.Second = i >= 8, i >= 8
					}
					e, err := Between(a, b, Energy)
					if err != nil {
						t.Fatal(err)
					}
					return e
				}
				e := run(8)
				n := e.PairsFor(0.008, 60)
				if n == 0 {
					n = 60
				}
				e = run(n)
				if pairs += n; e.P < 0.05 {
					single++
				}
				if e.Low <= 1 && e.High >= 1 {
					covered++
				}
			}
			t.Logf("%.1f pairs, false alarms %.1f %%, the interval holds 1 in %.1f %%", float64(pairs)/float64(trials),
				100*float64(single)/float64(trials), 100*float64(covered)/float64(trials))
			judge(t, "the test of energy", single, trials, 0.04, 0.06)
			judge(t, "the interval holds 1", covered, trials, 0.94, 0.96)
		})
	}
}

// The exact test has the size that the number of signs leaves: of 8 pairs 12 of 256, 4.7 %,
// whatever the noise, also one that keeps step with the runs.
func TestRandomisationIsExact(t *testing.T) {
	t.Parallel()
	extreme, trials := 0, 0
	all := maps.Clone(noises)
	all["in step"] = func(n int, rng *rand.Rand) []float64 {
		y := chain(n, 0, 1, rng)
		for i := range y {
			y[i] += 0.03 * float64(i%2)
		}
		return y
	}
	for name, noise := range all {
		rng := seeded(name)
		for range coverage.Trials(1000) {
			a, b := drawn("????????", noise(16, rng), noise(16, rng), rng)
			e, err := Between(a, b, Energy)
			if err != nil {
				t.Fatal(err)
			}
			if trials++; e.Randomise().P <= 0.05 {
				extreme++
			}
		}
	}
	want := 12.0 / 256
	slack := 2 * math.Sqrt(want*(1-want)/float64(trials))
	if share := float64(extreme) / float64(trials); math.Abs(share-want) > slack {
		t.Errorf("%.2f %% of %d trials, want %.2f %%", 100*share, trials, 100*want)
	}
}

// seeded is a source of random numbers of its own for each name.
func seeded(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(19, h.Sum64()))
}

// drawn makes pairs of runs from relative deviations in the order of time. A letter ? stands
// for a pair whose order rng draws.
func drawn(letters string, energy, duration []float64, rng *rand.Rand) (a, b []Run) {
	sides, next := [2][]Run{}, 0
	put := func(side, number int) {
		r := Run{
			Energy: measure.Joule(100 * math.Exp(energy[next])), Time: measure.Seconds(math.Exp(duration[next])),
			At: time.Unix(int64(60*next), 0),
		}
		if number > 0 {
			r.Turn = Turn{Series: "s", Number: number, Planned: len(letters)}
		}
		sides[side] = append(sides[side], r)
		next++
	}
	for i, c := range letters {
		if c != '?' {
			put(int(c-'A'), 0)
			continue
		}
		first := rng.IntN(2)
		put(first, i+1)
		put(1-first, i+1)
	}
	return sides[0], sides[1]
}

// null compares runs without a difference in the order of letters, see drawn. The time scatters as
// the energy does, on its own.
func null(t *testing.T, letters string, noise func(int, *rand.Rand) []float64, rng *rand.Rand) []Effect {
	t.Helper()
	n := len(letters) + strings.Count(letters, "?")
	a, b := drawn(letters, noise(n, rng), noise(n, rng), rng)
	effects, err := All(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return effects
}

// In blocks, and with one run of either, nothing is said, whatever the runs do: not one trial may have a p.
func TestBlocksSayNothing(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	rng := rand.New(rand.NewPCG(21, 22))
	for _, letters := range []string{
		"AB", "ABBBBB", "AAABBB", "AAAAABBBBB", "BBBBBAAAAA", "AABBBBBBBBBB",
		"AAABBBAAABBB", "ABBAABBA", "ABAAAABBBA",
	} {
		for name, noise := range noises {
			for i := range coverage.Trials(600) {
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
