package capture

import (
	"fmt"
	"maps"
)

// State is where a capture is in its life. The numbers travel and are stored:
// never renumber.
type State uint8

// The states.
const (
	Arming     State = 1 // the instrument is being opened, no scan yet
	Running    State = 2 // sampling
	Stopping   State = 3 // asked to stop; what is still on its way is awaited
	Complete   State = 4 // ended as asked; readable
	Incomplete State = 5 // ended otherwise, with a reason; readable up to there
	Released   State = 6 // given back; the spool is gone
)

var stateNames = map[State]string{
	Arming: "ARMING", Running: "RUNNING", Stopping: "STOPPING",
	Complete: "COMPLETE", Incomplete: "INCOMPLETE", Released: "RELEASED",
}

func (s State) String() string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Ended reports whether no more samples will come.
func (s State) Ended() bool { return s >= Complete }

// Trigger is what moves a capture from state to state. The numbers are stored:
// never renumber.
type Trigger uint8

// The triggers.
const (
	Created     Trigger = 1 // the bench was taken
	FirstScan   Trigger = 2 // the first scan arrived
	StopAsked   Trigger = 3 // StopCapture was called
	TailWritten Trigger = 4 // all that belongs to the capture is durable
	Failed      Trigger = 5 // the meter, the disk or the monitor gave up
	LeaseEnded  Trigger = 6 // the holder did not renew its lease
	Restarted   Trigger = 7 // the monitor found the capture unfinished when it started
	ReleaseDone Trigger = 8 // the spool was dropped
)

var triggerNames = map[Trigger]string{
	Created: "created", FirstScan: "first scan", StopAsked: "stop asked", TailWritten: "tail written",
	Failed: "failed", LeaseEnded: "lease ended", Restarted: "monitor restarted", ReleaseDone: "released",
}

func (t Trigger) String() string {
	if n, ok := triggerNames[t]; ok {
		return n
	}
	return fmt.Sprintf("trigger(%d)", uint8(t))
}

// transitions is the whole life of a capture: what is not here is refused.
// docs/protocol.md shows the same table (a test compares the two).
var transitions = Transitions{
	0:        {Created: Arming},
	Arming:   {FirstScan: Running, StopAsked: Incomplete, Failed: Incomplete, Restarted: Incomplete},
	Running:  {StopAsked: Stopping, Failed: Incomplete, LeaseEnded: Incomplete, Restarted: Incomplete},
	Stopping: {TailWritten: Complete, Failed: Incomplete, Restarted: Incomplete},
	Complete: {ReleaseDone: Released},
	Incomplete: {
		ReleaseDone: Released,
	},
	Released: {},
}

// Next returns the state that a trigger leads to. Errors wrap ErrTransition.
func (s State) Next(t Trigger) (State, error) { return transitions.Next(s, t) }

// Transitions is a table of a capture's life.
type Transitions map[State]map[Trigger]State

// Life returns the table that captures follow, for who checks it: a copy, so that
// nobody changes the one in force.
func Life() Transitions {
	t := Transitions{}
	for s, m := range transitions {
		t[s] = maps.Clone(m)
	}
	return t
}

// Next returns the state that a trigger leads to. Errors wrap ErrTransition.
func (t Transitions) Next(s State, on Trigger) (State, error) {
	if n, ok := t[s][on]; ok {
		return n, nil
	}
	return s, fmt.Errorf("%w: %q while %v", ErrTransition, on, s)
}
