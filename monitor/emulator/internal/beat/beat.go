// Package beat is the clock of a face that sends samples at a fixed distance: it
// counts them, says which are due, and which are too old to be sent.
package beat

import (
	"math"
	"time"

	"wattmark/monitor/emulator/pace"
)

// Beat counts samples. One goroutine owns it.
type Beat struct {
	Pace pace.Pace
	// Start is the board's time of sample 0, Step the nanoseconds from one to the
	// next.
	Start time.Duration
	Step  float64
	// Next is the count of the next sample.
	Next uint64
}

// At is the board's time of a sample.
func (b *Beat) At(n uint64) time.Duration {
	return b.Start + time.Duration(math.Round(float64(n)*b.Step))
}

// Now is the board's time of the next sample.
func (b *Beat) Now() time.Duration { return b.At(b.Next) }

// Due is the number of whole samples up to a board instant.
func (b *Beat) Due(t time.Duration) int64 {
	return int64(math.Floor(float64(t-b.Now())/b.Step)) + 1
}

// CatchUp moves the count to the clock: the device goes on while nothing is sent.
func (b *Beat) CatchUp() {
	if n := b.Due(b.Pace.Now(b.Now() - 1)); n > 0 {
		b.Next += uint64(n)
	}
}

// Late tells that the next sample is too old for the device's buffer at an
// instant.
func (b *Beat) Late(until time.Duration) bool { return until-b.Now() > b.Pace.MaxBacklog() }

// Skip throws away what is too old at an instant, and returns how many that were.
func (b *Beat) Skip(until time.Duration) (lost uint64) {
	if !b.Late(until) {
		return 0
	}
	if n := b.Due(until - b.Pace.Step()); n > 0 {
		lost = uint64(n)
	}
	b.Next += lost
	return lost
}
