package pmd2

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/poll"
	"wattmark/monitor/instrument/series"
	"wattmark/monitor/transport"
)

const (
	blockTime  = 20 * time.Millisecond
	judgeTime  = 2 * time.Second
	slowAsking = 1.03
)

// stream is one Stream call.
type stream struct {
	d      *Device
	out    *series.Builder
	reply  [ReplyBytes + 1]byte // room for a byte too many
	counts [2 * Sensors]measure.Count

	first, last time.Time // of the readings
	heard       time.Time // of the last good answer
	failed      uint64    // questions without a good answer since then
	slow        int64     // answers that took long

	steps  int64 // from one reading to the next, and how long they took
	took   time.Duration
	judged bool
	why    error
}

// Stream asks until ctx ends.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.conn == nil {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	s := &stream{d: d, heard: time.Now(), out: series.New(series.Config{
		Channels: 2 * Sensors, Timebase: d.inputs.Timebase, Flush: max(1, int(blockTime/d.opts.Period)),
	}, sink)}
	err := transport.Stale(ctx, d.conn, staleBytes)
	if err == nil {
		err = poll.Grid(ctx, d.opts.Period, func() error { return s.ask(ctx) })
	}
	if ctx.Err() != nil && (err == nil || transport.Ended(err)) {
		err = s.finish()
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

// finish delivers what there is, and says how many times are poorly known.
func (s *stream) finish() error {
	if s.slow == 0 {
		return s.out.Flush()
	}
	return s.note(fmt.Sprintf("%d answers took more than %v: the time of each is known to half of what it took", s.slow, slowTime))
}

func (s *stream) note(detail string) error {
	return s.out.Event(measure.Event{Kind: measure.EventNote, FirstScan: s.out.Next(), Exact: true, Channel: -1, Detail: detail})
}

// ask asks once. The reading's time is the middle between question and answer.
func (s *stream) ask(ctx context.Context) error {
	begin := time.Now()
	n, err := s.exchange(ctx)
	end := time.Now()
	quiet := quietTime
	switch {
	case err == nil && n == ReplyBytes:
		err = Parse((*[ReplyBytes]byte)(s.reply[:ReplyBytes]), &s.counts)
	case err == nil:
		err = fmt.Errorf("an answer of %d bytes or more, not %d", n, ReplyBytes)
	case ctx.Err() != nil, errors.Is(err, instrument.ErrDisconnected):
		if ferr := s.out.Flush(); ferr != nil {
			return ferr
		}
		return err
	default:
		quiet = lateTime
	}
	if err != nil {
		return s.miss(ctx, end, quiet, err)
	}
	at := begin.Add(end.Sub(begin) / 2)
	if s.failed > 0 {
		if err := s.out.Gap(s.failed, true, fmt.Sprintf("%d questions without a good answer: %v", s.failed, s.why)); err != nil {
			return err
		}
		s.failed = 0
	} else if !s.first.IsZero() {
		s.steps++
		s.took += at.Sub(s.last)
	}
	if s.first.IsZero() {
		s.first = at
	}
	s.heard, s.last = end, at
	if end.Sub(begin) > slowTime {
		s.slow++
	}
	if err := s.out.Scan(at.Sub(s.first).Nanoseconds(), s.counts[:]); err != nil {
		return err
	}
	return s.judge()
}

// judge says once when the device is asked less often than it should be: a
// machine, or a link, that is too slow for the period.
func (s *stream) judge() error {
	if s.judged || s.took < judgeTime {
		return nil
	}
	s.judged = true
	real := s.took / time.Duration(s.steps)
	if float64(real) <= slowAsking*float64(s.d.opts.Period) {
		return nil
	}
	return s.note(fmt.Sprintf("an answer every %v, not every %v: set a longer period, or markers may not be found", real.Round(10*time.Microsecond), s.d.opts.Period))
}

// exchange sends the question and reads what comes until the answer is whole.
func (s *stream) exchange(ctx context.Context) (n int, err error) {
	short, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	if _, err := s.d.conn.Write(short, askReadings); err != nil {
		return 0, err
	}
	for n < ReplyBytes && err == nil {
		var k int
		k, err = s.d.conn.Read(short, s.reply[n:])
		n += k
	}
	return n, err
}

// miss notes a question that got no good answer, and lets the line fall quiet, so
// that the next answer begins with its first byte. It gives up when none has come
// for long.
func (s *stream) miss(ctx context.Context, at time.Time, quiet time.Duration, why error) error {
	s.failed++
	s.why = why
	if at.Sub(s.heard) >= s.d.opts.Silence {
		if err := s.out.Flush(); err != nil {
			return err
		}
		return fmt.Errorf("%w: no good answer for %v (unplugged? power?): %w", instrument.ErrSilent, s.d.opts.Silence, why)
	}
	short, cancel := context.WithTimeout(ctx, 4*replyTime)
	defer cancel()
	if _, err := s.d.conn.Drain(short, quiet); err != nil && !transport.Ended(err) {
		return err
	}
	return nil
}
