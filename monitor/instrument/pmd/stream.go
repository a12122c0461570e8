package pmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/assemble"
	"github.com/wattmark/wattmark/monitor/transport"
)

const (
	readSize  = 2048 // 24 ms: a full buffer means that we are behind
	blockTime = 0.02 // seconds a block
)

// stream is one Stream call.
type stream struct {
	parser Parser
	asm    *assemble.Assembler
	counts [Channels]measure.Count
	skips  uint64
}

// newStream prepares one Stream call; blocks cover 20 ms.
func newStream(o Options, sink instrument.Sink) *stream {
	return &stream{asm: assemble.New(assemble.Config{
		Channels: Channels, TickHz: measure.Hertz(o.TickHz), Modulus: StampTurn,
		MinStep: MinStep, MaxStep: MaxStep, Lost: lost, FlushTicks: int64(blockTime * o.TickHz),
	}, sink)}
}

// Stream starts sampling and delivers until ctx ends; then it stops the device.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
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
		if k := s.parser.Skipped - s.skips; k > 0 {
			s.skips = s.parser.Skipped
			s.asm.Skipped(int(k))
		}
		if !ok {
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
	if err := o.Validate(); err != nil {
		return fmt.Errorf("%s: recording: %w", Kind, err)
	}
	s := newStream(o, sink)
	buf := make([]byte, 16*readSize)
	for ended := false; !ended; {
		n, err := r.Read(buf)
		if n > 0 {
			if err := s.take(time.Time{}, buf[:n], true); err != nil {
				return fmt.Errorf("%s: recording: %w", Kind, err)
			}
		}
		if ended = errors.Is(err, io.EOF); ended {
			err = s.rest(s.parser.Flush())
		}
		if err != nil {
			return fmt.Errorf("%s: recording: %w", Kind, err)
		}
	}
	return nil
}

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
		if err := o.Validate(); err != nil {
			yield(Total{}, fmt.Errorf("%s: recording: %w", Kind, err))
			return
		}
		d := totals{hz: o.TickHz}
		buf := make([]byte, 1<<16)
		for {
			n, err := r.Read(buf)
			for b := buf[:n]; ; {
				k, ok := d.parser.Next(b)
				if b = b[k:]; !ok {
					break
				}
				if !yield(d.total(), nil) {
					return
				}
			}
			switch {
			case errors.Is(err, io.EOF):
				if d.parser.Flush() {
					yield(d.total(), nil)
				}
				return
			case err != nil:
				yield(Total{}, fmt.Errorf("%s: recording: %w", Kind, err))
				return
			}
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
