package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
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
		c := l.start(Request{})
		l.until(4)
		sum, err := c.Stop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Tries after 0, 50, 150, 350 ms: streaming again at 1.36 s, first block at 1.37 s.
		if sum.State != Complete || sum.Gaps != 1 || sum.Lost < 3500 || sum.Lost > 3700 {
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
				c := l.start(Request{})
				<-c.ended
				sum := c.Summary()
				if sum.State != Incomplete || !strings.Contains(sum.Reason, tt.why) ||
					!strings.Contains(sum.Reason, "no samples after scan 9999 (t = 0.999900 s)") {
					t.Errorf("%v: %s", sum.State, sum.Reason)
				}
				if got := l.read(c, ReadOptions{Follow: true}); got.trailer.Scans != 10000 {
					t.Errorf("%d scans can be read", got.trailer.Scans)
				}
				m.before, m.edit, m.opens, m.inputs = nil, nil, nil, nil
				l.start(Request{}) // the bench is free and works
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
		c := l.start(Request{Marker: testSpec})
		l.until(3)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != Incomplete || !strings.Contains(sum.Reason, "while the instrument was away") {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

func TestMonitorStopsDuringACapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := newLab(t, newMeter(), dir, nil)
		c := l.start(Request{})
		l.until(1)
		l.stop()
		sum := c.Summary()
		if sum.State != Incomplete || !strings.Contains(sum.Reason, "the monitor was stopped; no samples after scan") {
			t.Errorf("%+v", sum)
		}
		if _, err := l.Start(t.Context(), Request{Holder: "a"}); !errors.Is(err, ErrStopped) {
			t.Errorf("start: %v", err)
		}
		again := newLab(t, newMeter(), dir, nil)
		back, err := again.Get(c.ID())
		if err != nil {
			t.Fatal(err)
		}
		if s := back.Summary(); s.Reason != sum.Reason || s.Scans != sum.Scans || s.State != Incomplete {
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
		c := l.start(Request{})
		l.until(1)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != Complete || sum.Gaps != 1 || sum.Lost != 500 {
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
		c := l.start(Request{})
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
		var moments []Moment
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error)
		go func() {
			watched <- l.Watch(ctx, WatchOptions{Every: 50 * time.Millisecond}, func(m Moment) error {
				moments = append(moments, m)
				wait(500 * time.Millisecond)
				return nil
			})
		}()
		synctest.Wait()
		c := l.start(Request{})
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
