package transport

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"wattmark/monitor/instrument"
)

func TestRedialWaitsLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		last := time.Now()
		err := Backoff{First: time.Second, Max: 5 * time.Second}.Redial(t.Context(), func(context.Context) error {
			waits, last = append(waits, time.Since(last)), time.Now()
			if len(waits) < 6 {
				return fmt.Errorf("open: %w", instrument.ErrDisconnected)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]time.Duration{0, 1e9, 2e9, 4e9, 5e9, 5e9}, waits); d != "" {
			t.Error(d)
		}
	})
}

func TestRedialGivesUp(t *testing.T) {
	for name, fatal := range map[string]error{"identity": instrument.ErrIdentity, "address": ErrAddress} {
		n := 0
		err := Backoff{}.Redial(t.Context(), func(context.Context) error { n++; return fmt.Errorf("open: %w", fatal) })
		if !errors.Is(err, fatal) || n != 1 {
			t.Errorf("%s: %d attempts, %v", name, n, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 0
		err := Backoff{}.Redial(ctx, func(ctx context.Context) error {
			if n++; n < 4 {
				return instrument.ErrSilent
			}
			<-ctx.Done() // the end of patience does not hide what was wrong
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, instrument.ErrSilent) || n != 4 {
			t.Errorf("after %d attempts: %v", n, err)
		}
	})
}
