package board

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"wattmark/measure"
)

func TestLiveIsTheBoardOnAClock(t *testing.T) {
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	epoch := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	l := NewLive(b, epoch)
	at := epoch.Add(50 * time.Millisecond)
	if got, err := l.SetLoad(at, Compute); err != nil || !got.Equal(at) {
		t.Errorf("the load changes at %v (%v)", got, err)
	}
	if _, err := l.SetLevel(at.Add(time.Second), 100); err != nil {
		t.Error(err)
	}
	l.Cancel(at.Add(500 * time.Millisecond))
	e, err := l.Energy(at, at.Add(2*time.Second))
	want, _ := b.Energy(50*time.Millisecond, 2050*time.Millisecond)
	if err != nil || e.Total != want.Total || e.Total < 2*220 {
		t.Errorf("%v by the clock (%v), %v by the board", e.Total, err, want.Total)
	}
	if p := l.MeanPower(at, at.Add(2*time.Second)); math.Abs(float64(p)-float64(e.Total)/2) > 1e-9 {
		t.Errorf("mean power %v of %v in 2 s", p, e.Total)
	}
	if r := l.At(at); len(r) != len(b.Rails()) {
		t.Errorf("%d rails", len(r))
	}
}

// A simulated GPU sets loads while meters read: run with -race.
func TestConcurrentUse(t *testing.T) {
	b, err := New(Config{Keep: 100 * time.Millisecond, Ripple: Ripple{RMS: 1, Low: 100, High: 200}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			buf := make([]measure.Watt, 20)
			for i := range 2000 {
				at := time.Duration(i) * time.Millisecond
				switch w {
				case 0:
					_, _ = b.SetLoad(at, Load(i%7))
				case 1:
					b.Trace(buf, at, 5e4)
				default:
					_, _ = b.Energy(at-time.Millisecond, at)
					b.MeanPower(at-time.Millisecond, at)
				}
			}
		})
	}
	wg.Wait()
}

// What is laid down at once is drawn as it was laid down, however fast a meter reads on.
func TestStepsAreLaidDownAtOnce(t *testing.T) {
	epoch := time.Unix(0, 0)
	open := func() *Live {
		b, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		return NewLive(b, epoch)
	}
	read, unread := open(), open()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for at := epoch; ctx.Err() == nil; at = at.Add(time.Millisecond) {
			read.Observe(read.Since(at))
		}
	})
	steps := make([]Step, 40)
	for i := range steps {
		steps[i] = Step{Load: Sleep, For: 10 * time.Microsecond}
		if i%3 == 0 {
			steps[i].Load = Full
		}
	}
	steps[len(steps)-1] = Step{Load: ActiveIdle}
	at := epoch
	for i := range 500 {
		begin, err := read.SetSteps(at, steps)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unread.SetSteps(begin, steps); err != nil {
			t.Fatal(err)
		}
		at = begin.Add(500 * time.Microsecond)
		got, err := read.Energy(begin, at)
		want, e := unread.Energy(begin, at)
		if err != nil || e != nil || got.Total != want.Total {
			t.Fatalf("marker %d at %v: %v, laid down %v (%v, %v)", i, begin, got.Total, want.Total, err, e)
		}
	}
	stop()
	wg.Wait()
	at = at.Add(time.Hour)
	// One bad step, and nothing is changed.
	before := read.MeanPower(at, at.Add(time.Second))
	if _, err := read.SetSteps(at, []Step{{Load: Full, For: time.Second}, {Level: measure.Watt(math.Inf(1))}}); err == nil {
		t.Error("an infinite level was laid down")
	}
	if after := read.MeanPower(at, at.Add(time.Second)); after != before {
		t.Errorf("a refused train draws %v instead of %v", after, before)
	}
}
