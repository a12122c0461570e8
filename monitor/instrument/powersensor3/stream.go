package powersensor3

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
	readSize   = 2048                   // 5.7 ms: a full buffer means that we are behind
	silentRead = 100 * time.Millisecond // then what is held is delivered
	flushTicks = 10_000                 // µs a block
	stopTime   = time.Second            // for the mark that ends a stream
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
	skips  uint64 // of the parser, already told
}

// Stream starts sampling and delivers until ctx ends; then it stops the device.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.conn == nil {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	s := &stream{d: d, sink: sink, counts: make([]measure.Count, len(d.ids))}
	for _, id := range d.ids {
		s.parser.Want |= 1 << id
	}
	s.asm = assemble.New(assemble.Config{
		Channels: len(d.ids), TickHz: 1e6, Modulus: StampTurn,
		MinStep: FrameMicros - stampTolerance, MaxStep: FrameMicros + stampTolerance,
		Grid: FrameMicros, Lost: lost, FlushTicks: flushTicks,
	}, sink)
	if _, err := d.conn.Write(ctx, []byte{'S'}); err != nil {
		return fmt.Errorf("%s: start: %w", Kind, err)
	}
	err := s.run(ctx)
	if ctx.Err() != nil && transport.Ended(err) {
		err = s.asm.Flush()
		if serr := d.stop(ctx); err == nil {
			err = serr
		}
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

func (s *stream) run(ctx context.Context) error {
	return transport.Pump{
		Size: readSize, Quiet: silentRead, Silence: s.d.opts.Silence,
		Take: s.take, Rest: s.asm.Flush, Finish: s.asm.Flush,
	}.Run(ctx, s.d.conn)
}

// take parses what one read brought.
func (s *stream) take(b []byte, full bool) error {
	s.asm.Arrived(s.d.now(), full)
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
			e := measure.Event{Kind: measure.EventNote, FirstScan: s.asm.Next(), Scans: 1, Channel: -1, Detail: "marked on the host's request"}
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

// stop ends the stream and waits for its mark. The caller's context has ended
// already, so that the stop has a time of its own.
func (d *Device) stop(ctx context.Context) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if _, err := d.conn.Write(own, []byte{'X'}); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	var mark stopMark
	buf := make([]byte, readSize)
	for {
		n, err := d.conn.Read(own, buf)
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
