package powenetics

import (
	"context"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/series"
	"wattmark/monitor/transport"
)

const (
	readSize = 4096 // 59 frames
	// silentRead is a silence after which what is held is delivered.
	silentRead = 100 * time.Millisecond
	flush      = 20 // scans a block: 20 ms
	// restartAfter is how many frames in a row must be numbered backwards before a
	// device counts as started anew.
	restartAfter = 64
	noteAfter    = 10 // seconds, before the rate is judged
)

// stream is one Stream call.
type stream struct {
	opts   Options
	now    func() time.Time
	parser Parser
	out    *series.Builder
	sink   instrument.Sink
	rate   series.Rate
	counts [2 * Connectors]measure.Count

	frame    int64 // count of the last frame, from the stream's first
	number   uint16
	at       time.Time // arrival of the last frame
	backward int
	noted    bool
}

func newStream(o Options, sink instrument.Sink) *stream {
	return &stream{
		opts: o, sink: sink, rate: series.Rate{Nominal: o.Rate},
		out: series.New(series.Config{Channels: 2 * Connectors, Timebase: o.timebase(), Flush: flush}, sink),
	}
}

// Stream delivers from now on until ctx ends.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.conn == nil {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	err := transport.Stale(ctx, d.conn, staleBytes)
	if err == nil {
		s := newStream(d.opts, sink)
		s.now = d.now
		p := transport.Pump{Size: readSize, Quiet: silentRead, Silence: d.opts.Silence, Take: s.take, Rest: s.rest, Finish: s.rest}
		if err = p.Run(ctx, d.conn); transport.Ended(err) {
			err = s.rest()
		}
	}
	if ctx.Err() != nil && transport.Ended(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

// take parses what one read brought.
func (s *stream) take(b []byte, _ bool) error {
	at := s.now()
	for {
		n, ok := s.parser.Next(b)
		b = b[n:]
		s.tell()
		if !ok {
			return nil
		}
		if err := s.scan(at); err != nil {
			return err
		}
	}
}

// tell passes on what the parser met.
func (s *stream) tell() {
	p := &s.parser
	s.out.Skipped(p.Skipped)
	for ; p.Repaired > 0; p.Repaired-- {
		s.out.Repaired()
	}
	for ; p.Repeated > 0; p.Repeated-- {
		s.out.Repeated()
	}
	p.Skipped = 0
}

// rest delivers what a line that has fallen silent left behind.
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
			if err := s.out.Gap(uint64(step-1), exact, detail(step-1, exact)); err != nil {
				return err
			}
		}
	}
	s.frame, s.number, s.at = s.frame+step, f.Number, at
	s.rate.Seen(at, s.frame)
	for c := range Connectors {
		s.counts[2*c], s.counts[2*c+1] = measure.Count(f.Millivolts[c]), measure.Count(f.Milliamperes[c])
	}
	if err := s.out.Scan(s.frame, s.counts[:]); err != nil {
		return err
	}
	return s.judge()
}

// step is how many frames the device has counted since the last one; zero or
// less for one that came before. The number gives it but for whole turns, and
// those the host's clock tells, which a turn of 65 s leaves in no doubt. The next
// number is the next frame however late it comes: a line may have held it.
func (s *stream) step(at time.Time) (n int64, exact bool) {
	d := int64(s.parser.Frame.Number - s.number) // modulo the turn
	if d == 1 {
		s.backward = 0
		return 1, true
	}
	expected, _ := s.rate.At(at)
	due := expected - float64(s.frame)
	turns := math.Round((due - float64(d)) / Turn)
	if turns >= 0 {
		s.backward = 0
		n = d + int64(turns)*Turn
		return n, turns == 0 || math.Abs(due-float64(n)) < Turn/4
	}
	if s.backward++; s.backward < restartAfter {
		return 0, true
	}
	// It counts from somewhere else now: only the clock knows how long it was away.
	s.backward = 0
	s.rate.Forget()
	return max(2, int64(due)), false
}

func detail(lost int64, exact bool) string {
	if exact {
		return fmt.Sprintf("%d frames lost, by their numbers", lost)
	}
	return fmt.Sprintf("about %d frames lost: the device began to count anew; by the host's clock", lost)
}

// judge says once when the device's rate, by the host's clock, is not the one
// that is assumed.
func (s *stream) judge() error {
	if s.noted {
		return nil
	}
	rate, span := s.rate.Measured()
	if span < noteAfter {
		return nil
	}
	s.noted = true
	off := rate/s.opts.Rate - 1
	if math.Abs(off) <= 2*s.opts.URate {
		return nil
	}
	return s.out.Event(measure.Event{
		Kind: measure.EventNote, FirstScan: s.out.Next(), Exact: true, Channel: -1,
		Detail: fmt.Sprintf("the device sends %.4g scans a second by the host's clock, not %.4g (%+.2g %%): set rate in the bench file", rate, s.opts.Rate, 100*off),
	})
}
