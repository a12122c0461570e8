package monitor

import (
	"context"
	"fmt"
	"time"

	"wattmark/monitor/capture"
)

// fetchTime is how long a host may take to fetch a capture that ended while the
// monitor was being stopped. What it leaves stays in the spool.
const fetchTime = 5 * time.Second

// SetDrain changes how long a capture that runs may take to end by itself when
// the monitor is stopped.
func (m *Monitor) SetDrain(limit time.Duration) { m.drain.Store(int64(limit)) }

// Hurry ends the wait for captures that run, now or later.
func (m *Monitor) Hurry() { m.haste.Do(func() { close(m.hurry) }) }

// awaitCaptures lets nobody take the bench any more, and waits until the capture
// that runs has ended and was fetched, or ctx has. It returns what ends those
// that are left.
func (m *Monitor) awaitCaptures(ctx context.Context) error {
	free := m.owner.Drain()
	limit := time.Duration(m.drain.Load())
	select {
	case <-free:
		return nil
	default:
	}
	if limit <= 0 {
		return nil
	}
	id := m.running()
	m.cfg.Log.Info("stopping: the capture that runs may end by itself", "capture", id, "limit", limit)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-free:
		m.awaitFetched(id)
		return nil
	case <-ctx.Done(): // something failed meanwhile
		return nil
	case <-m.hurry:
		return capture.StopCause("the monitor was stopped at once, while it waited for this capture to end")
	case <-timer.C:
		return capture.StopCause(fmt.Sprintf("the monitor was stopped: this capture had not ended %v after it was asked to", limit))
	}
}

// running names the capture that holds the bench; empty where none does.
func (m *Monitor) running() string {
	for _, i := range m.owner.List() {
		if !i.State.Ended() {
			return i.CaptureID
		}
	}
	return ""
}

// awaitFetched waits a moment until a host has released a capture.
func (m *Monitor) awaitFetched(id string) {
	timer, tick := time.NewTimer(fetchTime), time.NewTicker(20*time.Millisecond)
	defer timer.Stop()
	defer tick.Stop()
	for {
		if c, err := m.owner.Get(id); err != nil || c.HasBeenReleased() {
			return
		}
		select {
		case <-tick.C:
		case <-m.hurry:
			return
		case <-timer.C:
			m.cfg.Log.Warn("stopping: the capture that ended was not fetched; it stays in the spool", "capture", id)
			return
		}
	}
}

// Rebind makes rails otherwise from the next opening of the instrument on. Name, GPU
// and Instrument of b are not looked at. Nothing changes where b does not fit what the
// instrument delivers; the error says where.
func (m *Monitor) Rebind(b Bench) error { return m.owner.Replace(b.Setup, b.Calibrate) }

// Probe asks the instrument once the bench is free, so that what the operator should
// know is logged. It returns when that is done, or ctx or the monitor has ended.
func (m *Monitor) Probe(ctx context.Context) { m.owner.Probe(ctx) }

// Expire drops captures that could have been fetched for longer than keep, and were
// not, and names them. Time counts from the first call that finds them ended, while
// the monitor runs.
func (m *Monitor) Expire(keep time.Duration) (dropped []string) {
	gone, err := m.owner.Expire(keep)
	for _, id := range gone {
		m.cfg.Log.Warn("dropped a capture that no host fetched", "capture", id, "after", keep)
	}
	if err != nil {
		m.cfg.Log.Warn("could not drop old captures", "error", err)
	}
	return gone
}
