package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
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

	ready    chan struct{} // closed at the first scan
	ended    chan struct{} // closed when the capture's end is durable
	quit     chan struct{} // closed when the instrument may stop
	quitOnce sync.Once

	// data guards the way of the samples; it is held while a block is taken.
	data   sync.Mutex
	life   State
	pipe   *pipeline // nil before the instrument is open
	target time.Duration
	grace  *time.Timer

	// mu guards what others look at; it is held for moments only.
	mu      sync.Mutex
	view    view
	changed chan struct{} // closed and replaced when view changes
	until   time.Time     // when the lease ends
	lease   *time.Timer
	err     error // why the capture never began
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
		ready: make(chan struct{}), ended: make(chan struct{}), quit: make(chan struct{}), changed: make(chan struct{}),
	}
}

// ID names the capture.
func (c *Capture) ID() string { return c.id }

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
	_ = c.log.State(spool.State{Code: uint8(next), Trigger: uint8(t), At: time.Now(), Started: c.pipe.tally.started})
}

// end seals the capture from outside the data's way.
func (c *Capture) end(t Trigger, reason string) {
	c.data.Lock()
	defer c.data.Unlock()
	c.seal(t, reason)
}

// seal ends the capture: the tail is coded, the last state written, all of it
// made durable; only then does anybody see that it has ended. The first to seal
// decides why; a trigger that the state does not know changes nothing. data is held.
func (c *Capture) seal(t Trigger, reason string) {
	next, err := c.life.Next(t)
	if err != nil {
		return
	}
	c.letGo()
	if c.pipe == nil { // arm sees quit, and reports
		return
	}
	if err := c.pipe.finish(); err != nil || c.log.Err() != nil {
		next, _ = c.life.Next(Failed)
		t, reason = Failed, c.rescue(errors.Join(err, c.log.Err()), reason)
	}
	c.life = next
	if next == Incomplete {
		reason = lastWords(reason, &c.pipe.tally, c.header.Setup.Timebase)
	}
	final := spool.State{
		Code: uint8(next), Trigger: uint8(t), At: time.Now(), Reason: reason, Started: c.pipe.tally.started, Final: true,
	}
	if err := errors.Join(c.log.State(final), c.log.Sync()); err != nil {
		c.life, reason = Incomplete, reason+"; the end could not be made durable: "+err.Error()
	}
	c.publish(reason)
	c.owner.over(c) // before anybody is told, so that who then asks gets the bench
	close(c.ended)
	// What is left to do is nobody's to wait for.
	c.pipe.close()
	if err := c.log.Close(); err != nil {
		c.owner.cfg.Log.Warn("spool log did not close well", "capture", c.id, "error", err)
	}
}

// letGo tells the instrument and the timers that the capture needs them no more.
func (c *Capture) letGo() {
	c.quitOnce.Do(func() { close(c.quit) })
	if c.grace != nil {
		c.grace.Stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease != nil {
		c.lease.Stop()
	}
}

// rescue counts anew what a log that failed really holds, and says why it failed.
func (c *Capture) rescue(err error, reason string) string {
	if lerr := c.log.Err(); lerr != nil {
		err = lerr
	}
	why := strings.ReplaceAll(err.Error(), "\n", "; ")
	switch {
	case errors.Is(err, syscall.ENOSPC):
		why = "the monitor's disk is full (" + why + "): make room, or release captures"
	case strings.Contains(reason, why):
		why = reason
	case reason != "":
		why = reason + "; " + why
	}
	if rerr := c.log.Rescue(); rerr != nil {
		return why + "; " + rerr.Error()
	}
	t, rerr := retell(c.log)
	if rerr != nil {
		return why + "; " + rerr.Error()
	}
	t.started = c.pipe.tally.started
	c.pipe.tally = t
	if rerr := c.pipe.retrim(true); rerr != nil {
		return why + "; " + rerr.Error()
	}
	return why
}

// lastWords adds to a reason exactly where the samples end.
func lastWords(reason string, t *tally, tb measure.Timebase) string {
	if t.scans == 0 {
		return reason + "; no samples"
	}
	return fmt.Sprintf("%s; no samples after scan %d (t = %.6f s)", reason, t.next-1, float64(tb.Seconds(t.endTick-tb.TicksPerScan)))
}

// Renew keeps the capture alive for another lease, and returns until when; for
// a capture that has ended, the zero time and its state.
func (c *Capture) Renew() (time.Time, State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view.State.Ended() || c.lease == nil {
		return time.Time{}, c.view.State
	}
	c.until = time.Now().Add(c.req.Lease)
	c.lease.Reset(c.req.Lease)
	return c.until, c.view.State
}

// startLease begins the first lease, at the first scan.
func (c *Capture) startLease() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Now().Add(c.req.Lease)
	c.lease = time.AfterFunc(c.req.Lease, c.leaseEnds)
}

func (c *Capture) leaseEnds() {
	c.mu.Lock()
	until := c.until
	c.mu.Unlock()
	if time.Now().Before(until) { // renewed in the same moment
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

func (c *Capture) info() Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Info{
		CaptureID: c.id, Holder: c.req.Holder, TaskName: c.req.TaskName, Started: c.view.started,
		State: c.view.State, Reason: c.view.Reason, SpoolBytes: c.log.Size(),
	}
}
