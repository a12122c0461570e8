package composite

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument"
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
	hidden   []float64 // delays that the start marker showed beyond the clock
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
	// the delay of blocks and lines beyond that, in seconds.
	reportChips = 12
	reserve     = 0.3
	// maxLag bounds the output's delay, and with it that of a capture's begin: of a
	// marker for slow sensors, which is longer, the first part is aligned by clock.
	maxLag = 5.0
)

// newLive chooses the way to align: a common trigger is exact at once, markers are awaited, and a
// stream of the same task that lost its link goes on with the delays that it knew.
func newLive(s *session) (*live, error) {
	n := len(s.members)
	l := &live{
		s: s, m: s.merger, leads: make([]lead, n), align: make([]aligner, n), start: make([]*marker.Found, n),
		stop: make([]*marker.Found, n),
	}
	for i := range l.align {
		moved, _ := split(s.c.members, i, s.c.base, l.m.tb, s.c.align, s.c.members[i].beside(s.c.parts[i]))
		l.align[i] = aligner{shared: s.c.align.SharedClock, moved: float64(moved), place: &l.m.place[i]}
	}
	if s.c.align.By == Trigger {
		l.triggered()
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
		if d == nil {
			continue
		}
		d.OnFound(func(f marker.Found) { // of other tasks' markers the tag is wrong
			switch {
			case !f.TagOK:
			case f.Kind == marker.Start && l.start[i] == nil && l.awaiting:
				l.start[i] = &f
			case f.Kind == marker.Stop:
				l.stop[i] = &f
			}
		})
		if t := l.m.tracks[i]; t != nil {
			t.keep = keepBehind
		}
	}
	return l, nil
}

// marked reports whether a member is aligned by its markers.
func (l *live) marked(i int) bool { return l.detect != nil && l.detect[i] != nil }

// triggered places the members by their common trigger alone.
func (l *live) triggered() {
	l.settled = true
	for i := range l.align {
		a := &l.align[i]
		a.anchorAt(0, -a.moved, float64(period(l.m.tb))/math.Sqrt(12))
		if i == l.m.base {
			continue
		}
		l.m.note("%s is aligned with %s by their common trigger, within %s (k = 1)", l.m.names[i],
			l.m.names[l.m.base], seconds(a.u))
	}
}

// take takes a block or an event of a member and delivers the scans that are due.
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
	if l.marked(i) {
		if err := l.detect[i].Push(&p.block); err != nil {
			return err
		}
	}
	l.m.add(i, p)
	if !l.settled {
		if !l.ready() {
			return nil
		}
		l.settle()
	}
	if window && i == l.m.base {
		l.track()
	}
	return l.advance()
}

// ready reports whether arrivals were watched long enough to place the first scans.
func (l *live) ready() bool {
	return !slices.ContainsFunc(l.leads, func(w lead) bool { return !w.begun || w.lastSeen-w.firstSeen < settle })
}

// settle places the members by the host's clock.
func (l *live) settle() {
	l.settled = true
	base, u := l.leads[l.m.base].line(), l.s.c.align.U.Seconds()
	for i := range l.align {
		if i == l.m.base {
			continue
		}
		l.align[i].settle(base, l.leads[i].line(), 0, u)
		if l.awaiting && l.marked(i) {
			continue
		}
		if l.marked(i) {
			// Behind the first scan: before it it is unknown where it belongs.
			l.m.noteAt(math.Inf(-1), "%s is aligned with %s by the host's clock and what the start marker showed "+
				"before, within %s (k = 1)", l.m.names[i], l.m.names[l.m.base], seconds(l.align[i].u))
			continue
		}
		l.m.note("%s is aligned with %s by the host's clock, within %s (k = 1)", l.m.names[i],
			l.m.names[l.m.base], seconds(l.align[i].u))
	}
}

// track follows the members' rates.
func (l *live) track() {
	base, now := l.leads[l.m.base].line(), l.m.oldest()
	if math.IsInf(now, 0) {
		return
	}
	for i := range l.align {
		if i != l.m.base {
			l.align[i].track(base, l.leads[i].line(), now, l.s.c.align.U.Seconds())
		}
	}
}

// advance delivers the scans that are due.
func (l *live) advance() error {
	if l.awaiting {
		l.anchor()
	}
	l.m.release = math.Inf(1)
	if l.awaiting {
		l.m.release = l.m.newest() - l.lag
	}
	if stop := l.stop[l.m.base]; stop != nil {
		// Who ends with the stop marker shall have the note on it as well.
		if end := float64(stop.End); !l.check() && l.m.newest() < end+l.wait {
			l.m.release = min(l.m.release, end)
		}
	}
	if _, err := l.m.drain(); err != nil {
		return err
	}
	return l.silent()
}

// silent ends the stream where one member is silent while the others go on: the
// scans that wait for it would fill the memory.
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
			return fmt.Errorf("%s: %w: nothing came for %v s while %s went on", l.m.names[quiet],
				instrument.ErrDisconnected, limit, l.m.names[l.last])
		}
	}
	return nil
}

// finish delivers the rest and reports how the clocks ran.
func (l *live) finish() error {
	if err := l.m.finish(); err != nil || !l.m.begun {
		return err
	}
	for i := range l.align {
		if i != l.m.base {
			l.m.note("%s against %s: %s; aligned within %s (k = 1)", l.m.names[i], l.m.names[l.m.base],
				l.rates(i), seconds(l.align[i].u))
		}
	}
	return l.m.failed
}

// packet is a member's block, copied, with its time of arrival. Events keep their
// place among the blocks.
type packet struct {
	block measure.Block
	at    time.Time
	event *measure.Event // instead of a block
	home  chan *packet   // its member's, for packets that are used up; nil for one that is not used again
}

// free gives a packet back to its member, or leaves it to the collector. It never blocks.
func (p *packet) free() {
	select {
	case p.home <- p:
	default:
	}
}

// fill copies a block, whose memory is the member's, into a packet.
func (p *packet) fill(b *measure.Block, at time.Time) {
	p.at, p.event = at, nil
	p.block.FirstScan, p.block.FirstTick = b.FirstScan, b.FirstTick
	if p.block.Counts == nil {
		p.block.Counts = make([][]measure.Count, len(b.Counts))
	}
	for c := range b.Counts {
		p.block.Counts[c] = append(p.block.Counts[c][:0], b.Counts[c]...)
	}
	if b.Ticks != nil {
		p.block.Ticks = append(p.block.Ticks[:0], b.Ticks...)
	}
}

// reportGap reports the scans left out before scan next of the base.
func (m *merger) reportGap(next uint64) error {
	if m.dropped == 0 {
		return nil
	}
	e := measure.Event{
		Kind: measure.EventGap, FirstScan: next - m.dropped - m.scan0, Scans: m.dropped, Exact: m.exact, Channel: -1,
		Detail: m.why,
	}
	m.dropped, m.why, m.exact = 0, "", true
	return m.sink.Event(e)
}

// event passes a member's event on. Its place is the scan that is due, which is
// near where it happened.
func (m *merger) event(member int, e measure.Event) error {
	e.FirstScan = m.next()
	if e.Channel >= 0 {
		if t := m.tracks[member]; t != nil {
			e.Channel += t.first
		} else {
			e.Channel += m.first
		}
	}
	if !strings.HasPrefix(e.Detail, m.names[member]) {
		e.Detail = m.names[member] + ": " + e.Detail
	}
	return m.sink.Event(e)
}

// next is the whole's scan that is due.
func (m *merger) next() uint64 {
	if !m.begun {
		return 0
	}
	return m.due - m.scan0
}

// remark is a note to be made once the base's time has come.
type remark struct {
	at   float64
	text string
}

// noteAt queues a note for after the scans up to a time of the base.
func (m *merger) noteAt(at float64, format string, a ...any) {
	m.remarks = append(m.remarks, remark{at, fmt.Sprintf(format, a...)})
}

// note reports a note on the whole, now. Where that fails, the next drain returns the error.
func (m *merger) note(format string, a ...any) {
	if m.failed == nil {
		m.failed = m.sink.Event(measure.Event{
			Kind: measure.EventNote, FirstScan: m.next(), Exact: true, Channel: -1, Detail: fmt.Sprintf(format, a...),
		})
	}
}

// tail is how much of the base, before the stop was asked for, may lie behind the end of another
// member without being missed: the host's clock does not place the stop more closely.
const tail = 0.05

// flush delivers the remaining scans once all members have ended.
func (m *merger) flush() error {
	for _, t := range m.tracks {
		if t != nil {
			t.done = true
		}
	}
	m.release = math.Inf(1)
	_, err := m.drain()
	return err
}

// finish delivers the remaining scans once all members have ended, and reports those
// without readings.
func (m *merger) finish() error {
	if err := m.flush(); err != nil || !m.begun {
		return err
	}
	rest, scan := m.end-m.due, float64(period(m.tb))
	rest -= min(rest, uint64(max(0, m.endAt-m.stop)/scan)) // members stop one after the other
	if float64(rest)*scan > tail {
		m.why = m.ended()
		m.dropped, m.due = m.dropped+rest, m.due+rest
	}
	if e := m.atEnd; e != nil {
		m.dropped += e.Scans
		m.due += e.Scans
		m.exact = m.exact && e.Exact
		m.why = m.names[m.base] + ": " + e.Detail
	}
	return m.reportGap(m.due)
}

// ended names the member that ended before the base.
func (m *merger) ended() string {
	for i, t := range m.tracks {
		if t == nil || !t.valid || t.seek(m.place[i].of(m.oldest())) != over {
			continue
		}
		if why := t.loss(true); why != "" {
			return t.name + ": " + why
		}
		return t.name + " had no more readings"
	}
	return "a member had no more readings"
}
