package niface

import (
	"math"
	"testing"
	"time"
)

func TestOscillatorIsItsOwnInverse(t *testing.T) {
	o := oscillator{rate: -40e-6, wander: 5e-6, period: float64(20 * time.Minute)}
	const hour = float64(time.Hour)
	for d := 0.0; d < 3*hour; d += hour / 17 {
		at := o.board(d)
		if back := o.device(time.Duration(math.Round(at))); math.Abs(back-d) > 2 {
			t.Errorf("%v ns of the device are %v of the board, and that %v of the device", d, at, back)
		}
		const dt = 1e6
		if slope := (o.board(d+dt) - o.board(d-dt)) / (2 * dt); math.Abs(slope-o.slow(d)) > 1e-9 {
			t.Errorf("at %v ns a step is longer by %v, want %v", d, slope-1, o.slow(d)-1)
		}
	}
	// It bows: what a line between the ends of a period misses in its middle.
	if bow := o.board(o.period/2) - o.board(o.period)/2; math.Abs(bow) < 1.5e6 || math.Abs(bow) > 2.5e6 {
		t.Errorf("the wander bows the clock by %v ms", bow/1e6)
	}
}
