package clocktest

import (
	"testing"
	"time"
)

func TestStepped(t *testing.T) {
	now := time.Now()
	for _, by := range []time.Duration{0, 1, -1, time.Second, -time.Second, 3 * time.Millisecond, -7 * time.Nanosecond, 400 * 24 * time.Hour, -400 * 24 * time.Hour} {
		moved := Stepped(now, by)
		if d := moved.Sub(now); d != 0 {
			t.Errorf("%v: the monotonic reading moved by %v", by, d)
		}
		if d := moved.Round(0).Sub(now.Round(0)); d != by {
			t.Errorf("the wall's time moved by %v, want %v", d, by)
		}
		if d := moved.Add(time.Minute).Sub(now); d != time.Minute {
			t.Errorf("%v: a minute later is %v later", by, d)
		}
	}
	if d := Stepped(now.Round(0), time.Hour).Sub(now.Round(0)); d != time.Hour {
		t.Errorf("without a monotonic reading it moved by %v", d)
	}
	c := New()
	c.Step(time.Hour)
	c.Step(-2 * time.Hour)
	if d := time.Until(c.Now().Round(0)); d > -59*time.Minute || c.Offset() != -time.Hour {
		t.Errorf("%v, %v", d, c.Offset())
	}
	c.Skew(1e9)
	before := c.Now()
	for c.Offset() < 0 { // an hour behind still, and a second of it in each nanosecond
	}
	if a, b := c.Now().Round(0).Sub(before.Round(0)), c.Now().Sub(before); a < time.Minute || b > time.Minute {
		t.Errorf("%v on the wall, %v on the monotonic clock", a, b)
	}
}
