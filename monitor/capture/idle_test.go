package capture

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// viewer watches a bench until its test ends.
type viewer struct {
	mu      sync.Mutex
	moments []Moment
	stop    func()
}

// seen is what the viewer has seen so far.
func (v *viewer) seen() []Moment {
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
		done <- l.Watch(ctx, WatchOptions{Every: 50 * time.Millisecond, Idle: idle}, func(m Moment) error {
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
		c := l.start(Request{})
		if took := time.Since(begun); took > 50*time.Millisecond { // virtual time
			t.Errorf("the bench was free after %v", took)
		}
		wait(time.Second)
		s, err := c.Stop(t.Context())
		if err != nil || s.State != Complete || s.Lost != 0 || s.Scans < 9000 {
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
		wait(2 * lookAgain)
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
		l := line{clock: time.Now}
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
		if l.held().holder != "" || !l.isClosed() {
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
		c := l.start(Request{})
		wait(2 * time.Second)
		v.stop()
		last := v.seen()[len(v.seen())-1]
		sum, err := c.Stop(t.Context())
		if err != nil || last.OverRange == 0 || last.OverRange > sum.OverRange || last.Gaps != 0 {
			t.Errorf("clipped: live %d, in the end %d, %v", last.OverRange, sum.OverRange, err)
		}
	})
}
