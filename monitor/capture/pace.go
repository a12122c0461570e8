package capture

import (
	"time"

	"wattmark/measure"
)

// pace relates the arrival of blocks to their device time: how far the device
// is ahead of the monitor's clock at best, lately. It answers what the device
// time is now, though the latest samples are still on their way.
type pace struct {
	since     time.Duration // begin of the current span
	now, last time.Duration // the best of the current span and of the one before
	spans     int
}

// paceSpan is short enough for two clocks that drift by 100 ppm to stay within
// microseconds, and long enough to hold several blocks of a slow meter.
const paceSpan = 2 * time.Second

// arrived takes a block that ends at device time end, at a monotonic instant.
func (p *pace) arrived(end measure.Seconds, at time.Duration) {
	lead := end.Duration() - at
	if p.spans == 0 || at-p.since >= paceSpan {
		p.last, p.now, p.since = p.now, lead, at
		p.spans++
		return
	}
	p.now = max(p.now, lead)
}

// device returns the device time at a monotonic instant.
func (p *pace) device(at time.Duration) time.Duration {
	lead := p.now
	if p.spans > 1 {
		lead = max(lead, p.last)
	}
	return at + lead
}
