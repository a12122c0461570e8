package model

import (
	"wattmark/monitor/capture"
	"wattmark/store"
)

// hands makes the steps of others: of an operator who finds the capture in the
// monitor's list, and of a user who looks at a task anew.
func (m *machine) hands(p place, i int) {
	c := p.all[i]
	if p.up {
		m.late(p, i)
	}
	switch {
	case !p.up || c.life == 0 || c.life.Ended():
	case c.life == capture.Arming:
		m.add(p, otherStops, true, func(p *place) { m.never(p, i, capture.StopAsked) })
		m.add(p, otherTakes, true, func(p *place) { m.never(p, i, capture.Failed) })
	default:
		if c.life == capture.Running {
			m.add(p, otherStops, true, func(p *place) {
				p.all[i].asked = true
				m.move(&p.all[i], capture.StopAsked)
			})
		}
		m.add(p, otherTakes, true, func(p *place) { m.seal(p, i, capture.Failed) })
	}
	if c.state == 0 {
		return
	}
	for _, on := range revisions(&c) {
		m.addOf(p, action{move: revised, on: on}, true, func(p *place) { m.revise(&p.all[i], on) })
	}
}

// late makes the steps of triggers that come when the capture is past them: a timer
// that went off, a lease that ends while it stops, a failure behind the end. Their
// tables refuse them, and nothing happens.
func (m *machine) late(p place, i int) {
	c := p.all[i]
	for _, t := range []capture.Trigger{capture.TailWritten, capture.Failed, capture.LeaseEnded} {
		if c.life.Ended() || c.life == capture.Stopping && t == capture.LeaseEnded {
			m.addOf(p, action{move: tooLate, late: t}, false, func(p *place) {
				_, err := m.captureStep(c.life, t)
				p.all[i].untrue = c.untrue || err == nil
			})
		}
	}
}

// revisions are what a second look can come to: of what is not all there, only that,
// and of work that failed only that it did.
func revisions(c *one) []store.Event {
	if c.state == store.Failed {
		return []store.Event{store.RevisedFailed}
	}
	var running []store.Event
	if c.state == store.Running {
		running = []store.Event{store.RevisedFailed}
	}
	if c.ended == capture.Complete && c.have == c.total {
		return append(running, store.RevisedComplete, store.RevisedUntrimmed, store.RevisedIncomplete)
	}
	return append(running, store.RevisedIncomplete)
}

// revise is an outcome that replaces another. The table has it for every task.
func (m *machine) revise(c *one, on store.Event) {
	to, err := m.taskStep(c.state, on)
	if err != nil {
		c.refused = true
		return
	}
	c.byHand = c.byHand || c.state == store.Running
	c.become(on, to)
	c.reason = c.reason || on != store.RevisedComplete
}
