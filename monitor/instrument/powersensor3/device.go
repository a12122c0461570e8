// Package powersensor3 drives a PowerSensor3: four pairs of a current and a
// voltage sensor at 20 kHz over USB CDC (firmware 1.6).
//
// On the wire a frame is a time stamp (µs modulo 1024) and up to eight sensors,
// two bytes each:
//
//	byte 0: 1 i i i a a a a    sensor id, high bits of the level
//	byte 1: 0 m b b b b b b    marker, low bits of the level
//
// The stamp is a packet of sensor 7 with the marker set. There is no checksum:
// losses show in the ids and in the stamps.
package powersensor3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "powersensor3"

const (
	answerTime = time.Second           // for one exchange
	quietTime  = 50 * time.Millisecond // a stopped device is quiet for so long
	settleTime = 3 * time.Second       // for a device to fall silent
)

// Device is a PowerSensor3 behind a serial port. It implements
// instrument.Instrument.
type Device struct {
	instrument.Base
	opts    Options
	sensors [Sensors]Sensor
	ids     []int // sensor id of each channel
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	// USB: the baud rate is without effect.
	base, err := instrument.NewBase(Kind, address, o, transport.Options{})
	if err != nil {
		return nil, err
	}
	return &Device{Base: base, opts: o}, nil
}

// Sensors is the configuration that the device stores, as read by Open.
func (d *Device) Sensors() [Sensors]Sensor { return d.sensors }

// Open connects, stops whatever an earlier program left running, and reads
// version and configuration.
func (d *Device) Open(ctx context.Context) error {
	return d.Connect(ctx, d.connect, func(context.Context) (err error) {
		d.ids, d.In, err = d.describe(d.sensors)
		return err
	})
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
	d.ID.Model, d.ID.Firmware = "PowerSensor3 "+board, firmware
	if d.sensors, err = d.readConfig(ctx); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	return nil
}

// silence stops an acquisition that an earlier program left running: a stream, or a reading of
// the configuration, which takes any byte for a request to go on. So T is sent
// until nothing comes back.
func (d *Device) silence(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		if _, err := d.Conn.Write(short, []byte{'T'}); err != nil {
			return fmt.Errorf("stop: %w", err)
		}
		n, err := d.Conn.Drain(short, quietTime)
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

// versionText is the form of a firmware's version: board, number, and variant.
var versionText = lazy.Regexp(`^F\d{3}-\d+\.\d+(\.\d+)?(-[A-Za-z0-9]+)*$`)

// version asks for the firmware's version. What an earlier question is answered with
// late is passed over.
func (d *Device) version(ctx context.Context) (version string, err error) {
	const tries = 3 // where something else comes back
	quiet := quietTime
	for try := range tries {
		if try > 0 {
			quiet *= 4
			if err := transport.Quiet(ctx, d.Conn, quiet, settleTime); err != nil {
				return "", err
			}
		}
		version, err = d.askVersion(ctx)
		if err == nil && try > 0 {
			err = transport.Quiet(ctx, d.Conn, quiet, settleTime)
		}
		if !errors.Is(err, instrument.ErrIdentity) && !errors.Is(err, instrument.ErrSilent) {
			break
		}
	}
	return version, err
}

// askVersion asks for the firmware's version, a line of text.
func (d *Device) askVersion(ctx context.Context) (string, error) {
	short, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := d.Conn.Write(short, []byte{'V'}); err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	var line []byte
	var b [1]byte
	for len(line) < 64 {
		if _, err := d.Conn.Read(short, b[:]); err != nil {
			switch {
			case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
				return "", fmt.Errorf("read the version: %w", err)
			case len(line) == 0:
				return "", fmt.Errorf("%w: nothing came back to V (is this the right port?)", instrument.ErrSilent)
			}
			return "", fmt.Errorf("%w: to V it sent %q and no end of line", instrument.ErrIdentity, line)
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	version := strings.TrimSpace(string(line))
	if !versionText().MatchString(version) {
		return "", fmt.Errorf("%w: it calls itself %q, a PowerSensor3 something like F411-1.6.1",
			instrument.ErrIdentity, version)
	}
	return version, nil
}

// readConfig reads the eight stored sensors.
func (d *Device) readConfig(ctx context.Context) (s [Sensors]Sensor, err error) {
	command := []byte{'R'}
	for i := range s {
		var b [SensorBytes]byte
		if err := transport.Ask(ctx, d.Conn, command, b[:], 3*answerTime); err != nil {
			return s, fmt.Errorf("sensor %d: %w", i, err)
		}
		s[i].Unmarshal(b)
		command = []byte{'A'} // any byte asks for the next
	}
	var b [1]byte // the D that ends the exchange
	if err := transport.Ask(ctx, d.Conn, command, b[:], answerTime); err != nil {
		return s, err
	}
	if b[0] != 'D' {
		err = fmt.Errorf("%w: %q where D was due", instrument.ErrIdentity, b[0])
	}
	return s, err
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

// Options are the settings of the driver in a bench file.
type Options struct {
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
	// PairNames takes the rails' names from the device's memory; default true.
	// False names them pair0 to pair3.
	PairNames bool `yaml:"pair_names"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options { return Options{Silence: 5 * time.Second, PairNames: true} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	if o.Silence < 100*time.Millisecond || o.Silence > time.Hour {
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	return nil
}

// NaturalRails makes a rail of each pair, for a bench file that names none. The
// roles follow from the names that the device stores. If they name one of the
// slot's two rails, the other is missing; if none, nothing is known.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	rails = instrument.PairRails(in.Channels)
	has := map[measure.Role]bool{}
	for _, r := range rails {
		has[r.Role] = true
	}
	switch {
	case has[measure.RolePCIe12V] && !has[measure.RolePCIe3V3]:
		missing = []string{"pcie_3v3"}
	case has[measure.RolePCIe3V3] && !has[measure.RolePCIe12V]:
		missing = []string{"pcie_12v"}
	}
	return rails, missing
}
