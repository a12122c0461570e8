package instrument

import (
	"context"
	"fmt"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Base is the skeleton of a driver: the address, the link, the identity and the
// inputs of one device, and the order of opening and closing. Drivers embed it and
// add Stream. Its methods run on the goroutine that owns the instrument.
type Base struct {
	// ID is complete after Open; before, Kind and Address are set.
	ID measure.Identity
	// In are the inputs as far as they are known: before Open from the options,
	// after it from the device.
	In Inputs
	// Dial opens Conn. A driver without a transport.Conn leaves it nil, connects in
	// its first step of Connect, and disconnects in Release.
	Dial func(context.Context) (transport.Conn, error)
	// Conn is the open link; nil while the device is closed.
	Conn transport.Conn
	// Release, where set, runs once for each Open, before Conn is closed, also where
	// a step of Connect failed: it restores the settings that the driver changed.
	Release func() error
	// Now is the host's clock.
	Now func() time.Time

	open bool
}

// NewBase checks the options and the address of a device behind a transport. Nothing
// is opened. Errors begin with the kind and wrap transport.ErrAddress where the address
// is at fault.
func NewBase(kind, address string, o interface{ Validate() error }, link transport.Options) (Base, error) {
	err := o.Validate()
	if err == nil {
		_, err = transport.ParseAddress(address)
	}
	if err != nil {
		return Base{}, fmt.Errorf("%s: %w", kind, err)
	}
	return Base{
		ID:  measure.Identity{Kind: kind, Address: address},
		Now: time.Now, Dial: transport.Dialer(address, link),
	}, nil
}

// Identity implements Instrument.
func (b *Base) Identity() measure.Identity { return b.ID }

// Inputs implements Instrument.
func (b *Base) Inputs() Inputs { return b.In }

// Identify completes the identity with the device's own answers.
func (b *Base) Identify(model, serial, firmware string) {
	b.ID.Model, b.ID.Serial, b.ID.Firmware = model, serial, firmware
}

// Connect dials and runs the steps in order. Where one fails, the device is closed and
// the error names kind, address and cause. A device that is open already is an error.
func (b *Base) Connect(ctx context.Context, steps ...func(context.Context) error) error {
	if b.open {
		return fmt.Errorf("%s: open %s: already open", b.ID.Kind, b.ID.Address)
	}
	if b.Dial != nil {
		conn, err := b.Dial(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", b.ID.Kind, err) // which names the address
		}
		b.Conn = conn
	}
	b.open = true
	for _, step := range steps {
		if err := step(ctx); err != nil {
			_ = b.Close()
			return fmt.Errorf("%s: open %s: %w", b.ID.Kind, b.ID.Address, err)
		}
	}
	return nil
}

// stopTime bounds the end of a stream: the caller's context is over by then.
const stopTime = 2 * time.Second

// Pump is one Stream call of a device that sends by itself. It starts the device, pumps
// until ctx ends or the line fails, delivers the rest, and stops the device within 2 s.
// After a failure of the line there is nothing to stop.
func (b *Base) Pump(ctx context.Context, start func(context.Context) error, p transport.Pump,
	stop func(context.Context) error,
) error {
	return b.Streaming(func() error {
		err := start(ctx)
		if err == nil {
			err = p.Run(ctx, b.Conn)
		}
		if ctx.Err() == nil || !transport.Ended(err) {
			return err
		}
		err = p.Finish()
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if serr := stop(own); err == nil {
			err = serr
		}
		return err
	})
}

// Streaming runs one Stream call of an open device; its errors then name kind and address.
func (b *Base) Streaming(stream func() error) error {
	if !b.open {
		return fmt.Errorf("%s: stream: not open", b.ID.Kind)
	}
	if err := stream(); err != nil {
		return fmt.Errorf("%s: stream from %s: %w", b.ID.Kind, b.ID.Address, err)
	}
	return nil
}

// Write sends a command on Conn; its errors name the operation.
func (b *Base) Write(ctx context.Context, operation string, command []byte) error {
	if _, err := b.Conn.Write(ctx, command); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// Close releases the device. It is safe to call twice.
func (b *Base) Close() (err error) {
	if !b.open {
		return nil
	}
	b.open = false
	if b.Release != nil {
		err = b.Release()
	}
	if b.Conn != nil {
		if cerr := b.Conn.Close(); err == nil {
			err = cerr
		}
		b.Conn = nil
	}
	return err
}
