package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
)

// Backoff says how a lost device is tried again. The zero value waits 100 ms,
// then twice as long each time, up to 5 s, on the real clock.
type Backoff struct {
	First, Max time.Duration
	// Sleep waits for d or until ctx ends; nil is the real clock.
	Sleep func(ctx context.Context, d time.Duration) error
	// Retry tells whether an error may pass; nil is Retryable.
	Retry func(error) bool
	// Notify hears of each failed attempt and the wait before the next; may be nil.
	Notify func(attempt int, wait time.Duration, err error)
}

// Retryable tells errors that opening again may cure: a device that is gone or
// silent. A wrong device, a bad address or a port in use stays what it is.
func Retryable(err error) bool {
	return errors.Is(err, instrument.ErrDisconnected) || errors.Is(err, instrument.ErrSilent)
}

// Redial calls open until it succeeds, ctx ends, or it fails in a way that
// trying again does not cure. The last error is wrapped in what it returns.
func (b Backoff) Redial(ctx context.Context, open func(context.Context) error) error {
	wait, limit, sleep, retry := b.First, b.Max, b.Sleep, b.Retry
	if wait <= 0 {
		wait = 100 * time.Millisecond
	}
	if limit <= 0 {
		limit = 5 * time.Second
	}
	if sleep == nil {
		sleep = realSleep
	}
	if retry == nil {
		retry = Retryable
	}
	for attempt := 1; ; attempt++ {
		err := open(ctx)
		if err == nil || !retry(err) {
			return err
		}
		if b.Notify != nil {
			b.Notify(attempt, wait, err)
		}
		if serr := sleep(ctx, wait); serr != nil {
			return fmt.Errorf("given up after %d attempts: %w: %w", attempt, serr, err)
		}
		wait = min(2*wait, limit)
	}
}

func realSleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
