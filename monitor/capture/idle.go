package capture

import (
	"context"
	"errors"
	"sync/atomic"
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
	seen   atomic.Bool // samples came
}

// sees tells whether the look has samples, and goes on.
func (l *look) sees() bool {
	if l == nil || !l.seen.Load() {
		return false
	}
	select {
	case <-l.done:
		return false
	default:
		return true
	}
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
		if err := o.sampleIdle(ctx, l); err != nil && ctx.Err() == nil {
			o.live.trouble(err.Error())
		}
	}()
	return l
}

// sampleIdle opens the instrument and shows what it reads.
func (o *Owner) sampleIdle(ctx context.Context, l *look) (err error) {
	ins := o.cfg.Instrument
	defer func() {
		if cerr := ins.Close(); err == nil {
			err = cerr
		}
	}()
	setup, err := o.open(ctx)
	if err != nil {
		return err
	}
	if err := o.live.begin("", &setup); err != nil {
		return err
	}
	err = ins.Stream(ctx, lookSink{o, l})
	o.streamed(ctx, err)
	if err == nil && ctx.Err() == nil {
		err = errors.New("the instrument has no more samples")
	}
	return err
}

// errDeferred: there is nothing to see of such an instrument while it samples.
var errDeferred = errors.New("this instrument delivers only after a measurement: a free bench cannot be shown")

// lookSink shows blocks to viewers and keeps nothing.
type lookSink struct {
	o *Owner
	l *look
}

var (
	_ instrument.DeferredSink  = lookSink{}
	_ instrument.TriggeredSink = lookSink{}
)

func (s lookSink) Block(b *measure.Block) error {
	if !s.l.seen.Swap(true) {
		s.o.answered(true)
	}
	s.o.live.block(b)
	return nil
}

func (s lookSink) Event(e measure.Event) error {
	e.Detail = measure.Excerpt(e.Detail)
	s.o.live.event(e)
	return nil
}

func (s lookSink) Armed(time.Time) error { return s.Waiting() }
func (s lookSink) Progress(_, _ uint64)  {}

func (s lookSink) Unwanted() <-chan struct{} { return nil }

func (s lookSink) Waiting() error {
	s.o.answered(true)
	return errDeferred
}
