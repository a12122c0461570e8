package capture

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/monitor/spool"
)

// Where captures are replicated, one is dropped once its host has released it and other
// machines have it, whichever comes first, also over a restart in between.
func TestCapturesWaitForTheirReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		hold := func(c *Config, _ *spool.Options) { c.Hold, c.Room = true, Room{PerHolder: 1, Quota: 1 << 20} }
		l := newLab(t, newMeter(), dir, hold)
		taken := func() string {
			c := l.start(Request{})
			if err := l.Release(c.ID()); !errors.Is(err, ErrTransition) {
				t.Errorf("released while it runs: %v", err)
			}
			wait(time.Second)
			if _, err := c.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			return c.ID()
		}
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		first := taken()
		ok(l.Release(first))
		ok(l.Release(first))
		second := taken() // what was released does not count as the holder's
		ok(l.Replicated(second))
		l.stop()
		l = newLab(t, newMeter(), dir, hold)
		if list := l.List(); len(list) != 2 || !list[1].Released || list[1].CaptureID != first || list[0].Released {
			t.Fatalf("%+v", list)
		}
		if c, err := l.Get(second); err != nil || !c.HasBeenReplicated() || c.HasBeenReleased() {
			t.Errorf("%v, %v", c, err)
		}
		ok(l.Replicated(first))
		ok(l.Release(second))
		if list := l.List(); len(list) != 0 {
			t.Errorf("still there: %+v", list)
		}
		if found, err := l.cfg.Store.Captures(); err != nil || len(found) != 0 {
			t.Errorf("%d are in the spool, %v", len(found), err)
		}
		// A monitor that replicates no more lets go of what was released.
		third := taken()
		ok(l.Release(third))
		l.stop()
		l = newLab(t, newMeter(), dir, nil)
		if list := l.List(); len(list) != 0 {
			t.Errorf("still there: %+v", list)
		}
	})
}

// Captures that nobody replicates fill the spool, and then no other begins; the one that
// runs is not held up.
func TestSpoolFullOfUnreplicatedCaptures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), func(c *Config, _ *spool.Options) { c.Hold, c.Room = true, Room{Quota: 100 << 10} })
		c := l.start(Request{})
		<-c.ended
		if err := l.Release(c.ID()); err != nil {
			t.Fatal(err)
		}
		_, err := l.Start(t.Context(), Request{Holder: "bob@lab"})
		if !errors.Is(err, ErrRoom) || !strings.Contains(err.Error(), "until the cluster has them") {
			t.Errorf("another begins: %v", err)
		}
		if err := l.Replicated(c.ID()); err != nil {
			t.Fatal(err)
		}
		l.start(Request{Holder: "bob@lab"})
	})
}
