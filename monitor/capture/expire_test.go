package capture

import (
	"testing"
	"testing/synctest"
	"time"

	"wattmark/monitor/clocktest"
	"wattmark/monitor/spool"
)

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
		c := l.start(Request{Lease: 2 * time.Second})
		clock.Step(year)
		wait(1500 * time.Millisecond)
		if _, state := c.Renew(); state != Running {
			t.Fatalf("the lease was lost: %v", state)
		}
		clock.Step(-2 * year)
		wait(1990 * time.Millisecond)
		if s := c.Summary().State; s != Running {
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
