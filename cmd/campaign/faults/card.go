package faults

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/monitor/clocktest"
)

const (
	rate    = 100e3 // scans a second
	restW   = 60.0
	busyW   = 160.0
	gainW   = 0.01
	nominal = 0.9     // of it, before calibration
	counter = 1 << 24 // the second channel counts scans, and begins anew here
	workFor = 5 * time.Millisecond
)

// card is a GPU in a riser card: what it draws at each scan of its life is known,
// whoever looks on. Scans count from when it was made. Its time goes by in ticks
// and never makes up for those that a busy machine leaves out: time that is lost
// makes no more samples to take.
type card struct {
	scan atomic.Uint64

	mu      sync.Mutex
	busy    []span // in scans, in order
	seen    uint64 // scans that were delivered; what comes later may still be laid down
	clock   hostClock
	offsets []time.Duration // of the clock, whenever the host was told times
}

type span struct{ from, to uint64 }

// hostClock is the host's clock as a function of true time: a monotonic reading, and the
// wall's time, which may have been set. What skews one skews the other, as adjtime does.
type hostClock struct {
	base  time.Time
	since float64 // true seconds at base
	rate  float64
	step  time.Duration
}

func (h hostClock) at(t float64) time.Time { return clocktest.Stepped(h.unset(t), h.step) }

// unset is the time without the steps.
func (h hostClock) unset(t float64) time.Time {
	return h.base.Add(time.Duration((t - h.since) * h.rate * 1e9))
}

func newCard() *card {
	return &card{clock: hostClock{base: time.Now(), rate: 1}}
}

// tick is how often the card's time goes on.
const tick = 2 * time.Millisecond

// run lets the card's time go by until ctx ends.
func (c *card) run(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.scan.Add(uint64(tick.Seconds() * rate))
		case <-ctx.Done():
			return
		}
	}
}

// now is what the host's time.Now says.
func (c *card) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.at(seconds(c.scanNow()))
}

// torn tells whether the host was told times by a clock that was set in between.
func (c *card) torn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.offsets) > 0 && slices.Max(c.offsets)-slices.Min(c.offsets) > leastStep
}

// leastStep is what a step of a clock must be told from on.
const leastStep = 10 * time.Microsecond

func (c *card) scanNow() uint64   { return c.scan.Load() }
func seconds(scan uint64) float64 { return float64(scan) / rate }

// disturb steps the host's clock by some seconds, and lets it run faster by a part.
func (c *card) disturb(step, skew float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := seconds(c.scanNow())
	c.clock = hostClock{
		base: c.clock.unset(t), since: t, rate: c.clock.rate * (1 + skew), step: c.clock.step + time.Duration(step*1e9),
	}
}

// countOf is what the meter reads at a scan. mu is held.
func (c *card) countOf(scan uint64) measure.Count {
	w := restW
	for i := len(c.busy) - 1; i >= 0; i-- {
		if s := c.busy[i]; scan >= s.from && scan < s.to {
			w = busyW
			break
		}
	}
	return measure.Count(w/gainW) + noise(scan)
}

// noise is of half a watt, the same for a scan whenever it is asked for.
func noise(scan uint64) (n measure.Count) {
	x := scan * 0x9e3779b97f4a7c15
	for range 4 { // a sum of four is close to normal
		x ^= x >> 30
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		n += measure.Count(x>>40%87) - 43
	}
	return n
}

// lay puts loads of given lengths down, high and low by turns of the caller's
// choice, and returns the scan at which each begins, and the end.
func (c *card) lay(high []bool, scans float64) []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := max(c.scanNow(), c.seen) + 50
	edges := make([]uint64, 0, len(high)+1)
	for i, h := range high {
		from, to := at+uint64(float64(i)*scans+0.5), at+uint64(float64(i+1)*scans+0.5)
		edges = append(edges, from)
		if h {
			c.busy = append(c.busy, span{from, to})
		}
	}
	return append(edges, at+uint64(float64(len(high))*scans+0.5))
}

// await returns when a scan has passed.
func (c *card) await(ctx context.Context, scan uint64) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for c.scanNow() < scan {
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
