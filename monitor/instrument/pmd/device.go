package pmd

import (
	"context"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "pmd"

// Device is a PMD-USB behind a serial port or a socket. It implements
// instrument.Instrument.
type Device struct {
	address string
	opts    Options
	dial    func(context.Context) (transport.Conn, error)
	now     func() time.Time

	conn     transport.Conn
	identity instrument.Identity
	inputs   instrument.Inputs
	restore  func() // puts the line's speed back
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if _, err := transport.ParseAddress(address); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	d := &Device{address: address, opts: o, now: time.Now, inputs: Inputs(o)}
	d.dial = transport.Dialer(address, transport.Options{Baud: powerOnBaud})
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	return d, nil
}

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the eight channels. Open adds the offsets that the device stores.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open connects, finds the line's speed, checks that it is a PMD-USB, and
// raises the speed.
func (d *Device) Open(ctx context.Context) error {
	if d.conn != nil {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	conn, err := d.dial(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", Kind, err)
	}
	d.conn = conn
	if err := d.setUp(ctx); err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	return nil
}

func (d *Device) setUp(ctx context.Context) error {
	baud, err := d.find(ctx)
	if err != nil {
		return err
	}
	if err := d.identify(ctx); err != nil {
		return err
	}
	if d.opts.DeviceOffsets {
		offsets, err := d.storedOffsets(ctx)
		if err != nil {
			return fmt.Errorf("read the stored offsets: %w", err)
		}
		d.inputs.Channels = channels(offsets)
	}
	return d.raise(ctx, baud)
}

// Close puts the line's speed back, as other programs expect it, and releases
// the port.
func (d *Device) Close() error {
	if d.conn == nil {
		return nil
	}
	if d.restore != nil {
		d.restore()
		d.restore = nil
	}
	err := d.conn.Close()
	d.conn = nil
	return err
}
