package capture

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/spool"
)

func TestBusyBenchNamesItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), nil)
		began := time.Now()
		c := l.start(session.Request{Holder: "ada@lab"})
		_, err := l.Start(t.Context(), session.Request{Holder: "bob@lab"})
		var busy *BusyError
		if !errors.As(err, &busy) || !errors.Is(err, ErrBusy) {
			t.Fatalf("second start: %v", err)
		}
		// How to wait is the caller's to say: a library has no flags.
		if text := err.Error(); !strings.HasSuffix(text, "ask them, or wait") {
			t.Error(text)
		}
		if busy.Holder != "ada@lab" || !busy.Since.Equal(began) || busy.CaptureID != c.ID() {
			t.Errorf("busy: %+v", busy)
		}
		if b := l.Bench(t.Context()); b.Holder != "ada@lab" || b.CaptureID != c.ID() {
			t.Errorf("bench: %+v", b)
		}
		_, err = l.Start(t.Context(), session.Request{Holder: "bob@lab", Wait: 3 * time.Second})
		if !errors.As(err, &busy) || busy.Waited != 3*time.Second || !strings.Contains(err.Error(), "after 3s") {
			t.Errorf("start that waits: %v", err)
		}
		if _, err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b := l.Bench(t.Context()); b.Holder != "" {
			t.Errorf("stopped, but held by %s", b.Holder)
		}
		l.start(session.Request{Holder: "bob@lab"})
	})
}

func TestBenchIsGivenInTheOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), nil)
		first := l.start(session.Request{Holder: "0@lab"})
		type turn struct {
			name string
			c    *Capture
		}
		turns := make(chan turn, 4)
		ask := func(ctx context.Context, name string) {
			c, _ := l.Start(ctx, session.Request{Holder: name, Wait: time.Hour})
			turns <- turn{name, c}
		}
		leaves, leave := context.WithCancel(t.Context())
		for _, name := range []string{"1@lab", "2@lab", "3@lab"} {
			ctx := t.Context()
			if name == "2@lab" {
				ctx = leaves
			}
			go ask(ctx, name)
			synctest.Wait()
		}
		if w := l.Bench(t.Context()).Waiting; len(w) != 3 || w[0].Holder != "1@lab" || w[2].Holder != "3@lab" || !w[0].Since.Equal(time.Now()) {
			t.Errorf("in line: %+v", w)
		}
		leave() // the second in line goes away
		if went := <-turns; went.name != "2@lab" || went.c != nil {
			t.Fatalf("who went away got the bench: %+v", went)
		}
		if w := l.Bench(t.Context()).Waiting; len(w) != 2 {
			t.Errorf("in line after one went away: %+v", w)
		}
		var order []string
		for c := first; len(order) < 2; {
			if _, err := c.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := <-turns
			order, c = append(order, next.name), next.c
		}
		if order[0] != "1@lab" || order[1] != "3@lab" {
			t.Errorf("order %v", order)
		}
	})
}

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), nil)
		c := l.start(session.Request{Lease: 2 * time.Second})
		for range 5 {
			wait(1500 * time.Millisecond)
			if until, state := c.Renew(); state != session.Running || !until.Equal(time.Now().Add(2*time.Second)) {
				t.Fatalf("renewed until %v, %v", until, state)
			}
		}
		wait(1990 * time.Millisecond)
		if s := c.Summary().State; s != session.Running {
			t.Fatalf("%v before the lease ended", s)
		}
		wait(20 * time.Millisecond)
		<-c.ended
		sum := c.Summary()
		if sum.State != session.Incomplete || !strings.Contains(sum.Reason, "lease of ada@lab ended at 2000-01-01T00:00:09Z") ||
			!strings.Contains(sum.Reason, "no samples after scan") {
			t.Errorf("summary %+v", sum)
		}
		if until, state := c.Renew(); state != session.Incomplete || !until.IsZero() {
			t.Errorf("renewed after its end: %v, %v", until, state)
		}
		if got := l.read(c, ReadOptions{}); got.trailer == nil || got.trailer.Scans != sum.Scans || sum.Scans < 90000 {
			t.Errorf("read: %+v", got.trailer)
		}
		if again, err := c.Stop(t.Context()); err != nil || again.Reason != sum.Reason {
			t.Errorf("stop after the end: %+v, %v", again, err)
		}
		l.start(session.Request{Holder: "bob@lab"}) // the bench is free
	})
}

func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), nil)
		c := l.start(session.Request{})
		l.until(0.5)
		if err := l.Release(c.ID()); !errors.Is(err, ErrTransition) {
			t.Errorf("release of a running capture: %v", err)
		}
		if _, err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(l.List()); n != 1 {
			t.Errorf("%d captures", n)
		}
		for range 2 {
			if err := l.Release(c.ID()); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		if _, err := l.Get(c.ID()); !errors.Is(err, ErrUnknown) {
			t.Errorf("get: %v", err)
		}
		if s := c.Summary().State; s != session.Released {
			t.Errorf("state %v", s)
		}
		if err := l.Release("never-was"); err != nil {
			t.Errorf("release of nothing: %v", err)
		}
	})
}

func TestRequestsThatCannotBeMeant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), nil)
		bad := testSpec
		bad.Chip = -1
		for name, r := range map[string]session.Request{
			"no holder":     {},
			"escape codes":  {Holder: "lab\x1b[2J"},
			"not UTF-8":     {Holder: "lab", TaskName: "caf\xe9"},
			"short lease":   {Holder: "a", Lease: time.Millisecond},
			"long lease":    {Holder: "a", Lease: 1000 * time.Hour},
			"negative wait": {Holder: "a", Wait: -1},
			"bad marker":    {Holder: "a", Marker: bad},
		} {
			if _, err := l.Start(t.Context(), r); !errors.Is(err, ErrRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Who asks often waits no less: users take turns, whichever host they ask from.
func TestUsersTakeTurns(t *testing.T) {
	l := queue{clock: time.Now}
	if err := l.enter(t.Context(), "ada@one", "0", 0); err != nil {
		t.Fatal(err)
	}
	for i, holder := range []string{"ada@one", "ada@two", "ada@one", "bob@lab", "bob@lab", "eve@lab"} {
		l.waiting = append(l.waiting, &entry{hold: hold{holder: holder, captureID: strconv.Itoa(i + 1)}, decided: make(chan error, 1)})
	}
	var order []string
	for now := l.held(); now.holder != ""; now = l.held() {
		order = append(order, now.captureID)
		l.leave(now.captureID)
	}
	if got := strings.Join(order, " "); got != "0 4 6 1 5 2 3" {
		t.Errorf("the turns were %s", got)
	}
	for i := range 3 * maxServed { // made-up names fill no memory
		if err := l.enter(t.Context(), strconv.Itoa(i), "x", 0); err != nil {
			t.Fatal(err)
		}
		l.leave("x")
	}
	if len(l.served) > maxServed {
		t.Errorf("%d users are maxServed", len(l.served))
	}
}

// roomy makes a lab with a disk of which a test says what is free.
func roomy(t *testing.T, r Quota) (*lab, *atomic.Int64) {
	free := new(atomic.Int64)
	free.Store(1 << 40)
	l := newLab(t, newMeter(), t.TempDir(), func(c *Config, o *spool.Options) {
		c.Quota = r
		o.Free = func(string) (int64, error) { return free.Load(), nil }
	})
	return l, free
}

func TestDiskThatFillsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, free := roomy(t, Quota{Free: 1000})
		c := l.start(session.Request{})
		wait(2 * time.Second)
		free.Store(900) // too little to begin, enough to go on
		wait(2 * time.Second)
		if s := c.Summary(); s.State != session.Running {
			t.Fatalf("%v: %s", s.State, s.Reason)
		}
		free.Store(499)
		wait(2 * time.Second)
		s := c.Summary()
		if s.State != session.Incomplete || !strings.Contains(s.Reason, "only 499 B are free") || !strings.Contains(s.Reason, "no samples after scan") {
			t.Fatalf("%v: %s", s.State, s.Reason)
		}
		in := l.read(c, ReadOptions{Untrimmed: true})
		if got := in.counts(t); uint64(len(got)) != s.Scans || s.Scans == 0 {
			t.Errorf("%d scans can be read of %d", len(got), s.Scans)
		}
		_, err := l.Start(t.Context(), session.Request{Holder: "bob@lab"})
		if !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "1.0 kB") || !strings.Contains(err.Error(), "monitor's keep drops") {
			t.Errorf("another begins: %v", err)
		}
		free.Store(1000)
		l.start(session.Request{Holder: "bob@lab"})
	})
}

func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := roomy(t, Quota{Bytes: 100_000})
		c := l.start(session.Request{})
		<-c.ended
		if s := c.Summary(); s.State != session.Incomplete || !strings.Contains(s.Reason, "the quota is 100 kB") {
			t.Fatalf("%v: %s", s.State, s.Reason)
		}
		if _, err := l.Start(t.Context(), session.Request{Holder: "bob@lab"}); !errors.Is(err, ErrQuota) {
			t.Errorf("another begins: %v", err)
		}
		if err := l.Release(c.ID()); err != nil {
			t.Fatal(err)
		}
		l.start(session.Request{Holder: "bob@lab"})
	})
}

func TestCapturesOfOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := roomy(t, Quota{PerHolder: 1})
		c := l.start(session.Request{})
		if _, err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Start(t.Context(), session.Request{Holder: "ada@lab"}); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "ada@lab has 1") || !strings.Contains(err.Error(), "monitor's keep drops") {
			t.Errorf("a second one: %v", err)
		}
		l.start(session.Request{Holder: "bob@lab"})
	})
}

// Who stands in line is asked again when the bench is theirs.
func TestRoomAfterTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, free := roomy(t, Quota{Free: 1000})
		c := l.start(session.Request{})
		got := make(chan error, 1)
		go func() {
			_, err := l.Start(t.Context(), session.Request{Holder: "bob@lab", Wait: time.Minute})
			got <- err
		}()
		wait(time.Second)
		free.Store(600)
		if _, err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, ErrQuota) {
			t.Errorf("it begins: %v", err)
		}
		if b := l.Bench(t.Context()); b.Holder != "" {
			t.Errorf("%s holds the bench", b.Holder)
		}
	})
}

// A stop marker that takes days would hold the bench for as long.
func TestEndlessMarker(t *testing.T) {
	q := session.Request{Holder: "ada@lab", Marker: testSpec}
	if err := check(&q); err != nil {
		t.Error(err)
	}
	for _, chip := range []measure.Seconds{61, 40e3, 1e300} {
		q.Marker.Chip = chip
		if err := check(&q); !errors.Is(err, ErrRequest) {
			t.Errorf("a chip of %g s is taken: %v", float64(chip), err)
		}
	}
}

// A running capture gives back what its host has stored; the rest, the totals and the checksum stay. While replicas are
// awaited, nothing is given back.
func TestStored(t *testing.T) {
	for _, awaits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, newMeter(), t.TempDir(), func(c *Config, _ *spool.Options) { c.AwaitReplicas = awaits })
			c := l.start(session.Request{})
			l.until(2)
			const kept = 3
			before := c.info().SpoolBytes
			if err := errors.Join(l.Stored(c.ID(), kept), l.Stored("never-was", kept)); err != nil {
				t.Fatal(err)
			}
			if now := c.info().SpoolBytes; (now < before) == awaits {
				t.Errorf("awaiting replicas %v: %d bytes were held, now %d", awaits, before, now)
			}
			var all inbox
			err := c.Read(t.Context(), ReadOptions{Untrimmed: true}, &all)
			if errors.Is(err, spool.ErrForgotten) == awaits {
				t.Errorf("awaiting replicas %v: all is read: %v", awaits, err)
			}
			if _, err := c.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := l.read(c, ReadOptions{Untrimmed: true, From: kept, Follow: true})
			sum := c.Summary()
			if b.chunks[0].No != kept || b.trailer.Scans != sum.Scans || b.trailer.Chunks != uint64(len(b.chunks))+kept {
				t.Errorf("from chunk %d: %+v of %+v", b.chunks[0].No, b.trailer, sum)
			}
		})
	}
}
