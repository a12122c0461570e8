package capture

import (
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/spool"
)

// restore takes up the captures that an earlier monitor left in the spool. What cannot
// be read is logged and left, and keeps nobody from measuring.
func (o *Owner) restore() {
	found, err := o.cfg.Store.Captures()
	aside := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		aside = many.Unwrap()
	}
	for _, f := range found {
		if err := o.restoreOne(f); err != nil {
			aside = append(aside, fmt.Errorf("capture %s: %w", f.Log.Header().CaptureID, err))
		}
	}
	for _, err := range aside {
		if err != nil {
			o.cfg.Log.Error("a part of the spool cannot be used and is left as it is", "error", err)
			o.aside = append(o.aside, err.Error())
		}
	}
}

func (o *Owner) restoreOne(f spool.Found) error {
	h := f.Log.Header()
	t, err := retell(f.Log)
	if err != nil {
		return errors.Join(err, f.Log.Close())
	}
	if !f.Sealed && t.state <= Arming && t.scans == 0 {
		// The first scan never came, so nobody was ever told of this capture.
		return errors.Join(f.Log.Close(), o.cfg.Store.Remove(h.CaptureID))
	}
	find := func(tick float64) (uint64, error) { return findChunk(f.Log, tick) }
	tr, err := trimOf(t.markers, true, h.Setup.Timebase, find, t.chunks)
	if err != nil {
		return errors.Join(err, f.Log.Close())
	}
	if f.Holes > 0 {
		o.cfg.Log.Error("a capture was damaged on the disk; what is lost is an event now", "capture", h.CaptureID, "places", f.Holes)
	}
	if !f.Sealed {
		err := t.restarted(f, h.Setup.Timebase, o.cfg.Now())
		if errors.Is(err, ErrTransition) {
			return errors.Join(err, f.Log.Close())
		}
		if err != nil { // its samples can be read all the same; the next start tries again
			o.cfg.Log.Error("the end of a capture could not be written", "capture", h.CaptureID, "error", err)
		}
		o.cfg.Log.Warn("capture was interrupted", "capture", h.CaptureID, "holder", h.Holder, "reason", t.reason)
	}
	c := newCapture(o, h.CaptureID, Request{Holder: h.Holder, Owner: h.Owner, TaskName: h.TaskName, Marker: h.Marker})
	c.header, c.log, c.life = h, f.Log, t.state
	c.view = view{
		Summary: summarize(h, &t, tr, t.state, t.reason), started: t.started,
		startKnown: tr.start != nil, stopKnown: tr.stop != nil,
	}
	c.wanted = wanted{
		released:   o.cfg.Store.Marked(c.id, spool.MarkReleased),
		replicated: o.cfg.Store.Marked(c.id, spool.MarkReplicated),
	}
	close(c.ready)
	close(c.ended)
	if c.wanted.released && (c.wanted.replicated || !o.cfg.Hold) { // the last monitor died over it, or nobody is waited for any more
		return errors.Join(f.Log.Close(), o.cfg.Store.Remove(c.id))
	}
	o.captures[c.id] = c
	return nil
}

// restarted ends a capture whose monitor died, durably.
func (t *tally) restarted(f spool.Found, tb measure.Timebase, now time.Time) error {
	reason := "monitor restarted"
	if f.Holes > 0 {
		reason += fmt.Sprintf("; its log was damaged in %d place(s): scans that were in them are gaps", f.Holes)
	}
	if f.Torn > 0 {
		reason += fmt.Sprintf("; %d bytes after the last good record were cut off (%s)", f.Torn, f.Why)
	}
	state := t.state
	if state == 0 {
		state = Arming
	}
	if !state.Ended() {
		next, err := state.Next(Restarted)
		if err != nil {
			return err
		}
		t.state, t.reason = next, lastWords(reason, t, tb)
	}
	final := spool.State{
		Code: uint8(t.state), Trigger: uint8(Restarted), At: now, Reason: t.reason, Started: t.started, Final: true,
	}
	if err := errors.Join(f.Log.State(final), f.Log.Sync()); err == nil {
		return f.Log.Close()
	}
	// On a full disk the reserve makes room for these last words.
	return errors.Join(f.Log.Rescue(), f.Log.State(final), f.Log.Close())
}
