package capture

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"wattmark/measure"
	"wattmark/monitor/spool"
)

// end seals the capture from outside the data's way.
func (c *Capture) end(t Trigger, reason string) {
	c.data.Lock()
	defer c.data.Unlock()
	c.seal(t, reason)
}

// seal ends the capture: the tail is coded, the last state written, all of it
// made durable; only then does anybody see that it has ended. The first to seal
// decides why; a trigger that the state does not know changes nothing. data is held.
func (c *Capture) seal(t Trigger, reason string) {
	next, err := c.life.Next(t)
	if err != nil {
		return
	}
	c.letGo()
	if c.pipe == nil { // arm sees quit, and reports
		return
	}
	if err := c.pipe.finish(); err != nil || c.log.Err() != nil {
		next, _ = c.life.Next(Failed)
		t, reason = Failed, c.rescue(errors.Join(err, c.log.Err()), reason)
	}
	c.life = next
	if next == Incomplete {
		reason = lastWords(reason, &c.pipe.tally, c.header.Setup.Timebase)
	}
	final := spool.State{
		Code: uint8(next), Trigger: uint8(t), At: c.owner.cfg.Now(), Reason: reason, Started: c.pipe.tally.started, Final: true,
	}
	if err := errors.Join(c.log.State(final), c.log.Sync()); err != nil {
		c.life, reason = Incomplete, reason+"; the end could not be made durable: "+err.Error()
	}
	c.publish(reason)
	c.owner.over(c) // before anybody is told, so that who then asks gets the bench
	close(c.ended)
	// What is left to do is nobody's to wait for.
	c.pipe.close()
	if err := c.log.Close(); err != nil {
		c.owner.cfg.Log.Warn("spool log did not close well", "capture", c.id, "error", err)
	}
}

// letGo tells the instrument and the timers that the capture needs them no more.
func (c *Capture) letGo() {
	c.quitOnce.Do(func() { close(c.quit) })
	if c.grace != nil {
		c.grace.Stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease != nil {
		c.lease.Stop()
	}
}

// rescue counts anew what a log that failed really holds, and says why it failed.
func (c *Capture) rescue(err error, reason string) string {
	if lerr := c.log.Err(); lerr != nil {
		err = lerr
	}
	why := strings.ReplaceAll(err.Error(), "\n", "; ")
	switch {
	case errors.Is(err, syscall.ENOSPC):
		why = "the monitor's disk is full (" + why + "): make room, or release captures"
	case strings.Contains(reason, why):
		why = reason
	case reason != "":
		why = reason + "; " + why
	}
	if rerr := c.log.Rescue(); rerr != nil {
		return why + "; " + rerr.Error()
	}
	t, rerr := retell(c.log)
	if rerr != nil {
		return why + "; " + rerr.Error()
	}
	t.started = c.pipe.tally.started
	if rerr := c.keepMarkers(&t); rerr != nil {
		return why + "; " + rerr.Error()
	}
	c.pipe.tally = t
	if rerr := c.pipe.retrim(true); rerr != nil {
		return why + "; " + rerr.Error()
	}
	return why
}

// keepMarkers writes the markers again that were found and lost on their way to the
// log, where their first samples are in it: a reader may have begun with them.
func (c *Capture) keepMarkers(t *tally) error {
	found := c.pipe.tally.markers
	end := c.header.Setup.Timebase.Seconds(t.endTick)
	for _, f := range found[min(len(t.markers), len(found)):] {
		if f.Begin >= end {
			break
		}
		if err := c.log.Marker(f); err != nil {
			return err
		}
		t.marker(f)
	}
	return nil
}

// lastWords adds to a reason exactly where the samples end.
func lastWords(reason string, t *tally, tb measure.Timebase) string {
	if t.scans == 0 {
		return reason + "; no samples"
	}
	return fmt.Sprintf("%s; no samples after scan %d (t = %.6f s)", reason, t.next-1, float64(tb.Seconds(t.endTick-tb.TicksPerScan)))
}
