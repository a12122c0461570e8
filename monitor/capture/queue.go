package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/spool"
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
	now     hold // without a holder for a free bench
	waiting []*entry
	grants  uint64
	served  map[string]uint64 // by user: number of their last grant
	drained chan struct{}     // not nil: closed to new holders; closed once the bench is free
}

// entry is one request in the queue.
type entry struct {
	hold    hold
	decided chan error // buffered by one: nil for the bench, or why it was refused
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
		e.decided <- errDraining
	}
	q.waiting = nil
	if q.now == (hold{}) {
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
	case err := <-e.decided:
		return err
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
	case q.now == (hold{}):
		q.grant(h)
		return nil, nil
	case wait <= 0:
		return nil, q.busy(0)
	}
	e := &entry{hold: h, decided: make(chan error, 1)}
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
	err := <-e.decided
	if err == nil && why != nil {
		q.next()
	}
	return cmp.Or(err, why)
}

// busy returns the error that names the holder. The lock is held.
func (q *queue) busy(waited time.Duration) error {
	return &BusyError{Holder: q.now.holder, Since: q.now.since, CaptureID: q.now.captureID, Waited: waited}
}

// leave grants the bench to the next entry, if the capture holds it.
func (q *queue) leave(captureID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.now != (hold{}) && q.now.captureID == captureID {
		q.next()
	}
}

// next frees the bench and grants it to the user served longest ago. The lock is held.
func (q *queue) next() {
	q.now = hold{}
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
	q.grant(e.hold)
	e.decided <- nil
}

// maxServed bounds the users whose last grants are remembered: more than a bench has,
// and few enough that made-up names fill no memory.
const maxServed = 1024

// grant gives the bench to a holder. The lock is held.
func (q *queue) grant(h hold) {
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
	return q.now
}

// describe fills in a bench's holder and queue.
func (q *queue) describe(b *session.Bench) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b.Holder, b.HeldSince, b.CaptureID = q.now.holder, q.now.since, q.now.captureID
	b.Draining = q.drained != nil
	for _, e := range q.waiting {
		b.Waiting = append(b.Waiting, session.Waiting{Holder: e.hold.holder, Since: e.hold.since})
	}
}

// Renew extends the lease by its full length from now, and returns its end; the zero time
// for a capture that has ended.
func (c *Capture) Renew() (time.Time, session.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.State.Ended() || c.lease == nil {
		return time.Time{}, c.seen.State
	}
	c.until = c.owner.cfg.Now().Add(c.req.Lease)
	c.lease.Reset(c.req.Lease)
	return c.until, c.seen.State
}

// startLease begins the first lease, at the first scan. Its end seals the capture, unless a
// renewal came first: the timer may already run when it is reset.
func (c *Capture) startLease() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = c.owner.cfg.Now().Add(c.req.Lease)
	c.lease = time.AfterFunc(c.req.Lease, func() {
		if until := c.LeaseUntil(); !c.owner.cfg.Now().Before(until) {
			c.end(LeaseEnded, fmt.Sprintf("lease of %s ended at %s: not renewed for %v",
				c.req.Holder, until.UTC().Format(time.RFC3339), c.req.Lease))
		}
	})
}

// LeaseUntil returns the end of the lease if it is not renewed.
func (c *Capture) LeaseUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until
}

// claims are the needs for a capture's samples that are met, by their marks; the capture's mu guards them.
// With Config.AwaitReplicas a capture is dropped after both Release, by its host, and
// Replicated, in either order; without, after Release.
type claims = map[spool.Mark]bool

// met reports whether nobody needs the samples any more.
func (o *Owner) met(c claims) bool {
	return c[spool.MarkReleased] && (c[spool.MarkReplicated] || !o.cfg.AwaitReplicas)
}

// Release notes that the host has the samples of a capture that has ended, and drops it
// unless replicas are awaited. An unknown capture is no error; one that has not ended
// gives an error that wraps ErrTransition.
func (o *Owner) Release(id string) error { return o.mark(id, spool.MarkReleased) }

// Stored notes that the host has all chunks of a capture before a number and will never ask for them again: their
// samples are given back to the disk, unless replicas are awaited. An unknown capture is no error.
func (o *Owner) Stored(id string, before uint64) error {
	c, err := o.Get(id)
	if err != nil || o.cfg.AwaitReplicas {
		return nil
	}
	return c.log.Forget(before)
}

// Replicated notes that other machines have a capture that has ended, and drops it once
// its host has released it. Errors are those of Release.
func (o *Owner) Replicated(id string) error { return o.mark(id, spool.MarkReplicated) }

// mark notes that one claim is met. The mark is durable before it counts, so that a restart
// in between keeps the capture rather than drops it.
func (o *Owner) mark(id string, m spool.Mark) error {
	return o.ended(id, func(c *Capture) error {
		now := maps.Clone(c.claims) // which change with c.data held
		if now[m] = true; o.met(now) {
			return o.drop(c)
		}
		if err := o.cfg.Store.Mark(id, m); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.claims = now
		return nil
	})
}

// forget drops a capture that has ended, whatever claims are left.
func (o *Owner) forget(id string) error { return o.ended(id, o.drop) }

// ended calls do for a capture that has ended and is not yet dropped, with c.data held.
// An unknown capture is no error. Errors wrap ErrTransition, or are do's.
func (o *Owner) ended(id string, do func(*Capture) error) error {
	c, err := o.Get(id)
	if err != nil {
		return nil
	}
	c.data.Lock()
	defer c.data.Unlock()
	if c.life == session.Released {
		return nil
	}
	if _, err := transitions.Next(c.life, ReleaseDone); err != nil {
		return fmt.Errorf("release capture %s: %w: stop it first", id, err)
	}
	return do(c)
}

// drop removes a capture that has ended from the spool. c.data is held.
func (o *Owner) drop(c *Capture) error {
	if err := o.cfg.Store.Remove(c.id); err != nil {
		return fmt.Errorf("release capture: %w", err)
	}
	c.life = session.Released
	s, _ := c.look()
	s.State = c.life
	c.show(s)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := o.captures[c.id]; there {
		o.dropped.add(s.Summary)
	}
	delete(o.captures, c.id)
	return nil
}

// Has reports whether a claim on the capture is met: its host, or other machines, have its samples.
func (c *Capture) Has(m spool.Mark) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[m]
}

// Expire drops the captures that could have been fetched, or replicated, for longer than
// keep, and returns their ids. Time counts from the first call that finds a capture ended,
// and goes on under the next monitor. All of it is logged, errors too.
func (o *Owner) Expire(keep time.Duration) (dropped []string, err error) {
	old, err := o.overdue(keep)
	errs := []error{err}
	for _, id := range old {
		if err := o.forget(id); err != nil {
			errs = append(errs, err)
			continue
		}
		dropped = append(dropped, id)
		o.cfg.Log.Warn("dropped a capture that no host fetched", "capture", id, "after", keep)
	}
	if err = errors.Join(errs...); err != nil {
		o.cfg.Log.Warn("could not drop old captures", "error", err)
	}
	return dropped, err
}

// overdue returns the captures that waited for longer than keep, and stores all waits for
// the next monitor.
func (o *Owner) overdue(keep time.Duration) (old []string, err error) {
	o.expiring.Lock()
	defer o.expiring.Unlock()
	before := map[string]time.Duration{}
	if o.waits == nil {
		if before, err = o.cfg.Store.Waits(); err != nil {
			o.cfg.Log.Warn("how long captures have waited was lost; it counts anew", "error", err)
		}
	}
	now, waits, total := o.cfg.Now(), map[string]time.Time{}, map[string]time.Duration{}
	for _, c := range o.List() {
		if !c.State.Ended() {
			continue
		}
		since, known := o.waits[c.ID]
		if !known {
			since = now.Add(-before[c.ID])
		}
		waits[c.ID], total[c.ID] = since, now.Sub(since)
		if total[c.ID] > keep {
			old = append(old, c.ID)
		}
	}
	o.waits = waits
	return old, o.cfg.Store.PutWaits(total)
}
