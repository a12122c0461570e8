package bench

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/hostagent/measurement"
)

// A chain that stands still for seconds, on a busy machine, costs no scan; bytes that make no scan do not hang.
func TestAwaitPlayed(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    []time.Duration // when a scan is stored
		scans uint64
		ends  time.Duration // within a period of the polling
	}{
		{"stalls", []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, 3, 3 * time.Second},
		{"all there", []time.Duration{0, 0}, 2, 0},
		{"broken frames", []time.Duration{0, time.Second}, 3, time.Second + quiet},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stored measurement.Counters
				for _, d := range c.at {
					time.AfterFunc(d, func() { stored.Scans.Add(1) })
				}
				played := make(chan struct{})
				close(played)
				begun := time.Now()
				err := awaitPlayed(t.Context(), played, func() (int, error) { return 0, nil }, &stored, c.scans)
				if took := time.Since(begun); err != nil || took < c.ends || took > c.ends+100*time.Millisecond {
					t.Errorf("%v, %v; want %v", took, err, c.ends)
				}
			})
		})
	}
}
