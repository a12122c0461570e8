package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/pipeline"
	"github.com/wattmark/wattmark/monitor/spool"
	"github.com/wattmark/wattmark/monitor/transport"
)

// take runs one capture on the goroutine that owns the instrument, and returns when the
// capture has ended and the instrument is closed.
func (o *Owner) take(ctx context.Context, c *Capture) {
	outer := ctx
	ctx, cancel := streamContext(outer)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go c.supervise(outer, cancel, over)
	defer o.close(true)
	if err := o.arm(ctx, c); err != nil {
		c.fail(err)
		return
	}
	defer time.AfterFunc(o.cfg.ArmTimeout, c.armTimeout).Stop()
	go every(o.cfg.FlushEvery, over, c.flushOld)
	if q := o.cfg.Quota; q.Bytes > 0 || q.Free > 0 {
		go every(time.Second, over, c.checkQuota) // the disk fills slowly
	}
	o.stream(ctx, c)
	select {
	case <-c.ready:
		return
	default:
	}
	// It never had a scan: its id was given to nobody.
	<-c.ended
	if err := o.forget(c.id); err != nil {
		o.cfg.Log.Warn("empty capture stays in the spool", "capture", c.id, "error", err)
	}
}

// streamContext returns a context that ends with outer, or with cancel, and in both cases
// has the cause of outer where outer has ended: the supervisor may cancel it before outer's
// own end arrives, and the reason of a stop must not depend on which is first.
func streamContext(outer context.Context) (ctx context.Context, cancel func()) {
	ctx, stop := context.WithCancelCause(outer)
	return ctx, func() { stop(context.Cause(outer)) }
}

// supervise cancels the instrument's stream when the capture is over, when a deferred
// instrument is to deliver, or when the monitor stops.
func (c *Capture) supervise(ctx context.Context, cancel func(), over <-chan struct{}) {
	defer cancel()
	deliver := c.deliver
	for {
		select {
		case <-deliver:
			cancel()
			deliver = nil
			continue
		case <-c.quit:
		case <-over:
		case <-ctx.Done():
			c.data.Lock()
			if c.deferred { // it would first deliver everything that it holds
				c.seal(Failed, stopReason(ctx))
			}
			c.data.Unlock()
		}
		return
	}
}

// fresh is how long an opening that failed while a request waited stands for the request's own: an instrument may take
// 10 s to fail, and a client waits for 15 s.
const fresh = time.Second

// arm opens the instrument and makes the capture's place in the spool.
func (o *Owner) arm(ctx context.Context, c *Capture) error {
	// Checked again: the request may have waited for long.
	if err := o.checkQuota(c.req.Holder); err != nil {
		return err
	}
	if d := o.state(); d.trouble != nil && !d.mute && d.failed.After(c.came) && o.cfg.Now().Sub(d.failed) < fresh {
		return d.trouble
	}
	setup, err := o.open(ctx)
	if err != nil {
		return err
	}
	id := o.cfg.Instrument.Identity()
	h := &session.Header{
		CaptureID: c.id, Bench: o.cfg.Bench.Name, Holder: c.req.Holder, Owner: c.req.Owner, TaskName: c.req.TaskName,
		Created: o.cfg.Now(), Instrument: id, Setup: setup, CalibrationID: setup.CalibrationID(),
		Marker: c.req.Marker, GPU: o.gpuOf(id),
	}
	if err := o.live.Begin(c.id, &h.Setup); err != nil {
		return err
	}
	log, err := o.cfg.Store.Create(*h)
	if err != nil {
		return err
	}
	opt := pipeline.Options{FlushEvery: o.cfg.FlushEvery, ChunkScans: o.cfg.ChunkScans}
	pipe, err := pipeline.New(opt, h, log, o.live)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrRequest, err)
	} else {
		err = log.State(spool.State{State: session.Arming, Trigger: uint8(Created), At: h.Created})
	}
	if err != nil {
		return errors.Join(err, log.Close(), o.cfg.Store.Remove(c.id))
	}
	c.data.Lock()
	defer c.data.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	c.header, c.log, c.pipe = h, log, pipe
	c.nominal, c.made = o.device.nominal.Channels, o.device.made
	o.captures[c.id] = c
	return nil
}

// fail ends a capture that never got as far as the spool.
func (c *Capture) fail(err error) {
	c.data.Lock()
	defer c.data.Unlock()
	c.dismiss()
	if next, terr := transitions.Next(c.life, Failed); terr == nil {
		c.life = next
	}
	c.mu.Lock()
	c.err, c.seen.State, c.seen.Reason = err, c.life, err.Error()
	c.mu.Unlock()
	c.owner.queue.leave(c.id)
	close(c.ended)
}

// failure returns the reason for the lack of a first scan.
func (c *Capture) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return fmt.Errorf("%w: %s", ErrUnavailable, c.seen.Reason)
}

// armTimeout gives up on an instrument that sends no scan.
func (c *Capture) armTimeout() {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life == session.Arming {
		err := fmt.Errorf("%w: no scan within %v of the start", instrument.ErrSilent, c.owner.cfg.ArmTimeout)
		c.owner.fail(fmt.Errorf("%w: %w", ErrUnavailable, err), true)
		c.seal(Failed, err.Error())
	}
}

// every calls do at intervals until done. It runs on a goroutine of its own: a disk that does
// not answer must not hold up the samples.
func every(interval time.Duration, done <-chan struct{}, do func(now time.Time)) {
	for now := range backoff.Every(done, interval) {
		do(now)
	}
}

// flushOld ends old chunks while the instrument is silent.
func (c *Capture) flushOld(now time.Time) {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life != session.Running && c.life != session.Stopping {
		return
	}
	totals := c.pipe.Totals()
	chunks := totals.Chunks
	if err := c.pipe.FlushOld(now); err != nil {
		c.seal(Failed, err.Error())
	} else if totals.Chunks != chunks {
		c.publish("")
	}
}

// stream runs the instrument until the capture has ended, opening it again where it was
// lost. The ends of a stream:
//
//	sealed            the capture ended it
//	delivered         a deferred instrument was asked for its samples, and has no more
//	monitor stopped   Failed, with the reason of the stop
//	no error          a recording is exhausted: the capture waits for its stop
//	ErrDisconnected   opened again, within Config.Reopen
//	other error       Failed
func (o *Owner) stream(ctx context.Context, c *Capture) {
	for {
		err := o.cfg.Instrument.Stream(ctx, c.sink())
		o.streamed(ctx, err)
		if c.hasEnded() {
			return
		}
		select {
		case <-c.deliver: // a deferred instrument was asked for its samples, and has no more
			if err == nil {
				c.end(TailWritten, "")
			} else {
				c.end(Failed, err.Error())
			}
			return
		default:
		}
		switch {
		case ctx.Err() != nil:
		case err == nil:
			c.exhaust()
			select {
			case <-c.quit:
			case <-ctx.Done():
			}
			continue
		case errors.Is(err, instrument.ErrDisconnected) && o.cfg.Reopen > 0 && c.lost(err):
			err = o.reopen(ctx, c)
		}
		switch {
		case c.hasEnded():
			return
		case ctx.Err() != nil:
			c.end(Failed, stopReason(ctx))
			return
		case err != nil:
			c.end(Failed, err.Error())
			return
		}
	}
}

func (c *Capture) hasEnded() bool {
	c.data.Lock()
	defer c.data.Unlock()
	return c.life.Ended()
}

// exhaust notes that the instrument, as a recording, ended its stream.
func (c *Capture) exhaust() {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life.Ended() {
		return
	}
	if c.life == session.Arming {
		c.seal(Failed, "the instrument ended its stream before the first scan")
		return
	}
	switch err := c.pipe.Exhausted(); {
	case err != nil:
		c.seal(Failed, err.Error())
	case c.life == session.Stopping:
		c.seal(TailWritten, "")
	default:
		c.publish("")
	}
}

// lost notes a broken link, and reports whether to open the instrument again: not before
// the first scan, not while a stop waits, and not where the samples were in its memory.
func (c *Capture) lost(err error) bool {
	c.data.Lock()
	defer c.data.Unlock()
	if c.life != session.Running || c.deferred {
		return false
	}
	if ferr := c.pipe.Lost(err.Error()); ferr != nil {
		c.seal(Failed, ferr.Error())
		return false
	}
	return true
}

// reopen tries to get a lost instrument back, with growing pauses, until Config.Reopen
// after its last block. It must be the same one, with the same inputs: other samples would
// not be comparable.
func (o *Owner) reopen(ctx context.Context, c *Capture) error {
	ins := o.cfg.Instrument
	c.data.Lock()
	why, since, _ := c.pipe.Away()
	c.data.Unlock()
	ctx, cancel := context.WithDeadline(ctx, since.Add(o.cfg.Reopen))
	defer cancel()
	o.cfg.Log.Warn("instrument was lost, it is tried again", "capture", c.id, "within", o.cfg.Reopen, "error", why)
	pauses := transport.Backoff{First: 50 * time.Millisecond, Max: time.Second}
	err := pauses.Redial(ctx, func(ctx context.Context) error {
		_ = ins.Close() // it is lost; the next opening shows its state
		return o.openSame(ctx, c)
	})
	switch {
	case err == nil:
		o.cfg.Log.Info("instrument is back", "capture", c.id, "address", ins.Identity().Address)
		return nil
	case !errors.Is(err, instrument.ErrIdentity):
		err = fmt.Errorf("%s; not back within %v: %w", why, o.cfg.Reopen, err)
	}
	if !c.hasEnded() {
		o.fail(fmt.Errorf("%w: %w", ErrUnavailable, err), false)
	}
	return err
}

// openSame opens the instrument once. Errors wrap instrument.ErrIdentity where it is
// another one, or has other inputs.
func (o *Owner) openSame(ctx context.Context, c *Capture) error {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.OpenTimeout)
	defer cancel()
	ins := o.cfg.Instrument
	if err := ins.Open(ctx); err != nil {
		return err
	}
	was, is := c.header.Instrument, ins.Identity()
	was.Address = is.Address // a device may come back under another name
	if was != is {
		return fmt.Errorf("%w: %s %s came back, it was %s %s",
			instrument.ErrIdentity, is.Model, is.Serial, was.Model, was.Serial)
	}
	setup, err := c.made(ins.Inputs())
	if err != nil {
		return err
	}
	// Calibration records that were added meanwhile wait for the next capture.
	if setup.Timebase != c.header.Setup.Timebase || !slices.Equal(setup.Channels, c.nominal) {
		return fmt.Errorf("%w: it came back with other channels, calibration or rate", instrument.ErrIdentity)
	}
	return nil
}
