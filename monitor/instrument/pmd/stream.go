package pmd

import (
	"context"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/assemble"
	"wattmark/monitor/transport"
)

const (
	readSize   = 2048                   // 24 ms: a full buffer means that we are behind
	silentRead = 100 * time.Millisecond // then what is held is delivered
	blockTime  = 0.02                   // seconds a block
	stopTime   = 2 * time.Second
)

// stream is one Stream call.
type stream struct {
	parser Parser
	asm    *assemble.Assembler
	counts [Channels]measure.Count
	skips  uint64
}

func newStream(o Options, sink instrument.Sink) *stream {
	return &stream{asm: assemble.New(assemble.Config{
		Channels: Channels, TickHz: measure.Hertz(o.TickHz), Modulus: StampTurn,
		MinStep: MinStep, MaxStep: MaxStep, Lost: lost, FlushTicks: int64(blockTime * o.TickHz),
	}, sink)}
}

// Stream starts sampling and delivers until ctx ends; then it stops the device.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.conn == nil {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	if _, err := d.conn.Write(ctx, startCommand); err != nil {
		return fmt.Errorf("%s: start: %w", Kind, err)
	}
	s := newStream(d.opts, sink)
	err := s.run(ctx, d)
	if ctx.Err() != nil && transport.Ended(err) {
		// The record that waits for its successor is whole: it is the last.
		err = s.finish()
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if herr := d.halt(own); err == nil {
			err = herr
		}
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

func (s *stream) run(ctx context.Context, d *Device) error {
	return transport.Pump{
		Size: readSize, Quiet: silentRead, Silence: d.opts.Silence,
		Take: func(b []byte, full bool) error { return s.take(d.now(), b, full) }, Rest: s.rest, Finish: s.finish,
	}.Run(ctx, d.conn)
}

// take parses what one read brought.
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

func (s *stream) scan() error {
	for c, v := range s.parser.Record.Counts {
		s.counts[c] = measure.Count(v)
	}
	return s.asm.Scan(int64(s.parser.Record.Stamp), s.counts[:])
}

// rest delivers what a line that has fallen silent left behind.
func (s *stream) rest() error {
	if s.parser.Rest() {
		if err := s.scan(); err != nil {
			return err
		}
	}
	return s.asm.Flush()
}

// finish delivers the last record of a stream that has ended.
func (s *stream) finish() error {
	if s.parser.Flush() {
		if err := s.scan(); err != nil {
			return err
		}
	}
	return s.asm.Flush()
}
