package capture

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
)

// lagging is the fake meter behind something that holds its blocks back, makes a
// note before the first of them, and knows the marker.
type lagging struct {
	*meter
	lag time.Duration
	t   *testing.T
}

func (l lagging) Stream(ctx context.Context, s instrument.Sink) error {
	if m, ok := s.(instrument.MarkedSink); !ok || m.Marker() != testSpec {
		l.t.Error("the capture does not tell its marker")
	}
	if err := s.Event(measure.Event{Kind: measure.EventNote, Exact: true, Channel: -1, Detail: "aligned"}); err != nil {
		return err
	}
	return l.meter.Stream(ctx, late{s, l.lag})
}

type late struct {
	instrument.Sink
	lag time.Duration
}

func (l late) Block(b *measure.Block) error {
	at := time.Now()
	wait(l.lag)
	return l.Sink.(instrument.TimedSink).BlockAt(b, at)
}

// A capture of samples that were held back began when they were taken; and what
// was said before its first scan stays with it when it is trimmed.
func TestBlocksThatWereHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		_, _, stopEnd := m.markedTask()
		l := newLab(t, m, t.TempDir(), func(c *Config, _ *spool.Options) { c.Instrument = lagging{m, 5 * time.Millisecond, t} })
		c := l.start(Request{Marker: testSpec})
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
