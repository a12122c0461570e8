// Package pmd drives an ElmorLabs PMD-USB: four connectors, each with a voltage
// and a current, at some 4.8 thousand scans a second over a CH340 serial port.
//
// In continuous mode a record is a time stamp (16 bits, little-endian) and one
// 16-bit word a channel with a signed 12-bit count in bits 15..4 and zeros below:
//
//	tt tt | v0 VV | i0 II | v0 VV | i0 II | v0 VV | i0 II | v0 VV | i0 II
//
// There is no delimiter and no checksum. The zeros and the step of the stamps
// alone separate a record from its neighbours.
package pmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/assemble"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "pmd"

// Device is a PMD-USB behind a serial port or a socket. It implements
// instrument.Instrument.
type Device struct {
	instrument.Base
	opts Options
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	d := &Device{opts: o}
	d.Steps, d.Run = []instrument.Step{d.setUp}, d.stream
	return d, instrument.Init(&d.Base, Kind, address, o, transport.Options{Baud: powerOnBaud}, Inputs)
}

// setUp finds the line's speed, identifies the device, reads its offsets and raises the speed.
func (d *Device) setUp(ctx context.Context) error {
	baud, err := d.find(ctx)
	if err != nil {
		return err
	}
	if err := d.identify(ctx); err != nil {
		return err
	}
	if d.opts.DeviceOffsets {
		// The device's own zero adjustment, in counts: the eight signed bytes from byte 4 of its
		// configuration (version, padding and checksum come first). The rest belongs to its display and
		// differs between firmwares.
		var b [12]byte
		err := transport.Ask(ctx, d.Conn, []byte{cmdReadConfig}, b[:], answerTime)
		if err == nil {
			_, err = transport.Drain(ctx, d.Conn, quietTime)
		}
		if err != nil {
			return fmt.Errorf("read the stored offsets: %w", err)
		}
		var offsets [Channels]int8
		for i := range offsets {
			offsets[i] = int8(b[4+i])
		}
		d.In.Channels = channels(offsets)
	}
	return d.raise(ctx, baud)
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Baud is the line's speed while measuring; default 921600. The device starts
	// at 115200, too slow for its own samples, and is set back when closed.
	Baud int `yaml:"baud"`
	// TickHz is the rate of the device's time stamps; default 2.9345e6, which the
	// public captures fit (the nominal value is 3 MHz).
	TickHz float64 `yaml:"tick_hz"`
	// UTick is its relative standard uncertainty; default 5e-4. Against the host's
	// clock, by the edges of its load, the public capture of a square wave runs
	// 529 ppm off this rate; the others 10 to 300 ppm.
	UTick float64 `yaml:"u_tick"`
	// DeviceOffsets adds the offsets that the device stores; default true.
	DeviceOffsets bool `yaml:"device_offsets"`
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options {
	return Options{Baud: 921600, TickHz: 2.9345e6, UTick: 5e-4, DeviceOffsets: true, Silence: 5 * time.Second}
}

// bauds are the speeds that the device knows, the likeliest first.
var bauds = []int{115200, 921600, 460800, 2000000, 1500000, 230400}

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	if !slices.Contains(bauds, o.Baud) {
		return fmt.Errorf("baud %d: the device knows 115200, 230400, 460800, 921600, 1500000 and 2000000", o.Baud)
	}
	return cmp.Or(
		instrument.Within("tick_hz", o.TickHz, 1e6, 1e7, "1e6 to 1e7"),
		instrument.Within("u_tick", o.UTick, 0, 0.1, "0 to 0.1"),
		instrument.CheckSilence(o.Silence),
	)
}

const (
	voltsPerCount   = 0.007568
	amperesPerCount = 0.0488
	ticksPerScan    = 613.7 // mean of the public captures; single steps vary from 581 to 1017
)

// The uncertainties of a device as it is sold. The maker states none, so they
// are set wide on purpose: 1 % for the current's gain (shunt and amplifier),
// 0.5 % for the voltage's (divider and reference). The zero of the current is
// 2 counts: a connector with nothing plugged in read 1.5 to 1.7 counts in all of
// the public captures. The noise of one reading was 0.95 counts there, that of a
// voltage 1.0 to 1.5. A bench file that holds a calibration replaces all of them.
const (
	uGainVoltage   = 0.005
	uGainCurrent   = 0.01
	uOffsetVoltage = 2 * voltsPerCount
	uOffsetCurrent = 2 * amperesPerCount
	noiseVoltage   = 1.2 * voltsPerCount
	noiseCurrent   = 0.95 * amperesPerCount
)

// connectors in the order of the channels.
var connectors = [Channels / 2]string{"pcie1", "pcie2", "eps1", "eps2"}

// channels are the device's inputs; offsets are counts to add to a reading.
func channels(offsets [Channels]int8) []measure.Channel {
	out := instrument.VoltAmpere(connectors[:], measure.Channel{
		Gain: voltsPerCount, UGain: uGainVoltage, UOffset: uOffsetVoltage, Noise: noiseVoltage, MinCount: -2048,
		MaxCount: 2047,
	}, measure.Channel{
		Gain: amperesPerCount, UGain: uGainCurrent, UOffset: uOffsetCurrent, Noise: noiseCurrent, MinCount: -2048,
		MaxCount: 2047,
	})
	for i := range out {
		out[i].Offset = float64(offsets[i]) * out[i].Gain
	}
	return out
}

// Inputs are the device's channels before it is opened: those of a device
// without stored offsets.
func Inputs(o Options) instrument.Inputs {
	return instrument.Inputs{Timebase: measure.Timebase{ // the device's stamps; a scan takes 613.7 ticks on average
		TickHz: measure.Hertz(o.TickHz), UTickHz: o.UTick, TicksPerScan: ticksPerScan, Stamped: true,
	}, Channels: channels([Channels]int8{})}
}

// NaturalRails makes a rail of each connector, wired as in the public captures:
// an adapter brings the slot's 12 V to EPS1, the card's own connectors are on
// the others, and the slot's 3.3 V is not measured.
func NaturalRails(instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.ClampRails(connectors[:], []int{0, 1, 2, 3}, func(name string) measure.Role {
		if name == "eps1" {
			return measure.RolePCIe12V
		}
		return measure.RolePSU
	}), []string{"pcie_3v3"}
}

// lost counts the scans missing between two that lie delta ticks apart. The
// device's steps vary, so that the number is certain only for a single one.
func lost(delta int64) (uint64, bool) {
	if delta < MaxStep {
		return 0, true
	}
	n := max(1, int64(float64(delta)/ticksPerScan+0.5)-1)
	return uint64(n), delta < 1770 // three of the shortest steps
}

const (
	readSize  = 2048 // 24 ms: a full buffer means that we are behind
	blockTime = 0.02 // seconds a block
)

// stream is one Stream call.
type stream struct {
	parser Parser
	asm    *assemble.Assembler
	counts [Channels]measure.Count
}

// newStream prepares one Stream call; blocks cover 20 ms.
func newStream(o Options, sink instrument.Sink) *stream {
	return &stream{asm: assemble.New(assemble.Config{
		Modulus: StampTurn, MinStep: MinStep, MaxStep: MaxStep, Lost: lost, FlushTicks: int64(blockTime * o.TickHz),
	}, Inputs(o), sink)}
}

// stream starts sampling and delivers until ctx ends; then it stops the device.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	s := newStream(d.opts, sink)
	take := func(b []byte, full bool) error { return s.take(d.Now(), b, full) }
	start := func(ctx context.Context) error { return d.Write(ctx, "start", startCommand) }
	// The record that waits for its successor is whole when a stream ends: it is the last.
	p := transport.Pump{
		Size: readSize, Silence: d.opts.Silence, Take: take, Rest: func() error { return s.rest(s.parser.Rest()) },
		Finish: func() error { return s.rest(s.parser.Flush()) },
	}
	return d.Pump(ctx, start, p, d.halt)
}

// take parses the bytes of one read.
func (s *stream) take(at time.Time, b []byte, full bool) error {
	s.asm.Arrived(at, full)
	for {
		n, ok := s.parser.Next(b)
		b = b[n:]
		s.asm.Skipped(s.parser.Skipped)
		if s.parser.Skipped = 0; !ok {
			return s.asm.ReadDone()
		}
		if err := s.scan(); err != nil {
			return err
		}
	}
}

// scan hands the parser's record to the assembler.
func (s *stream) scan() error {
	for c, v := range s.parser.Record.Counts {
		s.counts[c] = measure.Count(v)
	}
	return s.asm.Scan(int64(s.parser.Record.Stamp), s.counts[:])
}

// rest delivers the scans held back, and the record that was released, while the line is quiet or
// has ended.
func (s *stream) rest(released bool) error {
	if released {
		if err := s.scan(); err != nil {
			return err
		}
	}
	return s.asm.Flush()
}

// ReadRecording turns the serial bytes of continuous mode, as they were once
// recorded, into blocks. They may begin in the middle of a record. A gap is
// counted by the stamps alone: whole turns of 22 ms cannot be seen without the
// time of arrival, and every gap reports that it is an estimate.
func ReadRecording(r io.Reader, o Options, sink instrument.Sink) error {
	err := o.Validate()
	if err == nil {
		s := newStream(o, sink)
		if _, err = io.CopyBuffer(s, struct{ io.Reader }{r}, make([]byte, 16*readSize)); err == nil {
			err = s.rest(s.parser.Flush())
		}
	}
	if err != nil {
		return fmt.Errorf("%s: recording: %w", Kind, err)
	}
	return nil
}

// Write takes bytes whose time of arrival is not known.
func (s *stream) Write(b []byte) (int, error) { return len(b), s.take(time.Time{}, b, true) }

// Total is the power of all four connectors at a record's time.
type Total struct {
	At    measure.Seconds // by the record's stamp, since the first record
	Power measure.Watt
	// Lost is how long the stamps stood still before this record: records were lost.
	// Whole turns of the stamp, 22 ms each, cannot be seen. Zero where none were.
	Lost measure.Seconds
	// Skipped counts bytes before this record that belong to none.
	Skipped uint64
}

// Totals decodes the serial bytes of continuous mode, as they were once recorded,
// as they stand: every count is taken, also a negative one, without any offset. It
// holds one buffer, however long the recording.
func Totals(r io.Reader, o Options) iter.Seq2[Total, error] {
	return func(yield func(Total, error) bool) {
		d, buf := totals{hz: o.TickHz}, make([]byte, 1<<16)
		err := o.Validate()
		for n := 0; err == nil; {
			n, err = r.Read(buf)
			for range transport.Records(buf[:n], d.parser.Next) {
				if !yield(d.total(), nil) {
					return
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(Total{}, fmt.Errorf("%s: recording: %w", Kind, err))
		} else if d.parser.Flush() {
			yield(d.total(), nil)
		}
	}
}

// totals unwraps the stamps and adds up the connectors.
type totals struct {
	parser  Parser
	hz      float64
	last    uint16
	tick    int64
	started bool
	skipped uint64
}

// total is the record's power by the nominal scale, with the time since the record before.
func (d *totals) total() Total {
	rec := &d.parser.Record
	var out Total
	if d.started {
		step := int64(rec.Stamp - d.last) // modulo 2^16
		if d.tick += step; step >= MaxStep {
			out.Lost = measure.Seconds((float64(step) - ticksPerScan) / d.hz)
		}
	}
	d.last, d.started = rec.Stamp, true
	out.Skipped, d.skipped = d.parser.Skipped-d.skipped, d.parser.Skipped
	var sum int32 // each product is below 2^22
	for c := 0; c < Channels; c += 2 {
		sum += int32(rec.Counts[c]) * int32(rec.Counts[c+1])
	}
	out.At = measure.Seconds(float64(d.tick) / d.hz)
	out.Power = measure.Watt(float64(sum) * (voltsPerCount * amperesPerCount))
	return out
}

// SystematicOf returns the uncertainty that the factory's figures leave to the sum of the
// connectors: the relative standard uncertainty of their gains, which one reference
// and one kind of shunt share, and the one of their zeros at 12 V, of which each
// amplifier has its own.
func SystematicOf() (relative float64, zero measure.Watt) {
	const volts = 12
	return math.Hypot(uGainVoltage, uGainCurrent), measure.Watt(volts * uOffsetCurrent * math.Sqrt(Channels/2))
}
