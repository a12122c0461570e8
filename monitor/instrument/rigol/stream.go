package rigol

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
)

// state is the answer to :TRIG:STAT?.
func parseState(s string) (string, error) {
	switch s {
	case "TD", "WAIT", "RUN", "AUTO", "STOP":
		return s, nil
	}
	return "", fmt.Errorf("%w: :TRIG:STAT? gives %q", scpi.ErrReply, s)
}

func (d *Device) state(ctx context.Context) (string, error) {
	return again(ctx, func() (string, error) { return scpi.Ask(ctx, d.client, ":TRIG:STAT?", parseState) })
}

// again repeats what changes nothing while the link can be brought back: the
// acquisition goes on in the scope without us.
func again[T any](ctx context.Context, f func() (T, error)) (v T, err error) {
	for range 3 {
		v, err = f()
		if err == nil || ctx.Err() != nil || !retryable(err) {
			return v, err
		}
	}
	return v, err
}

func retryable(err error) bool {
	return errors.Is(err, instrument.ErrSilent) || errors.Is(err, instrument.ErrDisconnected) || errors.Is(err, scpi.ErrReply) || errors.Is(err, errEmpty)
}

// recording is one acquisition.
type recording struct {
	sent, back time.Time // around the forced trigger, on the host's clock
	full       bool      // memory was full before it was stopped
}

// Stream takes one acquisition. It delivers once ctx has ended; see the
// package's comment.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if !d.open {
		return fmt.Errorf("%s: stream: not open", Kind)
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
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		if r.sent.IsZero() {
			return nil // it was not armed yet
		}
		err = d.collect(context.WithoutCancel(ctx), r, sink)
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

// armTime bounds the wait for a scope to be ready for its trigger.
const armTime = 5 * time.Second

// arm starts a single acquisition and triggers it, or waits for its trigger.
func (d *Device) arm(ctx context.Context, sink instrument.Sink) (r recording, err error) {
	if err := d.client.Command(ctx, ":SING"); err != nil {
		return r, err
	}
	own, cancel := context.WithTimeout(ctx, armTime)
	defer cancel()
	for s := ""; s != "WAIT"; {
		if s, err = d.state(own); err != nil {
			return r, err
		}
		if s == "RUN" || s == "TD" {
			return r, fmt.Errorf("%w: it triggered by itself: set its trigger level out of the signal's reach", scpi.ErrInstrument)
		}
	}
	if d.opts.Trigger.external() {
		return d.await(ctx, sink)
	}
	sent := d.now()
	if err := d.client.Command(ctx, ":TFOR"); err != nil {
		return r, err
	}
	if _, err := d.state(ctx); err != nil { // its reply says that the trigger was taken
		return r, err
	}
	r.sent, r.back = sent, d.now()
	return r, nil
}

// await waits for a trigger from outside, until ctx ends.
func (d *Device) await(ctx context.Context, sink instrument.Sink) (r recording, err error) {
	if s, ok := sink.(instrument.TriggeredSink); ok {
		if err := s.Waiting(); err != nil {
			return r, err
		}
	}
	const often = 10 // polls in the time of one later on: each tells when the trigger came
	tick := time.NewTicker(d.poll / often)
	defer tick.Stop()
	for before := d.now(); ; {
		at := d.now()
		s, err := d.state(ctx)
		switch {
		case err != nil:
			return r, err
		case s != "WAIT":
			r.sent, r.back = before, d.now()
			return r, nil
		}
		before = at
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-tick.C:
		}
	}
}

// sample waits until ctx ends and watches the scope meanwhile. A link that is
// lost is tried again by the client: the scope samples on.
func (d *Device) sample(ctx context.Context, r *recording) error {
	tick := time.NewTicker(d.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if r.full {
			continue
		}
		s, err := d.state(ctx)
		if err != nil {
			return err
		}
		if r.full = s == "STOP"; !r.full && s != "RUN" && s != "TD" {
			return fmt.Errorf("%w: it is in state %s in the middle of a recording: was it switched off, or its front panel used?", scpi.ErrInstrument, s)
		}
	}
}

// stop ends the acquisition and returns how many points of each channel memory
// holds, and how many scans there would be until now.
func (d *Device) stop(ctx context.Context, r recording) (held int, due uint64, err error) {
	s, err := d.state(ctx)
	if err != nil {
		return 0, 0, err
	}
	r.full = s == "STOP"
	if !r.full {
		if err := d.client.Command(ctx, ":STOP"); err != nil {
			return 0, 0, err
		}
	}
	end := d.now()
	own, cancel := context.WithTimeout(ctx, armTime)
	defer cancel()
	for s != "STOP" {
		if s, err = d.state(own); err != nil {
			return 0, 0, err
		}
	}
	due = uint64(max(0, end.Sub(r.sent).Seconds()/d.step))
	if held, err = d.check(ctx); err != nil {
		return 0, 0, err
	}
	// A scope that pads an unfinished memory must not invent samples.
	if most := int(min(float64(d.depth), math.Ceil(d.now().Sub(r.sent).Seconds()/d.step))); held > most {
		held = most
	}
	return held, due, nil
}

// check compares every channel's scale with that of Open, and returns how many
// points all channels hold.
func (d *Device) check(ctx context.Context) (int, error) {
	held := d.depth
	for i, n := range d.used {
		p, err := again(ctx, func() (scpi.Preamble, error) { return d.preamble(ctx, n) })
		if err != nil {
			return 0, err
		}
		was := d.scales[i]
		if p.YIncrement != was.increment || p.YOrigin != was.origin || p.YReference != was.reference || p.XIncrement != d.step {
			return 0, fmt.Errorf("%w: channel %d was set otherwise while it measured: was its front panel used?", scpi.ErrInstrument, n)
		}
		held = min(held, p.Points)
	}
	return held, nil
}

// overrun is how many scans a stop may come late without anything being missed:
// the trigger's and the stop's own travel, for which nobody is to blame.
const overrun = 50 * time.Millisecond

// collect stops the scope and delivers what it holds.
func (d *Device) collect(ctx context.Context, r recording, sink instrument.Sink) error {
	ctx, cancel := context.WithTimeout(ctx, d.patience())
	defer cancel()
	held, due, err := d.stop(ctx, r)
	if err != nil {
		return err
	}
	if err := d.download(ctx, held, sink); err != nil {
		return err
	}
	if held < d.depth || due <= uint64(held)+uint64(overrun.Seconds()/d.step) {
		return nil
	}
	return sink.Event(measure.Event{
		Kind: measure.EventGap, FirstScan: uint64(held), Scans: due - uint64(held), Channel: -1,
		Detail: fmt.Sprintf("memory was full after %.3f s of %.3f s: choose a longer window", float64(held)*d.step, float64(due)*d.step),
	})
}

// patience bounds a download: a DS1000Z gives some 1.7 MB/s, a bad network less.
func (d *Device) patience() time.Duration {
	const slowest = 100_000 // bytes a second
	return time.Minute + time.Duration(d.depth*len(d.used)/slowest)*time.Second
}
