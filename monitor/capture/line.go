package capture

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// hold is who has the bench.
type hold struct {
	holder, captureID string
	since             time.Time
}

// line gives the bench to one holder at a time. Of those who wait it is the turn of
// the user who had it longest ago, and of that user's requests, and of users who
// never had it, of the one that came first: who asks often waits no less.
type line struct {
	clock   func() time.Time
	mu      sync.Mutex
	now     *hold
	waiting []*place
	turns   uint64
	had     map[string]uint64 // by user: the turn at which they had the bench last
	empty   chan struct{}     // not nil: nobody gets in any more; closed once the bench is free
}

type place struct {
	hold    hold
	granted chan struct{}
	refused bool // decided before granted is closed
}

// close lets nobody in any more; the channel is closed once the bench is free.
func (l *line) close() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.empty != nil {
		return l.empty
	}
	l.empty = make(chan struct{})
	for _, p := range l.waiting {
		p.refused = true
		close(p.granted)
	}
	l.waiting = nil
	if l.now == nil {
		close(l.empty)
	}
	return l.empty
}

// isClosed tells whether nobody gets in any more.
func (l *line) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.empty != nil
}

// enter returns when the bench is the caller's, or with a *BusyError when it is
// not within wait, or with ctx's error.
func (l *line) enter(ctx context.Context, holder, captureID string, wait time.Duration) error {
	l.mu.Lock()
	if l.empty != nil {
		l.mu.Unlock()
		return errDraining
	}
	h := hold{holder: holder, captureID: captureID, since: l.clock()}
	if l.now == nil {
		l.grant(&h)
		l.mu.Unlock()
		return nil
	}
	if wait <= 0 {
		defer l.mu.Unlock()
		return l.busy(0)
	}
	p := &place{hold: h, granted: make(chan struct{})}
	l.waiting = append(l.waiting, p)
	l.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.granted:
		if p.refused {
			return errDraining
		}
		return nil
	case <-ctx.Done():
		return l.giveUp(p, ctx.Err())
	case <-timer.C:
		return l.giveUp(p, nil)
	}
}

// giveUp leaves the line, unless the bench was granted in the same moment.
func (l *line) giveUp(p *place, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, p)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		if why != nil {
			return why
		}
		return l.busy(time.Since(p.hold.since))
	}
	switch {
	case p.refused:
		return errDraining
	case why != nil:
		l.next()
	}
	return why
}

// busy tells who holds the bench. The lock is held.
func (l *line) busy(waited time.Duration) error {
	return &BusyError{Holder: l.now.holder, Since: l.now.since, CaptureID: l.now.captureID, Waited: waited}
}

// leave gives the bench to the next in line. A capture that does not hold it
// changes nothing.
func (l *line) leave(captureID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil && l.now.captureID == captureID {
		l.next()
	}
}

func (l *line) next() {
	l.now = nil
	if l.empty != nil {
		close(l.empty)
		return
	}
	if len(l.waiting) > 0 {
		i := l.turn()
		p := l.waiting[i]
		l.waiting = slices.Delete(l.waiting, i, i+1)
		p.hold.since = l.clock()
		l.grant(&p.hold)
		close(p.granted)
	}
}

// turn chooses among those who wait. The lock is held.
func (l *line) turn() (best int) {
	for i, p := range l.waiting {
		if l.had[p.hold.user()] < l.had[l.waiting[best].hold.user()] {
			best = i
		}
	}
	return best
}

// remembered is how many users' last turns are known: more than a bench has, and
// few enough that made-up names fill no memory.
const remembered = 1024

// grant gives the bench to somebody. The lock is held.
func (l *line) grant(h *hold) {
	l.now = h
	l.turns++
	if l.had == nil || len(l.had) >= remembered {
		l.had = map[string]uint64{} // from here on everybody is new
	}
	l.had[h.user()] = l.turns
}

// user is a holder's name, on whichever host.
func (h *hold) user() string {
	name, _, _ := strings.Cut(h.holder, "@")
	return name
}

// held returns who has the bench; the zero hold when it is free.
func (l *line) held() hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return hold{}
	}
	return *l.now
}

// queue returns who waits for the bench, the first in line first.
func (l *line) queue() []Waiting {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Waiting
	for _, p := range l.waiting {
		out = append(out, Waiting{Holder: p.hold.holder, Since: p.hold.since})
	}
	return out
}
