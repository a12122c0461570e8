package capture

import (
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

func (l *lab) trouble() error { return l.Bench(l.t.Context()).Err }

// A free bench that is asked tells of a meter that was unplugged, and once it is
// plugged in again of no trouble.
func TestAskFindsAnUnpluggedMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := cabled()
		l := newLab(t, m, t.TempDir(), nil)
		if b := l.Ask(t.Context()); b.Err != nil {
			t.Fatal(b.Err)
		}
		c.out.Store(true)
		for range 2 {
			if b := l.Ask(t.Context()); !errors.Is(b.Err, errCable) || b.Setup == nil {
				t.Errorf("%+v", b)
			}
			if err := l.trouble(); !errors.Is(err, errCable) {
				t.Errorf("remembered: %v", err)
			}
			if !l.Stats().Trouble {
				t.Error("the metrics have no trouble")
			}
		}
		c.out.Store(false)
		if b := l.Ask(t.Context()); b.Err != nil || l.Stats().Trouble {
			t.Errorf("plugged in again: %v", b.Err)
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
			wait(lookAgain)
			if err := l.trouble(); !errors.Is(err, errCable) {
				t.Fatalf("trouble: %v", err)
			}
		}
		c.out.Store(false)
		wait(lookAgain + time.Millisecond)
		if err := l.trouble(); err != nil {
			t.Errorf("plugged in again: %v", err)
		}
	}
	for name, breaks := range map[string]func(t *testing.T, l *lab, c *cable){
		"before a capture": func(t *testing.T, l *lab, c *cable) {
			c.out.Store(true)
			if _, err := l.Start(t.Context(), Request{Holder: "ada@lab"}); !errors.Is(err, errCable) {
				t.Fatal(err)
			}
		},
		"in a capture": func(t *testing.T, l *lab, c *cable) {
			x := l.start(Request{})
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
				if err := l.Ask(t.Context()).Err; err != nil {
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
		x := l.start(Request{})
		wait(time.Second)
		c.out.Store(true)
		wait(2 * time.Second)
		if b := l.Ask(t.Context()); !errors.Is(b.Err, errCable) || b.CaptureID != x.ID() {
			t.Errorf("%+v", b)
		}
		c.out.Store(false)
		wait(2 * time.Second)
		if err := l.trouble(); err != nil {
			t.Error(err)
		}
		if sum, err := x.Stop(t.Context()); err != nil || sum.State != Complete {
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
		if _, err := l.Start(t.Context(), Request{Holder: "ada@lab"}); err == nil {
			t.Fatal("a capture without a scan began")
		}
		if b := l.Ask(t.Context()); !errors.Is(b.Err, instrument.ErrSilent) {
			t.Errorf("%+v", b)
		}
		silent.Store(false)
		if b := l.Ask(t.Context()); b.Err != nil {
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
			if b := l.Ask(t.Context()); b.Err != nil {
				t.Error(b.Err)
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
		cfg := Config{Bench: "b", Instrument: m, Store: store, Setup: func(instrument.Inputs) (s measure.Setup, err error) {
			return s, errors.New("unknown channel \"curent\"")
		}}
		o, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- o.Run(t.Context()) }()
		wait(3 * lookAgain)
		c.out.Store(false)
		if err := <-ended; !errors.Is(err, ErrMisfit) || !strings.Contains(err.Error(), "curent") {
			t.Errorf("%v", err)
		}
	})
}
