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
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/machineid"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/assemble"
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
	d := &Device{opts: o}
	d.Run, d.Steps = d.stream, []instrument.Step{d.connect, func(context.Context) (err error) {
		d.ids, d.In, err = d.describe(d.sensors)
		return err
	}}
	// USB: the baud rate is without effect.
	return d, instrument.Init(&d.Base, Kind, address, o, transport.Options{}, nil)
}

// Sensors is the configuration that the device stores, as read by Open.
func (d *Device) Sensors() [Sensors]Sensor { return d.sensors }

// connect identifies the device and reads its configuration.
func (d *Device) connect(ctx context.Context) error {
	if err := d.silence(ctx); err != nil {
		return err
	}
	var version string
	err := transport.AskAgain(ctx, d.Conn, answerTime, func(within time.Duration) (err error) {
		version, err = d.askVersion(ctx, within)
		return err
	})
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
		n, err := transport.Drain(short, d.Conn, quietTime)
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

// askVersion asks for the firmware's version, a line of text.
func (d *Device) askVersion(ctx context.Context, within time.Duration) (string, error) {
	short, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err := d.Conn.Write(short, []byte{'V'}); err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	var line []byte
	err := d.Listen(ctx, short, "read the version", func(b []byte) (bool, error) {
		line = append(line, b...)
		return len(line) >= 64 || bytes.IndexByte(line, '\n') >= 0, nil
	}, "nothing came back to V (is this the right port?)", func(int) string {
		return fmt.Sprintf("to V it sent %q and no end of line", line)
	})
	if err != nil {
		return "", err
	}
	text, _, _ := strings.Cut(string(line), "\n")
	version := strings.TrimSpace(text)
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
	// Marks is the time from one hardware mark to the next; default 0, none.
	Marks time.Duration `yaml:"marks"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options { return Options{Silence: 5 * time.Second, PairNames: true} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	if err := instrument.CheckSilence(o.Silence); err != nil || o.Marks == 0 {
		return err
	}
	return instrument.Within("marks", o.Marks, 100*time.Millisecond, time.Hour,
		"100ms to 1h from one to the next, or 0 for none")
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

const (
	readSize   = 2048        // 5.7 ms: a full buffer means that we are behind
	flushTicks = 10_000      // µs a block
	stopTime   = time.Second // for the mark that ends a stream
)

// stampTolerance is how far a stamp may lie from 50 µs and still be the next one.
const stampTolerance = 5

// lost counts the frames missing between two that lie delta µs apart.
func lost(delta int64) (uint64, bool) {
	steps := (delta + FrameMicros/2) / FrameMicros
	off := delta - steps*FrameMicros
	if steps < 2 {
		return 0, true
	}
	return uint64(steps - 1), off >= -stampTolerance && off <= stampTolerance
}

// stream is one Stream call.
type stream struct {
	d      *Device
	parser Parser
	asm    *assemble.Assembler
	sink   instrument.Sink
	counts []measure.Count
	// ask asks for a mark, each Options.Marks; asked are the times of requests whose marks have not come.
	ask   func() error
	next  time.Time
	asked []time.Time
}

// mark asks for a mark where it is time for one.
func (s *stream) mark() error {
	now := s.d.Now()
	if s.d.opts.Marks == 0 || now.Before(s.next) {
		return nil
	}
	s.next, s.asked = now.Add(s.d.opts.Marks), append(s.asked, now)
	return s.ask()
}

// marked returns the event of a marked frame, of the oldest request or of another program's. Where a marked frame was
// lost, later ones count as later than they were, never as sooner.
func (s *stream) marked() measure.Event {
	if len(s.asked) == 0 {
		return measure.Event{
			Kind: measure.EventNote, FirstScan: s.asm.Next(), Scans: 1, Channel: -1, Detail: "marked on the host's request",
		}
	}
	m := measure.HardwareMark{Asked: s.asked[0], Machine: machineid.Boot()}
	s.asked = s.asked[1:]
	return m.Event(s.asm.Next())
}

// stream starts sampling and delivers until ctx ends; then it stops the device.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	s := &stream{d: d, sink: sink, counts: make([]measure.Count, len(d.ids))}
	s.ask = func() error { return d.Write(ctx, "mark", []byte{'M'}) }
	for _, id := range d.ids {
		s.parser.Want |= 1 << id
	}
	s.asm = assemble.New(assemble.Config{
		Modulus: StampTurn, MinStep: FrameMicros - stampTolerance, MaxStep: FrameMicros + stampTolerance,
		Grid: FrameMicros, Lost: lost, FlushTicks: flushTicks,
	}, d.In, sink)
	start := func(ctx context.Context) error { return d.Write(ctx, "start", []byte{'S'}) }
	p := transport.Pump{Size: readSize, Silence: d.opts.Silence, Take: s.take, Rest: s.asm.Flush, Finish: s.asm.Flush}
	return d.Pump(ctx, start, p, d.stop)
}

// take parses the bytes of one read.
func (s *stream) take(b []byte, full bool) error {
	s.asm.Arrived(s.d.Now(), full)
	for len(b) > 0 {
		n, ok := s.parser.Next(b)
		b = b[n:]
		s.asm.Skipped(s.parser.Skipped)
		if s.parser.Skipped = 0; !ok {
			continue
		}
		f := &s.parser.Frame
		for c, id := range s.d.ids {
			s.counts[c] = measure.Count(f.Levels[id])
		}
		if f.Marker {
			if err := s.sink.Event(s.marked()); err != nil {
				return err
			}
		}
		if err := s.asm.Scan(int64(f.Stamp), s.counts); err != nil {
			return err
		}
	}
	if err := s.asm.ReadDone(); err != nil {
		return err
	}
	return s.mark()
}

// stop ends the stream and waits for its mark.
func (d *Device) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := d.Write(ctx, "stop", []byte{'X'}); err != nil {
		return err
	}
	var mark stopMark
	buf := make([]byte, readSize)
	for {
		n, err := d.Conn.Read(ctx, buf)
		switch {
		case transport.Ended(err), err == nil && mark.find(buf[:n]):
			return nil // where no mark came the next Open stops it again
		case err != nil:
			return fmt.Errorf("stop: %w", err)
		}
	}
}

const (
	// Sensors is the number of inputs of a device: even ids current, odd ids voltage.
	Sensors = 8
	// MaxLevel is full scale of the 10-bit converter.
	MaxLevel = 1023
	// StampTurn is where the time stamp wraps, in µs.
	StampTurn = 1024
	// FrameMicros is the distance of two frames.
	FrameMicros = 50
	stampID     = 7
)

// Frame is one reading of all sensors.
type Frame struct {
	// Stamp is the device's time in µs, modulo StampTurn.
	Stamp uint16
	// Levels are 0 to MaxLevel, by sensor id; those not sent are 0.
	Levels [Sensors]uint16
	// Marker reports that the host had asked to mark this frame.
	Marker bool
}

// Parser finds frames in a stream of bytes, whatever its fragments. The zero
// value waits for all eight sensors. It keys on the sensors' ids and never
// counts bytes, so that a lost packet costs one frame.
type Parser struct {
	// Frame is the frame that Next completed.
	Frame Frame
	// Want has a bit for each sensor that a frame must have; zero means all.
	Want uint8
	// Skipped counts bytes that were no packet, Broken frames that began and
	// lacked a sensor. The user may set them to zero.
	Skipped, Broken uint64

	first   byte // first half of a packet
	pending bool
	open    bool // a stamp was seen and its frame is not complete
	seen    uint8
	last    int8 // id of the last sensor
}

// Next consumes bytes of b up to the end of the next frame. It returns how many
// it took and whether Frame is complete. It takes all of b if not.
func (p *Parser) Next(b []byte) (n int, ok bool) {
	for i, c := range b {
		switch {
		case !p.pending && c&0x80 == 0: // second half without a first
			p.Skipped++
		case !p.pending:
			p.first, p.pending = c, true
		case c&0x80 != 0: // first half again: the one before lost its second
			p.Skipped++
			p.first = c
		default:
			p.pending = false
			if p.packet(p.first>>4&7, c&0x40 != 0, uint16(p.first&0xF)<<6|uint16(c&0x3F)) {
				return i + 1, true
			}
		}
	}
	return len(b), false
}

// packet takes one packet and reports whether it completes a frame.
func (p *Parser) packet(id byte, marker bool, level uint16) bool {
	if id == stampID && marker {
		p.abandon()
		p.open, p.seen, p.last = true, 0, -1
		p.Frame = Frame{Stamp: level}
		return false
	}
	if !p.open {
		return false // a sensor that is not wanted, or the rest of a broken frame
	}
	switch {
	case int8(id) > p.last:
	case int8(id) == p.last && p.Frame.Levels[id] == level:
		return false // the line delivered a packet twice
	default: // packets of two frames: nothing here can be trusted
		p.abandon()
		return false
	}
	p.Frame.Levels[id], p.last = level, int8(id)
	p.seen |= 1 << id
	if id == 0 {
		p.Frame.Marker = marker
	}
	want := cmp.Or(p.Want, 0xFF)
	p.open = p.seen&want != want
	return !p.open
}

// abandon gives up an unfinished frame.
func (p *Parser) abandon() {
	if p.open {
		p.Broken++
		p.open = false
	}
}

// stopMark finds the two packets FF 3F that end a stream. One of them is also
// sensor 7 at full scale, but a stamp always follows that sensor, so two in a
// row are no data. It is looked for only once the stop was asked for.
type stopMark struct{ last uint32 }

// find looks for the mark that ends a stream, over the borders of reads.
func (s *stopMark) find(b []byte) bool {
	for _, c := range b {
		if s.last = s.last<<8 | uint32(c); s.last == 0xFF3F_FF3F {
			return true
		}
	}
	return false
}
