package scope

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
)

// recording is one acquisition, by the host's clock.
type recording struct {
	sent, back time.Time // around the trigger
	sampling   time.Time // when it was last known to sample
	full       time.Time // when it was first seen to stand by itself
	before     int       // points in memory from before the trigger
}

func (d *Device) state(ctx context.Context) (State, error) {
	return again(ctx, func() (State, error) { return d.dialect.State(ctx, d.client) })
}

// Stream takes one acquisition. It delivers once ctx has ended; see the
// package's comment.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if !d.open {
		return fmt.Errorf("%s: stream: not open", d.cfg.Family.Kind)
	}
	r, err := d.arm(ctx, sink)
	if err == nil {
		if s, ok := sink.(instrument.DeferredSink); ok {
			err = s.Armed(r.sent.Add(r.back.Sub(r.sent) / 2))
		}
	}
	if err == nil {
		err = d.sample(ctx, &r)
	}
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.DeadlineExceeded)) {
		// Also where an exchange ran out of its own time as ctx ended.
		if r.sent.IsZero() {
			return nil // it was not armed yet
		}
		err = d.fetch(ctx, r, sink)
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", d.cfg.Family.Kind, d.cfg.Address, err)
	}
	return nil
}

// fetch is collect behind the end of ctx, until nobody wants the samples any more.
func (d *Device) fetch(ctx context.Context, r recording, sink instrument.Sink) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.patience())
	defer cancel()
	if s, ok := sink.(instrument.DeferredSink); ok {
		go func() {
			select {
			case <-s.Unwanted():
				cancel()
			case <-own.Done():
			}
		}()
	}
	return d.collect(own, r, sink)
}

// armTime bounds the wait for a scope to be ready for its trigger.
const armTime = 5 * time.Second

// arm starts a single acquisition and triggers it, or waits for its trigger.
func (d *Device) arm(ctx context.Context, sink instrument.Sink) (r recording, err error) {
	if err := d.dialect.Arm(ctx, d.client); err != nil {
		return r, err
	}
	own, cancel := context.WithTimeout(ctx, armTime)
	defer cancel()
	for s := State(0); s != Waiting; {
		if s, err = d.state(own); err != nil {
			return r, d.neverArmed(ctx, err)
		}
		if s == Sampling {
			return r, d.tooEarly()
		}
	}
	if d.plan.Trigger.external() {
		return d.await(ctx, sink)
	}
	sent := d.now()
	if err := d.dialect.Force(ctx, d.client); err != nil {
		return r, err
	}
	if _, err := d.state(ctx); err != nil { // its reply says that the trigger was taken
		return r, err
	}
	r.sent, r.back = sent, d.now()
	r.sampling = r.back
	return r, nil
}

// neverArmed says so where the wait for it ran out.
func (d *Device) neverArmed(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: it did not arm within %v: %w", scpi.ErrInstrument, armTime, err)
	}
	return err
}

// sample waits until ctx ends and watches the scope meanwhile. A link that is
// lost is tried again by the client: the scope samples on.
func (d *Device) sample(ctx context.Context, r *recording) error {
	tick := time.NewTicker(d.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !r.full.IsZero() {
			continue
		}
		asked := d.now()
		s, err := d.state(ctx)
		if err != nil {
			return err
		}
		switch s {
		case Stopped:
			r.full = d.now()
		case Sampling:
			r.sampling = asked
		default:
			return fmt.Errorf("%w: it is %v in the middle of a recording: was it switched off, or its front panel used?", scpi.ErrInstrument, s)
		}
	}
}
