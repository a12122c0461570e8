package poll

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A late call leaves out what is overdue and comes back to the grid.
func TestGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		ctx, cancel := context.WithTimeout(t.Context(), 105*time.Millisecond)
		defer cancel()
		err := Grid(ctx, 10*time.Millisecond, func() error {
			at = append(at, time.Since(begin))
			if len(at) == 3 {
				time.Sleep(34 * time.Millisecond)
			}
			return nil
		})
		want := []time.Duration{0, 10, 20, 60, 70, 80, 90, 100}
		if err != nil || len(at) != len(want) {
			t.Fatalf("%v, %v", at, err)
		}
		for i := range want {
			if at[i] != want[i]*time.Millisecond {
				t.Errorf("%v, want %v", at, want)
			}
		}
	})
	enough := errors.New("enough")
	if err := Grid(t.Context(), time.Hour, func() error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}
