package capture

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/measure/session"
)

// hold is one holder's use of the bench.
type hold struct {
	holder, captureID string
	since             time.Time
}

// user returns a holder's name without its host.
func (h *hold) user() string {
	name, _, _ := strings.Cut(h.holder, "@")
	return name
}

// queue grants the bench to one holder at a time, round-robin by user: the user served
// longest ago is next, users never served come first; requests of one user are served in
// order of arrival. So frequent requests wait no less. Safe for concurrent use.
type queue struct {
	clock   func() time.Time
	mu      sync.Mutex
	now     *hold // nil for a free bench
	waiting []*entry
	grants  uint64
	served  map[string]uint64 // by user: number of their last grant
	drained chan struct{}     // not nil: closed to new holders; closed once the bench is free
}

// entry is one request in the queue.
type entry struct {
	hold    hold
	decided chan struct{}
	refused bool // set before decided is closed
}

// close refuses waiting and new requests. The channel is closed once the bench is free.
func (q *queue) close() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.drained != nil {
		return q.drained
	}
	q.drained = make(chan struct{})
	for _, e := range q.waiting {
		e.refused = true
		close(e.decided)
	}
	q.waiting = nil
	if q.now == nil {
		close(q.drained)
	}
	return q.drained
}

// enter blocks until the bench is granted. Errors: a *BusyError after wait, errDraining
// once the queue is closed, ctx's.
func (q *queue) enter(ctx context.Context, holder, captureID string, wait time.Duration) error {
	e, err := q.add(hold{holder: holder, captureID: captureID, since: q.clock()}, wait)
	if e == nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-e.decided:
		if e.refused {
			return errDraining
		}
		return nil
	case <-ctx.Done():
		return q.giveUp(e, ctx.Err())
	case <-timer.C:
		return q.giveUp(e, nil)
	}
}

// add grants a free bench at once, and else returns a new entry that waits.
func (q *queue) add(h hold, wait time.Duration) (*entry, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.drained != nil:
		return nil, errDraining
	case q.now == nil:
		q.grant(&h)
		return nil, nil
	case wait <= 0:
		return nil, q.busy(0)
	}
	e := &entry{hold: h, decided: make(chan struct{})}
	q.waiting = append(q.waiting, e)
	return e, nil
}

// giveUp leaves the queue. A bench that was granted in the same moment is kept when the
// time is up (why nil), and passed on otherwise.
func (q *queue) giveUp(e *entry, why error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, e); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		if why != nil {
			return why
		}
		return q.busy(time.Since(e.hold.since))
	}
	switch {
	case e.refused:
		return errDraining
	case why != nil:
		q.next()
	}
	return why
}

// busy returns the error that names the holder. The lock is held.
func (q *queue) busy(waited time.Duration) error {
	return &BusyError{Holder: q.now.holder, Since: q.now.since, CaptureID: q.now.captureID, Waited: waited}
}

// leave grants the bench to the next entry, if the capture holds it.
func (q *queue) leave(captureID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.now != nil && q.now.captureID == captureID {
		q.next()
	}
}

// next frees the bench and grants it to the user served longest ago. The lock is held.
func (q *queue) next() {
	q.now = nil
	if q.drained != nil {
		close(q.drained)
		return
	}
	if len(q.waiting) == 0 {
		return
	}
	best := 0
	for i, e := range q.waiting {
		if q.served[e.hold.user()] < q.served[q.waiting[best].hold.user()] {
			best = i
		}
	}
	e := q.waiting[best]
	q.waiting = slices.Delete(q.waiting, best, best+1)
	e.hold.since = q.clock()
	q.grant(&e.hold)
	close(e.decided)
}

// maxServed bounds the users whose last grants are remembered: more than a bench has,
// and few enough that made-up names fill no memory.
const maxServed = 1024

// grant gives the bench to a holder. The lock is held.
func (q *queue) grant(h *hold) {
	q.now = h
	q.grants++
	if q.served == nil || len(q.served) >= maxServed {
		q.served = map[string]uint64{} // all users count as new from here on
	}
	q.served[h.user()] = q.grants
}

// held returns the present hold, zero for a free bench.
func (q *queue) held() hold {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.now == nil {
		return hold{}
	}
	return *q.now
}

// describe fills in a bench's holder and queue.
func (q *queue) describe(b *session.Bench) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if h := q.now; h != nil {
		b.Holder, b.HeldSince, b.CaptureID = h.holder, h.since, h.captureID
	}
	b.Draining = q.drained != nil
	for _, e := range q.waiting {
		b.Waiting = append(b.Waiting, session.Waiting{Holder: e.hold.holder, Since: e.hold.since})
	}
}
