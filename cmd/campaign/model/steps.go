package model

import (
	"wattmark/monitor/capture"
	"wattmark/store"
)

// monitor makes the steps that the monitor takes by itself.
func (m *machine) monitor(p place, i int) {
	c := p.all[i]
	if !p.up || c.life == 0 {
		return
	}
	seal := func(does move, fault bool, t capture.Trigger) {
		m.add(p, does, fault, func(p *place) { m.seal(p, i, t) })
	}
	switch {
	case c.life.Ended():
		return
	case c.life == capture.Arming:
		m.add(p, firstScan, false, func(p *place) {
			m.move(&p.all[i], capture.FirstScan)
			p.all[i].begun = true
			p.all[i].wire |= saidStarted
		})
		m.add(p, meterNever, true, func(p *place) { m.never(p, i, capture.Failed) })
		if c.session == dead || c.session == done {
			m.add(p, callerGone, false, func(p *place) { m.never(p, i, capture.Failed) })
		}
		return
	}
	if int(c.chunks) < m.r.Chunks {
		m.add(p, chunkWritten, false, func(p *place) { p.all[i].chunks++ })
	}
	if c.synced < c.chunks || !c.told {
		m.add(p, logSynced, false, func(p *place) { p.all[i].synced, p.all[i].told = c.chunks, true })
	}
	if c.life == capture.Stopping {
		seal(tailWritten, false, capture.TailWritten)
	}
	seal(meterFails, true, capture.Failed)
	// A lease ends where nobody renews it; the line can keep a host from that. It is
	// no fault: it frees the bench of a host that is no more.
	if c.life == capture.Running {
		seal(leaseEnds, c.session != dead && c.session != done, capture.LeaseEnded)
	}
}

// never ends a capture that nobody is told of, and releases it.
func (m *machine) never(p *place, i int, t capture.Trigger) {
	m.seal(p, i, t)
	c := &p.all[i]
	m.release(c)
	c.released = false
	c.wire |= saidFailed
}

// move is a step of a capture that does not end it.
func (m *machine) move(c *one, t capture.Trigger) {
	to, err := m.captureStep(c.life, t)
	if err != nil {
		c.refused = true
		return
	}
	c.life = to
}

// line makes the steps of messages: to arrive, to arrive and come again, to be lost.
func (m *machine) line(p place, i int) {
	for w := message(1); w <= saidReleased; w <<= 1 {
		if p.all[i].wire&w == 0 {
			continue
		}
		m.addOf(p, action{move: lost, w: w}, true, func(p *place) { p.all[i].wire &^= w })
		arrive := m.heard
		if w&toMonitor != 0 {
			arrive = m.asked
			if !p.up {
				continue
			}
		}
		m.addOf(p, action{move: arrives, w: w}, false, func(p *place) {
			p.all[i].wire &^= w
			arrive(p, i, w)
		})
		if w != askStart && w != saidStarted { // a start is asked once
			m.addOf(p, action{move: arrivesTwice, w: w}, true, func(p *place) { arrive(p, i, w) })
		}
	}
}

// asked is a request at the monitor.
func (m *machine) asked(p *place, i int, w message) {
	c := &p.all[i]
	switch w {
	case askStart:
		if p.bench != 0 || c.life != 0 {
			c.wire |= saidFailed
			return
		}
		p.bench = uint8(i + 1)
		m.move(c, capture.Created)
	case askStop:
		switch {
		case c.life == 0 || c.life.Ended():
			c.wire |= saidStopped
		case c.life == capture.Running:
			c.asked = true
			m.move(c, capture.StopAsked)
			c.wire |= askStop // it is answered when the capture has ended
		case c.life == capture.Arming:
			m.seal(p, i, capture.StopAsked)
		default:
			c.wire |= askStop
		}
	case askRelease:
		m.release(c)
		c.wire |= saidReleased
	}
}

// release drops a capture that has ended.
func (m *machine) release(c *one) {
	if c.life == 0 {
		return
	}
	c.refused = c.refused || c.life.Ended() && m.r.Capture[c.life][capture.ReleaseDone] == 0
	if to, err := m.captureStep(c.life, capture.ReleaseDone); err == nil && to == capture.Released {
		c.drop()
		c.released = true
	}
}

// heard is an answer at the host.
func (m *machine) heard(p *place, i int, w message) {
	c := &p.all[i]
	switch {
	case w == saidStarted && c.session == starting:
		to, err := m.taskStep(0, store.Begun)
		c.refused = c.refused || err != nil
		c.state, c.session = to, working
	case w == saidFailed && c.session == starting:
		c.session = done
	case w == saidStopped && c.session == stopping:
		c.session = reading
		if c.life.Ended() {
			c.acked = max(c.acked, c.chunks+1)
		}
	case w == saidReleased && c.session == releasing:
		c.session = done
	}
}
