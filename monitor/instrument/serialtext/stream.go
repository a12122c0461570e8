package serialtext

import (
	"context"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/series"
	"wattmark/monitor/transport"
)

const (
	blockTime = 0.02 // seconds a block
	stopTime  = time.Second
	// silentRead is a silence after which what is held is delivered.
	silentRead = 100 * time.Millisecond
)

// placer gives samples their place in time and among each other.
type placer interface {
	sample(s *sample, at time.Time) error
	// lines tells how many lines could not be read before the next sample.
	lines(n uint64)
	// readDone ends what one read brought.
	readDone(at time.Time, full bool) error
	// settle decides what is still held, for a line that has fallen silent.
	settle() error
}

// stream is one Stream call.
type stream struct {
	parser parser
	now    func() time.Time
	out    *series.Builder
	place  placer
}

func (d *Device) newStream(sink instrument.Sink) *stream {
	o, l := d.opts, d.layout
	out := series.New(series.Config{
		Channels: len(l.channels), Timebase: d.inputs.Timebase, Flush: max(1, int(blockTime*o.Rate)),
	}, sink)
	s := &stream{parser: newParser(o, l), now: d.now, out: out}
	if l.tickHz == 0 && l.seqMod == 0 {
		s.place = newArrivals(o.Rate, len(l.channels), out)
	} else {
		s.place = newCounted(o, l, out)
	}
	return s
}

// Stream delivers from now on until ctx ends.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.conn == nil {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	err := transport.Stale(ctx, d.conn, staleBytes)
	if err == nil {
		err = d.send(ctx, d.opts.Start)
	}
	if err == nil {
		s := d.newStream(sink)
		p := transport.Pump{Size: readSize, Quiet: silentRead, Silence: d.opts.Silence, Take: s.take, Rest: s.rest, Finish: s.rest}
		if err = p.Run(ctx, d.conn); transport.Ended(err) {
			err = s.rest()
		}
	}
	if ctx.Err() != nil && (err == nil || transport.Ended(err)) {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		err = d.send(own, d.opts.Stop)
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

// take parses what one read brought.
func (s *stream) take(b []byte, full bool) error {
	at := s.now()
	for {
		n, ok := s.parser.next(b)
		b = b[n:]
		lines, bytes := s.parser.errors()
		s.out.Malformed(lines)
		s.out.Skipped(bytes)
		if lines > 0 {
			s.place.lines(lines)
		}
		if !ok {
			return s.place.readDone(at, full)
		}
		if err := s.place.sample(s.parser.current(), at); err != nil {
			return err
		}
	}
}

// rest delivers what a line that has fallen silent left behind.
func (s *stream) rest() error {
	if err := s.place.settle(); err != nil {
		return err
	}
	return s.out.Flush()
}

// gap reports lost scans.
func gap(out *series.Builder, lost int64, exact bool) error {
	if lost <= 0 {
		return nil
	}
	detail := fmt.Sprintf("%d lines lost", lost)
	if !exact {
		detail = fmt.Sprintf("about %d lines lost", lost)
	}
	return out.Gap(uint64(lost), exact, detail)
}

// copyTo copies a sample into room that is used again.
func (s *sample) copyTo(to *sample) {
	to.stamp, to.seq = s.stamp, s.seq
	to.counts = append(to.counts[:0], s.counts...)
}
