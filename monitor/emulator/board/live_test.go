package board

import (
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
