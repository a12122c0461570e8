package capture

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/spool"
)

// Capture is one run of samples, from the request to the release. Its methods
// are safe for concurrent use.
type Capture struct {
	id     string
	req    Request
	owner  *Owner
	header spool.Header
	log    *spool.Log
	mended atomic.Uint64 // how often damaged records of the log became events
	// nominal are the channels without calibration records: what a reopened
	// instrument is held against.
	nominal []measure.Channel
	maker   maker // what made its setup

	ready    chan struct{} // closed at the first scan
	ended    chan struct{} // closed when the capture's end is durable
	quit     chan struct{} // closed when the instrument may stop
	quitOnce sync.Once
	halt     chan struct{} // closed when a deferred instrument is to deliver

	// data guards the way of the samples; it is held while a block is taken.
	data   sync.Mutex
	life   State
	pipe   *pipeline // nil before the instrument is open
	target time.Duration
	grace  *time.Timer
	// deferred: the instrument samples, and delivers when it is stopped.
	deferred bool

	// mu guards what others look at; it is held for moments only.
	mu      sync.Mutex
	view    view
	changed chan struct{} // closed and replaced when view changes
	until   time.Time     // when the lease ends
	lease   *time.Timer
	err     error // why the capture never began
	wanted  wanted
}

// view is what is known of a capture from outside.
type view struct {
	Summary
	started    time.Time
	startKnown bool // the trimmed stream's first chunk is known
	stopKnown  bool // EndChunk is a limit for now: a later stop marker may move it
}

func newCapture(o *Owner, id string, req Request) *Capture {
	return &Capture{
		id: id, req: req, owner: o, life: Arming, view: view{Summary: Summary{State: Arming}},
		ready: make(chan struct{}), ended: make(chan struct{}), quit: make(chan struct{}), halt: make(chan struct{}), changed: make(chan struct{}),
	}
}

// ID names the capture.
func (c *Capture) ID() string { return c.id }

// Owner is who may end and release the capture; empty where nobody was asked.
func (c *Capture) Owner() string { return c.req.Owner }

// Header returns what was known before the first sample.
func (c *Capture) Header() spool.Header { return c.header }

// Started returns the monitor's wall clock at device time zero.
func (c *Capture) Started() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.started
}

// Summary returns what the capture has come to so far.
func (c *Capture) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.Summary
}

// look returns the view, and a channel that is closed when it changes.
func (c *Capture) look() (view, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view, c.changed
}

// publish shows the state of the pipeline to others. data is held.
func (c *Capture) publish(reason string) {
	t := &c.pipe.tally
	v := view{started: t.started, startKnown: c.pipe.trim.start != nil, stopKnown: c.pipe.trim.stop != nil}
	v.Summary = summarize(c.header, t, c.pipe.trim, c.life, reason)
	c.show(v)
}

func (c *Capture) show(v view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = v
	close(c.changed)
	c.changed = make(chan struct{})
}

func summarize(h spool.Header, t *tally, tr trim, s State, reason string) Summary {
	sum := Summary{
		State: s, Reason: reason, Scans: t.scans, Lost: t.lost, Gaps: t.gaps, OverRange: t.over,
		Chunks: t.chunks, FirstChunk: tr.first, EndChunk: tr.end, Markers: t.markers,
		Window: tr.window(), End: h.Setup.Timebase.Seconds(t.endTick),
	}
	if tr.stop == nil {
		sum.EndChunk = t.chunks
	}
	if s.Ended() {
		sum.NoWindowReason = noWindow(h.Marker, tr.choice, t.markers)
	}
	return sum
}

// Stop ends the capture and returns when its end is durable. What is on its way
// from the instrument is awaited until the stop marker is seen or should have
// been. Asking again answers the same.
func (c *Capture) Stop(ctx context.Context) (Summary, error) {
	c.askStop()
	select {
	case <-c.ended:
		return c.Summary(), nil
	case <-ctx.Done():
		return Summary{}, fmt.Errorf("stop capture %s: %w", c.id, ctx.Err())
	}
}

func (c *Capture) askStop() {
	c.data.Lock()
	defer c.data.Unlock()
	switch {
	case c.life == Arming:
		c.seal(StopAsked, "stopped before the first scan")
	case c.life != Running:
	case c.deferred:
		c.askDelivery()
	case c.pipe.stitch.away:
		c.seal(Failed, "stopped while the instrument was away: "+c.pipe.stitch.awayWhy)
	default:
		c.move(StopAsked)
		c.publish("")
		if !c.pipe.awaitsStop() {
			c.seal(TailWritten, "")
			return
		}
		tail := c.owner.tail(c.header)
		c.target = c.pipe.pace.device(time.Since(c.pipe.firstAt)) + tail
		c.grace = time.AfterFunc(tail+c.owner.cfg.StopGrace, func() { c.end(TailWritten, "") })
	}
}

// awaitsStop tells whether a stop marker may still be on its way.
func (p *pipeline) awaitsStop() bool {
	return p.spec.Code != marker.None && p.trim.stop == nil && !p.exhausted
}

// move takes a step that does not end the capture. data is held.
func (c *Capture) move(t Trigger) {
	next, err := c.life.Next(t)
	if err != nil {
		return
	}
	c.life = next
	// An error stays in the log and ends the capture at its next record.
	_ = c.log.State(spool.State{Code: uint8(next), Trigger: uint8(t), At: c.owner.cfg.Now(), Started: c.pipe.tally.started})
}

func (c *Capture) info() Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Info{
		CaptureID: c.id, Holder: c.req.Holder, TaskName: c.req.TaskName, Started: c.view.started,
		State: c.view.State, Reason: c.view.Reason, SpoolBytes: c.log.Size(), Released: c.wanted.released,
	}
}
