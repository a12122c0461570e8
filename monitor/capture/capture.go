package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/pipeline"
	"github.com/wattmark/wattmark/monitor/spool"
)

// Capture is one run of samples, from the request to the release. Its methods are safe
// for concurrent use.
type Capture struct {
	id     string
	req    session.Request
	came   time.Time // of the request
	owner  *Owner
	header *session.Header // empty before the instrument is open
	log    *spool.Log
	mended atomic.Uint64 // number of times that damaged records of the log became events
	// nominal are the channels without calibration records, and made their maker: a
	// reopened instrument must have the same.
	nominal []measure.Channel
	made    MakeSetup

	ready    chan struct{} // closed at the first scan
	ended    chan struct{} // closed when the capture's end is durable
	quit     chan struct{} // closed when the instrument may stop
	quitOnce sync.Once
	deliver  chan struct{} // closed when a deferred instrument is to deliver

	// data guards the way of the samples; it is held while a block is taken.
	data   sync.Mutex
	life   session.State
	pipe   *pipeline.Pipeline // nil before the instrument is open
	target time.Duration      // device time up to which a stop waits for samples
	grace  *time.Timer        // ends that wait
	// deferred: the instrument samples into its own memory, and delivers when it is
	// stopped. The capture runs from Armed on.
	deferred bool

	// mu guards the part that others read; it is held for moments only.
	mu      sync.Mutex
	seen    snapshot
	changed chan struct{} // closed and replaced when seen changes
	until   time.Time     // end of the lease
	lease   *time.Timer
	err     error // why the capture never began
	claims  claims
}

// snapshot is a capture's state as seen from outside.
type snapshot struct {
	session.Summary
	started    time.Time
	startKnown bool // FirstChunk is known
	stopKnown  bool // EndChunk is a limit for now: a later stop marker may move it
}

// snapshotOf returns the snapshot of a log with these totals and this trim.
func snapshotOf(h *session.Header, t *pipeline.Totals, tr pipeline.Trim, s session.State, reason string) snapshot {
	return snapshot{pipeline.Summarize(h, t, tr, s, reason), t.Started, tr.Start != nil, tr.Stop != nil}
}

func newCapture(o *Owner, id string, req session.Request) *Capture {
	return &Capture{
		id: id, req: req, came: o.cfg.Now(), owner: o, header: &session.Header{}, life: session.Arming,
		seen: snapshot{Summary: session.Summary{State: session.Arming}}, claims: claims{},
		ready: make(chan struct{}), ended: make(chan struct{}), quit: make(chan struct{}),
		deliver: make(chan struct{}), changed: make(chan struct{}),
	}
}

// ID returns the capture's id.
func (c *Capture) ID() string { return c.id }

// Header returns the header, known before the first sample.
func (c *Capture) Header() session.Header { return *c.header }

// Started returns the monitor's wall clock at device time zero.
func (c *Capture) Started() time.Time {
	s, _ := c.look()
	return s.started
}

// Summary returns the result so far.
func (c *Capture) Summary() session.Summary {
	s, _ := c.look()
	return s.Summary
}

// look returns the snapshot, and a channel that is closed when it changes.
func (c *Capture) look() (snapshot, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen, c.changed
}

// show replaces the snapshot.
func (c *Capture) show(s snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = s
	close(c.changed)
	c.changed = make(chan struct{})
}

// publish shows the state of the pipeline. data is held.
func (c *Capture) publish(reason string) {
	c.show(snapshotOf(c.header, c.pipe.Totals(), c.pipe.Trim(), c.life, reason))
}

func (c *Capture) info() session.Capture {
	c.mu.Lock()
	defer c.mu.Unlock()
	return session.Capture{
		ID: c.id, Holder: c.req.Holder, TaskName: c.req.TaskName, Started: c.seen.started,
		State: c.seen.State, Reason: c.seen.Reason, SpoolBytes: uint64(c.log.Held()), Released: c.claims[spool.MarkReleased],
	}
}

// Stop ends the capture and returns when its end is durable. The samples on their way from
// the instrument are awaited until the stop marker is seen or should have been. Calling it
// again returns the same result.
func (c *Capture) Stop(ctx context.Context) (session.Summary, error) {
	c.askStop()
	select {
	case <-c.ended:
		return c.Summary(), nil
	case <-ctx.Done():
		return session.Summary{}, fmt.Errorf("stop capture %s: %w", c.id, ctx.Err())
	}
}

// askStop ends the capture, or begins to wait for its stop marker:
//
//	arming               ends at once, without a scan
//	deferred             the instrument samples the marker's tail, and then delivers
//	away                 ends at once: the samples on their way are lost
//	marker seen          ends at once
//	no markers           ends when the samples cover the time of the request,
//	                     or StopGrace later on the wall clock
//	else                 ends when the samples cover the time of the request and the tail,
//	                     or StopGrace later on the wall clock
//
// The device time of the request is not that of the last sample: samples are on their way, by
// the pipeline's pace. A delay that all samples have had since the first is not known to it:
// StopTail is the room for that.
func (c *Capture) askStop() {
	c.data.Lock()
	defer c.data.Unlock()
	switch c.life {
	case session.Arming:
		c.seal(StopAsked, "stopped before the first scan")
		return
	case session.Running:
	default:
		return
	}
	tail := c.owner.tail(c.header)
	if c.deferred { // it samples the stop marker's tail, and then ends its stream
		c.move(StopAsked)
		c.publish("")
		c.grace = time.AfterFunc(deferredTail+tail, func() { close(c.deliver) })
		return
	}
	if why, _, away := c.pipe.Away(); away {
		c.seal(Failed, "stopped while the instrument was away: "+why)
		return
	}
	c.move(StopAsked)
	c.publish("")
	tail += c.owner.cfg.StopTail
	if c.header.Marker.Code == marker.None {
		tail = 0 // no marker is on its way
	}
	c.target = c.pipe.DeviceTime(time.Now()) + tail
	if c.awaited() {
		c.seal(TailWritten, "")
		return
	}
	c.grace = time.AfterFunc(tail+c.owner.cfg.StopGrace, func() { c.end(TailWritten, "") })
}

// awaited reports whether a stop has all that it waits for: the samples cover its target, or the marker was seen. data is
// held.
func (c *Capture) awaited() bool { return !c.pipe.AwaitsStop() || c.pipe.Covered() >= c.target }

// move takes a step that does not end the capture. data is held. A log's error stays in
// the log and ends the capture at its next record.
func (c *Capture) move(t Trigger) {
	next, err := transitions.Next(c.life, t)
	if err != nil {
		return
	}
	c.life = next
	_ = c.log.State(spool.State{
		State: next, Trigger: uint8(t), At: c.owner.cfg.Now(), Started: c.pipe.Totals().Started,
	})
}

// end seals the capture.
func (c *Capture) end(t Trigger, reason string) {
	c.data.Lock()
	defer c.data.Unlock()
	c.seal(t, reason)
}

// seal ends the capture: the tail is coded, the last state written, all of it made durable;
// only then is the end visible. The first call decides the reason; a trigger that the
// state refuses changes nothing. data is held.
func (c *Capture) seal(t Trigger, reason string) {
	next, err := transitions.Next(c.life, t)
	if err != nil {
		return
	}
	c.dismiss()
	if c.pipe == nil { // take sees quit, and reports
		return
	}
	if err := c.pipe.Finish(next == session.Complete); err != nil || c.log.Err() != nil {
		next, _ = transitions.Next(c.life, Failed)
		t, reason = Failed, c.rescue(errors.Join(err, c.log.Err()), reason)
	}
	c.life = next
	totals := c.pipe.Totals()
	if next == session.Incomplete {
		reason = totals.EndsAt(reason, c.header.Setup.Timebase)
	}
	final := spool.State{
		State: next, Trigger: uint8(t), At: c.owner.cfg.Now(), Reason: reason, Started: totals.Started, Final: true,
	}
	if err := errors.Join(c.log.State(final), c.log.Sync()); err != nil {
		c.life, reason = session.Incomplete, reason+"; the end could not be made durable: "+err.Error()
	}
	c.publish(reason)
	c.owner.queue.leave(c.id) // before the end is visible: a caller that saw it finds the bench free
	close(c.ended)
	if err := c.log.Close(); err != nil { // nobody waits for it
		c.owner.cfg.Log.Warn("spool log did not close well", "capture", c.id, "error", err)
	}
}

// dismiss stops the instrument and the timers.
func (c *Capture) dismiss() {
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

// rescue makes a log that failed hold the capture's end, and returns the reason with the
// cause of the failure.
func (c *Capture) rescue(err error, reason string) string {
	if lerr := c.log.Err(); lerr != nil {
		err = lerr
	}
	why := strings.ReplaceAll(err.Error(), "\n", "; ")
	switch {
	case errors.Is(err, syscall.ENOSPC):
		why = "the spool's disk is full (" + why + "): make room; " + howReleased
	case strings.Contains(reason, why):
		why = reason
	case reason != "":
		why = reason + "; " + why
	}
	if rerr := c.pipe.Rescue(); rerr != nil {
		why += "; " + rerr.Error()
	}
	return why
}

// errSealed ends the instrument's stream: the capture takes no more samples.
var errSealed = errors.New("capture has ended")

// sinkError is a fault of a capture, not of its instrument.
type sinkError struct {
	id  string
	err error
}

func (e *sinkError) Error() string { return fmt.Sprintf("capture %s: %v", e.id, e.err) }
func (e *sinkError) Unwrap() error { return e.err }

// sink returns the taker of an instrument's data. The error of block ends the stream.
func (c *Capture) sink() instrument.Sink {
	return instrument.Sink{
		Block: func(b *measure.Block) error { return c.block(b, c.owner.cfg.Now()) },
		Event: c.event, BlockAt: c.block, Armed: c.armed,
		Marker:   func() marker.Spec { return c.req.Marker },
		Unwanted: c.quit, // closed once the capture has ended, whatever the instrument still holds
		Progress: func(done, total uint64) {
			c.owner.cfg.Log.Info("reading the instrument's memory",
				"bench", c.owner.cfg.Bench.Name, "capture", c.id, "scans", done, "of", total)
		},
	}
}

// block takes samples that arrived at an instant.
func (c *Capture) block(b *measure.Block, at time.Time) error {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life.Ended() {
		return errSealed
	}
	if c.life == session.Arming && b.Scans() > 0 {
		c.begin(at.Add(-pipeline.SamplingTime(b.Scans(), c.header.Setup.Timebase)))
	}
	_, _, wasAway := c.pipe.Away()
	totals := c.pipe.Totals()
	chunks, markers := totals.Chunks, len(totals.Markers)
	if err := c.pipe.Block(b, at); err != nil {
		return &sinkError{c.id, err}
	}
	if _, _, away := c.pipe.Away(); wasAway && !away {
		c.owner.answered(true)
	}
	if totals.Chunks != chunks || len(totals.Markers) != markers {
		c.publish("")
	}
	if c.life == session.Stopping && !c.deferred && c.awaited() {
		c.seal(TailWritten, "")
		return errSealed
	}
	return nil
}

// begin notes the wall clock of the first scan and makes the capture run. data is held.
func (c *Capture) begin(at time.Time) {
	c.pipe.Begin(at)
	c.move(FirstScan)
	c.startLease()
	c.publish("")
	close(c.ready)
	c.owner.answered(true)
}

// event takes an event of the stream.
func (c *Capture) event(e measure.Event) error {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life.Ended() {
		return errSealed
	}
	e.Detail = measure.Excerpt(e.Detail) // drivers cite their devices
	if err := c.pipe.Event(e); err != nil {
		return &sinkError{c.id, err}
	}
	return nil
}

// armed notes that a deferred instrument samples.
func (c *Capture) armed(at time.Time) error {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life != session.Arming {
		return fmt.Errorf("capture %s: %w: it armed while %v", c.id, pipeline.ErrDriver, c.life)
	}
	c.deferred = true
	c.begin(at)
	return nil
}

// restore reopens the captures that an earlier monitor left in the spool. A part that
// cannot be read is logged, stays as it is, and does not keep the bench from measuring.
func (o *Owner) restore() {
	found, err := o.cfg.Store.Captures()
	faults := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		faults = many.Unwrap()
	}
	for _, f := range found {
		if err := o.restoreOne(f); err != nil {
			err = fmt.Errorf("capture %s: %w", f.Log.Header().CaptureID, err)
			faults = append(faults, errors.Join(err, f.Log.Close()))
		}
	}
	for _, err := range faults {
		if err != nil {
			o.cfg.Log.Error("a part of the spool cannot be used and is left as it is", "error", err)
			o.setAside = append(o.setAside, err.Error())
		}
	}
}

// restoreOne reopens one capture: it counts the log, finds the trim, ends the capture if its
// monitor died, and takes over its claims. A capture without a scan, or with all claims met,
// is removed instead.
func (o *Owner) restoreOne(f spool.Found) error {
	h := f.Log.Header()
	t, err := pipeline.Recount(f.Log)
	if err != nil {
		return err
	}
	if !f.Sealed && t.State <= session.Arming && t.Scans == 0 {
		// The first scan never came, so the id was given to nobody.
		return errors.Join(f.Log.Close(), o.cfg.Store.Remove(h.CaptureID))
	}
	trim, err := pipeline.TrimLog(f.Log, &t)
	if err != nil {
		return err
	}
	if f.Holes > 0 {
		o.logDamage(h.CaptureID, f.Holes, nil)
	}
	if !f.Sealed {
		err := interrupted(f, &t, h.Setup.Timebase, o.cfg.Now())
		if errors.Is(err, ErrTransition) {
			return err
		}
		if err != nil { // its samples can be read all the same; the next start tries again
			o.cfg.Log.Error("the end of a capture could not be written", "capture", h.CaptureID, "error", err)
		}
		o.cfg.Log.Warn("capture was interrupted", "capture", h.CaptureID, "holder", h.Holder, "reason", t.Reason)
	}
	req := session.Request{Holder: h.Holder, Owner: h.Owner, TaskName: h.TaskName, Marker: h.Marker}
	c := newCapture(o, h.CaptureID, req)
	c.header, c.log, c.life = &h, f.Log, t.State
	c.seen = snapshotOf(&h, &t, trim, t.State, t.Reason)
	for _, m := range []spool.Mark{spool.MarkReleased, spool.MarkReplicated} {
		c.claims[m] = o.cfg.Store.Marked(c.id, m)
	}
	close(c.ready)
	close(c.ended)
	if o.met(c.claims) { // the last monitor died over it, or replicas are no longer awaited
		return errors.Join(f.Log.Close(), o.cfg.Store.Remove(c.id))
	}
	o.captures[c.id] = c
	return nil
}

// logDamage logs that damaged places of a capture became events.
func (o *Owner) logDamage(id string, places int, err error) {
	args := []any{"capture", id, "places", places}
	if err != nil {
		args = append(args, "error", err)
	}
	o.cfg.Log.Error("a capture was damaged on the disk; what is lost is an event now", args...)
}

// interrupted ends a capture whose monitor died, durably, and notes it in t.
func interrupted(f spool.Found, t *pipeline.Totals, tb measure.Timebase, now time.Time) error {
	reason := "monitor restarted"
	if f.Holes > 0 {
		reason += fmt.Sprintf("; its log was damaged in %s: scans that were in them are gaps",
			measure.Plural(f.Holes, "place"))
	}
	if f.Torn > 0 {
		reason += fmt.Sprintf("; %d bytes after the last good record were cut off (%s)", f.Torn, f.Why)
	}
	state := max(t.State, session.Arming)
	if !state.Ended() {
		next, err := transitions.Next(state, Restarted)
		if err != nil {
			return err
		}
		t.State, t.Reason = next, t.EndsAt(reason, tb)
	}
	final := spool.State{
		State: t.State, Trigger: uint8(Restarted), At: now, Reason: t.Reason, Started: t.Started, Final: true,
	}
	if err := errors.Join(f.Log.State(final), f.Log.Sync()); err == nil {
		return f.Log.Close()
	}
	// On a full disk the reserve makes room for this last record.
	return errors.Join(f.Log.Rescue(), f.Log.State(final), f.Log.Close())
}
