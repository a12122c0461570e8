package pipeline

import (
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// A viewer's moment has the least and the greatest scan, and, where it was asked for, the course of the total in
// means over stretches that go on through the blocks.
func TestViewersSeeWaves(t *testing.T) {
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100}, // 10 kS/s
		Channels: []measure.Channel{{Name: "a", Unit: measure.UnitWatt, Gain: 1}, {Name: "b", Unit: measure.UnitWatt, Gain: 1}},
		Rails: []measure.Rail{
			{Name: "x", Role: measure.RolePSU, Wiring: measure.WiringPower, X: 0, Y: -1}, {Name: "y", Role: measure.RolePCIe12V, Wiring: measure.WiringPower, X: 1, Y: -1},
		},
	}
	w := NewViewers()
	if err := w.Begin("c", &setup); err != nil {
		t.Fatal(err)
	}
	with := &viewer{WatchOptions: session.WatchOptions{Every: 100 * time.Millisecond, Wave: true}, out: make(chan session.Moment, 1)}
	without := &viewer{WatchOptions: session.WatchOptions{Every: 100 * time.Millisecond}, out: make(chan session.Moment, 1)}
	w.enter(with, 1)
	w.enter(without, 1)
	// Scan n of 2002 has n W on one rail and 1 W on the other; blocks do not end where stretches do.
	const scans, block = 2002, 7
	for first := 0; first < scans; first += block {
		b := &measure.Block{FirstScan: uint64(first), FirstTick: int64(first) * 100, Counts: [][]measure.Count{nil, nil}}
		for n := first; n < first+block; n++ {
			b.Counts[0], b.Counts[1] = append(b.Counts[0], measure.Count(n)), append(b.Counts[1], 1)
		}
		w.Block(b)
		if m, ok := newest(without.out); ok && (m.Wave != nil || m.Max != measure.Watt(m.Scans) || m.Min >= m.Total || m.Total >= m.Max) {
			t.Errorf("without a wave: %v to %v W, %d values", m.Min, m.Max, len(m.Wave))
		}
		m, ok := newest(with.out)
		if !ok || m.Scans == block {
			continue // the first block alone
		}
		if with.per != 4 || m.Step != 4e-4 || len(m.Wave) < 249 || len(m.Wave) > 252 {
			t.Fatalf("%d values of %v, %d scans each", len(m.Wave), m.Step, with.per)
		}
		for i, v := range m.Wave {
			if i > 0 && v-m.Wave[i-1] != 4 || m.Max != measure.Watt(m.Scans) {
				t.Fatalf("value %d is %v W after %v; at most %v", i, v, m.Wave[max(0, i-1)], m.Max)
			}
		}
	}
}

func newest(c chan session.Moment) (session.Moment, bool) {
	select {
	case m := <-c:
		return m, true
	default:
		return session.Moment{}, false
	}
}
