package store

import (
	"errors"
	"fmt"
	"maps"
)

// ErrEnded: the task has ended already, and what was to be done can be done to a
// running one only.
var ErrEnded = errors.New("task has ended already")

// Event is what moves a task from state to state.
type Event uint8

// The events. An end is what the measurement itself says of a task, and comes once;
// a revision is made of a task that may have ended before, as when its window is set
// by hand.
const (
	Begun             Event = iota + 1 // the capture has started
	Postponed                          // the transfer stopped, and the monitor keeps the rest
	EndedComplete                      // all is there
	EndedIncomplete                    // something is missing for good
	EndedUntrimmed                     // all is there, and no window was found
	RevisedComplete                    // looked at anew: all is there
	RevisedIncomplete                  // looked at anew: something is missing
	RevisedUntrimmed                   // looked at anew: no window
	EndedFailed                        // the work failed
	RevisedFailed                      // looked at anew: the work failed
)

var eventNames = map[Event]string{
	Begun: "begun", Postponed: "postponed", EndedComplete: "ended complete", EndedIncomplete: "ended incomplete",
	EndedUntrimmed: "ended untrimmed", RevisedComplete: "revised complete", RevisedIncomplete: "revised incomplete",
	RevisedUntrimmed: "revised untrimmed", EndedFailed: "ended failed", RevisedFailed: "revised failed",
}

func (e Event) String() string {
	if n, ok := eventNames[e]; ok {
		return n
	}
	return fmt.Sprintf("event(%d)", uint8(e))
}

// Transitions is a table of a task's life. State 0 is that of a task that is not
// there yet.
type Transitions map[State]map[Event]State

// transitions is the whole life of a task: what is not here is refused.
// docs/reliability.md shows the same table (a test compares the two).
var transitions = Transitions{
	0: {Begun: Running},
	Running: {
		Postponed: Running, EndedComplete: Complete, EndedIncomplete: Incomplete, EndedUntrimmed: Untrimmed,
		RevisedComplete: Complete, RevisedIncomplete: Incomplete, RevisedUntrimmed: Untrimmed,
		EndedFailed: Failed, RevisedFailed: Failed,
	},
	Complete:   {RevisedComplete: Complete, RevisedIncomplete: Incomplete, RevisedUntrimmed: Untrimmed},
	Incomplete: {RevisedComplete: Complete, RevisedIncomplete: Incomplete, RevisedUntrimmed: Untrimmed},
	Untrimmed:  {RevisedComplete: Complete, RevisedIncomplete: Incomplete, RevisedUntrimmed: Untrimmed},
	Failed:     {RevisedFailed: Failed},
}

// Life returns the table that tasks follow, for who checks it: a copy, so that
// nobody changes the one in force.
func Life() Transitions {
	t := Transitions{}
	for s, m := range transitions {
		t[s] = maps.Clone(m)
	}
	return t
}

// Next returns the state that an event leads to. Errors wrap ErrEnded.
func (t Transitions) Next(s State, on Event) (State, error) {
	if n, ok := t[s][on]; ok {
		return n, nil
	}
	return s, fmt.Errorf("%w: state %d, %v", ErrEnded, s, on)
}

// event is what an outcome does to its task.
func (o *Outcome) event() (Event, error) {
	ends := map[State][2]Event{
		Running: {Postponed, Postponed}, Complete: {RevisedComplete, EndedComplete},
		Incomplete: {RevisedIncomplete, EndedIncomplete}, Untrimmed: {RevisedUntrimmed, EndedUntrimmed},
		Failed: {RevisedFailed, EndedFailed},
	}
	e, ok := ends[o.State]
	switch {
	case !ok:
		return 0, fmt.Errorf("no task can be in state %d", o.State)
	case o.Once:
		return e[1], nil
	}
	return e[0], nil
}
