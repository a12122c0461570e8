// Package sim is a GPU in software: it plays markers and benchmarks on a Plant
// (the emulated board, wired to it by cmd) and reads a power sensor that has
// the update period and the averaging window of a real one.
package sim

import (
	"context"
	"fmt"
	"time"

	"wattmark/measure"
)

// Load names what the GPU does. The numbers are those of the emulated board's
// state machine.
type Load uint8

// The loads.
const (
	Idle       Load = iota // no context, low clocks
	ActiveIdle             // a context, clocks up, nothing resident
	Sleep                  // one resident sleeping kernel: a marker's low chip
	Half                   // half arithmetic, half memory
	Compute                // arithmetic alone
	Memory                 // streams memory
	Full                   // memory and SMs together: a marker's high chip
)

var loadNames = [...]string{"idle", "active_idle", "sleep", "half", "compute", "memory", "full"}

func (l Load) String() string {
	if int(l) < len(loadNames) {
		return loadNames[l]
	}
	return fmt.Sprintf("load(%d)", uint8(l))
}

// Plant is what draws the power. It is safe for concurrent use.
type Plant interface {
	// SetLoad changes the load at an instant, which may lie in the future. It
	// returns when the load really changes, which is later than at where a meter
	// had already read on.
	SetLoad(at time.Time, l Load) (time.Time, error)
	// SetSteps lays steps down one after another from an instant on, all at once: a
	// whole marker is laid down before it is played, so that its edges depend neither
	// on when a goroutine wakes up nor on how far a meter has read meanwhile. It
	// returns when the first really begins; the load of the last one stays, though it
	// may last no time.
	SetSteps(at time.Time, steps []Step) (time.Time, error)
	// Cancel drops every change that was laid down for after an instant.
	Cancel(after time.Time)
	// MeanPower is the true mean power between two instants. It is NaN where
	// the plant no longer remembers them.
	MeanPower(from, to time.Time) measure.Watt
}

// Clock tells and awaits the time of day.
type Clock interface {
	Now() time.Time
	// WaitUntil returns at t, or with the context's error when that ends first.
	WaitUntil(ctx context.Context, t time.Time) error
}

// Wall is the machine's clock.
type Wall struct{}

// Now returns the time of day.
func (Wall) Now() time.Time { return time.Now() }

// WaitUntil sleeps until t.
func (Wall) WaitUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
