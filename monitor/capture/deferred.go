package capture

import (
	"context"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
)

// A deferred instrument samples into its own memory and delivers when it is
// stopped: its capture runs from Armed on, and a stop lets the stream end where
// other captures end the stream.

var _ instrument.DeferredSink = sink{}

// Armed takes note that a deferred instrument samples.
func (s sink) Armed(at time.Time) error {
	c := s.c
	c.data.Lock()
	defer c.data.Unlock()
	if c.life != Arming {
		return fmt.Errorf("capture %s: %w: it armed while %v", c.id, errDriver, c.life)
	}
	c.deferred = true
	c.start(at)
	return nil
}

// Progress tells the operator how far a delivery is.
func (s sink) Progress(done, total uint64) {
	s.c.owner.cfg.Log.Info("reading the instrument's memory", "bench", s.c.owner.cfg.Bench, "capture", s.c.id, "scans", done, "of", total)
}

// Unwanted is closed once the capture has ended, whatever the instrument still holds.
func (s sink) Unwanted() <-chan struct{} { return s.c.quit }

// askDelivery lets the instrument sample the stop marker's tail, and then ends
// its stream. data is held.
func (c *Capture) askDelivery() {
	c.move(StopAsked)
	c.publish("")
	c.grace = time.AfterFunc(c.owner.tail(c.header), func() { close(c.halt) })
}

// watch ends the instrument's stream when the capture is over, when a deferred
// instrument is to deliver, or when the monitor stops.
func (c *Capture) watch(ctx context.Context, cancel func(), over <-chan struct{}) {
	defer cancel()
	halt := c.halt
	for {
		select {
		case <-halt:
			cancel()
			halt = nil
			continue
		case <-c.quit:
		case <-over:
		case <-ctx.Done():
			c.abandon(whyStopped(ctx))
		}
		return
	}
}

// abandon ends a deferred capture with its monitor: the instrument would first
// deliver all that it holds.
func (c *Capture) abandon(why string) {
	c.data.Lock()
	defer c.data.Unlock()
	if c.deferred {
		c.seal(Failed, why)
	}
}

// delivers tells whether a deferred instrument was asked for its samples.
func (c *Capture) delivers() bool {
	select {
	case <-c.halt:
		return true
	default:
		return false
	}
}

// delivered ends a capture whose instrument has no more.
func (c *Capture) delivered(err error) {
	if err != nil {
		c.end(Failed, err.Error())
		return
	}
	c.end(TailWritten, "")
}
