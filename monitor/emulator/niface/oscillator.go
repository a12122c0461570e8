package niface

import (
	"math"
	"time"
)

// oscillator is the device's clock against the board's time: off by a rate that
// stays, and by one that comes and goes with the room's warmth.
type oscillator struct {
	rate   float64 // relative; positive is slow
	wander float64 // relative, at most
	period float64 // of the wander, in ns
}

// drift is by how much the device is behind after d ns of its own time because of
// the wander.
func (o oscillator) drift(d float64) float64 {
	if o.period == 0 {
		return 0
	}
	turn := 2 * math.Pi / o.period
	return o.wander / turn * (1 - math.Cos(turn*d))
}

// board returns the board's time, in ns, when the device has counted d ns.
func (o oscillator) board(d float64) float64 { return d*(1+o.rate) + o.drift(d) }

// device is the inverse of board.
func (o oscillator) device(t time.Duration) float64 {
	d := float64(t)
	for range 3 { // each time the error is less by the wander, of some 10⁻⁶
		d = (float64(t) - o.drift(d)) / (1 + o.rate)
	}
	return d
}

// slow is how much longer than stated a step is when the device has counted d ns.
func (o oscillator) slow(d float64) float64 {
	if o.period == 0 {
		return 1 + o.rate
	}
	return 1 + o.rate + o.wander*math.Sin(2*math.Pi/o.period*d)
}
