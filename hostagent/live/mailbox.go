package live

import (
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/measure/session"
)

// mailbox holds the news that one viewer has not taken yet, at most one a bench. put may
// be called from any goroutine; take belongs to the viewer's.
type mailbox struct {
	wake chan struct{} // buffered by one: there is news

	mu      sync.Mutex
	pending map[*bench]*News
	order   []*bench             // of pending, by arrival
	sent    map[*bench]time.Time // of the last moment of each bench
}

// newMailbox returns an empty mailbox.
func newMailbox() *mailbox {
	return &mailbox{wake: make(chan struct{}, 1), pending: map[*bench]*News{}, sent: map[*bench]time.Time{}}
}

// put adds news of a bench to its pending ones.
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
	nudge(m.wake)
}

// take returns the news that are due: all states, and the moment of a bench whose last one
// is at least every old. next is when a moment that waits is due; zero where none waits.
func (m *mailbox) take(now time.Time, every time.Duration) (out []News, next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := m.order[:0]
	for _, b := range m.order {
		n := *m.pending[b]
		if at := m.sent[b].Add(every); n.Moment != nil && now.Before(at) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			m.pending[b] = &News{Address: n.Address, Moment: n.Moment}
			rest = append(rest, b)
			n.Moment = nil
		} else {
			if n.Moment != nil {
				m.sent[b] = now
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

// absorb adds a newer moment to one that was not sent yet. Averages of the same rails
// under the same capture become one mean, weighted by Merged: the monitor's averages are
// of equal lengths. Else the newer one replaces the older.
func (m *Moment) absorb(n Moment) {
	if m.CaptureID != n.CaptureID || n.T <= m.T || !sameRails(m.Rails, n.Rails) {
		*m = n
		return
	}
	a, b := float64(m.Merged), float64(n.Merged)
	rails := slices.Clone(n.Rails) // they are shared with other viewers
	for i, r := range m.Rails {
		x := &rails[i]
		x.Power = mean(a, b, r.Power, x.Power)
		x.Voltage = mean(a, b, r.Voltage, x.Voltage)
		x.Current = mean(a, b, r.Current, x.Current)
	}
	n.Rails, n.Total, n.Peak, n.Merged = rails, mean(a, b, m.Total, n.Total), max(m.Peak, n.Peak), m.Merged+n.Merged
	*m = n
}

// mean returns (a·x + b·y) / (a + b).
func mean[T ~float64](a, b float64, x, y T) T { return T((a*float64(x) + b*float64(y)) / (a + b)) }

// sameRails reports whether two moments have the same rails in the same order.
func sameRails(a, b []session.RailValue) bool {
	return slices.EqualFunc(a, b, func(a, b session.RailValue) bool { return a.Rail == b.Rail })
}

// nudge fills a channel that is buffered by one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
