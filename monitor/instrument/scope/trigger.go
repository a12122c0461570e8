package scope

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/scpi"
)

// Trigger is an edge to wait for.
type Trigger struct {
	// Channel of the edge, one of the inputs; empty for a forced trigger.
	Channel string `yaml:"channel"`
	// Level of the edge, in volts at the probe's tip; default 1.5.
	Level float64 `yaml:"level"`
}

// external tells whether a trigger from outside is waited for.
func (t Trigger) external() bool { return t.Channel != "" }

// level is where the edge is looked for, in volts.
func (t Trigger) level() float64 {
	const logic = 1.5
	if t.Level == 0 {
		return logic
	}
	return t.Level
}

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
	if reach := abs(t.level() + in.Offset); !(reach <= half*in.Scale) {
		return fmt.Errorf("a level of %v V is off the screen of %s: want %v to %v V", t.level(), t.Channel, -half*in.Scale-in.Offset, half*in.Scale-in.Offset)
	}
	return nil
}

// tooEarly is a trigger that nobody gave.
func (d *Device) tooEarly() error {
	if d.plan.Trigger.external() {
		return fmt.Errorf("%w: it triggered before anybody waited for it: is there an edge on %s already, of a scope that runs freely?", scpi.ErrInstrument, d.plan.Trigger.Channel)
	}
	return fmt.Errorf("%w: it triggered by itself: set its trigger level out of the signal's reach", scpi.ErrInstrument)
}

// await waits for a trigger from outside, until ctx ends.
func (d *Device) await(ctx context.Context, sink instrument.Sink) (r recording, err error) {
	if s, ok := sink.(instrument.TriggeredSink); ok {
		if err := s.Waiting(); err != nil {
			return r, err
		}
	}
	const often = 10 // polls in the time of one later on: each tells when the trigger came
	tick := time.NewTicker(d.cfg.Poll / often)
	defer tick.Stop()
	for waited := d.now(); ; {
		asked := d.now()
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
			return r, fmt.Errorf("%w: it is %v where it should wait for its trigger: was its front panel used?", scpi.ErrInstrument, s)
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-tick.C:
		}
	}
}

// unclear is how long a scope may say something else around its trigger.
const unclear = time.Second

// triggered is a recording whose trigger came after a scope was last known to wait.
func (d *Device) triggered(s State, waited time.Time) (r recording, err error) {
	now := d.now()
	const part = 100 // of the window, that it may be rounded by
	if s == Stopped && now.Sub(waited) < d.span()-d.span()/part {
		return r, fmt.Errorf("%w: it stopped without a trigger: was its front panel used?", scpi.ErrInstrument)
	}
	d.dialect.Triggered()
	return recording{sent: waited, back: now, sampling: now}, nil
}
