package benchwatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
)

var errAway = errors.New("nobody answers")

// monitor is a monitor that does what a test tells it. It sends a moment every
// Every of the clock.
type monitor struct {
	address string

	mu       sync.Mutex
	away     error
	bench    monitorclient.Bench
	captures []monitorclient.Capture
	trouble  string
	cut      chan struct{} // closed when streams are to break
	tally
}

// tally is what a monitor was asked for.
type tally struct {
	asked   int // calls of GetBench
	streams int // that are open
	most    int // that were open at once
	begun   int
	idle    bool // what the last stream wanted
	sent    int  // moments
}

func (m *monitor) count() tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tally
}

func newMonitor(address, name string) *monitor {
	return &monitor{address: address, bench: monitorclient.Bench{Name: name}, cut: make(chan struct{})}
}

func (m *monitor) Address() string { return m.address }

// set changes what the monitor is.
func (m *monitor) set(change func(*monitor)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// leave makes the monitor break its streams and not answer; nil brings it back.
func (m *monitor) leave(err error) {
	m.set(func(m *monitor) {
		if m.away = err; err != nil {
			close(m.cut)
			m.cut = make(chan struct{})
		}
	})
}

// hold gives the bench to somebody, or to nobody.
func (m *monitor) hold(holder, capture string) {
	m.set(func(m *monitor) {
		m.bench.Holder, m.bench.CaptureID, m.captures = holder, capture, nil
		if capture != "" {
			m.captures = []monitorclient.Capture{{ID: capture, Holder: holder, TaskName: "gemm", State: monitorclient.Running}}
		}
	})
}

func (m *monitor) GetBench(ctx context.Context) (monitorclient.Bench, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	return m.bench, errors.Join(m.away, ctx.Err())
}

func (m *monitor) AskBench(ctx context.Context) (monitorclient.Bench, error) { return m.GetBench(ctx) }

func (m *monitor) Captures(ctx context.Context) ([]monitorclient.Capture, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.captures, errors.Join(m.away, ctx.Err())
}

func (m *monitor) Watch(ctx context.Context, o monitorclient.WatchOptions, see func(monitorclient.Moment) error) error {
	m.mu.Lock()
	if m.away != nil {
		m.mu.Unlock()
		return m.away
	}
	m.streams++
	m.begun++
	m.most, m.idle = max(m.most, m.streams), o.Idle
	cut := m.cut
	m.mu.Unlock()
	defer m.set(func(m *monitor) { m.streams-- })
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-cut:
			return errAway
		case <-tick.C:
		}
		if n, ok := m.moment(o.Idle); ok {
			if err := see(n); err != nil {
				return err
			}
		}
	}
}

// moment is the next average: the n-th is n watts.
func (m *monitor) moment(idle bool) (n monitorclient.Moment, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bench.CaptureID == "" && !idle {
		return n, false
	}
	if m.trouble != "" {
		return monitorclient.Moment{Trouble: m.trouble}, true
	}
	m.sent++
	w := measure.Watt(m.sent)
	return monitorclient.Moment{
		CaptureID: m.bench.CaptureID, T: measure.Seconds(m.sent) / 10, Total: w, Rate: 20e3, Scans: uint64(m.sent) * 2000,
		Rails: []monitorclient.RailValue{{Rail: "aux", Power: w, Voltage: 12, Current: measure.Ampere(w / 12)}},
	}, true
}
