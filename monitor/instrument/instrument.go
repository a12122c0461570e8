// Package instrument is how the monitor sees a meter: something that opens,
// says what it is, and delivers blocks of raw counts until it is told to stop.
// One goroutine owns an instrument; nothing here is safe for concurrent use
// unless it says so.
package instrument

import (
	"context"
	"errors"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
)

// Sink takes what an instrument delivers, on the instrument's goroutine. A
// block is borrowed: it is valid until the call returns. An error from the
// sink ends the stream.
type Sink interface {
	Block(*measure.Block) error
	Event(measure.Event) error
}

// DeferredSink is a Sink that wants to know of an instrument whose samples come
// only when it was stopped, as a scope's do: it measures into its own memory.
// Such an instrument calls Armed from Stream once it samples, delivers nothing
// until ctx ends, and then stops the device, delivers what it holds, and returns
// nil. What did not fit into its memory is an EventGap at the end. An error from
// the Sink ends the delivery, and so does Unwanted.
type DeferredSink interface {
	Sink
	// Armed tells that the device samples now. at is the host's time of the first
	// scan, as well as the driver knows it.
	Armed(at time.Time) error
	// Progress tells how many of the scans that the device holds are delivered.
	Progress(done, total uint64)
	// Unwanted is closed once nobody wants what the device holds, as when a monitor is
	// stopped: the device need then not be asked for it. It is nil where that cannot be.
	Unwanted() <-chan struct{}
}

// Outlast returns a context that ends a while after ctx does, for what is to be told to a
// device that is left. Cancel it to release it.
func Outlast(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(while, cancel)
		context.AfterFunc(own, func() { timer.Stop() })
	})
	return own, func() {
		stop()
		cancel()
	}
}

// TimedSink is a Sink that takes blocks which were held back: at is when their
// samples arrived.
type TimedSink interface {
	Sink
	BlockAt(b *measure.Block, at time.Time) error
}

// TriggeredSink is a Sink that wants to know of an instrument whose samples begin
// with a trigger from outside. Such an instrument calls Waiting from Stream once it
// would take the trigger.
type TriggeredSink interface {
	Sink
	Waiting() error
}

// MarkedSink is a Sink that knows which marker the samples will hold; its code is
// marker.None where there is none.
type MarkedSink interface {
	Sink
	Marker() marker.Spec
}

// Identity is what the device said of itself.
type Identity = measure.Identity

// Instrument is one meter. FirstScan and FirstTick of its blocks count from
// the first scan after each Stream call; a stretch that the device lost is an
// EventGap before the block that follows it, whose FirstScan and FirstTick
// have moved on.
type Instrument interface {
	// Open connects, identifies the device and sets it up. It blocks until done
	// or ctx ends. It may be called again after Close.
	Open(ctx context.Context) error
	// Identity is known after Open; before, only Kind and Address are.
	Identity() Identity
	// Inputs are the device's channels with its own nominal or stored
	// calibration, and its timebase and response. Known after Open; drivers with
	// fixed inputs know them before, so that a bench file can be checked.
	Inputs() Inputs
	// Stream starts sampling and delivers until ctx ends (then it stops the
	// device and returns nil), the device is lost (an error that wraps
	// ErrDisconnected), or anything else fails.
	Stream(ctx context.Context, sink Sink) error
	// Close releases the device. It is safe to call twice.
	Close() error
}

// Inputs is what a device can deliver.
type Inputs struct {
	Timebase measure.Timebase
	Response measure.Response
	Channels []measure.Channel
}

// Sentinel errors, wrapped with what was done and what to do next.
var (
	// ErrDisconnected: the link is gone; opening again may help.
	ErrDisconnected = errors.New("instrument disconnected")
	// ErrIdentity: the device is not the one that is wanted.
	ErrIdentity = errors.New("wrong instrument")
	// ErrSilent: the device is there but sends nothing that can be understood.
	ErrSilent = errors.New("instrument does not answer")
)
