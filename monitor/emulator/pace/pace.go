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

// Timer waits for batches. One goroutine owns it.
type Timer struct {
	p     Pace
	timer *time.Timer
	ready chan time.Time
}

// NewTimer makes a timer; Stop it when done.
func (p Pace) NewTimer() *Timer {
	t := &Timer{p: p, ready: make(chan time.Time)}
	close(t.ready)
	return t
}

// C returns a channel that delivers once the batch after done may be produced.
// Each call replaces the one before.
func (t *Timer) C(done time.Duration) <-chan time.Time {
	if t.p.Free() {
		return t.ready
	}
	ahead := time.Duration(float64(done+t.p.Step()-t.p.Now(done)) / t.p.speed())
	if ahead <= 0 {
		return t.ready
	}
	if t.timer == nil {
		t.timer = time.NewTimer(ahead)
	} else {
		t.timer.Reset(ahead)
	}
	return t.timer.C
}

// Stop releases the timer.
func (t *Timer) Stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}
