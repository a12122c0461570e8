package capture

import (
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
)

// sink is a capture as its instrument sees it.
type sink struct{ c *Capture }

// sinkError is a fault of a capture, not of its instrument.
type sinkError struct {
	id  string
	err error
}

func (e *sinkError) Error() string { return fmt.Sprintf("capture %s: %v", e.id, e.err) }
func (e *sinkError) Unwrap() error { return e.err }

var (
	_ instrument.MarkedSink = sink{}
	_ instrument.TimedSink  = sink{}
)

// Marker is what the capture looks for.
func (s sink) Marker() marker.Spec { return s.c.req.Marker }

// Block takes samples. Its error ends the stream.
func (s sink) Block(b *measure.Block) error { return s.BlockAt(b, s.c.owner.cfg.Now()) }

// BlockAt takes samples that arrived at an instant.
func (s sink) BlockAt(b *measure.Block, at time.Time) error {
	c := s.c
	c.data.Lock()
	defer c.data.Unlock()
	if c.life.Ended() {
		return errSealed
	}
	if c.life == Arming && b.Scans() > 0 {
		c.begin(b, at)
	}
	away := c.pipe.stitch.away
	chunks, markers := c.pipe.tally.chunks, len(c.pipe.tally.markers)
	if err := c.pipe.block(b, at); err != nil {
		return &sinkError{c.id, err}
	}
	if away && !c.pipe.stitch.away {
		c.owner.answered(true)
	}
	if c.pipe.tally.chunks != chunks || len(c.pipe.tally.markers) != markers {
		c.publish("")
	}
	if c.life == Stopping && !c.deferred && (!c.pipe.awaitsStop() || c.reached()) {
		c.seal(TailWritten, "")
		return errSealed
	}
	return nil
}

// reached tells whether the samples cover what a stop request waits for.
func (c *Capture) reached() bool {
	return c.header.Setup.Timebase.Seconds(c.pipe.stitch.endTick).Duration() >= c.target
}

// begin takes note of the first scan.
func (c *Capture) begin(b *measure.Block, at time.Time) {
	took := time.Duration(float64(b.Scans()) / float64(c.header.Setup.Timebase.SampleRate()) * 1e9)
	c.start(at.Add(-took))
}

// start takes note of when the first scan was taken, and tells who waits for it.
func (c *Capture) start(at time.Time) {
	c.pipe.tally.started = at
	c.move(FirstScan)
	c.startLease()
	c.publish("")
	close(c.ready)
	c.owner.answered(true)
}

// Event takes what a reader of the samples must know.
func (s sink) Event(e measure.Event) error {
	c := s.c
	c.data.Lock()
	defer c.data.Unlock()
	if c.life.Ended() {
		return errSealed
	}
	e.Detail = measure.Excerpt(e.Detail) // drivers cite their devices
	if err := c.pipe.event(e); err != nil {
		return &sinkError{c.id, err}
	}
	return nil
}

// tick ends a chunk that has grown old while the instrument is silent.
func (c *Capture) tick(now time.Time) {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life != Running && c.life != Stopping {
		return
	}
	chunks := c.pipe.tally.chunks
	if c.pipe.enc.Scans() == 0 {
		return
	}
	if err := c.pipe.flushOld(now); err != nil {
		c.seal(Failed, err.Error())
		return
	}
	if c.pipe.tally.chunks != chunks {
		c.publish("")
	}
}
