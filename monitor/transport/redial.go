package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
)

// Backoff says how a lost device is tried again. The zero value waits 100 ms,
// then twice as long each time, up to 5 s.
type Backoff struct {
	First, Max time.Duration
}

// curable tells errors that opening again may cure: a device that is gone or
// silent, a port that the system has not let go of yet. A wrong device and an
// address that cannot be stay what they are.
func curable(err error) bool {
	return !errors.Is(err, instrument.ErrIdentity) && !errors.Is(err, ErrAddress)
}

// Redial calls open until it succeeds, ctx ends, or it fails in a way that
// trying again does not cure. What it returns wraps the last error that was not
// the end of ctx itself.
func (b Backoff) Redial(ctx context.Context, open func(context.Context) error) error {
	wait, limit := b.First, b.Max
	if wait <= 0 {
		wait = 100 * time.Millisecond
	}
	if limit <= 0 {
		limit = 5 * time.Second
	}
	var last error
	for attempt := 1; ; attempt++ {
		err := open(ctx)
		if err == nil || !curable(err) {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("given up after %d attempts: %w: %w", attempt, ctx.Err(), last)
		}
		wait = min(2*wait, limit)
	}
}
