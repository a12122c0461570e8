package pmd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// The device's commands.
const (
	cmdWelcome    = 0x00
	cmdID         = 0x01
	cmdSensors    = 0x02
	cmdReadConfig = 0x04
	cmdContinuous = 0x07 // then enable, bytes of the time stamp, channel mask
	cmdUART       = 0x08 // then baud, parity, data bits, stop bits, u32 each

	welcome     = "ElmorLabs PMD-USB"
	powerOnBaud = 115200
)

const (
	tryTime    = 250 * time.Millisecond // for an answer at a speed that may be wrong
	answerTime = time.Second
	quietTime  = 40 * time.Millisecond
	settleTime = 2 * time.Second
	staleBytes = 1 << 16
)

var (
	startCommand = []byte{cmdContinuous, 1, 2, 0xFF}
	stopCommand  = []byte{cmdContinuous, 0, 0, 0}
)

// find tries the speeds that the device may have been left at and returns the
// one at which it answers.
func (d *Device) find(ctx context.Context) (int, error) {
	line, canSet := d.conn.(transport.BaudSetter)
	heard := false
	for i := range 2 * len(bauds) {
		within := tryTime
		if i >= len(bauds) { // it may be slow: a network between, a busy machine
			within = answerTime
		}
		baud := bauds[i%len(bauds)]
		if i%len(bauds) > 0 && !canSet {
			continue
		}
		if canSet {
			if err := line.SetBaud(baud); err != nil {
				return 0, err
			}
		}
		err := d.greet(ctx, within)
		if err == nil {
			return baud, nil
		}
		if !errors.Is(err, instrument.ErrSilent) && !errors.Is(err, instrument.ErrIdentity) {
			return 0, err
		}
		heard = heard || errors.Is(err, instrument.ErrIdentity)
	}
	if heard {
		return 0, fmt.Errorf("%w: it sends something else than %q at every speed", instrument.ErrIdentity, welcome)
	}
	return 0, fmt.Errorf("%w: nothing came back at any speed (is this the right port?)", instrument.ErrSilent)
}

// greet stops continuous mode and asks for the welcome text.
func (d *Device) greet(ctx context.Context, within time.Duration) error {
	if err := d.halt(ctx); err != nil {
		return err
	}
	var reply [len(welcome)]byte
	if err := transport.Ask(ctx, d.conn, []byte{cmdWelcome}, reply[:], within); err != nil {
		return err
	}
	if string(reply[:]) != welcome {
		return fmt.Errorf("%w: it calls itself %q", instrument.ErrIdentity, reply)
	}
	return nil
}

// halt ends continuous mode and waits until the line is quiet. A line that does
// not fall quiet has something else at its end.
func (d *Device) halt(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if err := transport.Stale(short, d.conn, staleBytes); err != nil {
		return err
	}
	if _, err := d.conn.Write(short, stopCommand); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if _, err := d.conn.Drain(short, quietTime); err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w: it keeps sending after a stop", instrument.ErrIdentity)
		}
		return err
	}
	return nil
}

// identify checks the device's number and the names of its connectors.
func (d *Device) identify(ctx context.Context) error {
	var id [3]byte
	// A welcome text that was given up at another speed may come only now.
	found, err := transport.AskFor(ctx, d.conn, []byte{cmdID}, id[:], answerTime, func(b []byte) bool { return b[0] == 0xEE && b[1] == 0x0A })
	if err != nil {
		return fmt.Errorf("ask for the id: %w", err)
	}
	if !found {
		return fmt.Errorf("%w: its id is % X, a PMD-USB's is EE 0A", instrument.ErrIdentity, id[:2])
	}
	var sensors [48]byte
	if err := transport.Ask(ctx, d.conn, []byte{cmdSensors}, sensors[:], answerTime); err != nil {
		return fmt.Errorf("ask for the sensors: %w", err)
	}
	for i, want := range connectors {
		name := strings.ToLower(strings.Trim(string(sensors[12*i:12*i+6]), "\x00 "))
		if name != want {
			return fmt.Errorf("%w: connector %d is called %q, expected %q", instrument.ErrIdentity, i+1, name, want)
		}
	}
	d.identity.Model, d.identity.Firmware = "PMD-USB", fmt.Sprintf("%d", id[2])
	return nil
}

// storedOffsets reads the device's own zero adjustment, in counts: the eight
// signed bytes from byte 4 of its configuration (version, padding and checksum
// come first). The rest belongs to its display and differs between firmwares.
func (d *Device) storedOffsets(ctx context.Context) (offsets [Channels]int8, err error) {
	var b [12]byte
	if err := transport.Ask(ctx, d.conn, []byte{cmdReadConfig}, b[:], answerTime); err != nil {
		return offsets, err
	}
	for i := range offsets {
		offsets[i] = int8(b[4+i])
	}
	_, err = d.conn.Drain(ctx, quietTime)
	return offsets, err
}

// raise sets the speed at which the samples fit through the line.
func (d *Device) raise(ctx context.Context, from int) error {
	line, ok := d.conn.(transport.BaudSetter)
	if !ok || from == d.opts.Baud {
		return nil
	}
	if err := d.setSpeed(ctx, line, d.opts.Baud); err != nil {
		return err
	}
	var err error
	for _, within := range []time.Duration{tryTime, answerTime, answerTime} {
		if err = d.greet(ctx, within); err == nil {
			d.lowerLater(ctx, line)
			return nil
		}
	}
	return fmt.Errorf("no answer at %d baud (try options: {baud: %d}): %w", d.opts.Baud, powerOnBaud, err)
}

// lowerLater arranges that Close puts the speed back. Close has no context, so
// that the exchange gets a short one of its own.
func (d *Device) lowerLater(ctx context.Context, line transport.BaudSetter) {
	base := context.WithoutCancel(ctx)
	d.restore = func() {
		short, cancel := context.WithTimeout(base, tryTime)
		defer cancel()
		_ = d.setSpeed(short, line, powerOnBaud) // a device that is gone needs no care
	}
}

// setSpeed tells the device and then the port; 8 bits, no parity, 1 stop bit.
func (d *Device) setSpeed(ctx context.Context, line transport.BaudSetter, baud int) error {
	command := make([]byte, 17)
	command[0] = cmdUART
	binary.LittleEndian.PutUint32(command[1:], uint32(baud))
	binary.LittleEndian.PutUint32(command[5:], 2) // no parity
	if _, err := d.conn.Write(ctx, command); err != nil {
		return fmt.Errorf("set %d baud: %w", baud, err)
	}
	if _, err := d.conn.Drain(ctx, quietTime); err != nil {
		return fmt.Errorf("set %d baud: %w", baud, err)
	}
	return line.SetBaud(baud)
}
