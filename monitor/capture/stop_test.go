package capture

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
)

// TestStopOvertakesTheStopMarker asks for the stop before the samples of the
// stop marker have arrived: they are awaited, but not for ever.
func TestStopOvertakesTheStopMarker(t *testing.T) {
	for name, tt := range map[string]struct {
		late   time.Duration // of every block
		ask    float64       // behind the end of the stop marker, seconds
		played bool
		window bool
		within time.Duration
	}{
		"all at hand":        {0, 0.2, true, true, 0},
		"tail on its way":    {0, 0, true, true, 50 * time.Millisecond},
		"slow line":          {60 * time.Millisecond, 0, true, true, 150 * time.Millisecond},
		"never played":       {0, 0, false, false, 200 * time.Millisecond},
		"asked far too soon": {0, -0.4, true, false, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeter()
				m.play(testSpec, marker.Start, 0.5)
				if tt.played {
					m.play(testSpec, marker.Stop, 2)
				}
				m.before = func(_, n int, _ instrument.Sink) error {
					if n == 0 {
						wait(tt.late) // all later blocks queue behind
					}
					return nil
				}
				l := newLab(t, m, t.TempDir(), nil)
				c := l.start(Request{Marker: testSpec})
				l.until(2 + float64(testSpec.Duration()) + tt.ask)
				asked := time.Now()
				sum, err := c.Stop(t.Context())
				if err != nil || sum.State != Complete || (sum.Window != nil) != tt.window {
					t.Fatalf("%+v, %v", sum, err)
				}
				if took := time.Since(asked); took > tt.within {
					t.Errorf("stop took %v, want at most %v", took, tt.within)
				}
			})
		})
	}
}

func TestStopOfAnExhaustedInstrument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		m.markedTask()
		m.ends = 300
		l := newLab(t, m, t.TempDir(), nil)
		c := l.start(Request{Marker: testSpec})
		l.until(5)
		if s := c.Summary().State; s != Running {
			t.Fatalf("%v while nobody has stopped it", s)
		}
		sum, err := c.Stop(t.Context())
		if err != nil || sum.State != Complete || sum.Scans != 30000 || sum.Window == nil {
			t.Errorf("%+v, %v", sum, err)
		}
		got := l.read(c, ReadOptions{Untrimmed: true}).kind(measure.EventNote)
		if len(got) != 1 || got[0].FirstScan != 30000 {
			t.Errorf("notes %+v", got)
		}
	})
}

// TestEndsBeforeTheFirstScan stops, abandons and outwaits a capture that arms.
func TestEndsBeforeTheFirstScan(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(l *lab, cancel context.CancelFunc)
		want string
	}{
		"stopped": {func(l *lab, _ context.CancelFunc) {
			for _, i := range l.List() {
				c, err := l.Get(i.CaptureID)
				if err != nil {
					l.t.Fatal(err)
				}
				if sum, err := c.Stop(l.t.Context()); err != nil || sum.State != Incomplete || sum.Scans != 0 {
					l.t.Errorf("stop: %+v, %v", sum, err)
				}
			}
		}, "stopped before the first scan"},
		"abandoned": {func(_ *lab, cancel context.CancelFunc) { cancel() }, "context canceled"},
		"outwaited": {func(*lab, context.CancelFunc) { wait(11 * time.Second) }, "no scan within 10s"},
		"shut down": {func(l *lab, _ context.CancelFunc) { l.stop() }, "the monitor was stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeter()
				m.silent = true
				l := newLab(t, m, t.TempDir(), nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := make(chan error, 1)
				go func() {
					_, err := l.Start(ctx, Request{Holder: "ada@lab"})
					got <- err
				}()
				wait(time.Second)
				synctest.Wait()
				if n := len(l.List()); n != 1 || l.List()[0].State != Arming {
					t.Fatalf("captures %+v", l.List())
				}
				tt.end(l, cancel)
				if err := <-got; err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("start: %v, want %q", err, tt.want)
				}
				synctest.Wait()
				if n := len(l.List()); n != 0 {
					t.Errorf("%d captures are left", n)
				}
			})
		})
	}
}

func TestBenchBeforeTheInstrumentWasOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter()
		gone := errors.New("no such device")
		m.opens = func(n int) error {
			if n < 2 {
				return gone
			}
			return nil
		}
		m.inputs = func(in *instrument.Inputs) {
			if !m.isOpen {
				*in = instrument.Inputs{}
			}
		}
		l := newLab(t, m, t.TempDir(), nil)
		synctest.Wait() // the first try fails
		if b := l.Bench(t.Context()); b.Setup != nil || !errors.Is(b.Err, gone) || !errors.Is(b.Err, ErrUnavailable) || b.Instrument.Kind != "fake" {
			t.Errorf("bench %+v", b)
		}
		if b := l.Bench(t.Context()); b.Setup == nil || b.Err != nil || len(b.CalibrationID) != 16 {
			t.Errorf("bench once it answers: %+v", b)
		}
	})
}
