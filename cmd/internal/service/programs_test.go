package service

import (
	"testing"

	"github.com/wattmark/wattmark/api/metrics"
	"github.com/wattmark/wattmark/hostagent/live"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// A moment can come before the monitor has answered what its bench is: the bench has one name all the same.
func TestBenchesAreCountedOnce(t *testing.T) {
	seen := map[metrics.Bench]int{}
	view := named(func(b metrics.Bench, _ session.Moment) { seen[b]++ })
	bench := session.Bench{Name: "riser", GPU: "GPU-1", Instrument: measure.Identity{Kind: "powersensor3"}}
	for _, n := range []live.News{
		{State: &live.State{}, Moment: &live.Moment{}},
		{Moment: &live.Moment{}},
		{State: &live.State{Bench: bench}, Moment: &live.Moment{}},
		{Moment: &live.Moment{}},
	} {
		n.Address = "127.0.0.1:7551"
		if err := view(n); err != nil {
			t.Fatal(err)
		}
	}
	if want := (metrics.Bench{Name: "riser", GPU: "GPU-1"}); len(seen) != 1 || seen[want] != 2 {
		t.Errorf("got %v, want 2 of %v", seen, want)
	}
}
