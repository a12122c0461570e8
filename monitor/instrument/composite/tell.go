package composite

import (
	"fmt"
	"math"
	"strings"

	"wattmark/measure"
)

// hole takes note of scans that the base itself lost.
func (m *merger) hole(n uint64) {
	if m.begun {
		m.dropped += n
		m.why = m.names[m.base] + ": its scans jump"
		if m.announce != nil {
			m.why, m.exact = m.names[m.base]+": "+m.announce.Detail, m.exact && m.announce.Exact
		}
	}
	m.announce = nil
}

// skip leaves out a scan of the base for which a member has no reading.
func (m *merger) skip(t *track) {
	if !m.begun {
		return
	}
	why := t.loss(false)
	if m.dropped++; m.why == "" {
		m.why = t.name + ": no reading there"
	}
	if why != "" {
		m.why = t.name + ": " + why
	}
}

// tellGap tells of the scans left out before scan next of the base.
func (m *merger) tellGap(next uint64) error {
	if m.dropped == 0 {
		return nil
	}
	e := measure.Event{
		Kind: measure.EventGap, FirstScan: next - m.dropped - m.scan0, Scans: m.dropped, Exact: m.exact, Channel: -1, Detail: m.why,
	}
	m.dropped, m.why, m.exact = 0, "", true
	return m.sink.Event(e)
}

// baseEvent passes an event of the base on, in its place.
func (m *merger) baseEvent(e measure.Event) error {
	if e.Kind == measure.EventGap {
		m.announce = &e
		return nil
	}
	return m.event(m.base, e)
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

// noteAt tells something of the whole behind the scans up to a time of the base.
func (m *merger) noteAt(at float64, format string, a ...any) {
	m.remarks = append(m.remarks, remark{at, fmt.Sprintf(format, a...)})
}

// tellRemarks makes the notes that are due before a time of the base.
func (m *merger) tellRemarks(now float64) error {
	for len(m.remarks) > 0 && m.remarks[0].at <= now {
		text := m.remarks[0].text
		m.remarks = m.remarks[1:]
		if err := m.note("%s", text); err != nil {
			return err
		}
	}
	return nil
}

// note tells something of the whole, now.
func (m *merger) note(format string, a ...any) error {
	return m.sink.Event(measure.Event{Kind: measure.EventNote, FirstScan: m.next(), Exact: true, Channel: -1, Detail: fmt.Sprintf(format, a...)})
}

// tail is how much of the base may lie behind the end of another member without
// being missed: members do not stop at one instant.
const tail = 0.05

// flush delivers what remains once all members have ended.
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

// finish delivers what remains once all members have ended, and tells what they
// had no readings for.
func (m *merger) finish() error {
	if err := m.flush(); err != nil || !m.begun {
		return err
	}
	if rest := m.end - m.due; float64(rest)*float64(period(m.tb)) > tail {
		m.dropped, m.due, m.why = m.dropped+rest, m.end, m.ended()
	}
	if e := m.atEnd; e != nil {
		m.dropped += e.Scans
		m.due += e.Scans
		m.exact = m.exact && e.Exact
		m.why = m.names[m.base] + ": " + e.Detail
	}
	return m.tellGap(m.due)
}

// ended says which member ended before the base.
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
