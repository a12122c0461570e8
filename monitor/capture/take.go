package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
	"wattmark/monitor/transport"
)

// take runs one capture on the goroutine that owns the instrument.
func (o *Owner) take(ctx context.Context, c *Capture) {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	defer close(watched)
	go c.watch(outer, cancel, watched)
	defer func() {
		if err := o.cfg.Instrument.Close(); err != nil {
			o.cfg.Log.Warn("instrument did not close well", "bench", o.cfg.Bench, "error", err)
		}
	}()
	if err := o.arm(ctx, c); err != nil {
		c.failed(err)
		return
	}
	arming := time.AfterFunc(o.cfg.ArmTimeout, func() { c.armTimeout() })
	defer arming.Stop()
	go c.ticks(watched)
	go c.watchRoom(watched)
	o.stream(ctx, c)
	o.dropEmpty(c)
}

// arm opens the instrument and makes the capture's place in the spool.
func (o *Owner) arm(ctx context.Context, c *Capture) error {
	// Asked again: it may have stood in line for long.
	if err := o.room(c.req.Holder); err != nil {
		return err
	}
	setup, err := o.open(ctx)
	if err != nil {
		return err
	}
	ins := o.cfg.Instrument
	h := spool.Header{
		CaptureID: c.id, Bench: o.cfg.Bench, Holder: c.req.Holder, Owner: c.req.Owner, TaskName: c.req.TaskName, Created: o.cfg.Now(),
		Instrument: ins.Identity(), Setup: setup, CalibrationID: setup.CalibrationID(), Marker: c.req.Marker,
		GPU: o.gpuOf(ins.Identity()),
	}
	if err := o.live.begin(c.id, &h.Setup); err != nil {
		return err
	}
	log, err := o.cfg.Store.Create(h)
	if err != nil {
		return err
	}
	pipe, err := newPipeline(&o.cfg, h, log, &o.live)
	if err == nil {
		err = log.State(spool.State{Code: uint8(Arming), Trigger: uint8(Created), At: h.Created})
	}
	if err != nil {
		return errors.Join(err, log.Close(), o.cfg.Store.Remove(c.id))
	}
	c.data.Lock()
	c.header, c.log, c.pipe = h, log, pipe
	c.nominal, c.maker = o.nominalChannels()
	c.data.Unlock()
	o.mu.Lock()
	o.captures[c.id] = c
	o.mu.Unlock()
	return nil
}

// stream runs the instrument until the capture has ended, opening it again
// where it was lost.
func (o *Owner) stream(ctx context.Context, c *Capture) {
	for {
		err := o.cfg.Instrument.Stream(ctx, sink{c})
		o.streamed(ctx, err)
		if c.hasEnded() {
			return
		}
		switch {
		case c.delivers():
			c.delivered(err)
			return
		case ctx.Err() != nil:
			c.end(Failed, whyStopped(ctx))
			return
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
			c.end(Failed, whyStopped(ctx))
			return
		case err != nil:
			c.end(Failed, err.Error())
			return
		}
	}
}

// reopen tries to get a lost instrument back, with growing pauses. It must be
// the same one, with the same inputs: else the samples would not be comparable.
func (o *Owner) reopen(ctx context.Context, c *Capture) error {
	ins := o.cfg.Instrument
	ctx, cancel := context.WithDeadline(ctx, c.lostAt().Add(o.cfg.Reopen))
	defer cancel()
	o.cfg.Log.Warn("instrument was lost, it is tried again", "capture", c.id, "within", o.cfg.Reopen, "error", c.awayWhy())
	err := transport.Backoff{First: 50 * time.Millisecond, Max: time.Second}.Redial(ctx, func(ctx context.Context) error {
		_ = ins.Close() // it is lost; only opening it again tells more
		return o.tryOpen(ctx, c)
	})
	switch {
	case err == nil:
		o.cfg.Log.Info("instrument is back", "capture", c.id, "address", ins.Identity().Address)
		return nil
	case !errors.Is(err, instrument.ErrIdentity):
		err = fmt.Errorf("%s; not back within %v: %w", c.awayWhy(), o.cfg.Reopen, err)
	}
	if !c.hasEnded() {
		o.fail(fmt.Errorf("%w: %w", ErrUnavailable, err), false)
	}
	return err
}

func (o *Owner) tryOpen(ctx context.Context, c *Capture) error {
	octx, cancel := context.WithTimeout(ctx, o.cfg.OpenTimeout)
	defer cancel()
	ins := o.cfg.Instrument
	if err := ins.Open(octx); err != nil {
		return err
	}
	was, is := c.header.Instrument, ins.Identity()
	was.Address = is.Address // a device may come back under another name
	if was != is {
		return fmt.Errorf("%w: %s %s came back, it was %s %s", instrument.ErrIdentity, is.Model, is.Serial, was.Model, was.Serial)
	}
	setup, err := c.maker(ins.Inputs())
	if err != nil {
		return err
	}
	// Calibration records that were added meanwhile wait for the next capture.
	if setup.Timebase != c.header.Setup.Timebase || !slices.Equal(setup.Channels, c.nominal) {
		return fmt.Errorf("%w: it came back with other channels, calibration or rate", instrument.ErrIdentity)
	}
	return nil
}

// dropEmpty forgets a capture that never had a scan: nobody knows its name.
func (o *Owner) dropEmpty(c *Capture) {
	select {
	case <-c.ready:
		return
	default:
	}
	<-c.ended
	if err := o.forget(c.id); err != nil {
		o.cfg.Log.Warn("empty capture stays in the spool", "capture", c.id, "error", err)
	}
}
