package capture

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/clocktest"
	"github.com/wattmark/wattmark/monitor/spool"
)

// Where captures are replicated, one is dropped once its host has released it and other
// machines have it, whichever comes first, also over a restart in between.
func TestCapturesWaitForTheirReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		hold := func(c *Config, _ *spool.Options) {
			c.AwaitReplicas, c.Quota = true, Quota{PerHolder: 1, Bytes: 1 << 20}
		}
		l := newLab(t, newMeter(), dir, hold)
		taken := func() string {
			c := l.start(session.Request{})
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
		if list := l.List(); len(list) != 2 || !list[1].Released || list[1].ID != first || list[0].Released {
			t.Fatalf("%+v", list)
		}
		if c, err := l.Get(second); err != nil || !c.Has(spool.MarkReplicated) || c.Has(spool.MarkReleased) {
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
		l := newLab(t, newMeter(), t.TempDir(), func(c *Config, _ *spool.Options) { c.AwaitReplicas, c.Quota = true, Quota{Bytes: 100 << 10} })
		c := l.start(session.Request{})
		<-c.ended
		if err := l.Release(c.ID()); err != nil {
			t.Fatal(err)
		}
		_, err := l.Start(t.Context(), session.Request{Holder: "bob@lab"})
		if !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "until the cluster has them") {
			t.Errorf("another begins: %v", err)
		}
		if err := l.Replicated(c.ID()); err != nil {
			t.Fatal(err)
		}
		l.start(session.Request{Holder: "bob@lab"})
	})
}

// A wall clock that is set drops no capture, and keeps none; nor does it end a lease
// or renew one. What counts is how long hosts could have fetched it, under this monitor
// and those before.
func TestWallClockThatIsSet(t *testing.T) {
	const year, keep = 365 * 24 * time.Hour, 10 * time.Hour
	clock := clocktest.New()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		tuned := func(c *Config, _ *spool.Options) { c.Now = clock.Now }
		l := newLab(t, newMeter(), dir, tuned)
		expired := func(what string, want int) {
			t.Helper()
			gone, err := l.Expire(keep)
			if err != nil || len(gone) != want {
				t.Errorf("%s: dropped %v, %v, want %d", what, gone, err, want)
			}
		}
		c := l.start(session.Request{Lease: 2 * time.Second})
		clock.Step(year)
		wait(1500 * time.Millisecond)
		if _, state := c.Renew(); state != session.Running {
			t.Fatalf("the lease was lost: %v", state)
		}
		clock.Step(-2 * year)
		wait(1990 * time.Millisecond)
		if s := c.Summary().State; s != session.Running {
			t.Fatalf("%v before the lease ended", s)
		}
		wait(20 * time.Millisecond)
		<-c.ended
		expired("as soon as it has ended", 0)
		clock.Step(3 * year)
		expired("a clock set forwards", 0)
		wait(keep - 2*time.Hour)
		expired("before its time", 0)

		// Time in which no monitor runs does not count: nobody could have fetched it.
		l.stop()
		wait(time.Hour)
		clock.Step(year)
		l = newLab(t, newMeter(), dir, tuned)
		expired("under the next monitor", 0)
		wait(2*time.Hour - time.Minute)
		clock.Step(-5 * year)
		expired("a minute before its time", 0)
		wait(2 * time.Minute)
		expired("past its time", 1)
		if w, err := l.store.Waits(); err != nil || len(w) != 1 {
			t.Errorf("%v, %v", w, err)
		}
		expired("again", 0)
		if w, err := l.store.Waits(); err != nil || len(w) != 0 {
			t.Errorf("what nobody waits for is left: %v, %v", w, err)
		}
	})
}
