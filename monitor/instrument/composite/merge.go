package composite

import (
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// merger makes blocks of the whole. It is used by one goroutine.
type merger struct {
	sink   instrument.Sink
	base   int
	tb     measure.Timebase // the base's
	tracks []*track         // of all members but the base, which is nil
	place  []place          // of each member, by index
	queue  []*packet        // the base's, not yet delivered
	names  []string
	first  int // channel of the base's first

	// release is the base's time up to which scans may go out.
	release float64

	failed   error // of a note
	begun    bool
	scan0    uint64  // the base's scan that is scan zero of the whole
	tick0    float64 // and its tick
	due      uint64  // the base's scan that is due next
	from     int     // scans of the queue's first packet that are done
	dropped  uint64  // scans of the base that were left out since the last block
	exact    bool    // of their number
	why      string
	announce *measure.Event // a gap that the base reported, before its block
	end      uint64         // one past the base's last scan
	endAt    float64        // the base's time of that
	atEnd    *measure.Event // a gap behind it
	stop     float64        // the base's time at which the whole was asked to stop, +∞ where it was not
	remarks  []remark

	cols [][]measure.Count // storage of out
	out  measure.Block
}

// newMerger lays out the channels of all members in their order, the base's among them.
func newMerger(c *Composite, sink instrument.Sink) *merger {
	m := &merger{
		sink: sink, base: c.base, tb: c.inputs.Timebase, place: make([]place, len(c.members)),
		release: math.Inf(1), stop: math.Inf(1), exact: true,
	}
	first := 0
	for i, in := range c.parts {
		m.names = append(m.names, c.members[i].Name)
		if i == c.base {
			m.first = first
			m.tracks = append(m.tracks, nil)
		} else {
			m.tracks = append(m.tracks, &track{
				name: c.members[i].Name, tb: in.Timebase, period: float64(period(in.Timebase)), first: first,
				wall: c.members[i].wall(in),
			})
		}
		first += len(in.Channels)
	}
	m.out.Counts, m.cols = make([][]measure.Count, first), make([][]measure.Count, first)
	return m
}

// add takes a member's block or event; it delivers nothing yet.
func (m *merger) add(member int, p *packet) {
	if member == m.base {
		m.count(p)
		m.queue = append(m.queue, p)
		return
	}
	if p.event == nil {
		m.tracks[member].add(p)
		return
	}
	m.tracks[member].gaps = append(m.tracks[member].gaps, *p.event)
}

// count keeps where the base ends.
func (m *merger) count(p *packet) {
	switch {
	case p.event == nil:
		n := p.block.Scans()
		m.end, m.endAt, m.atEnd = p.block.FirstScan+uint64(n), m.seconds(&p.block, n-1)+float64(period(m.tb)), nil
	case p.event.Kind == measure.EventGap:
		m.atEnd = p.event
	}
}

// seconds is the base's time of scan i of a block.
func (m *merger) seconds(b *measure.Block, i int) float64 {
	return b.TickAt(m.tb, i) / float64(m.tb.TickHz)
}

// newest is the base's time of its newest scan, −∞ before the first.
func (m *merger) newest() float64 {
	for i := len(m.queue) - 1; i >= 0; i-- {
		if b := &m.queue[i].block; m.queue[i].event == nil {
			return m.seconds(b, b.Scans()-1)
		}
	}
	return math.Inf(-1)
}

// oldest is the base's time of the scan that is due, +∞ where none is at hand.
func (m *merger) oldest() float64 {
	for i, p := range m.queue {
		if p.event != nil {
			continue
		}
		if i == 0 && m.from < p.block.Scans() {
			return m.seconds(&p.block, m.from)
		}
		return m.seconds(&p.block, 0)
	}
	return math.Inf(1)
}

// drain delivers the scans that can be placed. end is true once a member has ended, and
// nothing more can come out.
func (m *merger) drain() (end bool, err error) {
	n := 0
	for m.failed == nil && n < len(m.queue) {
		p := m.queue[n]
		if p.event != nil {
			if p.event.Kind == measure.EventGap {
				m.announce = p.event
			} else if err := m.event(m.base, *p.event); err != nil {
				return false, err
			}
		} else {
			done, ended, err := m.block(p)
			if err != nil || !done {
				m.pop(n)
				return ended, err
			}
		}
		m.from = 0
		n++
	}
	m.pop(n)
	return false, m.failed
}

// pop releases the first n packets of the base, and those of the others that no scan will show.
func (m *merger) pop(n int) {
	for _, p := range m.queue[:n] {
		p.free()
	}
	m.queue = m.queue[:copy(m.queue, m.queue[n:])]
	for _, t := range m.tracks {
		if t == nil || !t.valid {
			continue
		}
		k := 0
		for ; k < t.p && t.end1(k) < t.time-t.keep; k++ {
			t.packets[k].free()
		}
		t.packets = t.packets[:copy(t.packets, t.packets[k:])]
		t.p -= k
	}
}

// block places the scans of a block of the base from m.from on. done reports that
// all are; ended that a member has ended before them.
func (m *merger) block(p *packet) (done, ended bool, err error) {
	b := &p.block
	if m.from == 0 && b.FirstScan > m.due { // the base itself lost scans
		m.hole(b.FirstScan - m.due)
	}
	n, begin := b.Scans(), m.from
	for c := range m.cols {
		m.cols[c] = slices.Grow(m.cols[c][:0], n)[:n]
	}
	i := begin
	hz := float64(m.tb.TickHz)
	for ; i < n; i++ {
		at := b.TickAt(m.tb, i) / hz
		if at > m.release {
			break
		}
		s, t := m.seek(at, i-begin)
		if s == hit {
			continue
		}
		if err := m.deliver(p, begin, i); err != nil {
			return false, false, err
		}
		if s != missing {
			m.from, m.due = i, b.FirstScan+uint64(i)
			return false, s == over, nil
		}
		if begin = i + 1; m.begun { // no scan of the base is missed before the first of the whole
			m.dropped++
			if why := t.loss(false); why != "" {
				m.why = t.name + ": " + why
			} else if m.why == "" {
				m.why = t.name + ": no reading there"
			}
		}
	}
	m.from, m.due = i, b.FirstScan+uint64(i)
	if err := m.deliver(p, begin, i); err != nil || i == 0 || !m.begun {
		return i == n, false, err
	}
	for now := b.TickAt(m.tb, i-1) / hz; len(m.remarks) > 0 && m.remarks[0].at <= now; m.remarks = m.remarks[1:] {
		m.note("%s", m.remarks[0].text)
	}
	return i == n, false, m.failed
}

// hole takes note of scans that the base itself lost.
func (m *merger) hole(n uint64) {
	if m.begun {
		m.dropped, m.why = m.dropped+n, m.names[m.base]+": its scans jump"
		if m.announce != nil {
			m.why, m.exact = m.names[m.base]+": "+m.announce.Detail, m.exact && m.announce.Exact
		}
	}
	m.announce = nil
}

// seek looks for every member's reading at an instant and puts it at scan k.
func (m *merger) seek(at float64, k int) (state, *track) {
	for i, t := range m.tracks {
		if t == nil {
			continue
		}
		s := t.seek(m.place[i].of(at))
		lost := t.wall >= 0 && s == missing // of the machine beside the card, whose scans go on
		if s != hit && !lost {
			return s, t
		}
		for c, col := range t.packets[t.p].block.Counts {
			m.cols[t.first+c][k] = col[t.i]
		}
		if lost {
			m.cols[t.first+t.wall][k] = measure.NoReading
			if why := t.loss(false); why != "" {
				m.note("%s: %s; the card's scans go on", t.name, why)
			}
		}
	}
	return hit, nil
}

// deliver gives scans [from, to) of a block of the base, of which the members'
// readings are in place, to the sink.
func (m *merger) deliver(p *packet, from, to int) error {
	if from >= to {
		return nil
	}
	b := &p.block
	if !m.begun {
		m.begin(b, from)
	}
	if err := m.reportGap(b.FirstScan + uint64(from)); err != nil {
		return err
	}
	n := to - from
	m.out.FirstScan = b.FirstScan + uint64(from) - m.scan0
	m.out.FirstTick = int64(b.TickAt(m.tb, from) - m.tick0)
	if b.Ticks != nil {
		m.out.Ticks = m.out.Ticks[:0]
		for _, t := range b.Ticks[from:to] {
			m.out.Ticks = append(m.out.Ticks, t-int64(m.tick0))
		}
	}
	for c := range m.cols {
		m.out.Counts[c] = m.cols[c][:n]
	}
	for c := range b.Counts {
		m.out.Counts[m.first+c] = b.Counts[c][from:to]
	}
	if m.sink.BlockAt != nil {
		late := measure.Seconds(b.Scans()-to) * period(m.tb) // than scan to−1 would have come by itself
		return m.sink.BlockAt(&m.out, p.at.Add(-late.Duration()))
	}
	return m.sink.Block(&m.out)
}

// begin makes a scan of the base the first of the whole.
func (m *merger) begin(b *measure.Block, i int) {
	m.begun = true
	m.scan0, m.tick0 = b.FirstScan+uint64(i), b.TickAt(m.tb, i)
	m.dropped, m.why, m.exact = 0, "", true
	for _, t := range m.tracks {
		if t != nil {
			t.unshown = 0
		}
	}
}
