package capture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
)

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
	if err := s.(instrument.DeferredSink).Armed(m.begun); err != nil {
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
		s.(instrument.DeferredSink).Progress(uint64((n+1)*m.block), uint64(held*m.block))
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
		c := l.start(Request{Marker: testSpec, Lease: time.Second})
		if d := time.Since(asked); d > 0 || c.Summary().State != Running || !c.Started().Equal(m.begun) {
			t.Errorf("begun after %v, %v, at %v", d, c.Summary().State, c.Started())
		}
		for range 5 {
			wait(500 * time.Millisecond)
			c.Renew()
		}
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != Complete || sum.Window == nil || sum.Gaps != 0 {
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
		next := l.start(Request{Holder: "bob@lab"}) // the bench is free, and works
		if sum, err := next.Stop(t.Context()); err != nil || sum.State != Complete {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

func TestADeferredInstrumentWithTooSmallAMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryMeter{meter: newMeter(), memory: 50}
		l := deferredLab(t, m)
		c := l.start(Request{})
		wait(time.Second)
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != Complete || sum.Scans != 5000 || sum.Gaps != 1 || sum.Lost < 5000 {
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
				got := l.start(Request{})
				wait(2 * time.Second)
				sum, err := got.Stop(t.Context())
				if err != nil || sum.State != Incomplete || sum.Scans != c.scans || !strings.Contains(sum.Reason, c.reason) {
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
			c := l.start(Request{})
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
			if sum := c.Summary(); sum.State != Incomplete || !strings.Contains(sum.Reason, monitorStopped) {
				t.Errorf("%+v", sum)
			}
		})
	}
}
