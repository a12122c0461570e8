package benchwatch

import (
	"sync"
	"time"
)

// mailbox holds what one viewer was not told yet. It holds at most one news a bench.
type mailbox struct {
	wake chan struct{} // has one when there is something

	mu      sync.Mutex
	pending map[*bench]*News
	order   []*bench // of pending, as it came
}

func newMailbox() *mailbox {
	return &mailbox{wake: make(chan struct{}, 1), pending: map[*bench]*News{}}
}

// put adds news of a bench to what is pending of it.
func (m *mailbox) put(b *bench, n News) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pending[b]
	if p == nil {
		p = &News{Address: b.address}
		m.pending[b] = p
		m.order = append(m.order, b)
	}
	if n.State != nil {
		p.State = n.State
	}
	if n.History != nil {
		p.History = n.History
	}
	switch {
	case n.Moment == nil:
	case p.Moment == nil:
		one := *n.Moment
		p.Moment = &one
	default:
		p.Moment.absorb(*n.Moment)
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take returns what may be told now: of a bench that was told of less than every
// ago, its state may, its moment waits. next is when more may be told; zero where
// nothing waits.
func (m *mailbox) take(now time.Time, every time.Duration, told map[*bench]time.Time) (out []News, next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := m.order[:0]
	for _, b := range m.order {
		n := *m.pending[b]
		if at := told[b].Add(every); n.Moment != nil && now.Before(at) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			m.pending[b] = &News{Address: n.Address, Moment: n.Moment}
			rest = append(rest, b)
			n.Moment = nil
		} else {
			if n.Moment != nil {
				told[b] = now
			}
			delete(m.pending, b)
		}
		if n.State != nil || n.Moment != nil || n.History != nil {
			out = append(out, n)
		}
	}
	m.order = rest
	return out, next
}
