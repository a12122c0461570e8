package pmd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/transport"
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
	line, canSet := d.Conn.(transport.BaudSetter)
	heard := false
	for i := range 2 * len(bauds) {
		baud, within := bauds[i%len(bauds)], tryTime
		if i >= len(bauds) { // it may be slow: a network between, a busy machine
			within = answerTime
		}
		var err error
		if canSet {
			err = line.SetBaud(baud)
		} else if baud != bauds[0] {
			continue
		}
		if err == nil {
			err = d.greet(ctx, within)
		}
		if err == nil || !errors.Is(err, instrument.ErrSilent) && !errors.Is(err, instrument.ErrIdentity) {
			return baud, err
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
	if err := transport.Ask(ctx, d.Conn, []byte{cmdWelcome}, reply[:], within); err != nil {
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
	if err := transport.Stale(short, d.Conn, staleBytes); err != nil {
		return err
	}
	if _, err := d.Conn.Write(short, stopCommand); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if _, err := transport.Drain(short, d.Conn, quietTime); err != nil {
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
	found, err := transport.AskFor(ctx, d.Conn, []byte{cmdID}, id[:], answerTime,
		func(b []byte) bool { return b[0] == 0xEE && b[1] == 0x0A })
	if err != nil {
		return fmt.Errorf("ask for the id: %w", err)
	}
	if !found {
		return fmt.Errorf("%w: its id is % X, a PMD-USB's is EE 0A", instrument.ErrIdentity, id[:2])
	}
	var sensors [48]byte
	if err := transport.Ask(ctx, d.Conn, []byte{cmdSensors}, sensors[:], answerTime); err != nil {
		return fmt.Errorf("ask for the sensors: %w", err)
	}
	for i, want := range connectors {
		name := strings.ToLower(strings.Trim(string(sensors[12*i:12*i+6]), "\x00 "))
		if name != want {
			return fmt.Errorf("%w: connector %d is called %q, expected %q", instrument.ErrIdentity, i+1, name, want)
		}
	}
	d.ID.Model, d.ID.Firmware = "PMD-USB", fmt.Sprintf("%d", id[2])
	return nil
}

// raise sets the speed at which the samples fit through the line.
func (d *Device) raise(ctx context.Context, from int) error {
	line, ok := d.Conn.(transport.BaudSetter)
	if !ok || from == d.opts.Baud {
		return nil
	}
	if err := d.setSpeed(ctx, line, d.opts.Baud); err != nil {
		return err
	}
	var err error
	for _, within := range []time.Duration{tryTime, answerTime, answerTime} {
		if err = d.greet(ctx, within); err == nil {
			// Close puts the speed back. It has no context, so that the exchange gets a short one of its own.
			d.Release = func() error {
				d.Release = nil
				_ = instrument.Last(ctx, tryTime, func(ctx context.Context) error {
					return d.setSpeed(ctx, line, powerOnBaud) // a device that is gone needs no care
				})
				return nil
			}
			return nil
		}
	}
	return fmt.Errorf("no answer at %d baud (try options: {baud: %d}): %w", d.opts.Baud, powerOnBaud, err)
}

// setSpeed sets the device and then the port; 8 bits, no parity, 1 stop bit.
func (d *Device) setSpeed(ctx context.Context, line transport.BaudSetter, baud int) error {
	command := make([]byte, 17)
	command[0] = cmdUART
	binary.LittleEndian.PutUint32(command[1:], uint32(baud))
	binary.LittleEndian.PutUint32(command[5:], 2) // no parity
	_, err := d.Conn.Write(ctx, command)
	if err == nil {
		_, err = transport.Drain(ctx, d.Conn, quietTime)
	}
	if err != nil {
		return fmt.Errorf("set %d baud: %w", baud, err)
	}
	return line.SetBaud(baud)
}

const (
	// Channels of a record: V and I of PCIE1, PCIE2, EPS1 and EPS2.
	Channels = 8
	// RecordBytes is a time stamp of two bytes and eight words.
	RecordBytes = 2 + 2*Channels
	// StampTurn is where the time stamp wraps: some 22 ms.
	StampTurn = 1 << 16
	// MinStep and MaxStep bound the ticks between neighbouring records,
	// MinStep ≤ step < MaxStep. The public captures have 581 to 1017; with one
	// record lost it would be at least twice the least.
	MinStep, MaxStep = 400, 1160
	// chain is how many records in a row must fit before the parser believes that
	// it has found their beginning.
	chain = 4
)

// Record is one reading of all channels.
type Record struct {
	Stamp  uint16
	Counts [Channels]int16 // −2048 to 2047
}

// Parser finds records in a stream of bytes, whatever its fragments, also one
// that begins in the middle of a record. The zero value is ready.
//
// A record is released once the next one is seen to fit, because bytes lost at
// its end would show only there.
type Parser struct {
	// Record is the one that Next completed.
	Record Record
	// Skipped counts bytes that belong to no record. The user may set it to zero.
	Skipped uint64

	buf        [16 * RecordBytes]byte
	start, end int
	locked     bool
	held       Record
	holding    bool
	lost       int // bytes skipped since the last record fitted
}

// Next consumes bytes of b until a record is complete; see transport.Feed.
func (p *Parser) Next(b []byte) (n int, ok bool) {
	return transport.Feed(p.buf[:], &p.start, &p.end, b, p.step)
}

// Flush releases the last record of a stream that has ended.
func (p *Parser) Flush() bool {
	ok := p.holding
	p.Record, p.holding = p.held, false
	return ok
}

// Rest releases the record that waits for its successor where the line has
// fallen silent right behind it. Bytes behind it would mean that a loss may have
// bitten into it: then it still waits.
func (p *Parser) Rest() bool { return p.start == p.end && p.Flush() }

// step examines the buffer until a record is released or bytes are
// wanting.
func (p *Parser) step() (released bool) {
	for {
		have := p.buf[p.start:p.end]
		switch {
		case p.locked && len(have) < RecordBytes, !p.locked && len(have) < chain*RecordBytes:
			return false
		case p.locked:
			if !aligned(have) || !follows(p.held.Stamp, stamp(have)) {
				p.locked = false
				continue
			}
			if p.accept(have) {
				return true
			}
		case chained(have):
			p.locked = true
			if p.holding && !p.whole(stamp(have)) {
				p.Skipped += RecordBytes
				p.holding = false
			}
			p.lost = 0
			if p.accept(have) {
				return true
			}
		default:
			p.start++
			p.lost++
			p.Skipped++
		}
	}
}

// accept releases the record that was held and holds the next.
func (p *Parser) accept(b []byte) (released bool) {
	released = p.holding
	p.Record = p.held
	p.held.Stamp = stamp(b)
	for c := range p.held.Counts {
		p.held.Counts[c] = int16(binary.LittleEndian.Uint16(b[2+2*c:])) >> 4
	}
	p.holding = true
	p.start += RecordBytes
	return released
}

// whole reports whether the record before a loss can be trusted. The loss may have
// bitten into it, and even joined it to a later one, unless as many records as
// were skipped fit into the time that passed: then their bytes were wrong, not lost.
func (p *Parser) whole(next uint16) bool {
	k := uint16(p.lost / RecordBytes)
	d := next - p.held.Stamp
	return k > 0 && k < 20 && p.lost%RecordBytes == 0 && d >= (k+1)*MinStep && d < (k+1)*(MaxStep-MinStep)
}

// stamp is a record's time stamp, in ticks modulo 2^16.
func stamp(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }

// follows reports whether two stamps can be neighbours.
func follows(from, to uint16) bool {
	d := to - from // modulo 2^16
	return d >= MinStep && d < MaxStep
}

// chained reports whether several records follow each other from here.
func chained(b []byte) bool {
	for i := range chain {
		r := b[i*RecordBytes:]
		if !aligned(r) || i > 0 && !follows(stamp(b[(i-1)*RecordBytes:]), stamp(r)) {
			return false
		}
	}
	return true
}

// aligned reports whether the low nibbles of all words are zero.
func aligned(b []byte) bool {
	bits := b[2] | b[4] | b[6] | b[8] | b[10] | b[12] | b[14] | b[16]
	return bits&0xF == 0
}
