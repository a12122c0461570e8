package checkup

import (
	"fmt"
	"math"
	"sync"
	"time"

	"wattmark/measure"
	"wattmark/measure/stability"
	"wattmark/monitor/instrument"
)

// Survey is a Sink that keeps figures instead of samples. Its memory does not
// grow with time. The instrument's goroutine fills it while others read.
type Survey struct {
	setup measure.Setup
	meter *measure.PowerMeter
	now   func() time.Time

	mu       sync.Mutex
	deferred bool
	channels []channelTally
	noise    []*stability.Allan
	rails    []railTally
	recent   []railTally // since the last Recent
	column   measure.Columns
	pace     pace
	scans    uint64
	last     float64 // device time of the last scan, in ticks
	events   map[measure.EventKind]*Losses
	done     [2]uint64 // of a delivery: done, total
}

// railTally is one rail's readings; current and voltage are empty for a rail
// that reads watts itself.
type railTally struct{ current, voltage, power tally }

// Losses is what went wrong in one way.
type Losses struct {
	Kind   measure.EventKind
	Events uint64
	// Scans concerned, or lost; an estimate unless Exact.
	Scans uint64
	Exact bool
	// Detail is that of the first one.
	Detail string
}

// New prepares a survey of what an instrument delivers under a setup.
func New(s *measure.Setup) (*Survey, error) {
	m, err := measure.NewPowerMeter(s)
	if err != nil {
		return nil, fmt.Errorf("survey: %w", err)
	}
	v := &Survey{
		setup: *s, meter: m, now: time.Now,
		channels: make([]channelTally, len(s.Channels)),
		rails:    make([]railTally, len(s.Rails)), recent: make([]railTally, len(s.Rails)),
		events: map[measure.EventKind]*Losses{},
	}
	for range s.Channels {
		v.noise = append(v.noise, stability.NewAllan(measure.Seconds(1/float64(s.Timebase.SampleRate()))))
	}
	return v, nil
}

var _ instrument.TimedSink = (*Survey)(nil)

// Block takes a block.
func (v *Survey) Block(b *measure.Block) error { return v.BlockAt(b, v.now()) }

// BlockAt takes a block that was held back: its samples arrived at an instant.
func (v *Survey) BlockAt(b *measure.Block, at time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := b.Validate(v.setup.Timebase, len(v.channels)); err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	n := b.Scans()
	if n == 0 {
		return nil
	}
	for c := range v.channels {
		v.channels[c].observe(v.setup.Channels[c], b.Counts[c])
		v.noise[c].Add(b.Counts[c])
	}
	for r := range v.rails {
		v.meter.Rail(r, b, &v.column)
		v.rails[r].observe(&v.column)
		v.recent[r].observe(&v.column)
	}
	v.scans += uint64(n)
	v.last = b.TickAt(v.setup.Timebase, n-1)
	v.pace.observe(at, float64(b.FirstScan)+float64(n))
	return nil
}

func (t *railTally) observe(c *measure.Columns) {
	for _, i := range c.I {
		t.current.add(float64(i))
	}
	for _, u := range c.V {
		t.voltage.add(float64(u))
	}
	for _, p := range c.P {
		t.power.add(float64(p))
	}
}

// Event takes an event.
func (v *Survey) Event(e measure.Event) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.events[e.Kind]
	if l == nil {
		l = &Losses{Kind: e.Kind, Exact: true, Detail: e.Detail}
		v.events[e.Kind] = l
	}
	l.Events++
	l.Scans += e.Scans
	l.Exact = l.Exact && e.Exact
	if e.Kind == measure.EventGap {
		for _, n := range v.noise {
			n.Break()
		}
	}
	return nil
}

// Armed takes note of an instrument that delivers when it is stopped.
func (v *Survey) Armed(time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deferred = true
	return nil
}

// Progress takes note of how far a delivery is.
func (v *Survey) Progress(done, total uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done = [2]uint64{done, total}
}

// Unwanted is never: a survey looks at all that an instrument delivers.
func (v *Survey) Unwanted() <-chan struct{} { return nil }

// Delivery tells how many scans of an instrument's memory have been read, of
// how many; total is 0 while nothing is read.
func (v *Survey) Delivery() (done, total uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.done[0], v.done[1]
}

// Result is what a survey found so far.
func (v *Survey) Result() *Result {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := &Result{
		Setup: v.setup, Scans: v.scans, Duration: v.setup.Timebase.Seconds(v.last), Deferred: v.deferred,
		Rails: railValues(v.rails),
	}
	if !v.deferred {
		r.Rate, r.URate = v.pace.rate()
	}
	for i := range v.channels {
		t, c := &v.channels[i], v.setup.Channels[i]
		r.Channels = append(r.Channels, Channel{
			Spread: t.scaled(c.Gain, c.Offset), Low: t.low, High: t.high, Noise: noiseOf(c, v.noise[i].Deviation()),
		})
	}
	for _, k := range []measure.EventKind{measure.EventGap, measure.EventOverflow, measure.EventResync, measure.EventReopen, measure.EventNote} {
		if l := v.events[k]; l != nil {
			r.Losses = append(r.Losses, *l)
		}
	}
	return r
}

// Recent returns the rails' values since the last call, and begins anew.
func (v *Survey) Recent() []Rail {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := railValues(v.recent)
	clear(v.recent)
	return out
}

func railValues(rails []railTally) []Rail {
	out := make([]Rail, len(rails))
	for i := range rails {
		t := &rails[i]
		out[i] = Rail{Current: t.current.scaled(1, 0), Voltage: t.voltage.scaled(1, 0), Power: t.power.scaled(1, 0)}
	}
	return out
}

// noiseOf turns an Allan deviation into the channel's unit.
func noiseOf(c measure.Channel, points []stability.Point) []stability.Point {
	out := make([]stability.Point, len(points))
	for i, p := range points {
		p.Dev *= math.Abs(c.Gain)
		out[i] = p
	}
	return out
}
