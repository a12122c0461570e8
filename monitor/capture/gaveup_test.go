package capture

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"wattmark/monitor/instrument"
)

// Who gives up at the very moment at which the capture begins is told of no
// capture, and so can stop none: the bench must be free, and nothing kept.
func TestGaveUpAsItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		var giveUp context.CancelFunc
		m.before = func(_, block int, _ instrument.Sink) error {
			if block == 0 { // the first scan is arriving
				giveUp()
			}
			return nil
		}
		l := newLab(t, m, t.TempDir(), nil)
		for range 60 { // both ways through the race
			ctx, cancel := context.WithCancel(t.Context())
			giveUp = cancel
			c, err := l.Start(ctx, Request{Holder: "ada@lab"})
			if err == nil { // told in time: hers to stop
				if _, err := c.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := l.Release(c.ID()); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if b := l.Bench(t.Context()); b.Holder != "" {
				t.Fatalf("the bench is held by %s", b.Holder)
			}
			if n := len(l.List()); n != 0 {
				t.Fatalf("%d captures are kept", n)
			}
		}
	})
}
