// Package load names what a card is made to do where a GPU and its board are simulated: states of
// activity, and steps of them.
package load

import (
	"time"

	"github.com/wattmark/wattmark/measure"
)

// State is an activity of the card. The numbers travel between a simulated GPU and its board.
type State uint8

// The states.
const (
	Idle       State = iota // no context, low clocks
	ActiveIdle              // a context, clocks up, nothing resident
	Sleep                   // one resident sleeping kernel: a marker's low chip
	Half                    // half arithmetic, half memory
	Compute                 // arithmetic alone
	Memory                  // streams memory
	Full                    // memory and SMs together: a marker's high chip
	Watts                   // a level that is set in watts
)

var names = map[State]string{
	Idle: "idle", ActiveIdle: "active_idle", Sleep: "sleep", Half: "half", Compute: "compute", Memory: "memory",
	Full: "full", Watts: "level",
}

// String returns the state's name in flags and bench files.
func (s State) String() string { return measure.NameOf(names, s, "load") }

// Step is a stretch of constant load: that of a state, or a level where it is positive.
type Step struct {
	Load  State
	Level measure.Watt
	For   time.Duration
}
