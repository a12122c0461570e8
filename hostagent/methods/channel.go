package methods

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// channel is what one thread read, and what that cost.
type channel struct {
	trace
	call          histogram
	alone, beside histogram // intervals without and with a call of the counter
	last          time.Time // end of the newest call that came to something
	calls         uint64    // of the counter, at last
	failed        uint64
	err           error // the newest failure
}

// ask times one call of the sensor: at is its middle. counter numbers the begins
// and ends of the energy counter's calls; nil for the counter itself.
func (c *channel) ask(counter *atomic.Uint64, f func() error) (at time.Time, ok bool) {
	begin := time.Now()
	err := f()
	end := time.Now()
	c.call.add(end.Sub(begin))
	if err != nil {
		c.failed, c.err = c.failed+1, err
		return at, false
	}
	var calls uint64
	if counter != nil {
		calls = counter.Load()
	}
	switch {
	case c.last.IsZero():
	case calls != c.calls || calls%2 == 1:
		c.beside.add(end.Sub(c.last))
	default:
		c.alone.add(end.Sub(c.last))
	}
	c.last, c.calls = end, calls
	return begin.Add(end.Sub(begin) / 2), true
}

// beat calls f at a steady distance until ctx ends, from a moment of chance on,
// and returns how many beats passed while the machine was busy.
func beat(ctx context.Context, every time.Duration, f func()) (missed uint64) {
	next := time.Now().Add(rand.N(every))
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return missed
		case <-timer.C:
		}
		f()
		next = next.Add(every)
		if late := time.Since(next); late > 0 {
			n := late/every + 1
			missed += uint64(n)
			next = next.Add(n * every)
		}
		timer.Reset(time.Until(next))
	}
}

// rest waits, unless ctx ends first.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
