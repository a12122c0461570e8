// Package montest helps the tests of instruments: it checks that a stream keeps its contract, unplugs and reopens
// devices, and serves emulated SCPI instruments, a board with a load behind them, to messages and programs over TCP.
package montest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
)

// Collector is a Sink that keeps everything and refuses breaches of the
// contract: blocks of the wrong shape, time that does not advance, scans that
// vanish without a gap. It is safe for concurrent use.
type Collector struct {
	Timebase measure.Timebase
	Channels int
	// Enough is called, once, when After scans have come; it may set both anew.
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
	// A stream begins at zero, and each block where the scans and gaps before it end.
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
		// Device time advances from scan to scan, also across blocks and gaps.
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
	for c.Enough != nil && len(c.scans) >= c.After {
		enough := c.Enough
		c.Enough = nil
		enough()
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

// locked calls f while no block is taken.
func (c *Collector) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Scans returns the indices of all scans.
func (c *Collector) Scans() (out []uint64) {
	c.locked(func() { out = slices.Clone(c.scans) })
	return out
}

// Ticks returns the device times of all scans.
func (c *Collector) Ticks() (out []int64) {
	c.locked(func() { out = slices.Clone(c.ticks) })
	return out
}

// Counts returns all counts of a channel; none before the first block.
func (c *Collector) Counts(channel int) (out []measure.Count) {
	c.locked(func() {
		if c.counts != nil {
			out = slices.Clone(c.counts[channel])
		}
	})
	return out
}

// Events returns the events of a kind; all for kind 0.
func (c *Collector) Events(kind measure.EventKind) (out []measure.Event) {
	other := func(e measure.Event) bool { return kind != 0 && e.Kind != kind }
	c.locked(func() { out = slices.DeleteFunc(slices.Clone(c.events), other) })
	return out
}

// Lost returns how many scans the gaps miss.
func (c *Collector) Lost() (n uint64) {
	for _, e := range c.Events(measure.EventGap) {
		n += e.Scans
	}
	return n
}

// streamTime bounds a stream of a test.
const streamTime = 20 * time.Second

// For makes a collector for an instrument's inputs.
func For(in instrument.Inputs) *Collector {
	return &Collector{Timebase: in.Timebase, Channels: len(in.Channels)}
}

// Stream streams until n scans have come, 20 s have passed, or the stream fails;
// halfway it calls then, which may be nil.
func Stream(t *testing.T, i instrument.Instrument, n int, then func()) (*Collector, error) {
	t.Helper()
	out := For(i.Inputs())
	ctx, cancel := context.WithTimeout(t.Context(), streamTime)
	defer cancel()
	out.After, out.Enough = n, cancel
	if then != nil {
		out.After, out.Enough = n/2, func() {
			then()
			out.After, out.Enough = n, cancel
		}
	}
	return out, i.Stream(ctx, instrument.SinkOf(out))
}

// Collect is Stream for a test that wants all n scans.
func Collect(t *testing.T, i instrument.Instrument, n int, then func()) *Collector {
	t.Helper()
	out, err := Stream(t, i, n, then)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(out.Scans()); got < n {
		t.Fatalf("only %d of %d scans in %v; events %+v", got, n, streamTime, out.Events(0))
	}
	return out
}

// Record opens a scope, lets it record for a time, and returns its samples. armed, which may be
// nil, is called once it samples.
func Record(t *testing.T, f *scope.Family, address string, o scope.Options, d time.Duration, armed func(),
) (*Collector, instrument.Inputs, error) {
	t.Helper()
	dev, err := scope.New(scope.Config{Family: f, Address: address, Options: o, Poll: 10 * time.Millisecond})
	if err != nil {
		return nil, instrument.Inputs{}, err
	}
	defer func() { _ = dev.Close() }()
	if err := dev.Open(t.Context()); err != nil {
		return nil, instrument.Inputs{}, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k := For(dev.Inputs())
	err = dev.Stream(ctx, instrument.Sink{Block: k.Block, Event: k.Event, Armed: func(time.Time) error {
		time.AfterFunc(d, cancel)
		if armed != nil {
			armed()
		}
		return nil
	}})
	return k, dev.Inputs(), err
}

// Energy integrates the samples over a window of device time.
func Energy(t *testing.T, setup *measure.Setup, out *Collector, from, to measure.Seconds) measure.Estimate {
	t.Helper()
	if err := setup.Validate(); err != nil {
		t.Fatal(err)
	}
	if out.Lost() != 0 {
		t.Fatalf("a gap on a perfect line: %+v", out.Events(0))
	}
	g, err := measure.NewIntegrator(setup, from, to)
	if err != nil {
		t.Fatal(err)
	}
	// All samples go into the integrator as one block.
	blk := measure.Block{}
	if setup.Timebase.Stamped {
		blk.Ticks = out.Ticks()
	}
	for c := range setup.Channels {
		blk.Counts = append(blk.Counts, out.Counts(c))
	}
	if err := g.Add(&blk); err != nil {
		t.Fatal(err)
	}
	res, err := g.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	return res.Total
}

// heard is a line that calls then before the device gets the bytes of its left-th read. then is set
// before left is, which counts the reads still to come.
type heard struct {
	*fault.Line
	left atomic.Int64
	then func()
}

// Read counts the device's reads.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Line.Read(p)
	if h.left.Add(-1) == 0 {
		h.then()
	}
	return n, err
}

// Interrupted breaks Open off at each thing in turn that the device hears of it,
// as the end of a program does, and demands that the next Open works.
func Interrupted(t *testing.T, p *Plug, dev instrument.Instrument) {
	t.Helper()
	for at := 1; ; at++ {
		ctx, cancel := context.WithCancel(t.Context())
		p.heard.then = cancel
		p.heard.left.Store(int64(at))
		err := dev.Open(ctx)
		cancel()
		whole := p.heard.left.Swap(0) > 0 // the read has not come yet
		if err == nil {
			_ = dev.Close()
		}
		// One message more than Open sends is never heard: then all places were tried.
		if whole {
			if err == nil && at == 1 {
				t.Fatal("Open hears no message that could be broken off: this rig is for devices that answer")
			}
			if err != nil {
				t.Fatalf("Open, with nothing that breaks it off but after %d messages: %v", at-1, err)
			}
			t.Logf("broken off at each of %d messages", at-1)
			return
		}
		if err := dev.Open(t.Context()); err != nil {
			t.Errorf("Open after one that was broken off at message %d: %v", at, err)
			continue
		}
		_ = dev.Close()
	}
}

// Cycles opens and closes an instrument n times, a tenth of that without the build tag slow,
// and fails the test where goroutines or descriptors are left behind.
func Cycles(t *testing.T, i instrument.Instrument, n int) {
	t.Helper()
	if !coverage.Slow {
		n = (n + 9) / 10
	}
	once := func() {
		if err := i.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
	}
	once() // resources made once and kept are no leak
	goroutines, files := runtime.NumGoroutine(), descriptors()
	for range n {
		once()
	}
	// Goroutines that are to end need their turn, on the other side of the wire as well.
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if runtime.NumGoroutine() <= goroutines+2 && descriptors() <= files {
			break
		}
	}
	if g := runtime.NumGoroutine(); g > goroutines+2 {
		t.Errorf("%d goroutines after %d cycles, %d before", g, n, goroutines)
	}
	if f := descriptors(); f > files {
		t.Errorf("%d descriptors after %d cycles, %d before", f, n, files)
	}
}

// descriptors counts the process's open files.
func descriptors() int {
	d, _ := os.ReadDir("/proc/self/fd")
	return len(d)
}
