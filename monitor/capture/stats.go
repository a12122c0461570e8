package capture

import (
	"time"

	"wattmark/measure"
)

// Stats is what an owner's captures came to: those since it began, and those that
// it found in the spool.
type Stats struct {
	// Held counts the captures in the spool by their state.
	Held       map[State]int
	SpoolBytes int64
	// Captures, Scans, Lost, Gaps and OverRange count on, also for captures that were
	// released.
	Captures, Scans, Lost, Gaps, OverRange uint64
	// SetAside counts what of the spool could not be used when the monitor started.
	SetAside int
	// Busy says that somebody has the bench.
	Busy bool
	// Trouble says that the instrument cannot be used, as far as is known.
	Trouble bool
	// Lag is how far the samples of the capture that runs are behind the wall clock; 0
	// where none does. It holds what the two clocks differ by.
	Lag measure.Seconds
}

func (s *Stats) add(c Summary) {
	s.Captures++
	s.Scans += c.Scans
	s.Lost += c.Lost
	s.Gaps += c.Gaps
	s.OverRange += c.OverRange
}

// Stats counts. It costs a look at each capture that is held.
func (o *Owner) Stats() Stats {
	o.mu.Lock()
	s := o.gone
	held := make([]*Capture, 0, len(o.captures))
	for _, c := range o.captures {
		held = append(held, c)
	}
	o.mu.Unlock()
	s.SetAside = len(o.aside)
	s.Held = map[State]int{}
	for _, c := range held {
		sum := c.Summary()
		s.add(sum)
		s.Held[sum.State]++
		s.SpoolBytes += c.info().SpoolBytes
		if begun := c.Started(); sum.State == Running && !begun.IsZero() {
			s.Lag = measure.SecondsOf(time.Since(begun)) - sum.End
		}
	}
	s.Trouble, _ = o.inTrouble()
	s.Busy = o.line.held().holder != ""
	return s
}
