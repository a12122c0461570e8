// Package coverage sizes long tests (Long), and those of statistical claims, such as the share of
// confidence intervals that hold the truth. By default a test makes a tenth of its
// trials, so that it runs in about a second; with the build tag slow it makes all:
//
//	make test-computed test-trials
//
// The bounds of a share apply as they are to a slow test. A short test widens them by the
// scatter of a share p of n trials, √(p(1−p)/n).
package coverage

import (
	"flag"
	"math"
	"testing"
)

const (
	// least is the fewest trials of a short test; tests of fewer trials are not cut.
	least = 60
	// sure is the tolerance of a short test in standard deviations of a share: one in
	// 16 000 of correct shares lies outside.
	sure = 4
)

// Trials returns n in a slow test, otherwise a tenth of it, but at least 60 or n.
func Trials(n int) int {
	if Slow {
		return n
	}
	return min(n, max(n/10, least))
}

// Within reports whether a share of trials, from 0 to 1, lies between lo and hi. In a
// short test the bounds are wider by the scatter of a share of that many trials.
func Within(share, lo, hi float64, trials int) bool {
	return share >= lo-tolerance(lo, trials) && share <= hi+tolerance(hi, trials)
}

// tolerance returns the widening of a bound, zero in a slow test.
func tolerance(bound float64, trials int) float64 {
	if Slow || !(bound > 0 && bound < 1) {
		return 0
	}
	return sure * math.Sqrt(bound*(1-bound)/float64(trials))
}

// Long skips a test that takes more than a few seconds, unless tests were asked for by name: make test RUN=. and make
// race do so.
func Long(t testing.TB) {
	t.Helper()
	if f := flag.Lookup("test.run"); !Slow && f.Value.String() == "" {
		t.Skip("takes more than 4 s: make test RUN=. runs it, as -run does")
	}
}
