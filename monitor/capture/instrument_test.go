package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
)

// cable is a meter's cable in a test.
type cable struct{ out atomic.Bool }

var errCable = fmt.Errorf("%w: the cable is out", instrument.ErrDisconnected)

func (c *cable) check() error {
	if c.out.Load() {
		return errCable
	}
	return nil
}

// cabled is a meter that answers while its cable is in.
func cabled() (*meter, *cable) {
	m, c := newMeter(), &cable{}
	m.opens = func(int) error { return c.check() }
	m.before = func(int, int, instrument.Sink) error { return c.check() }
	return m, c
}

// trouble returns the bench's present trouble.
func (l *lab) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.device.trouble
}

// A free bench that is asked tells of a meter that was unplugged, and once it is
// plugged in again of no trouble.
func TestAskFindsAnUnpluggedMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := cabled()
		l := newLab(t, m, t.TempDir(), nil)
		if b := l.Ask(t.Context()); b.Trouble != "" {
			t.Fatal(b.Trouble)
		}
		c.out.Store(true)
		for range 2 {
			if b := l.Ask(t.Context()); !errors.Is(l.trouble(), errCable) || !b.Known() {
				t.Errorf("%+v", b)
			}
			if err := l.trouble(); !errors.Is(err, errCable) {
				t.Errorf("maxServed: %v", err)
			}
			if !l.Stats().Trouble {
				t.Error("the metrics have no trouble")
			}
		}
		c.out.Store(false)
		if b := l.Ask(t.Context()); b.Trouble != "" || l.Stats().Trouble {
			t.Errorf("plugged in again: %v", b.Trouble)
		}
	})
}

// A capture that fails to begin, one whose meter is lost, and a look that fails leave
// the bench in trouble; it ends by itself when the meter answers again.
func TestTroubleStaysUntilTheMeterAnswers(t *testing.T) {
	heals := func(t *testing.T, l *lab, c *cable) {
		t.Helper()
		synctest.Wait()
		for range 3 {
			wait(retryAfter)
			if err := l.trouble(); !errors.Is(err, errCable) {
				t.Fatalf("trouble: %v", err)
			}
		}
		c.out.Store(false)
		wait(retryAfter + time.Millisecond)
		if err := l.trouble(); err != nil {
			t.Errorf("plugged in again: %v", err)
		}
	}
	for name, breaks := range map[string]func(t *testing.T, l *lab, c *cable){
		"before a capture": func(t *testing.T, l *lab, c *cable) {
			c.out.Store(true)
			if _, err := l.Start(t.Context(), session.Request{Holder: "ada@lab"}); !errors.Is(err, errCable) {
				t.Fatal(err)
			}
		},
		"in a capture": func(t *testing.T, l *lab, c *cable) {
			x := l.start(session.Request{})
			wait(time.Second)
			c.out.Store(true)
			wait(time.Second)
			if err := l.trouble(); !errors.Is(err, errCable) {
				t.Errorf("while the capture waits for it: %v", err)
			}
			<-x.ended
		},
		"in a look": func(t *testing.T, l *lab, c *cable) {
			v := l.watch(true)
			wait(time.Second)
			c.out.Store(true)
			wait(time.Second)
			v.stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, c := cabled()
				l := newLab(t, m, t.TempDir(), nil)
				if err := l.Ask(t.Context()).Trouble; err != "" {
					t.Fatal(err)
				}
				breaks(t, l, c)
				heals(t, l, c)
			})
		})
	}
}

// A capture whose meter comes back has no trouble any more.
func TestTroubleEndsInTheCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := cabled()
		l := newLab(t, m, t.TempDir(), nil)
		x := l.start(session.Request{})
		wait(time.Second)
		c.out.Store(true)
		wait(2 * time.Second)
		if b := l.Ask(t.Context()); !errors.Is(l.trouble(), errCable) || b.CaptureID != x.ID() {
			t.Errorf("%+v", b)
		}
		c.out.Store(false)
		wait(2 * time.Second)
		if err := l.trouble(); err != nil {
			t.Error(err)
		}
		if sum, err := x.Stop(t.Context()); err != nil || sum.State != session.Complete {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

// A meter that opens, and sends no samples, does not answer by opening alone.
func TestTroubleOfAMeterThatSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		var silent atomic.Bool
		silent.Store(true)
		m.before = func(int, int, instrument.Sink) error {
			if silent.Load() {
				return fmt.Errorf("%w: no data", instrument.ErrSilent)
			}
			return nil
		}
		l := newLab(t, m, t.TempDir(), nil)
		if _, err := l.Start(t.Context(), session.Request{Holder: "ada@lab"}); err == nil {
			t.Fatal("a capture without a scan began")
		}
		if b := l.Ask(t.Context()); !errors.Is(l.trouble(), instrument.ErrSilent) {
			t.Errorf("%+v", b)
		}
		silent.Store(false)
		if b := l.Ask(t.Context()); b.Trouble != "" {
			t.Errorf("%+v", b)
		}
	})
}

// A sampling viewer is not disturbed by who asks.
func TestAskLeavesALookAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := cabled()
		l := newLab(t, m, t.TempDir(), nil)
		v := l.watch(true)
		wait(time.Second)
		for range 5 {
			if b := l.Ask(t.Context()); b.Trouble != "" {
				t.Error(b.Trouble)
			}
		}
		if n, open := m.state(); n != 1 || !open {
			t.Errorf("%d streams, open %v", n, open)
		}
		v.stop()
	})
}

// A bench that can never measure with its instrument ends the owner.
func TestMisfitEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := cabled()
		c.out.Store(true)
		m.inputs = func(in *instrument.Inputs) {
			if c.out.Load() {
				*in = instrument.Inputs{}
			}
		}
		store, err := spool.Open(t.TempDir(), spool.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		cfg := Config{Store: store, Bench: Bench{Name: "b", Instrument: m, Setup: func(instrument.Inputs) (s measure.Setup, err error) {
			return s, errors.New("unknown channel \"curent\"")
		}}}
		o, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- o.Run(t.Context()) }()
		wait(3 * retryAfter)
		c.out.Store(false)
		if err := <-ended; !errors.Is(err, ErrMisfit) || !strings.Contains(err.Error(), "curent") {
			t.Errorf("%v", err)
		}
	})
}

// viewer watches a bench until its test ends.
type viewer struct {
	mu      sync.Mutex
	moments []session.Moment
	stop    func()
}

// seen is what the viewer has seen so far.
func (v *viewer) seen() []session.Moment {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moments
}

// state is how often the meter was streamed from, and whether it is open.
func (m *meter) state() (streams int, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams, m.isOpen
}

func (l *lab) watch(idle bool) *viewer {
	v := &viewer{}
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- l.Watch(ctx, session.WatchOptions{Every: 50 * time.Millisecond, Idle: idle}, func(m session.Moment) error {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.moments = append(v.moments, m)
			return nil
		})
	}()
	v.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			l.t.Errorf("watch: %v", err)
		}
	}
	return v
}

// Two viewers share one look; it ends with the last of them, and keeps nothing.
func TestLookLastsAsLongAsItsViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), nil)
		wait(time.Second)
		if n, _ := l.meter.state(); n != 0 {
			t.Error("a bench is sampled for nobody")
		}
		a := l.watch(true)
		wait(time.Second)
		b := l.watch(true)
		wait(time.Second)
		a.stop()
		wait(time.Second)
		if n, open := l.meter.state(); n != 1 || !open {
			t.Errorf("%d streams for two viewers, open %v", n, open)
		}
		b.stop()
		synctest.Wait()
		if _, open := l.meter.state(); open || len(l.List()) != 0 {
			t.Errorf("open %v, captures %v after the last viewer", open, l.List())
		}
		if n := len(b.seen()); n < 35 || b.seen()[n-1].CaptureID != "" || b.seen()[n-1].Rate != 10e3 {
			t.Errorf("%d moments in two seconds", n)
		}
	})
}

// Whoever wants to measure gets the bench from viewers at once, and in a state
// as if nobody had looked.
func TestACaptureEndsALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), nil)
		v := l.watch(true)
		defer v.stop()
		wait(time.Second)
		begun := time.Now()
		c := l.start(session.Request{})
		if took := time.Since(begun); took > 50*time.Millisecond { // virtual time
			t.Errorf("the bench was free after %v", took)
		}
		wait(time.Second)
		s, err := c.Stop(t.Context())
		if err != nil || s.State != session.Complete || s.Lost != 0 || s.Scans < 9000 {
			t.Errorf("%+v, %v", s, err)
		}
		if got := l.read(c, ReadOptions{}); len(got.counts(t)) == 0 {
			t.Error("no samples")
		}
		wait(time.Second)
		last := v.seen()[len(v.seen())-1]
		if last.CaptureID != "" || last.Scans == 0 || last.Scans > 11000 {
			t.Errorf("after the capture: %+v", last)
		}
	})
}

// What a free bench loses is told, and what it cannot show; it is tried again.
func TestALooksTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.before = func(stream, block int, s instrument.Sink) error {
			switch {
			case stream == 0 && block == 20:
				return errors.New("the cable is out")
			case stream == 1 && block == 5:
				return errors.Join(s.Event(measure.Event{Kind: measure.EventGap, Scans: 30, Channel: -1}),
					s.Event(measure.Event{Kind: measure.EventOverRange, Scans: 7, Channel: 0}))
			}
			return nil
		}
		l := newLab(t, m, t.TempDir(), nil)
		v := l.watch(true)
		only := l.watch(false)
		wait(2 * time.Second)
		if n := len(v.seen()); n == 0 || !strings.Contains(v.seen()[n-1].Trouble, "the cable is out") {
			t.Fatalf("moments %+v", v.seen())
		}
		wait(2 * retryAfter)
		if last := v.seen()[len(v.seen())-1]; last.Trouble != "" || last.Lost != 30 || last.Gaps != 1 || last.OverRange != 7 || last.Total < 50 {
			t.Errorf("after another try: %+v", last)
		}
		v.stop()
		only.stop()
		if len(only.seen()) != 0 {
			t.Errorf("who watches captures saw %+v", only.seen())
		}
	})
}

func TestALookAtADeferredInstrument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := deferredLab(t, &memoryMeter{meter: newMeter(), memory: 10})
		v := l.watch(true)
		wait(time.Second)
		v.stop()
		if n := len(v.seen()); n == 0 || !strings.Contains(v.seen()[n-1].Trouble, "only after a measurement") {
			t.Errorf("moments %+v", v.seen())
		}
	})
}

// A line that is closed refuses who waits and who comes, and says when the bench
// is free.
func TestClosedLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := queue{clock: time.Now}
		if err := l.enter(t.Context(), "ada", "a", 0); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() { waited <- l.enter(t.Context(), "bob", "b", time.Hour) }()
		synctest.Wait()
		free := l.close()
		if err := <-waited; !errors.Is(err, ErrStopped) {
			t.Errorf("who waited: %v", err)
		}
		if err := l.enter(t.Context(), "eve", "e", time.Hour); !errors.Is(err, ErrStopped) {
			t.Errorf("who came: %v", err)
		}
		select {
		case <-free:
			t.Error("free while ada has it")
		default:
		}
		l.leave("b")
		l.leave("a")
		<-free
		<-l.close()
		if l.held().holder != "" || !(l.drained != nil) {
			t.Errorf("held %+v", l.held())
		}
	})
}

// What is clipped while a capture runs is told live, as its summary has it in the end.
func TestViewersSeeWhatIsClipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.edit = func(_, n int, b *measure.Block) {
			if n%40 == 7 {
				b.Counts[0][3] = 32767
			}
		}
		l := newLab(t, m, t.TempDir(), nil)
		v := l.watch(false)
		c := l.start(session.Request{})
		wait(2 * time.Second)
		v.stop()
		last := v.seen()[len(v.seen())-1]
		sum, err := c.Stop(t.Context())
		if err != nil || last.OverRange == 0 || last.OverRange > sum.OverRange || last.Gaps != 0 {
			t.Errorf("clipped: live %d, in the end %d, %v", last.OverRange, sum.OverRange, err)
		}
	})
}
