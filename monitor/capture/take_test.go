package capture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
)

var errUnplugged = fmt.Errorf("fake: read: %w: input/output error", instrument.ErrDisconnected)

// unplug loses the first stream at one second; it can be opened again after so
// many tries.
func (m *meter) unplug(tries int) {
	m.before = func(stream, n int, _ instrument.Sink) error {
		if stream == 0 && n == 100 {
			return errUnplugged
		}
		return nil
	}
	m.opens = func(n int) error {
		if n > 0 && n <= tries {
			return errors.New("no such device")
		}
		return nil
	}
}

func TestLostInstrumentComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.unplug(3)
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(session.Request{})
		l.until(4)
		sum, err := c.Stop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Tries after 0, 50, 150, 350 ms: streaming again at 1.36 s, first block at 1.37 s.
		if sum.State != session.Complete || sum.Gaps != 1 || sum.Lost < 3500 || sum.Lost > 3700 {
			t.Fatalf("summary %+v", sum)
		}
		got := l.read(c, ReadOptions{})
		re, gap := got.kind(measure.EventReopen), got.kind(measure.EventGap)
		if len(re) != 1 || len(gap) != 1 || re[0].FirstScan != 10000 || gap[0].FirstScan != 10000 || gap[0].Exact || gap[0].Scans != sum.Lost {
			t.Errorf("events %+v %+v", re, gap)
		}
		if !strings.Contains(re[0].Detail, "input/output error") {
			t.Errorf("reopen: %s", re[0].Detail)
		}
		// Device time goes on where the clock on the wall does.
		last := got.chunks[len(got.chunks)-1]
		if end := float64(last.FirstTick)/1e6 + float64(last.Scans)/m.rate; end < 3.97 || end > 4.01 {
			t.Errorf("device time %v s at 4 s", end)
		}
		if uint64(len(got.counts(t)))+sum.Lost != last.FirstScan+uint64(last.Scans) {
			t.Error("scans taken and scans lost do not add up")
		}
	})
}

func TestLostInstrumentForGood(t *testing.T) {
	for name, tt := range map[string]struct {
		meter func(*meter)
		cfg   func(*Config)
		why   string
	}{
		"stays away":       {func(m *meter) { m.unplug(1000) }, nil, "not back within 10s"},
		"no patience":      {func(m *meter) { m.unplug(0) }, func(c *Config) { c.Reopen = -1 }, "input/output error"},
		"another one":      {func(m *meter) { m.unplug(0); m.swap("8") }, nil, "wrong instrument"},
		"another rate":     {func(m *meter) { m.unplug(0); m.slower() }, nil, "other channels, calibration or rate"},
		"driver's mistake": {func(m *meter) { m.edit = goBack }, nil, "must not"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeter()
				tt.meter(m)
				l := newLab(t, m, t.TempDir(), func(c *Config, _ *spool.Options) {
					if tt.cfg != nil {
						tt.cfg(c)
					}
				})
				c := l.start(session.Request{})
				<-c.ended
				sum := c.Summary()
				if sum.State != session.Incomplete || !strings.Contains(sum.Reason, tt.why) ||
					!strings.Contains(sum.Reason, "no samples after scan 9999 (t = 0.999900 s)") {
					t.Errorf("%v: %s", sum.State, sum.Reason)
				}
				if got := l.read(c, ReadOptions{Follow: true}); got.trailer.Scans != 10000 {
					t.Errorf("%d scans can be read", got.trailer.Scans)
				}
				m.before, m.edit, m.opens, m.inputs = nil, nil, nil, nil
				l.start(session.Request{}) // the bench is free and works
			})
		})
	}
}

func goBack(_, n int, b *measure.Block) {
	if n == 100 {
		b.FirstScan--
	}
}

// swap has another instrument answer from the second opening on.
func (m *meter) swap(serial string) {
	m.opens = func(n int) error {
		if n > 0 {
			m.id.Serial = serial
		}
		return nil
	}
}

// slower has the instrument come back at half the rate.
func (m *meter) slower() {
	var again atomic.Bool
	m.opens = func(n int) error { again.Store(n > 0); return nil }
	m.inputs = func(in *instrument.Inputs) {
		if again.Load() {
			in.Timebase.TicksPerScan *= 2
		}
	}
}

func TestStopWhileTheInstrumentIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.unplug(1000)
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(session.Request{Marker: testSpec})
		l.until(3)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != session.Incomplete || !strings.Contains(sum.Reason, "while the instrument was away") {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

func TestMonitorStopsDuringACapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := newLab(t, newMeter(), dir, nil)
		c := l.start(session.Request{})
		l.until(1)
		l.stop()
		sum := c.Summary()
		if sum.State != session.Incomplete || !strings.Contains(sum.Reason, "the monitor was stopped; no samples after scan") {
			t.Errorf("%+v", sum)
		}
		if _, err := l.Start(t.Context(), session.Request{Holder: "a"}); !errors.Is(err, ErrStopped) {
			t.Errorf("start: %v", err)
		}
		again := newLab(t, newMeter(), dir, nil)
		back, err := again.Get(c.ID())
		if err != nil {
			t.Fatal(err)
		}
		if s := back.Summary(); s.Reason != sum.Reason || s.Scans != sum.Scans || s.State != session.Incomplete {
			t.Errorf("restored: %+v, was %+v", s, sum)
		}
	})
}

func TestGapsReachTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.edit = func(_, n int, b *measure.Block) {
			if n >= 30 {
				b.FirstScan += 500
				b.FirstTick += 50000
			}
		}
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(session.Request{})
		l.until(1)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != session.Complete || sum.Gaps != 1 || sum.Lost != 500 {
			t.Fatalf("%+v, %v", sum, err)
		}
		got := l.read(c, ReadOptions{})
		gaps := got.kind(measure.EventGap)
		if len(gaps) != 1 || gaps[0].FirstScan != 3000 || gaps[0].Scans != 500 || !gaps[0].Exact {
			t.Fatalf("gaps %+v", gaps)
		}
		if at := got.before[0]; got.chunks[at].FirstScan != 3500 {
			t.Errorf("the gap comes before chunk of scan %d", got.chunks[at].FirstScan)
		}
	})
}

func TestSilentInstrumentDoesNotHoldBackItsLastScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.before = func(_, n int, _ instrument.Sink) error {
			if n == 25 {
				wait(5 * time.Second)
			}
			return nil
		}
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(session.Request{})
		l.until(1)
		synctest.Wait()
		if got := c.Summary().Scans; got != 2500 {
			t.Errorf("%d of 2500 scans were written while the instrument is silent", got)
		}
	})
}

func TestSlowViewerLosesMomentsNotSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, newMeter(), t.TempDir(), nil)
		var moments []session.Moment
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error)
		go func() {
			watched <- l.Watch(ctx, session.WatchOptions{Every: 50 * time.Millisecond}, func(m session.Moment) error {
				moments = append(moments, m)
				wait(500 * time.Millisecond)
				return nil
			})
		}()
		synctest.Wait()
		c := l.start(session.Request{})
		l.until(3)
		sum, err := c.Stop(t.Context())
		// A block may have come while the capture ended; all before it are there.
		if err != nil || sum.Scans+uint64(l.meter.block) < uint64(len(l.meter.delivered())) || sum.Lost != 0 {
			t.Errorf("%+v, %v", sum, err)
		}
		cancel()
		if err := <-watched; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		last := moments[len(moments)-1]
		if len(moments) > 7 || last.Dropped < 40 {
			t.Errorf("%d moments, %d dropped", len(moments), last.Dropped)
		}
		if w := float64(last.Total); w < 59.5 || w > 60.5 || last.Rails[0].Rail != "pcie_12v" {
			t.Errorf("moment %+v, want 60 W", last)
		}
	})
}

// memoryMeter is the fake meter with a memory of so many blocks, which it
// delivers when it is stopped, at a tenth of a second a block.
type memoryMeter struct {
	*meter
	memory int
	fails  error // of the delivery, after the first block
	dies   bool  // the link is lost while it samples
}

func (m *memoryMeter) Stream(ctx context.Context, s instrument.Sink) error {
	m.begun = time.Now()
	if err := s.Armed(m.begun); err != nil {
		return err
	}
	if m.dies {
		wait(time.Second)
		return fmt.Errorf("%w: pulled", instrument.ErrDisconnected)
	}
	<-ctx.Done()
	taken := int(time.Since(m.begun).Seconds() * m.rate / float64(m.block))
	rng := rand.New(rand.NewPCG(1, 2))
	b := measure.Block{Counts: [][]measure.Count{make([]measure.Count, m.block), make([]measure.Count, m.block)}}
	held := min(taken, m.memory)
	for n := range held {
		wait(100 * time.Millisecond)
		if n == 1 && m.fails != nil {
			return m.fails
		}
		b.FirstScan, b.FirstTick = uint64(n*m.block), int64(float64(n*m.block)*1e6/m.rate)
		m.fill(&b, 0, rng)
		if err := s.Block(&b); err != nil {
			return err
		}
		s.Progress(uint64((n+1)*m.block), uint64(held*m.block))
	}
	if taken > held {
		return s.Event(measure.Event{
			Kind: measure.EventGap, FirstScan: uint64(held * m.block), Scans: uint64((taken - held) * m.block), Channel: -1,
			Detail: "the memory was full",
		})
	}
	return nil
}

func deferredLab(t *testing.T, m *memoryMeter) *lab {
	return newLab(t, m.meter, t.TempDir(), func(c *Config, _ *spool.Options) { c.Instrument = m })
}

// The capture begins when the instrument arms, and its stop waits for the
// samples, however long the memory takes.
func TestADeferredInstrument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryMeter{meter: newMeter(), memory: 1000}
		m.play(testSpec, marker.Start, 0.5)
		m.play(testSpec, marker.Stop, 2)
		l := deferredLab(t, m)
		asked := time.Now()
		c := l.start(session.Request{Marker: testSpec, Lease: time.Second})
		if d := time.Since(asked); d > 0 || c.Summary().State != session.Running || !c.Started().Equal(m.begun) {
			t.Errorf("begun after %v, %v, at %v", d, c.Summary().State, c.Started())
		}
		for range 5 {
			wait(500 * time.Millisecond)
			c.Renew()
		}
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != session.Complete || sum.Window == nil || sum.Gaps != 0 {
			t.Fatalf("%+v, %v", sum, err)
		}
		if sum.Scans < 25_000 || sum.Scans > 28_000 {
			t.Errorf("%d scans of 2.5 s and a tail", sum.Scans)
		}
		if got := len(l.read(c, ReadOptions{Untrimmed: true}).counts(t)); uint64(got) != sum.Scans {
			t.Errorf("%d of %d scans can be read", got, sum.Scans)
		}
		if again, err := c.Stop(t.Context()); err != nil || again.Scans != sum.Scans {
			t.Errorf("%+v, %v", again, err)
		}
		next := l.start(session.Request{Holder: "bob@lab"}) // the bench is free, and works
		if sum, err := next.Stop(t.Context()); err != nil || sum.State != session.Complete {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

func TestADeferredInstrumentWithTooSmallAMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryMeter{meter: newMeter(), memory: 50}
		l := deferredLab(t, m)
		c := l.start(session.Request{})
		wait(time.Second)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != session.Complete || sum.Scans != 5000 || sum.Gaps != 1 || sum.Lost < 5000 {
			t.Errorf("%+v, %v", sum, err)
		}
		if e := l.read(c, ReadOptions{Untrimmed: true}).kind(measure.EventGap); len(e) != 1 || e[0].FirstScan != 5000 || e[0].Scans != sum.Lost {
			t.Errorf("%+v", e)
		}
	})
}

func TestADeferredInstrumentThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		m      memoryMeter
		scans  uint64
		reason string
	}{
		"while it delivers": {memoryMeter{memory: 1000, fails: fmt.Errorf("%w: no more", instrument.ErrSilent)}, 100, "no more"},
		"while it samples":  {memoryMeter{memory: 1000, dies: true}, 0, "pulled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.m.meter = newMeter()
				l := deferredLab(t, &c.m)
				got := l.start(session.Request{})
				wait(2 * time.Second)
				sum, err := got.Stop(t.Context())
				if err != nil || sum.State != session.Incomplete || sum.Scans != c.scans || !strings.Contains(sum.Reason, c.reason) {
					t.Errorf("%+v, %v", sum, err)
				}
			})
		})
	}
}

// A monitor that stops does not wait for a memory to be read.
func TestADeferredInstrumentAndAMonitorThatStops(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := deferredLab(t, &memoryMeter{meter: newMeter(), memory: 1000})
			c := l.start(session.Request{})
			wait(3 * time.Second)
			if asked {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := c.Stop(ctx); err == nil {
					t.Fatal("30 s of delivery end within 1 s")
				}
			}
			before := time.Now()
			l.stop()
			if d := time.Since(before); d > time.Second {
				t.Errorf("the monitor takes %v to stop", d)
			}
			if sum := c.Summary(); sum.State != session.Incomplete || !strings.Contains(sum.Reason, "the monitor was stopped") {
				t.Errorf("%+v", sum)
			}
		})
	}
}

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
			c, err := l.Start(ctx, session.Request{Holder: "ada@lab"})
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

// lagging is the fake meter behind something that holds its blocks back, makes a
// note before the first of them, and knows the marker.
type lagging struct {
	*meter
	lag time.Duration
	t   *testing.T
}

func (l lagging) Stream(ctx context.Context, s instrument.Sink) error {
	if s.Marker == nil || s.Marker() != testSpec {
		l.t.Error("the capture does not tell its marker")
	}
	if err := s.Event(measure.Event{Kind: measure.EventNote, Exact: true, Channel: -1, Detail: "aligned"}); err != nil {
		return err
	}
	late := s
	late.Block = func(b *measure.Block) error {
		at := time.Now()
		wait(l.lag)
		return s.BlockAt(b, at)
	}
	return l.meter.Stream(ctx, late)
}

// A capture of samples that were held back began when they were taken; and what
// was said before its first scan stays with it when it is trimmed.
func TestBlocksThatWereHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		_, _, stopEnd := m.markedTask()
		l := newLab(t, m, t.TempDir(), func(c *Config, _ *spool.Options) { c.Instrument = lagging{m, 5 * time.Millisecond, t} })
		c := l.start(session.Request{Marker: testSpec})
		if off := c.Started().Sub(m.begun).Seconds(); math.Abs(off) > 1e-3 {
			t.Errorf("the capture began %v s after its meter", off)
		}
		l.until(stopEnd + 0.1)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.FirstChunk == 0 {
			t.Fatalf("%+v, %v", sum, err)
		}
		got := l.read(c, ReadOptions{})
		if len(got.events) != 1 || got.events[0].Detail != "aligned" {
			t.Errorf("%+v", got.events)
		}
	})
}

// lateEnd is a context that has ended with a cause, and whose Done has not been seen yet.
type lateEnd struct {
	context.Context
	done chan struct{}
}

func (l lateEnd) Done() <-chan struct{} { return l.done }

// A stream that the supervisor cancels before the monitor's end arrives there keeps the
// reason of that end.
func TestStopReasonDoesNotDependOnTheOrder(t *testing.T) {
	ended, end := context.WithCancelCause(t.Context())
	end(StopCause("the limit passed"))
	ctx, cancel := streamContext(lateEnd{ended, make(chan struct{})})
	cancel()
	if got := stopReason(ctx); got != "the limit passed" {
		t.Errorf("reason %q", got)
	}
	running, end := context.WithCancelCause(t.Context())
	defer end(nil)
	ctx, cancel = streamContext(running)
	cancel()
	if got := stopReason(ctx); ctx.Err() == nil || got != "the monitor was stopped" {
		t.Errorf("error %v, reason %q", ctx.Err(), got)
	}
}
