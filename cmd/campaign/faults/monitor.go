package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"wattmark/api/limits"
	"wattmark/cmd/campaign/crowd"
	"wattmark/measure/chunk"
	"wattmark/monitor"
	"wattmark/monitor/capture"
	"wattmark/monitor/clocktest"
	"wattmark/monitor/spool"
)

// monitorSide is the monitor machine: the process that lives there now, and
// those that were killed and are still being cleared away.
type monitorSide struct {
	w     *world
	disk  *disk
	clock *clocktest.Clock

	starts sync.Mutex // one start at a time

	mu    sync.Mutex
	dir   string // of the spool, as the disk is now
	dirs  int
	now   *monitor.Monitor
	stop  context.CancelFunc
	done  chan struct{} // closed when the process has ended
	ghost sync.WaitGroup
	down  bool // for good: the world ends
	// leaving is closed when a process that was asked to stop has ended; nil without.
	leaving chan struct{}
}

// start runs a monitor on the spool as it is. One that is killed while it
// starts never serves.
func (m *monitorSide) start() error {
	m.w.at(StepMonitorStarts)
	m.starts.Lock()
	defer m.starts.Unlock()
	m.mu.Lock()
	leaving := m.leaving
	m.mu.Unlock()
	if leaving != nil {
		<-leaving
	}
	m.mu.Lock()
	if m.stop != nil || m.down {
		m.mu.Unlock()
		return nil
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(m.w.ctx))
	done := make(chan struct{})
	m.stop, m.done = stop, done
	dir := m.dir
	m.mu.Unlock()
	l, mon, err := m.make(dir)
	if err != nil {
		close(done)
		m.mu.Lock()
		defer m.mu.Unlock()
		if ctx.Err() == nil {
			m.stop = nil
		}
		return err
	}
	m.mu.Lock()
	m.now = mon
	m.mu.Unlock()
	m.ghost.Go(func() { m.expire(ctx, mon) })
	m.ghost.Go(func() {
		defer close(done)
		if err := mon.Run(ctx); err != nil {
			m.w.fail("the monitor failed: %v", err)
		}
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil {
		m.w.line.setAddress(l.Addr().String())
	}
	return nil
}

// keep is for how long a capture stays that nobody fetches: longer than any world lives.
const keep = time.Hour

// expire drops captures that nobody fetches, as the monitor's program does: none,
// whatever the wall clock says.
func (m *monitorSide) expire(ctx context.Context, mon *monitor.Monitor) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		if gone := mon.Expire(keep); len(gone) > 0 {
			m.w.fail("captures %v were dropped as too old within the hour, the clock is off by %v", gone, m.clock.Offset())
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// expireAll sets the wall clock, which drops nothing, and lets the time pass for which
// captures stay, which drops all.
func (m *monitorSide) expireAll(held int) {
	m.mu.Lock()
	mon := m.now
	m.mu.Unlock()
	for _, by := range []time.Duration{-30 * year, 60 * year, -30 * year} {
		m.clock.Step(by)
		if gone := mon.Expire(keep); len(gone) > 0 {
			m.w.fail("captures %v were dropped as too old when the clock was set by %v", gone, by)
		}
	}
	if gone := mon.Expire(0); len(gone) != held {
		m.w.fail("%d captures were dropped for their age, %d were held", len(gone), held)
	}
}

const year = 365 * 24 * time.Hour

func (m *monitorSide) make(dir string) (net.Listener, *monitor.Monitor, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	if m.w.broken == ClearSpool {
		if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
	}
	mon, err := monitor.New(m.config(dir, l))
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, mon, nil
}

func (m *monitorSide) config(dir string, l net.Listener) monitor.Config {
	guard := limits.New(limits.Default())
	listener := guard.Listen(l)
	if m.w.broken == CrowdedOut {
		listener = netutil.LimitListener(l, crowd.Size/2)
	}
	return monitor.Config{
		Bench: monitor.Bench{Name: "campaign", Instrument: meter{m.w.card, m.w}, Setup: rails, Calibrate: m.w.records().Calibrate},
		Dir:   dir, Listeners: []net.Listener{listener}, Version: "campaign",
		Tune: capture.Config{
			Now: m.clock.Now, ChunkScans: 2 * chunk.BlockScans, FlushEvery: 20 * time.Millisecond, Reopen: 300 * time.Millisecond,
			OpenTimeout: time.Second, ArmTimeout: 2 * time.Second, StopTail: 2 * time.Millisecond, StopGrace: 300 * time.Millisecond,
		},
		ServerOptions: guard.ServerOptions(),
		Spool:         spool.Options{SyncEvery: 10 * time.Millisecond, Buffer: 256 << 10, OpenFile: m.disk.open},
	}
}

// kill ends the monitor as kill -9 or a power cut does: nothing that it does from
// now on reaches the network or the disk.
func (m *monitorSide) kill(d damage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop == nil {
		return
	}
	m.w.line.setAddress("")
	m.w.line.cut(false)
	m.dirs++
	next := filepath.Join(m.w.dir, fmt.Sprintf("spool%d", m.dirs))
	m.w.rngMu.Lock()
	rotted, err := m.disk.image(m.dir, next, d, m.w.rng)
	m.w.rngMu.Unlock()
	m.w.checkPlanted()
	if err = errors.Join(err, m.w.plant(next)); err != nil {
		m.w.fail("campaign: %v", err)
	}
	if rotted {
		m.w.excuse(rotExcuse)
	}
	m.dir = next
	m.stop()
	m.stop = nil
}

// end stops the monitor as SIGTERM does, and waits until it has ended.
func (m *monitorSide) end() {
	m.mu.Lock()
	stop, done := m.stop, m.done
	if m.stop = nil; stop != nil {
		m.leaving = done
	}
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
	if done != nil {
		<-done
	}
}

// retire ends the monitor for good and waits for those that were killed.
func (m *monitorSide) retire() {
	m.mu.Lock()
	m.down = true
	m.mu.Unlock()
	m.end()
	m.ghost.Wait()
}
