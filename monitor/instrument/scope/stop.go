package scope

import (
	"context"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
)

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
	if d.cfg.Family.Whole {
		due = d.due(r, asked)
		held, err = d.whole(ctx, r, s)
		return int(min(uint64(held), due)), due, err // what lies behind the stop is nobody's
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
