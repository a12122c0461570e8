package capture

import (
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// failed ends a capture that never got as far as the spool.
func (c *Capture) failed(err error) {
	c.data.Lock()
	defer c.data.Unlock()
	c.letGo()
	if next, terr := c.life.Next(Failed); terr == nil {
		c.life = next
	}
	c.mu.Lock()
	c.err, c.view.State, c.view.Reason = err, c.life, err.Error()
	c.mu.Unlock()
	c.owner.over(c)
	close(c.ended)
}

// neverBegan says why there was no first scan.
func (c *Capture) neverBegan() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return fmt.Errorf("%w: %s", ErrUnavailable, c.view.Reason)
}

// armTimeout gives up on an instrument that sends no scan.
func (c *Capture) armTimeout() {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life == Arming {
		err := fmt.Errorf("%w: no scan within %v of the start", instrument.ErrSilent, c.owner.cfg.ArmTimeout)
		c.owner.fail(fmt.Errorf("%w: %w", ErrUnavailable, err), true)
		c.seal(Failed, err.Error())
	}
}

// ticks ends old chunks until the instrument is done.
func (c *Capture) ticks(done <-chan struct{}) {
	t := time.NewTicker(c.owner.cfg.FlushEvery)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			c.tick(now)
		case <-done:
			return
		}
	}
}

func (c *Capture) hasEnded() bool {
	c.data.Lock()
	defer c.data.Unlock()
	return c.life.Ended()
}

// exhaust takes note that the instrument has no more to give, as a recording.
func (c *Capture) exhaust() {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life.Ended() {
		return
	}
	if c.life == Arming {
		c.seal(Failed, "the instrument ended its stream before the first scan")
		return
	}
	c.pipe.exhausted = true
	err := c.pipe.write(measure.Event{
		Kind: measure.EventNote, FirstScan: c.pipe.stitch.next, Exact: true, Channel: -1,
		Detail: "the instrument ended its stream by itself",
	})
	if err == nil {
		err = c.pipe.flush()
	}
	switch {
	case err != nil:
		c.seal(Failed, err.Error())
	case c.life == Stopping:
		c.seal(TailWritten, "")
	default:
		c.publish("")
	}
}

// lost takes note of a broken link, and tells whether it is worth trying again.
func (c *Capture) lost(err error) bool {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life != Running || c.deferred { // what a deferred instrument held is out of reach
		return false
	}
	c.pipe.stitch.lost(err.Error())
	if ferr := c.pipe.flush(); ferr != nil {
		c.seal(Failed, ferr.Error())
		return false
	}
	return true
}

// lostAt returns when the last block before the loss arrived.
func (c *Capture) lostAt() time.Time {
	c.data.Lock()
	defer c.data.Unlock()
	return c.pipe.stitch.lastAt
}

func (c *Capture) awayWhy() string {
	c.data.Lock()
	defer c.data.Unlock()
	return c.pipe.stitch.awayWhy
}
