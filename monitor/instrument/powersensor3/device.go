package powersensor3

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "powersensor3"

const (
	answerTime = time.Second           // for one exchange
	quietTime  = 50 * time.Millisecond // a stopped device says nothing for so long
	settleTime = 3 * time.Second       // for a device to fall silent
)

// Device is a PowerSensor3 behind a serial port. It implements
// instrument.Instrument.
type Device struct {
	address string
	opts    Options
	dial    func(context.Context) (transport.Conn, error)
	now     func() time.Time

	conn     transport.Conn
	identity instrument.Identity
	sensors  [Sensors]Sensor
	inputs   instrument.Inputs
	ids      []int // sensor id of each channel
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if _, err := transport.ParseAddress(address); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	d := &Device{address: address, opts: o, now: time.Now}
	d.dial = func(ctx context.Context) (transport.Conn, error) {
		return transport.Dial(ctx, address, transport.Options{}) // USB: the baud rate means nothing
	}
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	return d, nil
}

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the sensors in use; none before Open.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Sensors is the configuration that the device stores, as read by Open.
func (d *Device) Sensors() [Sensors]Sensor { return d.sensors }

// Open connects, stops whatever an earlier program left running, and reads
// version and configuration.
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

// Close stops nothing: Stream has done that. It releases the port.
func (d *Device) Close() error {
	if d.conn == nil {
		return nil
	}
	err := d.conn.Close()
	d.conn = nil
	return err
}

func (d *Device) setUp(ctx context.Context) error {
	if err := d.silence(ctx); err != nil {
		return err
	}
	version, err := d.version(ctx)
	if err != nil {
		return err
	}
	board, firmware, _ := strings.Cut(version, "-")
	d.identity.Model, d.identity.Firmware = "PowerSensor3 "+board, firmware
	if d.sensors, err = d.readConfig(ctx); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	return d.describe()
}

// silence stops a stream that an earlier program left running.
func (d *Device) silence(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if _, err := d.conn.Write(short, []byte{'T'}); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if _, err := d.conn.Drain(short, quietTime); err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w: it keeps sending after a stop: is this a PowerSensor3?", instrument.ErrIdentity)
		}
		return err
	}
	return nil
}

var versionText = regexp.MustCompile(`^F\d{3}-\d+\.\d+(\.\d+)?(-[A-Za-z0-9]+)*$`)

// version asks for the firmware's version, a line of text.
func (d *Device) version(ctx context.Context) (string, error) {
	short, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := d.conn.Write(short, []byte{'V'}); err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	var line []byte
	var b [1]byte
	for len(line) < 64 {
		if _, err := d.conn.Read(short, b[:]); err != nil {
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				return "", noVersion(line)
			}
			return "", fmt.Errorf("read the version: %w", err)
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	version := strings.TrimSpace(string(line))
	if !versionText.MatchString(version) {
		return "", fmt.Errorf("%w: it calls itself %q, a PowerSensor3 something like F411-1.6.1", instrument.ErrIdentity, version)
	}
	return version, nil
}

func noVersion(line []byte) error {
	if len(line) == 0 {
		return fmt.Errorf("%w: nothing came back to V (is this the right port?)", instrument.ErrSilent)
	}
	return fmt.Errorf("%w: to V it sent %q and no end of line", instrument.ErrIdentity, line)
}

// readConfig reads the eight stored sensors.
func (d *Device) readConfig(ctx context.Context) (s [Sensors]Sensor, err error) {
	command := []byte{'R'}
	for i := range s {
		var b [SensorBytes]byte
		if err := transport.Ask(ctx, d.conn, command, b[:], answerTime); err != nil {
			return s, fmt.Errorf("sensor %d: %w", i, err)
		}
		s[i].Unmarshal(b)
		command = []byte{'A'} // any byte asks for the next
	}
	return s, d.done(ctx, command)
}

// done sends the last byte of an exchange and awaits the D that ends it.
func (d *Device) done(ctx context.Context, last []byte) error {
	var b [1]byte
	if err := transport.Ask(ctx, d.conn, last, b[:], answerTime); err != nil {
		return err
	}
	if b[0] != 'D' {
		return fmt.Errorf("%w: %q where D was due", instrument.ErrIdentity, b[0])
	}
	return nil
}

// WriteConfig stores a configuration in the device and reads it back. The
// device must be open and not streaming.
func (d *Device) WriteConfig(ctx context.Context, sensors [Sensors]Sensor) error {
	if d.conn == nil {
		return fmt.Errorf("%s: write the configuration: not open", Kind)
	}
	if _, err := d.conn.Write(ctx, []byte{'W'}); err != nil {
		return fmt.Errorf("%s: write the configuration: %w", Kind, err)
	}
	for i, s := range sensors {
		b, ack := s.Marshal(), [2]byte{}
		reply := ack[:1]
		if i == Sensors-1 {
			reply = ack[:2] // the D follows at once
		}
		if err := transport.Ask(ctx, d.conn, b[:], reply, answerTime); err != nil {
			return fmt.Errorf("%s: write sensor %d: %w", Kind, i, err)
		}
		if ack[0] != 'S' || (i == Sensors-1 && ack[1] != 'D') {
			return fmt.Errorf("%s: write sensor %d: %w: answered %q", Kind, i, instrument.ErrIdentity, reply)
		}
	}
	back, err := d.readConfig(ctx)
	if err != nil {
		return fmt.Errorf("%s: read the configuration back: %w", Kind, err)
	}
	for i := range back {
		if back[i].Marshal() != sensors[i].Marshal() {
			return fmt.Errorf("%s: sensor %d reads back as %+v", Kind, i, back[i])
		}
	}
	d.sensors = back
	return d.describe()
}

// describe makes the inputs of the stored configuration.
func (d *Device) describe() error {
	names := pairNames(d.sensors)
	d.ids, d.inputs = nil, instrument.Inputs{Timebase: measure.Timebase{
		TickHz: 1e6, UTickHz: clockTolerance, TicksPerScan: FrameMicros, Stamped: true,
	}}
	for id, s := range d.sensors {
		if !s.InUse {
			continue
		}
		name := names[id/2]
		if !d.opts.PairNames {
			name = fmt.Sprintf("pair%d", id/2)
		}
		c, err := s.channel(id, name)
		if err != nil {
			return err
		}
		d.ids, d.inputs.Channels = append(d.ids, id), append(d.inputs.Channels, c)
	}
	if len(d.ids) == 0 {
		return errors.New("the device's memory marks no sensor as in use: configure it first")
	}
	return nil
}
