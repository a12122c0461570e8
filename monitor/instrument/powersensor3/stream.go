package powersensor3

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/assemble"
	"github.com/wattmark/wattmark/monitor/transport"
)

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
	skips  uint64 // of the parser, already reported
}

// Stream starts sampling and delivers until ctx ends; then it stops the device.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	s := &stream{d: d, sink: sink, counts: make([]measure.Count, len(d.ids))}
	for _, id := range d.ids {
		s.parser.Want |= 1 << id
	}
	s.asm = assemble.New(assemble.Config{
		Channels: len(d.ids), TickHz: 1e6, Modulus: StampTurn, MinStep: FrameMicros - stampTolerance,
		MaxStep: FrameMicros + stampTolerance, Grid: FrameMicros, Lost: lost, FlushTicks: flushTicks,
	}, sink)
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
		if k := s.parser.Skipped - s.skips; k > 0 {
			s.skips = s.parser.Skipped
			s.asm.Skipped(int(k))
		}
		if !ok {
			continue
		}
		f := &s.parser.Frame
		for c, id := range s.d.ids {
			s.counts[c] = measure.Count(f.Levels[id])
		}
		if f.Marker {
			e := measure.Event{
				Kind: measure.EventNote, FirstScan: s.asm.Next(), Scans: 1, Channel: -1, Detail: "marked on the host's request",
			}
			if err := s.sink.Event(e); err != nil {
				return err
			}
		}
		if err := s.asm.Scan(int64(f.Stamp), s.counts); err != nil {
			return err
		}
	}
	return s.asm.ReadDone()
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
		if err != nil {
			if transport.Ended(err) {
				return nil // no mark came; the next Open stops it again
			}
			return fmt.Errorf("stop: %w", err)
		}
		if mark.find(buf[:n]) {
			return nil
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
type stopMark struct{ n int }

// find looks for the mark that ends a stream, over the borders of reads.
func (s *stopMark) find(b []byte) bool {
	for _, c := range b {
		switch {
		case s.n%2 == 0 && c == 0xFF, s.n%2 == 1 && c == 0x3F:
			s.n++
		case c == 0xFF:
			s.n = 1
		default:
			s.n = 0
		}
		if s.n == 4 {
			return true
		}
	}
	return false
}
