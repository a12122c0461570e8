package backoff

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPausesDouble(t *testing.T) {
	for name, tt := range map[string]struct {
		b    Backoff
		want []time.Duration // in ms, of four pauses, a reset, and one more
	}{
		"defaults": {Backoff{}, []time.Duration{100, 200, 400, 800, 100}},
		"bounded":  {Backoff{First: 50 * time.Millisecond, Max: 120 * time.Millisecond}, []time.Duration{50, 100, 120, 120, 50}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []time.Duration
				for range tt.want {
					if len(got) == 4 {
						tt.b.Reset()
					}
					begun := time.Now()
					if err := tt.b.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
					got = append(got, time.Since(begun)/time.Millisecond)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("pauses in ms (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if err := Sleep(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no pause under a context that has ended: %v", err)
		}
	})
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done, begin := make(chan struct{}), time.Now()
		var at []time.Duration
		for now := range Every(done, time.Second) {
			if at = append(at, now.Sub(begin)); len(at) == 3 {
				close(done)
			}
		}
		if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, at); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNudge(t *testing.T) {
	c := make(chan struct{}, 1)
	Nudge(c)
	Nudge(c) // does not block
	if len(c) != 1 {
		t.Errorf("%d wait, want 1", len(c))
	}
}
