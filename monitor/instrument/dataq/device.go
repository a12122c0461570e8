package dataq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "dataq"

const (
	answerTime = time.Second     // for one exchange
	settleTime = 2 * time.Second // for a device to stop
	staleBytes = 1 << 16
	packetTime = 0.01 // seconds that a packet may take to fill
	maxAnswer  = 128
)

// Device is a DATAQ box behind a serial port. It implements
// instrument.Instrument.
type Device struct {
	address string
	opts    Options
	model   model
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
	d := &Device{address: address, opts: o, model: models[o.Model], now: time.Now, inputs: Inputs(o)}
	d.dial = transport.Dialer(address, transport.Options{}) // USB: the baud rate means nothing
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	return d, nil
}

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the channels of the scan, with the rate that the device can keep.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open connects, stops whatever an earlier program left running, identifies the
// device and sets the scan up; every command must be echoed.
func (d *Device) Open(ctx context.Context) error {
	if d.conn != nil {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	conn, err := d.dial(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", Kind, err)
	}
	d.conn = conn
	if err = d.stop(ctx); err == nil {
		err = d.identify(ctx)
	}
	if err == nil {
		err = d.setUp(ctx)
	}
	if err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	return nil
}

// Close releases the port; Stream has stopped the device.
func (d *Device) Close() error {
	if d.conn == nil {
		return nil
	}
	err := d.conn.Close()
	d.conn = nil
	return err
}

// stop ends a scan, whoever began it, and discards what is left of it: the echo
// comes behind the last packet.
func (d *Device) stop(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if _, err := d.conn.Write(short, []byte("stop\r")); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	var last [5]byte
	buf := make([]byte, readSize)
	for total := 0; string(last[:]) != "stop\r"; {
		n, err := d.conn.Read(short, buf)
		if err != nil {
			if ctx.Err() == nil && transport.Ended(err) {
				return notStopped(total)
			}
			return fmt.Errorf("stop: %w", err)
		}
		total += n
		tail := append(last[:], buf[:n]...)
		copy(last[:], tail[len(tail)-len(last):])
	}
	return transport.Stale(short, d.conn, staleBytes)
}

func notStopped(bytes int) error {
	if bytes == 0 {
		return fmt.Errorf("%w: nothing came back to stop within %v (is it in CDC mode, its LED blinking yellow?)", instrument.ErrSilent, settleTime)
	}
	return fmt.Errorf("%w: %d bytes came within %v of a stop, but no echo: is this a DATAQ in CDC mode?", instrument.ErrIdentity, bytes, settleTime)
}

// askTimes are how long an echo may take, and how long once the command was sent again.
var askTimes = []time.Duration{answerTime, 2 * answerTime}

// ask sends a command and returns what the echo holds behind it. A line that is no
// echo of it, such as the late answer to an earlier one, is passed over.
func (d *Device) ask(ctx context.Context, command string) (answer string, err error) {
	var line, other []byte
	for _, within := range askTimes {
		short, cancel := context.WithTimeout(ctx, within)
		answer, err = d.askOnce(short, command, &line, &other)
		cancel()
		if err == nil || ctx.Err() != nil || !transport.Ended(err) {
			return answer, err
		}
	}
	if other != nil {
		return "", fmt.Errorf("%w: to %q it answered %q and not the echo that a DATAQ gives", instrument.ErrIdentity, command, other)
	}
	return "", unanswered(command, line)
}

// askOnce adds to line what has come of one, and sets other to one that is no echo.
func (d *Device) askOnce(ctx context.Context, command string, line, other *[]byte) (string, error) {
	if _, err := d.conn.Write(ctx, []byte(command+"\r")); err != nil {
		return "", fmt.Errorf("send %q: %w", command, err)
	}
	var b [1]byte
	for len(*line) < maxAnswer {
		if _, err := d.conn.Read(ctx, b[:]); err != nil {
			return "", fmt.Errorf("answer to %q: %w", command, err)
		}
		switch {
		case b[0] == '\r' && len(*line) > 0:
			if rest, ok := strings.CutPrefix(string(*line), command); ok {
				return strings.TrimSpace(rest), nil
			}
			*other, *line = *line, nil
		case b[0] != '\r' && b[0] != '\n' && b[0] != 0:
			*line = append(*line, b[0])
		}
	}
	return "", fmt.Errorf("%w: to %q it answered %q and no end of line", instrument.ErrIdentity, command, *line)
}

func unanswered(command string, got []byte) error {
	if len(got) == 0 {
		return fmt.Errorf("%w: no echo of %q within %v", instrument.ErrSilent, command, answerTime)
	}
	return fmt.Errorf("%w: to %q it sent %q and no end of line", instrument.ErrIdentity, command, got)
}

// identify asks the device what it is.
func (d *Device) identify(ctx context.Context) error {
	var told [10]string
	for _, i := range []int{0, 1, 2, 6, 9} {
		var err error
		if told[i], err = d.ask(ctx, fmt.Sprintf("info %d", i)); err != nil {
			return err
		}
	}
	switch {
	case told[0] != "DATAQ":
		return fmt.Errorf("%w: it calls itself %q, not DATAQ", instrument.ErrIdentity, told[0])
	case !slices.Contains(d.model.numbers, told[1]):
		return fmt.Errorf("%w: it is a %q, not a %s: set model", instrument.ErrIdentity, told[1], d.opts.Model)
	case told[9] != fmt.Sprint(dividend):
		return fmt.Errorf("%w: its clock is %q, and this driver knows %d", instrument.ErrIdentity, told[9], dividend)
	}
	d.identity.Model, d.identity.Firmware = d.opts.Model, told[2]
	d.identity.Serial = told[6][:min(8, len(told[6]))] // two more digits are the maker's
	return nil
}

// packet is the size of the device's packets, as its ps command counts it: the
// largest that fills in the time that a live view may lag.
func (d *Device) packet() int {
	ps, bytes := 0, d.opts.rate()*float64(2*d.opts.items())*packetTime
	for ps < 7 && float64(int(32)<<ps) <= bytes {
		ps++
	}
	return ps
}

const digitalItem = 8

// setUp writes the scan. Putting its first item begins a new list.
func (d *Device) setUp(ctx context.Context) error {
	commands := []string{"encode 0", fmt.Sprintf("ps %d", d.packet())}
	put := func(item int) {
		commands = append(commands, fmt.Sprintf("slist %d %d", len(commands)-2, item))
	}
	if d.opts.sync() {
		put(digitalItem)
	}
	for _, i := range d.opts.Inputs {
		put(slices.Index(d.model.Ranges, d.model.RangeOf(i))<<8 | i.AIN)
	}
	if d.model.digital { // and so has decimation, which an earlier program may have left on
		for _, i := range d.opts.Inputs {
			commands = append(commands, fmt.Sprintf("filter %d 0", i.AIN))
		}
		commands = append(commands, "dec 1")
	}
	commands = append(commands, fmt.Sprintf("srate %d", int(d.opts.srate())))
	for _, c := range commands {
		if _, err := d.ask(ctx, c); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
	}
	return nil
}
