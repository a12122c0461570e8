package dataq

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/series"
	"wattmark/monitor/transport"
)

const (
	readSize  = 4096
	blockTime = 0.02 // seconds a block
	stopTime  = 2 * time.Second
	// silentRead is a silence after which what is held is delivered.
	silentRead = 100 * time.Millisecond
	// wrongRate is how far a rate, by the host's clock, may be off before the
	// stream is given up: no crystal is that bad.
	wrongRate = 0.02
	judgeSpan = 3 // seconds, before the rate is judged
)

// stream is one Stream call.
type stream struct {
	opts   Options
	mask   uint16 // of the first item's bits that are a value
	first  int    // index of the first analog item
	now    func() time.Time
	framer *Framer
	out    *series.Builder
	counts []measure.Count

	rate   series.Rate
	behind series.Behind
	told   bool
	judged bool
}

func (d *Device) newStream(sink instrument.Sink) *stream {
	o := d.opts
	s := &stream{
		opts: o, now: d.now, mask: 0xFFFF, first: o.items() - len(o.Inputs), counts: make([]measure.Count, len(o.Inputs)),
		framer: NewFramer(Layout{Items: o.items(), Low: d.model.bits == 12, Digital: o.sync()}),
		out:    series.New(series.Config{Channels: len(o.Inputs), Timebase: d.inputs.Timebase, Flush: max(1, int(blockTime*o.Rate))}, sink),
		rate:   series.Rate{Nominal: o.rate()}, behind: series.Behind{Nominal: o.rate()},
	}
	if d.model.bits == 12 {
		s.mask = 0xFFFC
	}
	return s
}

// Stream scans until ctx ends; then it stops the device.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.conn == nil {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	if err := d.stream(ctx, sink); err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	if _, err := d.conn.Write(ctx, []byte("start\r")); err != nil { // never echoed
		if ctx.Err() != nil && transport.Ended(err) {
			return nil
		}
		return fmt.Errorf("start: %w", err)
	}
	s := d.newStream(sink)
	p := transport.Pump{Size: readSize, Quiet: silentRead, Silence: d.opts.Silence, Take: s.take, Rest: s.quiet, Finish: s.finish}
	err := p.Run(ctx, d.conn)
	ended := ctx.Err() != nil && transport.Ended(err)
	if ended {
		err = s.finish()
	}
	// What ended the stream, the device is told.
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if serr := d.stop(own); err == nil {
		err = serr
	}
	return err
}

// take parses what one read brought.
func (s *stream) take(b []byte, full bool) error {
	at := s.now()
	for {
		n, ok := s.framer.Next(b)
		b = b[n:]
		if !ok {
			break
		}
		if err := s.scan(at); err != nil {
			return err
		}
	}
	return s.clock(at, full)
}

// quiet is called when the line says nothing: a device whose buffer was full says
// so, and nothing more.
func (s *stream) quiet() error {
	if !s.framer.Overflowed() {
		return s.out.Flush()
	}
	if err := s.finish(); err != nil {
		return err
	}
	err := s.out.Event(measure.Event{
		Kind: measure.EventOverflow, FirstScan: s.out.Next(), Channel: -1,
		Detail: "the device's buffer was full, and it has stopped: it is not read fast enough",
	})
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: its buffer was full, and it has stopped", instrument.ErrDisconnected)
}

// finish delivers what a stream that has ended left behind.
func (s *stream) finish() error {
	for s.framer.Rest() {
		if err := s.deliver(); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// scan takes the framer's scan, and what was met on the way to it.
func (s *stream) scan(at time.Time) error {
	f := s.framer
	if !s.told {
		s.told = true
		if err := s.tell(); err != nil {
			return err
		}
	}
	if f.Changed {
		f.Changed = false
		if err := s.note("the digital inputs changed"); err != nil {
			return err
		}
	}
	if f.Skipped > 0 {
		lost := max(1, int(math.Round(float64(f.Skipped)/float64(2*s.opts.items()))))
		s.out.Skipped(uint64(f.Skipped))
		f.Skipped = 0
		detail := fmt.Sprintf("bytes were lost or doubled: about %d scans, by the bytes that fit nowhere", lost)
		if err := s.out.Gap(uint64(lost), false, detail); err != nil {
			return err
		}
	}
	if err := s.deliver(); err != nil {
		return err
	}
	if !s.judged {
		s.rate.Seen(at, int64(s.out.Next()))
	}
	return nil
}

// tell notes once what cannot be seen on this stream.
func (s *stream) tell() error {
	switch {
	case s.framer.Blind && models[s.opts.Model].digital && !s.opts.Sync:
		return s.note("sync is off: lost bytes cannot be seen")
	case s.framer.Blind:
		return s.note("the bits that should never change do: lost bytes cannot be seen")
	case s.framer.Weak:
		return s.note("both digital inputs are low: lost words cannot be seen; leave one open")
	}
	return nil
}

func (s *stream) note(detail string) error {
	return s.out.Event(measure.Event{Kind: measure.EventNote, FirstScan: s.out.Next(), Exact: true, Channel: -1, Detail: detail})
}

// deliver hands the scan on.
func (s *stream) deliver() error {
	for c := range s.counts {
		w := binary.LittleEndian.Uint16(s.framer.Scan[2*(c+s.first):])
		if c == 0 {
			w &= s.mask
		}
		s.counts[c] = measure.Count(int16(w))
	}
	return s.out.Scan(int64(s.out.Next()), s.counts)
}

// clock compares the count of scans with the host's clock: nothing else tells of
// whole scans that are missing, and of a rate that is not the one assumed.
func (s *stream) clock(at time.Time, full bool) error {
	if s.judged {
		lost := s.behind.Seen(at, int64(s.out.Next()), full)
		if lost == 0 {
			return nil
		}
		return s.out.Gap(uint64(lost), false, fmt.Sprintf("about %d scans lost, by the host's clock, some time in the last seconds", lost))
	}
	rate, span := s.rate.Measured()
	if span < judgeSpan {
		return nil
	}
	s.judged = true
	if off := rate/s.opts.rate() - 1; math.Abs(off) > wrongRate {
		return fmt.Errorf("the device sends %.4g scans a second by the host's clock, not %.4g: are srate_counts and model right?", rate, s.opts.rate())
	}
	return nil
}
