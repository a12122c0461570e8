package composite

import (
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
)

// live aligns members while they run.
type live struct {
	s        *session
	m        *merger
	leads    []lead
	align    []aligner
	settled  bool
	detect   []*marker.Detector
	spec     marker.Spec
	awaiting bool      // start markers
	hidden   []float64 // what the start marker showed beyond the clock
	start    []*marker.Found
	stop     []*marker.Found
	lag      float64 // of the output while markers are awaited
	wait     float64 // for the others' marker, once one has seen its own
	last     int     // whose block came last
}

const (
	// settle is how long arrivals are watched before they place the first scans.
	settle = 0.3
	// silence of one member while the others go on, in seconds, is taken for a loss.
	silence = 5.0
	// keepBehind bounds how far a start marker may move a member back, in seconds.
	keepBehind = 0.25
	// reportChips is how many chips behind its end a marker is reported, and reserve
	// what blocks and lines take beyond that, in seconds.
	reportChips = 12
	reserve     = 0.3
	// maxLag bounds what is held back, and with it how late a capture begins: of a
	// marker for slow sensors, which is longer, the first part is aligned by clock.
	maxLag = 5.0
)

func newLive(s *session) (*live, error) {
	n := len(s.members)
	l := &live{s: s, m: s.merger, leads: make([]lead, n), align: make([]aligner, n), start: make([]*marker.Found, n), stop: make([]*marker.Found, n)}
	for i := range l.align {
		moved, _ := split(s.c.members, i, s.c.base, l.m.tb, s.c.align)
		l.align[i] = aligner{shared: s.c.align.SharedClock, moved: float64(moved)}
	}
	if s.c.align.By == Trigger {
		for i := range l.align {
			l.align[i].anchorAt(0, -l.align[i].moved, float64(period(l.m.tb))/math.Sqrt(12))
			l.m.place[i] = l.align[i].place
		}
		l.settled = true
		if err := l.triggered(); err != nil {
			return nil, err
		}
	}
	var err error
	if l.detect, err = s.detectors(); err != nil || l.detect == nil {
		return l, err
	}
	l.hidden = make([]float64, n)
	if was := s.c.was; was != nil && was.spec == s.spec() {
		// The same task goes on: its start marker lies behind.
		copy(l.hidden, was.hidden)
		for i := range l.align {
			l.align[i].moved -= was.hidden[i]
		}
	} else {
		l.awaiting = true
	}
	l.spec = s.spec()
	l.wait = float64(l.spec.Duration()) + reportChips*float64(l.spec.Chip) + reserve
	l.lag = min(l.wait, maxLag)
	for i, d := range l.detect {
		d.OnFound(func(f marker.Found) { l.found(i, f) })
		if t := l.m.tracks[i]; t != nil {
			t.keep = keepBehind
		}
	}
	return l, nil
}

// triggered tells how far the trigger alone aligns the members.
func (l *live) triggered() error {
	for i := range l.align {
		if i == l.m.base {
			continue
		}
		if err := l.m.note("%s is aligned with %s by their common trigger, within %s (k = 1)", l.m.names[i], l.m.names[l.m.base], seconds(l.align[i].anchor.u)); err != nil {
			return err
		}
	}
	return nil
}

// take takes a block or an event of a member and delivers what is due.
func (l *live) take(i int, p *packet) error {
	if p.event != nil {
		if i == l.m.base || p.event.Kind == measure.EventGap {
			l.m.add(i, p)
			return nil
		}
		return l.m.event(i, *p.event)
	}
	l.last = i
	tb, n := l.s.c.parts[i].Timebase, p.block.Scans()
	device := p.block.TickAt(tb, n-1) / float64(tb.TickHz)
	window := l.leads[i].observe(p.at.Sub(l.s.epoch).Seconds(), device)
	if l.detect != nil {
		if err := l.detect[i].Push(&p.block); err != nil {
			return err
		}
	}
	l.m.add(i, p)
	if !l.settled {
		if !l.ready() {
			return nil
		}
		if err := l.settle(); err != nil {
			return err
		}
	}
	if window && i == l.m.base {
		l.track()
	}
	return l.advance()
}

// ready tells whether arrivals were watched long enough to place the first scans.
func (l *live) ready() bool {
	for i := range l.leads {
		if w := &l.leads[i]; !w.begun || w.lastSeen-w.firstSeen < settle {
			return false
		}
	}
	return true
}

func (l *live) u() float64 { return l.s.c.align.U.Seconds() }

// settle places the members by the host's clock.
func (l *live) settle() error {
	l.settled = true
	base := l.leads[l.m.base].line()
	for i := range l.align {
		if i == l.m.base {
			continue
		}
		l.align[i].settle(base, l.leads[i].line(), 0, l.u())
		l.m.place[i] = l.align[i].place
		if l.awaiting {
			continue
		}
		if l.detect != nil {
			// Behind the first scan: before it nobody knows where it belongs.
			l.m.noteAt(math.Inf(-1), "%s is aligned with %s by the host's clock and what the start marker showed before, within %s (k = 1)",
				l.m.names[i], l.m.names[l.m.base], seconds(l.align[i].u))
			continue
		}
		if err := l.m.note("%s is aligned with %s by the host's clock, within %s (k = 1)", l.m.names[i], l.m.names[l.m.base], seconds(l.align[i].u)); err != nil {
			return err
		}
	}
	return nil
}

// track follows the members' rates.
func (l *live) track() {
	base, now := l.leads[l.m.base].line(), l.m.oldest()
	if math.IsInf(now, 0) {
		return
	}
	for i := range l.align {
		if i != l.m.base {
			l.align[i].track(base, l.leads[i].line(), now, l.u())
			l.m.place[i] = l.align[i].place
		}
	}
}

// advance delivers what is due.
func (l *live) advance() error {
	if l.awaiting {
		if err := l.anchor(); err != nil {
			return err
		}
	}
	l.m.release = math.Inf(1)
	if l.awaiting {
		l.m.release = l.m.newest() - l.lag
	}
	if stop := l.stop[l.m.base]; stop != nil {
		checked, err := l.check()
		if err != nil {
			return err
		}
		// Who ends with the stop marker shall have the note on it as well.
		if end := float64(stop.End); !checked && l.m.newest() < end+l.wait {
			l.m.release = min(l.m.release, end)
		}
	}
	if _, err := l.m.drain(); err != nil {
		return err
	}
	return l.silent()
}

// silent ends the stream where one member is silent while the others go on: what
// waits for it would fill the memory.
func (l *live) silent() error {
	limit := silence
	if l.awaiting {
		limit += l.lag
	}
	for i, t := range l.m.tracks {
		quiet := -1
		switch {
		case t == nil:
		case l.m.newest()-l.m.oldest() > limit && l.m.place[i].of(l.m.oldest()) > t.newest():
			quiet = i
		case t.newest()-t.time > limit+keepBehind:
			quiet = l.m.base
		}
		if quiet >= 0 {
			return fmt.Errorf("%s: %w: nothing came for %v s while %s went on", l.m.names[quiet], instrument.ErrDisconnected, limit, l.m.names[l.last])
		}
	}
	return nil
}

// finish delivers the rest and tells how the clocks ran.
func (l *live) finish() error {
	if err := l.m.finish(); err != nil || !l.m.begun {
		return err
	}
	for i := range l.align {
		if i != l.m.base {
			if err := l.m.note("%s against %s: %s; aligned within %s (k = 1)", l.m.names[i], l.m.names[l.m.base], l.rates(i), seconds(l.align[i].u)); err != nil {
				return err
			}
		}
	}
	return nil
}
