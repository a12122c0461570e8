package benchwatch

import (
	"context"
	"reflect"
	"sync"
	"time"

	"wattmark/store"
)

// want is what the viewers of a bench want together.
type want uint8

const (
	nothing  want = iota
	captures      // what captures measure
	idle          // a free bench, too
)

// bench is one monitor and those who watch it.
type bench struct {
	cfg     *Config
	monitor Monitor
	address string
	changed chan struct{} // has one when viewers came or went
	ask     chan struct{} // has one when the monitor is to be asked at once

	asking sync.Mutex // held while the monitor is asked

	mu      sync.Mutex
	now     State
	asked   time.Time               // when the monitor answered last, or did not
	viewers map[*mailbox]bool       // true for those who want a free bench sampled
	history []Moment                // of Keep, oldest first
	tasks   map[string]store.TaskID // of captures that were told of
	last    string                  // the newest capture that was told of
	seen    string                  // the capture of the last moment
	fed     bool                    // the monitor is asked by itself
}

func newBench(cfg *Config, m Monitor) *bench {
	return &bench{
		cfg: cfg, monitor: m, address: m.Address(), now: State{Address: m.Address()},
		changed: make(chan struct{}, 1), ask: make(chan struct{}, 1),
		viewers: map[*mailbox]bool{}, tasks: map[string]store.TaskID{},
	}
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// join adds a viewer, and tells it what is known.
func (b *bench) join(m *mailbox, alsoIdle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.viewers[m] = alsoIdle
	s := b.now
	b.forget(time.Now())
	m.put(b, News{State: &s, History: append([]Moment{}, b.history...)})
	nudge(b.changed)
}

func (b *bench) leave(m *mailbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.viewers, m)
	nudge(b.changed)
}

func (b *bench) wanted() want {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := nothing
	for _, alsoIdle := range b.viewers {
		w = max(w, captures)
		if alsoIdle {
			return idle
		}
	}
	return w
}

// state returns what is known.
func (b *bench) state() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// stateNow returns what is known, and asks first where that is older than a poll.
func (b *bench) stateNow(ctx context.Context) State {
	b.mu.Lock()
	fresh := b.fed && b.now.Reach != Unasked
	b.mu.Unlock()
	if fresh {
		return b.state()
	}
	b.asking.Lock()
	b.mu.Lock()
	fresh = !b.asked.IsZero() && time.Since(b.asked) < b.cfg.Poll
	b.mu.Unlock()
	if !fresh {
		b.poll(ctx, b.monitor.AskBench)
	}
	b.asking.Unlock()
	return b.state()
}

// update changes what is known, and tells all viewers where that is news.
func (b *bench) update(change func(*State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.now
	change(&next)
	if reflect.DeepEqual(next, b.now) {
		return
	}
	b.now = next
	for m := range b.viewers {
		s := next
		m.put(b, News{State: &s})
	}
}

// saw takes a moment, keeps it for who comes later, and tells all viewers.
func (b *bench) saw(m Moment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.history = append(b.history, m)
	b.forget(m.At)
	for box := range b.viewers {
		box.put(b, News{Moment: &m})
	}
}

// forget drops moments that are older than Keep. The lock is held.
func (b *bench) forget(now time.Time) {
	n := 0
	for n < len(b.history) && now.Sub(b.history[n].At) > b.cfg.Keep {
		n++
	}
	if n > 0 {
		b.history = append(b.history[:0], b.history[n:]...)
	}
}
