package model

import (
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/store"
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
	case c.life == session.Arming:
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
	if c.life == session.Stopping {
		seal(tailWritten, false, capture.TailWritten)
	}
	seal(meterFails, true, capture.Failed)
	// A lease ends where nobody renews it; the line can keep a host from that. It is
	// no fault: it frees the bench of a host that is no more.
	if c.life == session.Running {
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
		case c.life == session.Running:
			c.asked = true
			m.move(c, capture.StopAsked)
			c.wire |= askStop // it is answered when the capture has ended
		case c.life == session.Arming:
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
	if to, err := m.captureStep(c.life, capture.ReleaseDone); err == nil && to == session.Released {
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

// host makes the steps of a measurement.
func (m *machine) host(p place, i int) {
	c := p.all[i]
	if c.session != resting && c.session != done && c.session != dead {
		m.add(p, hostKilled, true, func(p *place) { p.all[i].session = dead })
	}
	switch c.session {
	case resting:
		if i > 0 && !m.r.Together && p.all[i-1].session != done && p.all[i-1].session != dead {
			return
		}
		m.add(p, startAsked, false, func(p *place) {
			p.all[i].session = starting
			p.all[i].wire |= askStart
		})
	case starting:
		m.add(p, hostGivesUp, c.wire != 0, func(p *place) { p.all[i].session = dead })
	case working:
		m.stream(p, i)
		m.add(p, workDone, false, func(p *place) {
			p.all[i].worked, p.all[i].session = true, stopping
			p.all[i].wire |= askStop
		})
	case stopping:
		m.stream(p, i)
		if c.wire&(askStop|saidStopped) == 0 {
			m.add(p, stopAskedAgain, false, func(p *place) { p.all[i].wire |= askStop })
		}
	case reading:
		m.stream(p, i)
		m.read(p, i, false)
		m.add(p, patienceEnds, true, func(p *place) {
			m.end(&p.all[i], store.Postponed)
			p.all[i].session = dead
		})
	case ending:
		for _, on := range outcomes(c.sawWhole) {
			m.addOf(p, action{move: outcomeStored, on: on}, false, func(p *place) {
				m.end(&p.all[i], on)
				p.all[i].session = releasing
				p.all[i].wire |= askRelease
			})
		}
	case releasing:
		if c.wire&(askRelease|saidReleased) == 0 {
			m.add(p, releaseAskedAgain, false, func(p *place) { p.all[i].wire |= askRelease })
		}
	}
}

// outcomes are what an analysis can come to: of a whole capture it may find no window,
// and the work may have failed of any.
func outcomes(whole bool) []store.Event {
	if whole {
		return []store.Event{store.EndedComplete, store.EndedUntrimmed, store.EndedFailed}
	}
	return []store.Event{store.EndedIncomplete, store.EndedFailed}
}

// stream brings the next chunk, as far as the log goes.
func (m *machine) stream(p place, i int) {
	if c := p.all[i]; p.up && c.life > session.Arming && c.have < c.chunks {
		m.add(p, chunkStored, false, func(p *place) { p.all[i].have++ })
	}
}

// read makes the steps by which a transfer ends: the trailer, less than was sent
// before, or nothing any more.
func (m *machine) read(p place, i int, daemon bool) {
	c := p.all[i]
	at := func(c *one) *phase {
		if daemon {
			return &c.daemon
		}
		return &c.session
	}
	switch {
	case !p.up:
	case c.life == 0:
		m.add(p, captureGone, false, func(p *place) {
			m.end(&p.all[i], store.EndedIncomplete)
			*at(&p.all[i]) = done
		})
	case c.life.Ended() && c.have == c.chunks:
		m.add(p, trailerRead, false, func(p *place) {
			whole := c.life == session.Complete
			if *at(&p.all[i]) = ending; daemon {
				p.all[i].daemonSaw = whole
			} else {
				p.all[i].sawWhole = whole
			}
		})
	case c.life.Ended() && c.have > c.chunks:
		m.add(p, pastTheEnd, false, func(p *place) {
			m.end(&p.all[i], store.EndedIncomplete)
			*at(&p.all[i]) = releasing
			if !daemon {
				p.all[i].wire |= askRelease
			}
		})
	}
}

// recovery makes the steps of the daemon: measurement.Recover, also beside a
// measurement that still lives.
func (m *machine) recovery(p place, i int) {
	c := p.all[i]
	if c.daemon != resting && c.daemon != done {
		m.add(p, daemonKilled, true, func(p *place) { p.all[i].daemon = resting })
	}
	switch c.daemon {
	case resting, done:
		if c.state == store.Running && p.up && p.bench != uint8(i+1) {
			m.add(p, recoveryBegins, false, func(p *place) { p.all[i].daemon = reading })
		}
		if c.state > store.Running && p.up && c.life.Ended() && c.have >= c.chunks {
			m.add(p, leftReleased, false, func(p *place) { m.release(&p.all[i]) })
		}
	case reading:
		m.stream(p, i)
		m.read(p, i, true)
	case ending:
		for _, on := range outcomes(c.daemonSaw && c.worked) {
			m.addOf(p, action{move: recoveredStored, on: on}, false, func(p *place) {
				m.end(&p.all[i], on)
				p.all[i].daemon = releasing
			})
		}
	case releasing:
		if p.up {
			m.add(p, recoveredReleased, false, func(p *place) {
				m.release(&p.all[i])
				p.all[i].daemon = done
			})
		}
	}
}

// hands makes the steps of others: of an operator who finds the capture in the
// monitor's list, and of a user who looks at a task anew.
func (m *machine) hands(p place, i int) {
	c := p.all[i]
	if p.up {
		m.late(p, i)
	}
	switch {
	case !p.up || c.life == 0 || c.life.Ended():
	case c.life == session.Arming:
		m.add(p, otherStops, true, func(p *place) { m.never(p, i, capture.StopAsked) })
		m.add(p, otherTakes, true, func(p *place) { m.never(p, i, capture.Failed) })
	default:
		if c.life == session.Running {
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
		if c.life.Ended() || c.life == session.Stopping && t == capture.LeaseEnded {
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
	if c.ended == session.Complete && c.have == c.total {
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
