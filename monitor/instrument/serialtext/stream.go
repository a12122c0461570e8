package serialtext

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/transport"
)

const blockTime = 0.02 // seconds a block

// placer gives samples their place in time and among each other.
type placer interface {
	// sample takes the next sample, and how many lines could not be read before it.
	sample(s *sample, bad int64, at time.Time) error
	// readDone ends the bytes of one read.
	readDone(at time.Time, full bool) error
	// settle decides on the sample that is still held, for a line that has fallen silent.
	settle() error
}

// stream is one Stream call.
type stream struct {
	parser Parser
	now    func() time.Time
	out    *series.Builder
	place  placer
	bad    int64 // lines since the last sample
}

// stream delivers from now on until ctx ends.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	o, l := d.opts, d.layout
	out := series.New(d.In, int(blockTime*o.Rate), sink)
	s := &stream{parser: NewParser(o), now: d.Now, out: out}
	// Samples are placed by the board's number or time where it sends one, else by arrival.
	if l.tickHz == 0 && l.seqMod == 0 {
		s.place = &arrivals{period: 1e9 / o.Rate, width: len(l.channels), out: out}
	} else {
		s.place = &counted{
			layout: l, out: out, rate: series.Rate{Nominal: o.Rate}, period: l.tickHz / o.Rate,
			trusted: o.Frame != nil && cmp.Or(o.Frame.Check, noCheck) != noCheck ||
				slices.ContainsFunc(l.fields, func(f field) bool { return f.role == checksum }),
		}
	}
	start := func(ctx context.Context) error {
		if err := transport.Stale(ctx, d.Conn, staleBytes); err != nil {
			return err
		}
		return d.send(ctx, d.opts.Start)
	}
	p := transport.Pump{Size: readSize, Silence: d.opts.Silence, Take: s.take, Rest: s.rest, Finish: s.rest}
	return d.Pump(ctx, start, p, func(ctx context.Context) error { return d.send(ctx, d.opts.Stop) })
}

// take parses the bytes of one read.
func (s *stream) take(b []byte, full bool) error {
	at := s.now()
	for {
		n, ok := s.parser.Next(b)
		b = b[n:]
		lines, bytes := s.parser.Unread()
		s.out.Malformed(lines)
		s.out.Skipped(bytes)
		s.bad += int64(lines)
		if !ok {
			return s.place.readDone(at, full)
		}
		if err := s.place.sample(s.parser.current(), s.bad, at); err != nil {
			return err
		}
		s.bad = 0
	}
}

// rest delivers the scans held back while the line is quiet.
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
	about := ""
	if !exact {
		about = "about "
	}
	return out.Gap(uint64(lost), exact, "%s%s lost", about, measure.Plural(lost, "line"))
}

const (
	// A line that is late by more was lost, with others: 50 ms and 20 lines.
	lateTime  = 50e6
	lateLines = 20
	// Buffers only ever delay: a line that comes early corrects the clock fast, one
	// that comes late slowly.
	pullEarly, pullLate = 0.5, 0.01
	maxHeld             = 1 << 13
)

// arrivals places samples by the host's clock, for boards that send no time: at
// the stated rate, drawn towards the arrival of the least delayed ones.
type arrivals struct {
	period float64 // ns
	out    *series.Builder

	epoch  time.Time
	last   float64 // ns since epoch, of the last sample
	width  int
	counts []measure.Count // of the samples held, one after another
	steps  []int64         // from one to the next: more than 1 behind a bad line
}

// sample holds a sample until its read is done, and leaves room for the lines before it.
func (a *arrivals) sample(s *sample, bad int64, at time.Time) error {
	a.counts = append(a.counts, s.counts...)
	a.steps = append(a.steps, 1+bad)
	if len(a.steps) >= maxHeld {
		return a.readDone(at, false)
	}
	return nil
}

// settle has nothing to decide.
func (a *arrivals) settle() error { return nil }

// readDone places the samples that came once no more wait behind them: the arrival
// of the last line then reports when that was sent.
func (a *arrivals) readDone(at time.Time, full bool) error {
	if len(a.steps) == 0 || full && len(a.steps) < maxHeld {
		return nil
	}
	n := int64(0)
	for _, s := range a.steps {
		n += s
	}
	if a.epoch.IsZero() {
		a.epoch = at
		a.last = -float64(n) * a.period
	}
	late := float64(at.Sub(a.epoch)) - (a.last + float64(n)*a.period)
	if late > max(lateTime, lateLines*a.period) {
		lost := math.Round(late / a.period)
		a.steps[0] += int64(lost)
		n += int64(lost)
		late -= lost * a.period
	}
	pull := late * pullLate
	if late < 0 {
		pull = max(late*pullEarly, -0.4*float64(n)*a.period)
	}
	period := a.period + pull/float64(n) // ns between the samples that are handed on
	for i, s := range a.steps {
		if err := gap(a.out, s-1, false); err != nil {
			return err
		}
		a.last += float64(s) * period
		if err := a.out.Scan(int64(a.last), a.counts[i*a.width:(i+1)*a.width]); err != nil {
			return err
		}
	}
	a.counts, a.steps = a.counts[:0], a.steps[:0]
	return nil
}

const (
	// restartAfter is how many samples in a row must come from the past before a
	// board counts as started anew.
	restartAfter = 16
	// nearAhead is how far, in scans, a sample may lie behind one that jumped for
	// the two to confirm each other.
	nearAhead = 1000
)

// counted places samples by the board's own number or time.
type counted struct {
	layout  layout
	trusted bool // a check sum stands behind every sample
	period  float64
	out     *series.Builder
	rate    series.Rate

	have      bool
	last      sample // its counts are not kept
	tick      int64  // of the last sample, whole turns added
	scan      int64
	suspect   sample
	suspected bool
	suspectAt time.Time
	backward  int
	anew      bool // the board counts from somewhere else since this sample
}

// readDone has nothing to place: each sample had its place at once.
func (c *counted) readDone(time.Time, bool) error { return nil }

// sample takes the next sample. One that jumps ahead waits for another to
// confirm it, unless a check sum has: a spoilt digit is no gap. Bad lines before it show in its number or time.
func (c *counted) sample(s *sample, _ int64, at time.Time) error {
	if !c.have {
		c.have = true
		return c.accept(s, 1, true, at)
	}
	if c.suspected {
		c.suspected = false
		n, _ := c.step(&c.suspect, s, at)
		if n >= 1 && n <= nearAhead {
			if err := c.confirm(at); err != nil {
				return err
			}
		} else {
			c.out.Malformed(1)
		}
	}
	n, exact := c.step(&c.last, s, at)
	switch {
	case n <= 0:
		if c.backward++; c.backward < restartAfter {
			c.out.Repeated()
			return nil
		}
		expected, _ := c.rate.At(at) // it counts from somewhere else now: the host's clock saw so many
		n, exact = max(2, int64(expected)-c.scan), false
		c.anew = true
		c.rate.Forget()
	case n > 1 && !c.trusted:
		c.suspect.stamp, c.suspect.seq = s.stamp, s.seq
		c.suspect.counts = append(c.suspect.counts[:0], s.counts...)
		c.suspected, c.suspectAt = true, at
		return nil
	}
	return c.accept(s, n, exact, at)
}

// confirm accepts the sample that jumped.
func (c *counted) confirm(at time.Time) error {
	n, exact := c.step(&c.last, &c.suspect, c.suspectAt)
	if n < 1 {
		return nil
	}
	return c.accept(&c.suspect, n, exact, at)
}

// settle accepts a sample that jumped and was never confirmed: the line fell silent.
func (c *counted) settle() error {
	if !c.suspected {
		return nil
	}
	c.suspected = false
	return c.confirm(c.suspectAt)
}

// step is how many scans lie between two samples; zero or less for one that came
// before. The board's number gives it but for whole turns, and those follow from
// its own time, or from the host's clock; without a number its time alone does.
func (c *counted) step(from, to *sample, at time.Time) (n int64, exact bool) {
	due := 0.0
	if c.period > 0 {
		ticks := mod(to.stamp-from.stamp, stampMod)
		if ticks > stampMod/2 {
			ticks -= stampMod
		}
		due = float64(ticks) / c.period
	}
	if c.layout.seqMod == 0 {
		if n = int64(math.Round(due)); n == 0 && due > 0 {
			n = 1 // it came early
		}
		return n, math.Abs(due-float64(n)) <= 0.25
	}
	if c.period == 0 {
		expected, _ := c.rate.At(at)
		due = expected - float64(c.scan)
	}
	return series.Step(mod(to.seq-from.seq, c.layout.seqMod), c.layout.seqMod, due)
}

// accept delivers a sample that lies n scans behind the last one.
func (c *counted) accept(s *sample, n int64, exact bool, at time.Time) error {
	if err := gap(c.out, n-1, exact); err != nil {
		return err
	}
	c.advance(s, n)
	c.scan += n
	c.backward, c.anew = 0, false
	c.last.seq = s.seq
	c.rate.Seen(at, c.scan)
	return c.out.Scan(c.tick, s.counts)
}

// advance moves the device's time on by a sample's stamp. Where the number shows
// how many samples passed and no check sum vouches for the stamp, one that is far
// off is a spoilt digit: the time is then the one that was due.
func (c *counted) advance(s *sample, n int64) {
	if c.period == 0 {
		return
	}
	if !c.out.Begun() {
		c.last.stamp = s.stamp
		return
	}
	due := max(1, int64(float64(n)*c.period))
	ticks := mod(s.stamp-c.last.stamp, stampMod)
	off := math.Abs(float64(ticks - due))
	switch {
	case c.anew:
		c.tick += due
	case ticks == 0 || ticks > stampMod/2 || c.layout.seqMod > 0 && !c.trusted && off > float64(due)/2:
		c.out.Repaired(1)
		c.tick += due
		c.last.stamp = mod(c.last.stamp+due, stampMod)
		return
	default:
		c.tick += ticks
	}
	c.last.stamp = s.stamp
}
