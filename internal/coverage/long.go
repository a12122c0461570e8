package coverage

import (
	"flag"
	"testing"
)

// Long skips a test that takes more than a few seconds, unless tests were asked for by name: make test-long runs these
// tests alone, make race (-run .) with the others.
func Long(t testing.TB) {
	t.Helper()
	if f := flag.Lookup("test.run"); !Slow && f.Value.String() == "" {
		t.Skip("takes more than 4 s: make test-long runs it, as -run does")
	}
}
