package model

import (
	"wattmark/monitor/capture"
	"wattmark/store"
)

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
	if c := p.all[i]; p.up && c.life > capture.Arming && c.have < c.chunks {
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
			whole := c.life == capture.Complete
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
