package checkup

import (
	"wattmark/measure"
	"wattmark/measure/stability"
)

// Result is what a survey saw.
type Result struct {
	Setup measure.Setup
	// Scans delivered, and device time from the first to the last of them.
	Scans    uint64
	Duration measure.Seconds
	// Rate is the scans a second by the host's clock, lost ones included, with its
	// standard uncertainty; zero where it cannot be told.
	Rate, URate measure.Hertz
	// Deferred: the instrument delivered from its own memory.
	Deferred bool
	// Channels and Rails are in the setup's order.
	Channels []Channel
	Rails    []Rail
	// Losses are gaps, overflows and the like, one entry a kind.
	Losses []Losses
}

// Channel is what one channel read, in its unit.
type Channel struct {
	Spread
	// Low and High are counts that stood at an end of the converter's range.
	Low, High uint64
	// Noise is the overlapping Allan deviation over averaging times.
	Noise []stability.Point
}

// Floor is what the channel's noise comes to, in its unit; ok is false where
// the survey was too short.
func (c *Channel) Floor() (f stability.Floor, ok bool) { return stability.FloorOf(c.Noise) }

// Rail is what one rail made of its channels. Current and Voltage have no
// readings where the rail reads watts itself.
type Rail struct {
	Current, Voltage, Power Spread
}
