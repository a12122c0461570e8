package capture

import (
	"fmt"
	"time"
)

// Renew keeps the capture alive for another lease, and returns until when; for
// a capture that has ended, the zero time and its state.
func (c *Capture) Renew() (time.Time, State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view.State.Ended() || c.lease == nil {
		return time.Time{}, c.view.State
	}
	c.until = c.owner.cfg.Now().Add(c.req.Lease)
	c.lease.Reset(c.req.Lease)
	return c.until, c.view.State
}

// startLease begins the first lease, at the first scan.
func (c *Capture) startLease() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = c.owner.cfg.Now().Add(c.req.Lease)
	c.lease = time.AfterFunc(c.req.Lease, c.leaseEnds)
}

func (c *Capture) leaseEnds() {
	c.mu.Lock()
	until := c.until
	c.mu.Unlock()
	if c.owner.cfg.Now().Before(until) { // renewed in the same moment
		return
	}
	c.end(LeaseEnded, fmt.Sprintf("lease of %s ended at %s: not renewed for %v",
		c.req.Holder, until.UTC().Format(time.RFC3339), c.req.Lease))
}

// LeaseUntil returns when the lease ends if it is not renewed.
func (c *Capture) LeaseUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until
}
