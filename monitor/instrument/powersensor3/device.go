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
	d.dial = transport.Dialer(address, transport.Options{}) // USB: the baud rate means nothing
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
	return d.open(ctx, func(ctx context.Context) error {
		err := d.connect(ctx)
		if err == nil {
			d.ids, d.inputs, err = d.describe(d.sensors)
		}
		return err
	})
}

func (d *Device) open(ctx context.Context, setUp func(context.Context) error) error {
	if d.conn != nil {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	conn, err := d.dial(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", Kind, err)
	}
	d.conn = conn
	if err := setUp(ctx); err != nil {
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

// connect identifies the device and reads its configuration.
func (d *Device) connect(ctx context.Context) error {
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
	return nil
}

// silence stops what an earlier program left running: a stream, or a reading of
// the configuration, which takes any byte for a request to go on. So T is sent
// until nothing comes back.
func (d *Device) silence(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		if _, err := d.conn.Write(short, []byte{'T'}); err != nil {
			return fmt.Errorf("stop: %w", err)
		}
		n, err := d.conn.Drain(short, quietTime)
		switch {
		case err == nil && n == 0:
			return nil
		case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%w: it keeps sending after a stop: is this a PowerSensor3?", instrument.ErrIdentity)
		case err != nil:
			return err
		}
	}
}

var versionText = regexp.MustCompile(`^F\d{3}-\d+\.\d+(\.\d+)?(-[A-Za-z0-9]+)*$`)

// version asks for the firmware's version. What an earlier question is answered with
// late is passed over.
func (d *Device) version(ctx context.Context) (version string, err error) {
	quiet := quietTime
	for try := range versionTries {
		if try > 0 {
			quiet *= 4
			if err := transport.Quiet(ctx, d.conn, quiet, settleTime); err != nil {
				return "", err
			}
		}
		version, err = d.askVersion(ctx)
		if err == nil && try > 0 {
			err = transport.Quiet(ctx, d.conn, quiet, settleTime)
		}
		if !errors.Is(err, instrument.ErrIdentity) && !errors.Is(err, instrument.ErrSilent) {
			break
		}
	}
	return version, err
}

// versionTries is how often the version is asked for where something else comes back.
const versionTries = 3

// askVersion asks for the firmware's version, a line of text.
func (d *Device) askVersion(ctx context.Context) (string, error) {
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
		if err := transport.Ask(ctx, d.conn, command, b[:], 3*answerTime); err != nil {
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

// describe makes the inputs of a configuration.
func (d *Device) describe(sensors [Sensors]Sensor) (ids []int, in instrument.Inputs, err error) {
	names := pairNames(sensors)
	in.Timebase = measure.Timebase{TickHz: 1e6, UTickHz: clockTolerance, TicksPerScan: FrameMicros, Stamped: true}
	for id, s := range sensors {
		if !s.InUse {
			continue
		}
		name := names[id/2]
		if !d.opts.PairNames {
			name = fmt.Sprintf("pair%d", id/2)
		}
		c, err := s.channel(id, name)
		if err != nil {
			return nil, in, err
		}
		ids, in.Channels = append(ids, id), append(in.Channels, c)
	}
	if len(ids) == 0 {
		return nil, in, errors.New("no sensor is marked as in use: see wattmark powersensor3 config --help")
	}
	return ids, in, nil
}
