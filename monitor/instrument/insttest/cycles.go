package insttest

import (
	"os"
	"runtime"
	"testing"
	"time"

	"wattmark/monitor/instrument"
)

// Cycles opens and closes an instrument n times, a tenth of that in short tests,
// and fails the test where goroutines or descriptors are left behind.
func Cycles(t *testing.T, i instrument.Instrument, n int) {
	t.Helper()
	if testing.Short() {
		n = (n + 9) / 10
	}
	once := func() {
		if err := i.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
	}
	once() // what is made once and kept is no leak
	goroutines, files := runtime.NumGoroutine(), descriptors()
	for range n {
		once()
	}
	// What was told to end needs its turn, on the other side of the wire as well.
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if runtime.NumGoroutine() <= goroutines+2 && descriptors() <= files {
			break
		}
	}
	if g := runtime.NumGoroutine(); g > goroutines+2 {
		t.Errorf("%d goroutines after %d cycles, %d before", g, n, goroutines)
	}
	if f := descriptors(); f > files {
		t.Errorf("%d descriptors after %d cycles, %d before", f, n, files)
	}
}

func descriptors() int {
	d, _ := os.ReadDir("/proc/self/fd")
	return len(d)
}
