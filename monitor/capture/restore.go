package capture

import (
	"errors"
	"fmt"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/pipeline"
	"github.com/wattmark/wattmark/monitor/spool"
)

// restore reopens the captures that an earlier monitor left in the spool. A part that
// cannot be read is logged, stays as it is, and does not keep the bench from measuring.
func (o *Owner) restore() {
	found, err := o.cfg.Store.Captures()
	faults := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		faults = many.Unwrap()
	}
	for _, f := range found {
		if err := o.restoreOne(f); err != nil {
			err = fmt.Errorf("capture %s: %w", f.Log.Header().CaptureID, err)
			faults = append(faults, errors.Join(err, f.Log.Close()))
		}
	}
	for _, err := range faults {
		if err != nil {
			o.cfg.Log.Error("a part of the spool cannot be used and is left as it is", "error", err)
			o.setAside = append(o.setAside, err.Error())
		}
	}
}

// restoreOne reopens one capture: it counts the log, finds the trim, ends the capture if its
// monitor died, and takes over its claims. A capture without a scan, or with all claims met,
// is removed instead.
func (o *Owner) restoreOne(f spool.Found) error {
	h := f.Log.Header()
	t, err := pipeline.Recount(f.Log)
	if err != nil {
		return err
	}
	if !f.Sealed && t.State <= session.Arming && t.Scans == 0 {
		// The first scan never came, so the id was given to nobody.
		return errors.Join(f.Log.Close(), o.cfg.Store.Remove(h.CaptureID))
	}
	trim, err := pipeline.TrimLog(f.Log, &t)
	if err != nil {
		return err
	}
	if f.Holes > 0 {
		o.logDamage(h.CaptureID, f.Holes, nil)
	}
	if !f.Sealed {
		err := interrupted(f, &t, h.Setup.Timebase, o.cfg.Now())
		if errors.Is(err, ErrTransition) {
			return err
		}
		if err != nil { // its samples can be read all the same; the next start tries again
			o.cfg.Log.Error("the end of a capture could not be written", "capture", h.CaptureID, "error", err)
		}
		o.cfg.Log.Warn("capture was interrupted", "capture", h.CaptureID, "holder", h.Holder, "reason", t.Reason)
	}
	req := session.Request{Holder: h.Holder, Owner: h.Owner, TaskName: h.TaskName, Marker: h.Marker}
	c := newCapture(o, h.CaptureID, req)
	c.header, c.log, c.life = &h, f.Log, t.State
	c.seen = snapshotOf(&h, &t, trim, t.State, t.Reason)
	c.claims = claims{
		released:   o.cfg.Store.Marked(c.id, spool.MarkReleased),
		replicated: o.cfg.Store.Marked(c.id, spool.MarkReplicated),
	}
	close(c.ready)
	close(c.ended)
	if o.met(c.claims) { // the last monitor died over it, or replicas are no longer awaited
		return errors.Join(f.Log.Close(), o.cfg.Store.Remove(c.id))
	}
	o.captures[c.id] = c
	return nil
}

// logDamage logs that damaged places of a capture became events.
func (o *Owner) logDamage(id string, places int, err error) {
	args := []any{"capture", id, "places", places}
	if err != nil {
		args = append(args, "error", err)
	}
	o.cfg.Log.Error("a capture was damaged on the disk; what is lost is an event now", args...)
}

// interrupted ends a capture whose monitor died, durably, and notes it in t.
func interrupted(f spool.Found, t *pipeline.Totals, tb measure.Timebase, now time.Time) error {
	reason := "monitor restarted"
	if f.Holes > 0 {
		reason += fmt.Sprintf("; its log was damaged in %s: scans that were in them are gaps", measure.Plural(f.Holes, "place"))
	}
	if f.Torn > 0 {
		reason += fmt.Sprintf("; %d bytes after the last good record were cut off (%s)", f.Torn, f.Why)
	}
	state := max(t.State, session.Arming)
	if !state.Ended() {
		next, err := transitions.Next(state, Restarted)
		if err != nil {
			return err
		}
		t.State, t.Reason = next, t.EndsAt(reason, tb)
	}
	final := spool.State{
		State: t.State, Trigger: uint8(Restarted), At: now, Reason: t.Reason, Started: t.Started, Final: true,
	}
	if err := errors.Join(f.Log.State(final), f.Log.Sync()); err == nil {
		return f.Log.Close()
	}
	// On a full disk the reserve makes room for this last record.
	return errors.Join(f.Log.Rescue(), f.Log.State(final), f.Log.Close())
}
