package powenetics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "powenetics"

const (
	baud       = 921600
	answerTime = 2 * time.Second // for the first frames after a start
	staleBytes = 1 << 18         // as much as a system may hold of an unread line
	enough     = 3               // frames in a row make a Powenetics
)

// All that the driver ever sends. CA AC BD 00 would erase the device's
// calibration: it is not here on purpose.
var (
	startCommand       = []byte{0xCA, 0xAC, 0xBD, 0x90}
	calibrationCommand = []byte{0xCA, 0xAC, 0xBD, 0x01}
)

// Device is a Powenetics v2 behind a serial port. It implements
// instrument.Instrument.
type Device struct {
	address string
	opts    Options
	dial    func(context.Context) (transport.Conn, error)
	now     func() time.Time

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
	d := &Device{address: address, opts: o, now: time.Now, inputs: Inputs(o)}
	d.dial = transport.Dialer(address, transport.Options{Baud: baud})
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	return d, nil
}

// Identity is the device's, once it was opened. It tells no serial number.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the 26 channels.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open connects, starts the device and waits until frames come.
func (d *Device) Open(ctx context.Context) error {
	if d.conn != nil {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	conn, err := d.dial(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", Kind, err)
	}
	d.conn = conn
	if err := d.start(ctx); err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	d.identity.Model = "Powenetics v2"
	return nil
}

// start sets the device going, if it does not go already, and identifies it by
// its frames.
func (d *Device) start(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	command := startCommand
	if d.opts.CalibrationOK {
		command = append(append([]byte{}, calibrationCommand...), startCommand...)
	}
	if _, err := d.conn.Write(short, command); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	var p Parser
	buf := make([]byte, readSize)
	for total, frames := 0, 0; ; {
		n, err := d.conn.Read(short, buf)
		if err != nil {
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				return unanswered(total)
			}
			return fmt.Errorf("wait for frames: %w", err)
		}
		total += n
		for b := buf[:n]; ; {
			k, ok := p.Next(b)
			if b = b[k:]; !ok {
				break
			}
			if frames++; frames == enough {
				return nil
			}
		}
	}
}

func unanswered(bytes int) error {
	if bytes == 0 {
		return fmt.Errorf("%w: nothing came within %v of the start (is this the right port?)", instrument.ErrSilent, answerTime)
	}
	return fmt.Errorf("%w: %d bytes came within %v, but no frames: is this a Powenetics v2?", instrument.ErrIdentity, bytes, answerTime)
}

// Close releases the port. The device goes on sending: it cannot be stopped.
func (d *Device) Close() error {
	if d.conn == nil {
		return nil
	}
	err := d.conn.Close()
	d.conn = nil
	return err
}
