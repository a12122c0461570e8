// Package pace maps a board's time to a wall clock, or lets it run as fast as
// the reader takes the data. It waits on the runtime's timers only, so it runs
// in virtual time inside a testing/synctest bubble.
package pace

import (
	"cmp"
	"time"
)

// Pace describes how board time passes. The zero value is free: board time moves on
// with the samples that are taken.
type Pace struct {
	// Epoch is the wall clock's time at board time zero; the zero time means free.
	Epoch time.Time
	// Speed is board seconds a wall second; zero means 1.
	Speed float64
	// Batch is the board time handed out at once, default 2 ms: short enough for
	// a live view, long enough that waking up costs nothing.
	Batch time.Duration
	// Backlog is how far production may fall behind the wall clock before the
	// oldest samples are thrown away, as a device with a full buffer does; default 2 s.
	Backlog time.Duration
}

// Real is the pace of a wall clock.
func Real(epoch time.Time) Pace { return Pace{Epoch: epoch} }

// Free reports whether nothing waits for a clock.
func (p Pace) Free() bool { return p.Epoch.IsZero() }

// speed is board seconds a wall second.
func (p Pace) speed() float64 {
	return cmp.Or(max(0, p.Speed), 1)
}

// Step returns the batch with its default.
func (p Pace) Step() time.Duration {
	return cmp.Or(max(0, p.Batch), 2*time.Millisecond)
}

// MaxBacklog returns the backlog with its default.
func (p Pace) MaxBacklog() time.Duration {
	return cmp.Or(max(0, p.Backlog), 2*time.Second)
}

// Now returns the board's time; done, the newest time produced, where the pace
// is free.
func (p Pace) Now(done time.Duration) time.Duration {
	if p.Free() {
		return done
	}
	return time.Duration(float64(time.Since(p.Epoch)) * p.speed())
}

// Due returns the board time up to which samples may be produced now.
func (p Pace) Due(done time.Duration) time.Duration {
	if p.Free() {
		return done + p.Step()
	}
	return p.Now(done)
}

// ready is a channel that always delivers.
var ready = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// Wait returns a channel that delivers once the batch after done may be produced.
func (p Pace) Wait(done time.Duration) <-chan time.Time {
	ahead := time.Duration(float64(done+p.Step()-p.Now(done)) / p.speed())
	if p.Free() || ahead <= 0 {
		return ready
	}
	return time.After(ahead)
}
