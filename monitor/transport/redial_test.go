package transport

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wattmark/monitor/instrument"
)

func TestRedialWaitsLongerEachTime(t *testing.T) {
	var waits []time.Duration
	b := Backoff{First: time.Second, Max: 5 * time.Second, Sleep: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}}
	attempts := 0
	err := b.Redial(t.Context(), func(context.Context) error {
		if attempts++; attempts < 6 {
			return fmt.Errorf("open: %w", instrument.ErrDisconnected)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9}
	if d := cmp.Diff(want, waits); d != "" {
		t.Error(d)
	}
}

func TestRedialGivesUp(t *testing.T) {
	b := Backoff{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
	for name, fatal := range map[string]error{"identity": instrument.ErrIdentity, "busy": ErrBusy, "address": ErrAddress} {
		n := 0
		err := b.Redial(t.Context(), func(context.Context) error { n++; return fatal })
		if !errors.Is(err, fatal) || n != 1 {
			t.Errorf("%s: %d attempts, %v", name, n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	heard := 0
	b.Notify = func(int, time.Duration, error) {
		if heard++; heard == 3 {
			cancel()
		}
	}
	err := b.Redial(ctx, func(context.Context) error { return instrument.ErrSilent })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, instrument.ErrSilent) || heard != 3 {
		t.Errorf("after %d attempts: %v", heard, err)
	}
}

func TestRealSleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := realSleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
