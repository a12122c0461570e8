package scope

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// Trigger is an edge to wait for.
type Trigger struct {
	// Channel of the edge, one of the inputs; empty for a forced trigger.
	Channel string `yaml:"channel"`
	// Level of the edge, in volts at the probe's tip; default 1.5.
	Level float64 `yaml:"level"`
}

// external reports whether a trigger from outside is waited for.
func (t Trigger) external() bool { return t.Channel != "" }

// level is where the edge is looked for, in volts.
func (t Trigger) level() float64 {
	const logic = 1.5
	return cmp.Or(t.Level, logic)
}

// validTrigger reports a trigger on a channel that is not shown, or whose level is off its screen.
func (o Options) validTrigger() error {
	t := o.Trigger
	if !t.external() {
		if t.Level != 0 {
			return errors.New("a level without a channel")
		}
		return nil
	}
	in, ok := o.Inputs[t.Channel]
	if !ok {
		return fmt.Errorf("channel %q is none of the inputs: name it there, the scope must see its edge", t.Channel)
	}
	const half = 4 // divisions from the screen's middle to its edge
	if reach := math.Abs(t.level() + in.Offset); !(reach <= half*in.Scale) {
		return fmt.Errorf("a level of %v V is off the screen of %s: want %v to %v V", t.level(), t.Channel,
			-half*in.Scale-in.Offset, half*in.Scale-in.Offset)
	}
	return nil
}

// tooEarly is the error of an unexpected trigger.
func (d *Device) tooEarly() error {
	if d.plan.Trigger.external() {
		return fmt.Errorf("%w: it triggered before anybody waited for it: is there an edge on %s already, of a "+
			"scope that runs freely?", scpi.ErrInstrument, d.plan.Trigger.Channel)
	}
	return fmt.Errorf("%w: it triggered by itself: set its trigger level out of the signal's reach", scpi.ErrInstrument)
}

// await waits for a trigger from outside, until ctx ends.
func (d *Device) await(ctx context.Context, sink instrument.Sink) (r recording, err error) {
	if sink.Waiting != nil {
		if err := sink.Waiting(); err != nil {
			return r, err
		}
	}
	const often = 10 // polls in the time of one later on: each reports when the trigger came
	tick := time.NewTicker(d.cfg.Poll / often)
	defer tick.Stop()
	for waited := d.Now(); ; {
		asked := d.Now()
		s, err := d.state(ctx)
		if err != nil {
			return r, err
		}
		if s == Sampling || s == Stopped {
			return d.triggered(s, waited)
		}
		if s == Waiting {
			waited = asked
		} else if asked.Sub(waited) > unclear {
			return r, fmt.Errorf("%w: it is %v where it should wait for its trigger: was its front panel used?",
				scpi.ErrInstrument, s)
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-tick.C:
		}
	}
}

// unclear is how long a scope may answer otherwise around its trigger.
const unclear = time.Second

// triggered is a recording whose trigger came after a scope was last known to wait.
func (d *Device) triggered(s State, waited time.Time) (r recording, err error) {
	now := d.Now()
	const part = 100 // of the window, that it may be rounded by
	if s == Stopped && now.Sub(waited) < d.span()-d.span()/part {
		return r, fmt.Errorf("%w: it stopped without a trigger: was its front panel used?", scpi.ErrInstrument)
	}
	d.dialect.Triggered()
	return recording{sent: waited, back: now, sampling: now}, nil
}

// stop ends the acquisition and returns how many points of each channel memory
// holds, and how many scans there would be until now.
func (d *Device) stop(ctx context.Context, r *recording) (held int, due uint64, err error) {
	asked := d.Now()
	s, err := d.state(ctx)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case s == Sampling:
		r.sampling = asked
	case s == Stopped && r.full.IsZero():
		r.full = d.Now()
	}
	if d.cfg.Family.Whole {
		due = d.due(r, asked)
		held, err = d.whole(ctx, r, s)
		return int(min(uint64(held), due)), due, err // points behind the stop do not count
	}
	if s != Stopped {
		if err := d.dialect.Stop(ctx, d.client); err != nil {
			return 0, 0, err
		}
	}
	end := d.Now()
	own, cancel := context.WithTimeout(ctx, armTime)
	defer cancel()
	for s != Stopped {
		if s, err = d.state(own); err != nil {
			return 0, 0, err
		}
	}
	held, err = d.held(ctx, r)
	return held, d.due(r, end), err
}

// due is how many scans there would be from the trigger to an instant.
func (d *Device) due(r *recording, end time.Time) uint64 {
	return uint64(max(0, end.Sub(r.sent).Seconds()/d.mem.Step))
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
			return 0, fmt.Errorf("%w: its channels hold %d and %d points from before the trigger", scpi.ErrInstrument,
				r.before, before)
		}
		r.before = before
		exact := false
		points, err := again(ctx, func() (p int, err error) {
			p, exact, err = d.dialect.Held(ctx, d.client, n)
			return p, err
		})
		if err != nil {
			return 0, err
		}
		// A scope that pads an unfinished memory must not invent samples.
		most := float64(d.room(r))
		if exact {
			most = math.Ceil(d.Now().Sub(r.sent).Seconds() / d.mem.Step)
		} else if !d.filled(r) {
			most = math.Floor(r.sampling.Sub(r.back).Seconds() / d.mem.Step)
		}
		held = min(held, points-before, int(min(most, float64(d.room(r)))))
	}
	return max(0, held), nil
}

// room is how many points a full memory holds behind the trigger.
func (d *Device) room(r *recording) int { return d.mem.Points - r.before }

// compare refuses a channel that is not set as it was at Open, and reports how many
// points lie before the trigger.
func (d *Device) compare(ctx context.Context, i, channel int) (before int, err error) {
	s, err := d.scale(ctx, channel)
	if err != nil {
		return 0, err
	}
	was := d.scales[i]
	was.Begin = s.Begin
	if s != was {
		return 0, fmt.Errorf("%w: channel %d was set otherwise while it measured: was its front panel used?",
			scpi.ErrInstrument, channel)
	}
	const jitter = 2 // points that the trigger may lie before the first, between two of them
	b := math.Round(-s.Begin / s.Step)
	if !(b >= -jitter && b < float64(d.mem.Points)) {
		return 0, fmt.Errorf("%w: memory begins %v s behind the trigger", scpi.ErrInstrument, s.Begin)
	}
	return max(0, int(b)), nil
}

// filled reports whether the scope stood by itself, and as late as a full memory
// makes it: one that was stopped at its front panel is not full.
func (d *Device) filled(r *recording) bool {
	const ahead = 4 // times the clock's limit
	span := float64(d.room(r)) * d.mem.Step * (1 - ahead*d.cfg.Family.Spec.Clock)
	return !r.full.IsZero() && r.full.Sub(r.sent).Seconds() >= span
}

// overrun is how many scans a stop may come late without anything being missed:
// the trigger's and the stop's own travel.
const overrun = 50 * time.Millisecond

// collect stops the scope and delivers its memory.
func (d *Device) collect(ctx context.Context, r recording, sink instrument.Sink) error {
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
	return time.Minute + d.span() + time.Duration(d.mem.Points*d.mem.Codes.Bytes*len(d.plan.Used)/slowest)*time.Second
}
