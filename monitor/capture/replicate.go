package capture

import (
	"fmt"

	"wattmark/monitor/spool"
)

// Where Config.Hold says so, a capture has two that need it: its host, until Release, and
// who copies it to other machines, until Replicated. It is dropped behind both, whatever
// their order.

// wanted says who still needs a capture; c.mu guards it.
type wanted struct{ released, replicated bool }

// Release lets go of a capture that has ended, and drops it where nobody else needs it.
// One that is not held is no error; one that has not ended gives an error that wraps
// ErrTransition.
func (o *Owner) Release(id string) error {
	return o.letGo(id, spool.MarkReleased)
}

// Replicated says that other machines have a capture that has ended: it is dropped once
// its host has released it.
func (o *Owner) Replicated(id string) error {
	return o.letGo(id, spool.MarkReplicated)
}

func (o *Owner) letGo(id string, m spool.Mark) error {
	c, err := o.Get(id)
	if err != nil {
		return nil
	}
	c.data.Lock()
	defer c.data.Unlock()
	if c.life == Released {
		return nil
	}
	if _, err := c.life.Next(ReleaseDone); err != nil {
		return fmt.Errorf("release capture %s: %w: stop it first", id, err)
	}
	c.mu.Lock()
	w := c.wanted
	if m == spool.MarkReleased {
		w.released = true
	} else {
		w.replicated = true
	}
	c.mu.Unlock()
	if w.released && (w.replicated || !o.cfg.Hold) {
		return o.drop(c)
	}
	if err := o.cfg.Store.Mark(id, m); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = w
	return nil
}

// forget drops a capture that has ended, whoever may still need it.
func (o *Owner) forget(id string) error {
	c, err := o.Get(id)
	if err != nil {
		return nil
	}
	c.data.Lock()
	defer c.data.Unlock()
	if c.life == Released {
		return nil
	}
	return o.drop(c)
}

// drop removes a capture from the spool. c.data is held.
func (o *Owner) drop(c *Capture) error {
	next, err := c.life.Next(ReleaseDone)
	if err != nil {
		return fmt.Errorf("release capture %s: %w: stop it first", c.id, err)
	}
	if err := o.cfg.Store.Remove(c.id); err != nil {
		return fmt.Errorf("release capture: %w", err)
	}
	c.life = next
	v, _ := c.look()
	v.State = next
	c.show(v)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := o.captures[c.id]; there {
		o.gone.add(v.Summary)
	}
	delete(o.captures, c.id)
	return nil
}

// HasBeenReleased reports whether the capture's host needs it no more.
func (c *Capture) HasBeenReleased() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted.released
}

// HasBeenReplicated reports whether other machines have the capture.
func (c *Capture) HasBeenReplicated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted.replicated
}
