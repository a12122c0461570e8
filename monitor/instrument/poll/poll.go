// Package poll asks a device at a steady pace, for drivers of devices that do
// not send by themselves.
package poll

import (
	"context"
	"time"
)

// Grid calls ask at once and then every period, until ctx ends (it returns nil)
// or ask fails. It keeps to the grid: a call that was late does not shift those
// after it, and one that is overdue altogether is left out.
func Grid(ctx context.Context, period time.Duration, ask func() error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := ask(); err != nil {
			return err
		}
		due = due.Add(period)
		if late := time.Since(due); late > 0 {
			due = due.Add(late.Truncate(period) + period)
		}
		timer.Reset(time.Until(due))
	}
}
