package pmd2

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "pmd2"

const (
	answerTime = time.Second            // for one exchange while opening
	replyTime  = 100 * time.Millisecond // for a reading to come at all
	slowTime   = 20 * time.Millisecond  // after which its time is poorly known
	quietTime  = 5 * time.Millisecond   // after an answer that was no good
	lateTime   = 50 * time.Millisecond  // after none: it may still come
	staleBytes = 1 << 16
)

// The commands. Those that change the device are not here.
var (
	askVendor   = []byte{0x01}
	askNumber   = []byte{0x02}
	askReadings = []byte{0x04}
)

const vendor, product = 0xEE, 0x15

// Device is a PMD2 behind a serial port. It implements instrument.Instrument.
type Device struct {
	address string
	opts    Options
	dial    func(context.Context) (transport.Conn, error)

	conn     transport.Conn
	identity instrument.Identity
	inputs   instrument.Inputs
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if _, err := transport.ParseAddress(address); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	d := &Device{address: address, opts: o, inputs: Inputs(o)}
	d.dial = transport.Dialer(address, transport.Options{}) // USB: the baud rate means nothing
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	return d, nil
}

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the 20 channels.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open connects and identifies the device.
func (d *Device) Open(ctx context.Context) error {
	if d.conn != nil {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	conn, err := d.dial(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", Kind, err)
	}
	d.conn = conn
	if err := d.identify(ctx); err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	return nil
}

// identify asks for vendor and product. What the device said before, its greeting
// or an answer that nobody read, is passed over.
func (d *Device) identify(ctx context.Context) error {
	var b [3]byte
	found, err := transport.AskFor(ctx, d.conn, askVendor, b[:], answerTime, func(b []byte) bool { return b[0] == vendor && b[1] == product })
	switch {
	case errors.Is(err, instrument.ErrSilent):
		return fmt.Errorf("%w (is this the right port?)", err)
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%w: it answers % x, a PMD2 %02x %02x and its firmware", instrument.ErrIdentity, b, vendor, product)
	}
	var number [12]byte
	if err := transport.Ask(ctx, d.conn, askNumber, number[:], answerTime); err != nil {
		return fmt.Errorf("ask for its number: %w", err)
	}
	d.identity.Model, d.identity.Firmware = "ElmorLabs PMD2", fmt.Sprintf("%d", b[2])
	d.identity.Serial = strings.ToUpper(hex.EncodeToString(number[:]))
	return nil
}

// Close releases the port.
func (d *Device) Close() error {
	if d.conn == nil {
		return nil
	}
	err := d.conn.Close()
	d.conn = nil
	return err
}
