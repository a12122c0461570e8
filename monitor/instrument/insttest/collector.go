// Package insttest checks, in tests, that an instrument keeps its contract.
package insttest

import (
	"fmt"
	"slices"
	"sync"

	"wattmark/measure"
)

// Collector is a Sink that keeps everything and refuses what the contract
// forbids: blocks of the wrong shape, time that does not advance, scans that
// vanish without a gap. It is safe for concurrent use.
type Collector struct {
	Timebase measure.Timebase
	Channels int
	// Enough is called, once, when After scans have come.
	After  int
	Enough func()

	mu       sync.Mutex
	scans    []uint64
	ticks    []int64
	counts   [][]measure.Count // by channel
	events   []measure.Event
	expected uint64
	begun    bool
}

// Block takes a block.
func (c *Collector) Block(b *measure.Block) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := b.Validate(c.Timebase, c.Channels); err != nil {
		return err
	}
	if b.Scans() == 0 {
		return fmt.Errorf("a block without scans")
	}
	if !c.begun && (b.FirstScan != 0 || b.FirstTick != 0) {
		return fmt.Errorf("the first block begins at scan %d, tick %d", b.FirstScan, b.FirstTick)
	}
	if b.FirstScan != c.expected {
		return fmt.Errorf("scan %d follows where %d is due: lost in silence", b.FirstScan, c.expected)
	}
	if b.Ticks != nil && b.Ticks[0] != b.FirstTick {
		return fmt.Errorf("first tick %d, but the first stamp is %d", b.FirstTick, b.Ticks[0])
	}
	if c.counts == nil {
		c.counts = make([][]measure.Count, c.Channels)
	}
	c.begun = true
	for i := range b.Scans() {
		tick := int64(b.TickAt(c.Timebase, i))
		if n := len(c.ticks); n > 0 && tick <= c.ticks[n-1] {
			return fmt.Errorf("scan %d: tick %d does not follow %d", b.FirstScan+uint64(i), tick, c.ticks[n-1])
		}
		c.scans, c.ticks = append(c.scans, b.FirstScan+uint64(i)), append(c.ticks, tick)
	}
	for ch := range b.Counts {
		c.counts[ch] = append(c.counts[ch], b.Counts[ch]...)
	}
	c.expected = b.FirstScan + uint64(b.Scans())
	if c.Enough != nil && len(c.scans) >= c.After {
		c.Enough()
		c.Enough = nil
	}
	return nil
}

// Event takes an event.
func (c *Collector) Event(e measure.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	if e.Kind == measure.EventGap {
		if e.FirstScan != c.expected || e.Scans == 0 {
			return fmt.Errorf("a gap of %d scans from %d, where %d is due", e.Scans, e.FirstScan, c.expected)
		}
		c.expected += e.Scans
	}
	return nil
}

// Scans returns the indices of all scans.
func (c *Collector) Scans() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.scans)
}

// Ticks returns the device times of all scans.
func (c *Collector) Ticks() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ticks)
}

// Counts returns all counts of a channel.
func (c *Collector) Counts(channel int) []measure.Count {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		return nil
	}
	return slices.Clone(c.counts[channel])
}

// Events returns the events of a kind; all for kind 0.
func (c *Collector) Events(kind measure.EventKind) []measure.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []measure.Event
	for _, e := range c.events {
		if kind == 0 || e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// Lost returns how many scans the gaps miss.
func (c *Collector) Lost() (n uint64) {
	for _, e := range c.Events(measure.EventGap) {
		n += e.Scans
	}
	return n
}
