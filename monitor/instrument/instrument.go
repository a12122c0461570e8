// Package instrument is how the monitor sees a meter: something that opens,
// says what it is, and delivers blocks of raw counts until it is told to stop.
// One goroutine owns an instrument; nothing here is safe for concurrent use
// unless it says so.
package instrument

import (
	"context"
	"errors"

	"wattmark/measure"
)

// Sink takes what an instrument delivers, on the instrument's goroutine. A
// block is borrowed: it is valid until the call returns. An error from the
// sink ends the stream.
type Sink interface {
	Block(*measure.Block) error
	Event(measure.Event) error
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
