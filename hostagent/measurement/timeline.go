package measurement

import (
	"context"
	"fmt"
	"sync"
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
	"wattmark/store"
)

// timeline puts the host's times of a measurement on one line: the wall clock's as it
// was when the measurement began, and what the monotonic clock counted since. A wall
// clock that is set meanwhile moves nothing on it.
//
// Times that come from another program have no monotonic reading of this one. They
// are taken as they are; that the clock was set is told then.
type timeline struct {
	now  func() time.Time
	base time.Time // with a monotonic reading

	mu      sync.Mutex
	foreign bool          // times of other programs were taken
	step    time.Duration // by how much the wall clock was off the line, the most that was seen
	told    time.Duration // of it, the task says
}

func newTimeline(now func() time.Time) *timeline {
	if now == nil {
		now = time.Now
	}
	return &timeline{now: now, base: now()}
}

// at is a time of the host's on the line.
func (l *timeline) at(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t == t.Round(0) { // no monotonic reading
		l.others()
		return t
	}
	return l.base.Round(0).Add(t.Sub(l.base))
}

// others says that times of other programs are taken.
func (l *timeline) others() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.foreign = true
}

func (l *timeline) span(s hostagent.Span) hostagent.Span {
	return hostagent.Span{Start: l.at(s.Start), End: l.at(s.End)}
}

func (l *timeline) readings(r []store.Reading) []store.Reading {
	for i := range r {
		r[i].At = l.at(r[i].At)
	}
	return r
}

// leastStep is what counts as a step of the wall clock: more than reading it twice
// can be off, and less than a window's ends are known to.
const leastStep = 10 * time.Microsecond

// look compares the wall clock with the line, and returns by how much it was set,
// where that matters and was not told yet.
func (l *timeline) look() (step time.Duration, tell bool) {
	off := l.offset()
	l.mu.Lock()
	defer l.mu.Unlock()
	if off.Abs() > l.step.Abs() {
		l.step = off
	}
	if !l.foreign || l.step.Abs() < leastStep || (l.step-l.told).Abs() < leastStep {
		return 0, false
	}
	l.told = l.step
	return l.step, true
}

// offset is how far the wall clock is ahead of the line. The two clocks are read one
// after the other, the wall's first: of some readings the largest was delayed least.
func (l *timeline) offset() time.Duration {
	var best time.Duration
	for i := range 8 {
		now := l.now()
		if off := now.Round(0).Sub(l.base.Round(0)) - now.Sub(l.base); i == 0 || off > best {
			best = off
		}
	}
	return best
}

// watchClock tells the task that the host's clock was set, where times were taken by
// it. It is called before times are stored that may suffer from it.
func (s *session) watchClock(ctx context.Context) error {
	step, tell := s.line.look()
	if !tell {
		return nil
	}
	e := measure.Event{Kind: measure.EventClock, Channel: -1, Detail: clockSet(step)}
	if err := s.cfg.DB.PutEvents(context.WithoutCancel(ctx), s.id, []measure.Event{e}); err != nil {
		return &playError{"store that the clock was set", err}
	}
	return nil
}

func clockSet(step time.Duration) string {
	return fmt.Sprintf("the host's clock was set by %+.6f s while it was measured, and another program took times by it: "+
		"the window may lie beside the work; measure again, with a clock that is slewed rather than set", step.Seconds())
}

// clockNote is what a task's reason says of it; empty for nothing.
func (l *timeline) clockNote() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == 0 {
		return ""
	}
	return clockSet(l.told)
}
