package capture

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/measure"
	"wattmark/monitor/spool"
)

// roomy makes a lab with a disk of which a test says what is free.
func roomy(t *testing.T, r Room) (*lab, *atomic.Int64) {
	free := new(atomic.Int64)
	free.Store(1 << 40)
	l := newLab(t, newMeter(), t.TempDir(), func(c *Config, o *spool.Options) {
		c.Room = r
		o.Free = func(string) (int64, error) { return free.Load(), nil }
	})
	return l, free
}

func TestDiskThatFillsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, free := roomy(t, Room{Free: 1000})
		c := l.start(Request{})
		wait(2 * time.Second)
		free.Store(900) // too little to begin, enough to go on
		wait(2 * time.Second)
		if s := c.Summary(); s.State != Running {
			t.Fatalf("%v: %s", s.State, s.Reason)
		}
		free.Store(499)
		wait(2 * time.Second)
		s := c.Summary()
		if s.State != Incomplete || !strings.Contains(s.Reason, "only 499 B are free") || !strings.Contains(s.Reason, "no samples after scan") {
			t.Fatalf("%v: %s", s.State, s.Reason)
		}
		in := l.read(c, ReadOptions{Untrimmed: true})
		if got := in.counts(t); uint64(len(got)) != s.Scans || s.Scans == 0 {
			t.Errorf("%d scans can be read of %d", len(got), s.Scans)
		}
		_, err := l.Start(t.Context(), Request{Holder: "bob@lab"})
		if !errors.Is(err, ErrRoom) || !strings.Contains(err.Error(), "1.0 kB") {
			t.Errorf("another begins: %v", err)
		}
		free.Store(1000)
		l.start(Request{Holder: "bob@lab"})
	})
}

func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := roomy(t, Room{Quota: 100_000})
		c := l.start(Request{})
		<-c.ended
		if s := c.Summary(); s.State != Incomplete || !strings.Contains(s.Reason, "the quota is 100 kB") {
			t.Fatalf("%v: %s", s.State, s.Reason)
		}
		if _, err := l.Start(t.Context(), Request{Holder: "bob@lab"}); !errors.Is(err, ErrRoom) {
			t.Errorf("another begins: %v", err)
		}
		if err := l.Release(c.ID()); err != nil {
			t.Fatal(err)
		}
		l.start(Request{Holder: "bob@lab"})
	})
}

func TestCapturesOfOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := roomy(t, Room{PerHolder: 1})
		c := l.start(Request{})
		if _, err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Start(t.Context(), Request{Holder: "ada@lab"}); !errors.Is(err, ErrRoom) || !strings.Contains(err.Error(), "ada@lab has 1") {
			t.Errorf("a second one: %v", err)
		}
		l.start(Request{Holder: "bob@lab"})
	})
}

// Who stands in line is asked again when the bench is theirs.
func TestRoomAfterTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, free := roomy(t, Room{Free: 1000})
		c := l.start(Request{})
		got := make(chan error, 1)
		go func() {
			_, err := l.Start(t.Context(), Request{Holder: "bob@lab", Wait: time.Minute})
			got <- err
		}()
		wait(time.Second)
		free.Store(600)
		if _, err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, ErrRoom) {
			t.Errorf("it begins: %v", err)
		}
		if b := l.Bench(t.Context()); b.Holder != "" {
			t.Errorf("%s holds the bench", b.Holder)
		}
	})
}

// A stop marker that takes days would hold the bench for as long.
func TestEndlessMarker(t *testing.T) {
	q := Request{Holder: "ada@lab", Marker: testSpec}
	if err := q.check(); err != nil {
		t.Error(err)
	}
	for _, chip := range []measure.Seconds{61, 40e3, 1e300} {
		q.Marker.Chip = chip
		if err := q.check(); !errors.Is(err, ErrRequest) {
			t.Errorf("a chip of %g s is taken: %v", float64(chip), err)
		}
	}
}
