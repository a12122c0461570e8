package harness

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Every schedule is played once; a limit that has passed leaves a tenth, from all over the seeds.
func TestRunPlaysEachSchedule(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 44, 126, 1000} {
		for _, least := range []int{0, (n + 9) / 10} {
			o := Options{Seed: 7, Schedules: n, Workers: 3}
			want := n
			if least > 0 {
				o.Least, o.Until, o.Workers, want = least, time.Unix(1, 0), 1, least
			}
			var mu sync.Mutex
			seen := map[uint64]bool{}
			r, err := Run(t.Context(), o, func(_ context.Context, seed uint64) (Result, error) {
				mu.Lock()
				defer mu.Unlock()
				seen[seed-7] = true
				return Result{}, nil
			})
			if err != nil || r.Played != want || len(seen) != want {
				t.Fatalf("%d of %d schedules, %d of them different: %v", r.Played, n, len(seen), err)
			}
			quarters := map[uint64]bool{}
			for s := range seen {
				if s >= uint64(n) {
					t.Errorf("schedule %d of %d", s, n)
				}
				quarters[4*s/uint64(n)] = true
			}
			if len(quarters) < min(want, 4) {
				t.Errorf("%d of %d schedules lie in %d quarters", want, n, len(quarters))
			}
		}
	}
}
