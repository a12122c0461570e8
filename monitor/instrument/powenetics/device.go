// Package powenetics drives a Powenetics v2: thirteen connectors of a PC, the
// graphics card's slot and plugs among them, at about 1000 scans a second over a
// serial line of 921600 baud.
//
// On the wire a frame is 69 bytes, big-endian, without a checksum:
//
//	CA AC                   mark
//	u16                     number of the frame, counting up and wrapping
//	13 × {u16 mV, u24 mA}   the connectors
//
// The number counts losses exactly; a frame's true length shows in the
// mark and the number of the next. The device stamps no time and has no command
// that stops it: once started it sends until it loses its power.
package powenetics

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/transport"
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
	instrument.Base
	opts Options
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	d := &Device{opts: o}
	d.Steps, d.Run = []instrument.Step{d.start}, d.stream
	return d, instrument.Init(&d.Base, Kind, address, o, transport.Options{Baud: baud}, Inputs)
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
	if _, err := d.Conn.Write(short, command); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	var p Parser
	frames, silent := 0, fmt.Sprintf("nothing came within %v of the start (is this the right port?)", answerTime)
	return d.Listen(ctx, short, "wait for frames", func(b []byte) (bool, error) {
		for range transport.Records(b, p.Next) {
			frames++
		}
		return frames >= enough, nil
	}, silent, func(total int) string {
		return fmt.Sprintf("%d bytes came within %v, but no frames: is this a Powenetics v2?", total, answerTime)
	})
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Rate is the frames a second; default 1000, the maker's figure. The device
	// stamps no time, so that device time is the frame's number over this rate.
	Rate float64 `yaml:"rate"`
	// URate is its relative standard uncertainty; default 2e-3. Nobody states how
	// the device keeps its rate.
	URate float64 `yaml:"u_rate"`
	// CalibrationOK sends CA AC BD 01 before the start, as the maker's program
	// does; default false, since it reportedly confirms a calibration.
	CalibrationOK bool `yaml:"calibration_ok"`
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options { return Options{Rate: 1000, URate: 2e-3, Silence: 5 * time.Second} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	return cmp.Or(
		instrument.Within("rate", o.Rate, 10, 1336, "10 to 1336, all that 921600 baud carry"),
		instrument.Within("u_rate", o.URate, 0, 0.1, "0 to 0.1"),
		instrument.CheckSilence(o.Silence),
	)
}

// connectors in the order of the frame.
var connectors = [Connectors]string{
	"atx_3v3", "atx_5vsb", "atx_12v", "atx_5v", "eps_12v_1", "atx_12vsb", "eps_12v_3", "eps_12v_2",
	"aux_12v_3", "aux_12v_2", "pcie_3v3", "pcie_12v", "aux_12v_1",
}

// natural are the connectors of the graphics card, slot first.
var natural = []int{10, 11, 12, 9, 8}

// The uncertainties of a device as it is sold. Its makers state a resolution of
// 1 mV and 5 mA and no accuracy, so the rest is set wide on purpose: 1 % and
// 0.5 % in gain of current and voltage, some steps of the zero. A bench file that
// holds a calibration replaces all of them.
const (
	uGainCurrent, uGainVoltage     = 0.01, 0.005
	uOffsetCurrent, uOffsetVoltage = 0.02, 0.01
	noiseCurrent, noiseVoltage     = 0.005, 0.001
)

// Inputs are the device's 26 channels; a count is a millivolt or a milliampere.
// A count of zero is an open connector, not the end of a range.
func Inputs(o Options) instrument.Inputs {
	// The timebase counts frames at the stated rate: the device sends no time.
	tb := measure.Timebase{TickHz: measure.Hertz(o.Rate), UTickHz: o.URate, TicksPerScan: 1}
	return instrument.Inputs{Timebase: tb, Channels: instrument.VoltAmpere(connectors[:],
		measure.Channel{
			Gain: 1e-3, UGain: uGainVoltage, UOffset: uOffsetVoltage, Noise: noiseVoltage, MinCount: -1, MaxCount: 1<<16 - 1,
		},
		measure.Channel{
			Gain: 1e-3, UGain: uGainCurrent, UOffset: uOffsetCurrent, Noise: noiseCurrent, MinCount: -1, MaxCount: 1<<24 - 1,
		},
	)}
}

// NaturalRails are the graphics card's: the slot's two and three plugs. The
// mainboard's and the processor's connectors are no part of a GPU.
func NaturalRails(instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.ClampRails(connectors[:], natural, instrument.RoleOf), nil
}

const (
	readSize = 4096 // 59 frames
	flush    = 20   // scans a block: 20 ms
	// restartAfter is how many frames in a row must be numbered backwards before a
	// device counts as started anew.
	restartAfter = 64
	noteAfter    = 10 // seconds, before the rate is judged
)

// stream is one Stream call.
type stream struct {
	d      *Device
	parser Parser
	out    *series.Builder
	rate   series.Rate
	counts [2 * Connectors]measure.Count

	frame    int64 // count of the last frame, from the stream's first
	number   uint16
	at       time.Time // arrival of the last frame
	backward int
	noted    bool
}

// stream delivers from now on until ctx ends.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	s := &stream{d: d, rate: series.Rate{Nominal: d.opts.Rate}, out: series.New(d.In, flush, sink)}
	stale := func(ctx context.Context) error { return transport.Stale(ctx, d.Conn, staleBytes) }
	p := transport.Pump{Size: readSize, Silence: d.opts.Silence, Take: s.take, Rest: s.rest, Finish: s.rest}
	return d.Pump(ctx, stale, p, func(context.Context) error { return nil }) // it cannot be stopped
}

// take parses the bytes of one read.
func (s *stream) take(b []byte, _ bool) error {
	at := s.d.Now()
	for {
		n, ok := s.parser.Next(b)
		b = b[n:]
		p := &s.parser // whose faults are passed on
		s.out.Skipped(p.Skipped)
		s.out.Repaired(p.Repaired)
		for ; p.Repeated > 0; p.Repeated-- {
			s.out.Repeated()
		}
		if p.Skipped, p.Repaired = 0, 0; !ok {
			return nil
		}
		if err := s.scan(at); err != nil {
			return err
		}
	}
}

// rest delivers the scans held back while the line is quiet.
func (s *stream) rest() error {
	for s.parser.Rest() {
		if err := s.scan(s.at); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// scan gives the frame its place among the others.
func (s *stream) scan(at time.Time) error {
	f := &s.parser.Frame
	step := int64(1)
	if s.out.Begun() {
		var exact bool
		if step, exact = s.step(at); step <= 0 {
			s.out.Repeated()
			return nil
		}
		if step > 1 {
			detail := "%s lost, by their numbers"
			if !exact {
				detail = "about %s lost: the device began to count anew; by the host's clock"
			}
			if err := s.out.Gap(uint64(step-1), exact, detail, measure.Plural(step-1, "frame")); err != nil {
				return err
			}
		}
	}
	s.frame, s.number, s.at = s.frame+step, f.Number, at
	s.rate.Seen(at, s.frame)
	for c := range Connectors {
		s.counts[2*c], s.counts[2*c+1] = measure.Count(f.Millivolts[c]), measure.Count(f.Milliamperes[c])
	}
	if err := s.out.Scan(s.frame, s.counts[:]); err != nil || s.noted {
		return err
	}
	// Once: is the device's rate, by the host's clock, the one that is assumed?
	rate, span := s.rate.Measured()
	if span < noteAfter {
		return nil
	}
	s.noted = true
	off := rate/s.d.opts.Rate - 1
	if math.Abs(off) <= 2*s.d.opts.URate {
		return nil
	}
	return s.out.Note("the device sends %.4g scans a second by the host's clock, not %.4g (%+.2g %%): set rate in "+
		"the bench file", rate, s.d.opts.Rate, 100*off)
}

// step is how many frames the device has counted since the last one; zero or
// less for one that came before. The number gives it but for whole turns, and
// those follow from the host's clock, without doubt at a turn of 65 s. The next
// number is the next frame however late it comes: a line may have held it.
func (s *stream) step(at time.Time) (n int64, exact bool) {
	d := int64(s.parser.Frame.Number - s.number) // modulo the turn
	expected, _ := s.rate.At(at)
	due := expected - float64(s.frame)
	if n, exact = series.Step(d, Turn, due); n > 0 {
		s.backward = 0
		return n, exact
	}
	if s.backward++; s.backward < restartAfter {
		return 0, true
	}
	// It counts from somewhere else now: only the clock knows how long it was away.
	s.backward = 0
	s.rate.Forget()
	return max(2, int64(due)), false
}

const (
	// Connectors of a frame, each with a voltage and a current.
	Connectors = 13
	// FrameBytes is a mark, a number and thirteen times five bytes.
	FrameBytes = 4 + 5*Connectors
	// Turn is where the frame's number wraps: 65.5 s.
	Turn = 1 << 16

	// A frame is released when two more, but for the rest of the second behind its number, are there.
	lookAhead = 2*FrameBytes + 4
)

// Frame is one reading of all connectors.
type Frame struct {
	Number uint16
	// Millivolts (0 to 65535) and Milliamperes (0 to 2^24−1), as they are sent.
	Millivolts, Milliamperes [Connectors]int32
}

// Parser finds frames in a stream of bytes, whatever its fragments. The zero
// value is ready.
//
// A frame is released once the frames behind it stand where they must: bytes
// that were lost or added within it would have moved them.
type Parser struct {
	// Frame is the one that Next completed.
	Frame Frame
	// Skipped counts bytes that belong to no frame, Repaired frames whose number
	// was wrong and follows from their neighbours', Repeated frames that were there
	// twice. The user may set them to zero.
	Skipped, Repaired, Repeated uint64

	buf        [16 * FrameBytes]byte
	start, end int
	have       bool // a frame was released
	last       uint16
}

// Next consumes bytes of b until a frame is complete; see transport.Feed.
func (p *Parser) Next(b []byte) (n int, ok bool) {
	return transport.Feed(p.buf[:], &p.start, &p.end, b, p.step)
}

// Rest releases a frame that still waits for its successors where the line has
// fallen silent right behind whole frames. Call it until it returns false.
func (p *Parser) Rest() bool {
	b := p.buf[p.start:p.end]
	if len(b) == 0 || len(b)%FrameBytes != 0 || !p.have {
		return false
	}
	for i := 0; i < len(b); i += FrameBytes {
		if !marked(b[i:]) || number(b[i:]) != p.last+uint16(i/FrameBytes)+1 {
			return false
		}
	}
	p.release(b, number(b))
	return true
}

// step examines the buffer until a frame is released or bytes are wanting.
func (p *Parser) step() bool {
	for {
		b := p.buf[p.start:p.end]
		if len(b) < lookAhead {
			return false
		}
		if !marked(b) {
			p.start++
			p.Skipped++
			continue
		}
		n, far := number(b), b[2*FrameBytes:]
		next := marked(b[FrameBytes:])
		after := number(b[FrameBytes:])
		switch {
		case next && after == n+1, marked(far) && number(far) == n+2:
			p.release(b, n)
			return true
		case next && after == n:
			p.start += FrameBytes
			p.Repeated++
		case next && p.have && after == p.last+2:
			p.Repaired++
			p.release(b, p.last+1)
			return true
		case next && marked(far) && number(far) == after+1 && p.have && n == p.last+1:
			p.release(b, n) // the number jumps behind it: whole frames are missing
			return true
		default:
			p.start++
			p.Skipped++
		}
	}
}

// release hands out the frame at the head of b.
func (p *Parser) release(b []byte, n uint16) {
	p.Frame.Number = n
	for c := range Connectors {
		v := b[4+5*c:]
		p.Frame.Millivolts[c] = int32(v[0])<<8 | int32(v[1])
		p.Frame.Milliamperes[c] = int32(v[2])<<16 | int32(v[3])<<8 | int32(v[4])
	}
	p.have, p.last = true, n
	p.start += FrameBytes
}

// marked reports whether a frame may begin here.
func marked(b []byte) bool { return b[0] == 0xCA && b[1] == 0xAC }

// number is a frame's number, big-endian.
func number(b []byte) uint16 { return binary.BigEndian.Uint16(b[2:]) }
