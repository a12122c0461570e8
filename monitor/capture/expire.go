package capture

import (
	"errors"
	"time"
)

// waits are how long captures could have been fetched, by name. Time counts while a
// monitor runs: while it is off nobody can fetch anything, and what the wall clock says
// of such a time may be wrong by years, as on a machine without a battery for its clock.
type waits map[string]waited

type waited struct {
	before time.Duration // under earlier monitors
	since  time.Time     // when this one first saw that it has ended; with a monotonic reading
}

// Expire drops the captures that ended, and that no host has fetched, or nobody
// replicated, for longer than keep. It returns their names. Time counts from the first call that finds a
// capture ended, on the monotonic clock, and goes on when the monitor is started anew:
// a wall clock that is set drops nothing, and keeps nothing.
func (o *Owner) Expire(keep time.Duration) ([]string, error) {
	old, err := o.overdue(keep)
	var gone []string
	errs := []error{err}
	for _, id := range old {
		if err := o.forget(id); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, id)
	}
	return gone, errors.Join(errs...)
}

// toFetch names the captures that have ended.
func (o *Owner) toFetch() (ids []string) {
	for _, i := range o.List() {
		if i.State.Ended() {
			ids = append(ids, i.CaptureID)
		}
	}
	return ids
}

// overdue names the captures that waited for longer than keep, and notes for the next
// monitor how long each has.
func (o *Owner) overdue(keep time.Duration) (old []string, err error) {
	o.expiring.Lock()
	defer o.expiring.Unlock()
	before := map[string]time.Duration{}
	if o.waits == nil {
		o.waits = waits{}
		if before, err = o.cfg.Store.Waits(); err != nil {
			o.cfg.Log.Warn("how long captures have waited was lost; it counts anew", "error", err)
		}
	}
	now, told := o.cfg.Now(), map[string]time.Duration{}
	for _, id := range o.toFetch() {
		w, known := o.waits[id]
		if !known {
			w = waited{before: before[id], since: now}
			o.waits[id] = w
		}
		if told[id] = w.before + now.Sub(w.since); told[id] > keep {
			old = append(old, id)
		}
	}
	for id := range o.waits {
		if _, held := told[id]; !held {
			delete(o.waits, id)
		}
	}
	return old, o.cfg.Store.PutWaits(told)
}
