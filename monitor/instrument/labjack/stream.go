package labjack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/series"
	"wattmark/monitor/transport"
)

const (
	readSize = 1 << 16
	stopTime = 2 * time.Second
	// silentRead is a silence after which what is held is delivered.
	silentRead = 100 * time.Millisecond
)

// stream is one Stream call.
type stream struct {
	parser Parser
	out    *series.Builder
	counts []measure.Count
}

// Stream scans until ctx ends; then it stops the device.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.registers.conn == nil {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	err := d.stream(ctx, sink)
	if ctx.Err() != nil && transport.Ended(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	conn, err := d.dial(ctx, true)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := d.registers.writeU32(ctx, regEnable, 1); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	// What ends the stream, the device is told.
	defer func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		_ = d.registers.writeU32(own, regEnable, 0)
	}()
	if err := d.checkRate(ctx); err != nil {
		return err
	}
	n := len(d.opts.Inputs)
	s := &stream{counts: make([]measure.Count, n)}
	s.out = series.New(series.Config{Channels: n, Timebase: d.inputs.Timebase, Flush: max(1, int(2*packetTime*d.opts.ScanRate))}, sink)
	if d.doubt != "" {
		if err := s.out.Event(measure.Event{Kind: measure.EventNote, Exact: true, Channel: -1, Detail: d.doubt}); err != nil {
			return err
		}
	}
	p := transport.Pump{Size: readSize, Quiet: silentRead, Silence: d.opts.Silence, Take: s.take, Rest: s.rest, Finish: s.rest}
	if err = p.Run(ctx, conn); transport.Ended(err) {
		err = s.rest()
	}
	return err
}

// take parses what one read brought.
func (s *stream) take(b []byte, _ bool) error {
	for {
		n, ok := s.parser.Next(b)
		b = b[n:]
		if s.parser.Broken {
			if err := s.out.Flush(); err != nil {
				return err
			}
			return fmt.Errorf("%w: the stream is out of step", instrument.ErrDisconnected)
		}
		if !ok {
			return nil
		}
		if err := s.packet(); err != nil {
			return err
		}
	}
}

// rest delivers what a stream that has fallen silent left behind.
func (s *stream) rest() error {
	if s.parser.Rest() {
		if err := s.packet(); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// packet takes the scans of a packet, and what its status tells.
func (s *stream) packet() error {
	p := &s.parser.Packet
	size := bytesSample * len(s.counts)
	if len(p.Data)%size != 0 {
		return fmt.Errorf("%w: a packet of %d samples for %d inputs", instrument.ErrDisconnected, len(p.Data)/bytesSample, len(s.counts))
	}
	if err := s.status(p); err != nil {
		return err
	}
	for b := p.Data; len(b) > 0; b = b[size:] {
		for c := range s.counts {
			s.counts[c] = measure.Count(binary.BigEndian.Uint16(b[bytesSample*c:]))
		}
		if err := s.out.Scan(int64(s.out.Next()), s.counts); err != nil {
			return err
		}
	}
	return nil
}

// errStopped: the device has ended the stream by itself.
var errStopped = errors.New("the device has stopped the stream")

func (s *stream) status(p *Packet) error {
	switch p.Status {
	case 0:
		return nil
	case statusRecovering:
		return s.out.Event(measure.Event{
			Kind: measure.EventOverflow, FirstScan: s.out.Next(), Exact: true, Channel: -1,
			Detail: "the device's buffer is full: it is not read fast enough",
		})
	case statusRecovered:
		// The field ends at 65535: more may have been lost.
		exact := p.Extra < 1<<16-1
		return s.out.Gap(uint64(p.Extra), exact, fmt.Sprintf("%d scans lost, the device says", p.Extra))
	}
	if err := s.out.Flush(); err != nil {
		return err
	}
	switch p.Status {
	case statusOverlap:
		return fmt.Errorf("%w (status %d): a scan began before the last had ended: lower scan_rate or settling", errStopped, p.Status)
	case statusOverflow:
		return fmt.Errorf("%w: %w (status %d): its buffer overflowed for longer than it can count", instrument.ErrDisconnected, errStopped, p.Status)
	}
	return fmt.Errorf("%w: status %d", errStopped, p.Status)
}
