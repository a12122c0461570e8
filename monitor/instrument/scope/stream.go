package scope

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

// recording is one acquisition, by the host's clock.
type recording struct {
	sent, back time.Time // around the forced trigger
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
	r, err := d.arm(ctx)
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
		return fmt.Errorf("%s: stream from %s: %w", d.cfg.Family.Kind, d.cfg.Address, err)
	}
	return nil
}

// armTime bounds the wait for a scope to be ready for its trigger.
const armTime = 5 * time.Second

// arm starts a single acquisition and triggers it.
func (d *Device) arm(ctx context.Context) (r recording, err error) {
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
			return r, fmt.Errorf("%w: it triggered by itself: set its trigger level out of the signal's reach", scpi.ErrInstrument)
		}
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

// stop ends the acquisition and returns how many points of each channel memory
// holds, and how many scans there would be until now.
func (d *Device) stop(ctx context.Context, r *recording) (held int, due uint64, err error) {
	asked := d.now()
	s, err := d.state(ctx)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case s == Sampling:
		r.sampling = asked
	case s == Stopped && r.full.IsZero():
		r.full = d.now()
	}
	if s != Stopped {
		if err := d.dialect.Stop(ctx, d.client); err != nil {
			return 0, 0, err
		}
	}
	end := d.now()
	own, cancel := context.WithTimeout(ctx, armTime)
	defer cancel()
	for s != Stopped {
		if s, err = d.state(own); err != nil {
			return 0, 0, err
		}
	}
	due = uint64(max(0, end.Sub(r.sent).Seconds()/d.mem.Step))
	held, err = d.held(ctx, r)
	return held, due, err
}

// held compares every channel's scale with that of Open, and returns how many
// points all channels hold.
func (d *Device) held(ctx context.Context, r *recording) (int, error) {
	held := d.mem.Points
	for i, n := range d.plan.Used {
		before, err := d.compare(ctx, i, n)
		if err != nil {
			return 0, err
		}
		if i > 0 && before != r.before {
			return 0, fmt.Errorf("%w: its channels hold %d and %d points from before the trigger", scpi.ErrInstrument, r.before, before)
		}
		r.before = before
		told := false
		points, err := again(ctx, func() (p int, err error) {
			p, told, err = d.dialect.Held(ctx, d.client, n)
			return p, err
		})
		if err != nil {
			return 0, err
		}
		// A scope that pads an unfinished memory must not invent samples.
		most := float64(d.room(r))
		if told {
			most = math.Ceil(d.now().Sub(r.sent).Seconds() / d.mem.Step)
		} else if !d.filled(r) {
			most = math.Floor(r.sampling.Sub(r.back).Seconds() / d.mem.Step)
		}
		held = min(held, points-before, int(min(most, float64(d.room(r)))))
	}
	return max(0, held), nil
}

// room is how many points a full memory holds behind the trigger.
func (d *Device) room(r *recording) int { return d.mem.Points - r.before }

// compare refuses a channel that is not set as it was at Open, and tells how many
// points lie before the trigger.
func (d *Device) compare(ctx context.Context, i, channel int) (before int, err error) {
	s, err := d.scale(ctx, channel)
	if err != nil {
		return 0, err
	}
	was := d.scales[i]
	was.Begin = s.Begin
	if s != was {
		return 0, fmt.Errorf("%w: channel %d was set otherwise while it measured: was its front panel used?", scpi.ErrInstrument, channel)
	}
	const jitter = 2 // points that the trigger may lie before the first, between two of them
	b := math.Round(-s.Begin / s.Step)
	if !(b >= -jitter && b < float64(d.mem.Points)) {
		return 0, fmt.Errorf("%w: memory begins %v s behind the trigger", scpi.ErrInstrument, s.Begin)
	}
	return max(0, int(b)), nil
}

// filled tells whether the scope stood by itself, and as late as a full memory
// makes it: one that was stopped at its front panel is not full.
func (d *Device) filled(r *recording) bool {
	const ahead = 4 // times the clock's limit
	span := float64(d.room(r)) * d.mem.Step * (1 - ahead*d.cfg.Family.Spec.Clock)
	return !r.full.IsZero() && r.full.Sub(r.sent).Seconds() >= span
}

// overrun is how many scans a stop may come late without anything being missed:
// the trigger's and the stop's own travel, for which nobody is to blame.
const overrun = 50 * time.Millisecond

// collect stops the scope and delivers what it holds.
func (d *Device) collect(ctx context.Context, r recording, sink instrument.Sink) error {
	ctx, cancel := context.WithTimeout(ctx, d.patience())
	defer cancel()
	held, due, err := d.stop(ctx, &r)
	if err != nil {
		return err
	}
	if err := d.download(ctx, r.before, held, sink); err != nil {
		return err
	}
	if r.full.IsZero() || due <= uint64(held)+uint64(overrun.Seconds()/d.mem.Step) {
		return nil
	}
	what, hint := "memory was full", "choose a longer window"
	if held < d.room(&r) {
		what, hint = "it stopped by itself", "was its front panel used?"
	}
	return sink.Event(measure.Event{
		Kind: measure.EventGap, FirstScan: uint64(held), Scans: due - uint64(held), Channel: -1,
		Detail: fmt.Sprintf("%s after %.3f s of %.3f s: %s", what, float64(held)*d.mem.Step, float64(due)*d.mem.Step, hint),
	})
}

// patience bounds a download: the slowest scope gives some 1.7 MB/s, a bad
// network less.
func (d *Device) patience() time.Duration {
	const slowest = 100_000 // bytes a second
	return time.Minute + time.Duration(d.mem.Points*d.mem.Codes.Bytes*len(d.plan.Used)/slowest)*time.Second
}
