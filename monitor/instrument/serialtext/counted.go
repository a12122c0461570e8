package serialtext

import (
	"math"
	"time"

	"wattmark/monitor/instrument/series"
)

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

func newCounted(o Options, l layout, out *series.Builder) *counted {
	c := &counted{layout: l, trusted: o.checked(l), out: out, rate: series.Rate{Nominal: o.Rate}}
	if l.tickHz > 0 {
		c.period = l.tickHz / o.Rate
	}
	return c
}

func (c *counted) lines(uint64) {} // the next sample's number or time tells

func (c *counted) readDone(time.Time, bool) error { return nil }

// sample takes the next sample. One that jumps ahead waits for another to
// confirm it, unless a check sum has: a spoilt digit is no gap.
func (c *counted) sample(s *sample, at time.Time) error {
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
		n, exact = c.away(at), false // it counts from somewhere else now
		c.anew = true
		c.rate.Forget()
	case n > 1 && !c.trusted:
		s.copyTo(&c.suspect)
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

func (c *counted) settle() error {
	if !c.suspected {
		return nil
	}
	c.suspected = false
	return c.confirm(c.suspectAt)
}

// away is how many scans the host's clock saw since the last sample.
func (c *counted) away(at time.Time) int64 {
	expected, _ := c.rate.At(at)
	return max(2, int64(expected)-c.scan)
}

// step is how many scans lie between two samples; zero or less for one that came
// before. The board's number gives it but for whole turns, and those its own
// time tells, or the host's clock; without a number its time alone does.
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
	turn := c.layout.seqMod
	d := mod(to.seq-from.seq, turn)
	if d == 1 {
		return 1, true
	}
	if c.period == 0 {
		expected, _ := c.rate.At(at)
		due = expected - float64(c.scan)
	}
	turns := int64(math.Round((due - float64(d)) / float64(turn)))
	if turns < 0 {
		return min(0, d+turns*turn), true
	}
	n = d + turns*turn
	return n, turns == 0 || math.Abs(due-float64(n)) < float64(turn)/4
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

// advance moves the device's time on by a sample's stamp. Where the number says
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
		c.out.Repaired()
		c.tick += due
		c.last.stamp = mod(c.last.stamp+due, stampMod)
		return
	default:
		c.tick += ticks
	}
	c.last.stamp = s.stamp
}
