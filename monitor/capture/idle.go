package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// lookAgain is how long a free bench that could not be sampled is left alone.
const lookAgain = 5 * time.Second

// look is a free bench that is sampled for viewers only: nothing is kept, and
// it ends as soon as the bench is wanted.
type look struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// end stops the look and waits until the instrument is free; there is no look
// any more then.
func (l *look) end() *look {
	if l != nil {
		l.cancel()
		<-l.done
	}
	return nil
}

// over is closed when the look has ended by itself.
func (l *look) over() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.done
}

// lookIfWanted begins to sample a free bench where a viewer wants it. It is
// called by Run between captures; until the look's end the instrument is its own.
func (o *Owner) lookIfWanted(ctx context.Context) *look {
	if !o.live.wanted() || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &look{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer cancel()
		if err := o.sampleIdle(ctx); err != nil && ctx.Err() == nil {
			o.live.trouble(err.Error())
		}
	}()
	return l
}

// sampleIdle opens the instrument and shows what it reads.
func (o *Owner) sampleIdle(ctx context.Context) (err error) {
	ins := o.cfg.Instrument
	octx, cancel := context.WithTimeout(ctx, o.cfg.OpenTimeout)
	defer cancel()
	defer func() {
		if cerr := ins.Close(); err == nil {
			err = cerr
		}
	}()
	if err := ins.Open(octx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	setup, err := o.learn(ins.Inputs(), o.calibrator())
	if err != nil {
		return fmt.Errorf("%w: the bench does not fit the instrument: %w", ErrUnavailable, err)
	}
	if err := o.live.begin("", &setup); err != nil {
		return err
	}
	if err := ins.Stream(ctx, lookSink{&o.live}); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return errors.New("the instrument has no more samples")
	}
	return nil
}

// errDeferred: there is nothing to see of such an instrument while it samples.
var errDeferred = errors.New("this instrument delivers only after a measurement: a free bench cannot be shown")

// lookSink shows blocks to viewers and keeps nothing.
type lookSink struct{ live *watchers }

var (
	_ instrument.DeferredSink  = lookSink{}
	_ instrument.TriggeredSink = lookSink{}
)

func (s lookSink) Block(b *measure.Block) error {
	s.live.block(b)
	return nil
}

func (s lookSink) Event(e measure.Event) error {
	s.live.event(e)
	return nil
}

func (lookSink) Armed(time.Time) error { return errDeferred }
func (lookSink) Progress(_, _ uint64)  {}
func (lookSink) Waiting() error        { return errDeferred }
