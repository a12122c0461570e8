package scope

import (
	"context"
	"fmt"
	"time"

	"wattmark/monitor/scpi"
)

// whole waits until memory is full, and returns how many points all channels
// hold; s is what the scope did last. A scope that stands earlier than that was
// stopped by somebody else, and nobody knows what it holds.
func (d *Device) whole(ctx context.Context, r *recording, s State) (held int, err error) {
	own, cancel := context.WithTimeout(ctx, d.span()+armTime)
	defer cancel()
	for s != Stopped {
		if err = Pause(own, min(d.cfg.Poll, 50*time.Millisecond)); err == nil {
			s, err = d.state(own)
		}
		if err != nil {
			return 0, fmt.Errorf("wait until memory is full: %w", err)
		}
		if s == Free {
			return 0, fmt.Errorf("%w: it is %v in the middle of a recording: was its front panel used?", scpi.ErrInstrument, s)
		}
		if s == Stopped {
			r.full = d.now()
		}
	}
	if held, err = d.held(ctx, r); err != nil {
		return 0, err
	}
	const part = 100 // of the window, that its begin may be rounded by
	span := time.Duration(float64(d.room(r)) * d.mem.Step * float64(time.Second))
	if took := r.full.Sub(r.sent); took < span-span/part {
		return 0, fmt.Errorf("%w: it stood after %v of the %v that its memory spans: was it stopped at its front panel?",
			scpi.ErrInstrument, took.Round(time.Millisecond), span)
	}
	return held, nil
}

// span is the time that memory spans.
func (d *Device) span() time.Duration {
	return time.Duration(float64(d.mem.Points) * d.mem.Step * float64(time.Second))
}
