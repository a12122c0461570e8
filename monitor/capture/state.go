package capture

import (
	"fmt"
	"maps"

	"github.com/wattmark/wattmark/measure/session"
)

// Trigger moves a capture from state to state. The numbers are stored: never renumber.
type Trigger uint8

// The triggers.
const (
	Created     Trigger = 1 // the bench was taken
	FirstScan   Trigger = 2 // the first scan arrived
	StopAsked   Trigger = 3 // StopCapture was called
	TailWritten Trigger = 4 // all samples of the capture are durable
	Failed      Trigger = 5 // the meter, the disk or the monitor gave up
	LeaseEnded  Trigger = 6 // the holder did not renew its lease
	Restarted   Trigger = 7 // the monitor found the capture unfinished when it started
	ReleaseDone Trigger = 8 // the spool was dropped
)

var triggerNames = [...]string{
	Created: "created", FirstScan: "first scan", StopAsked: "stop asked", TailWritten: "tail written",
	Failed: "failed", LeaseEnded: "lease ended", Restarted: "monitor restarted", ReleaseDone: "released",
}

func (t Trigger) String() string {
	if int(t) < len(triggerNames) && t > 0 {
		return triggerNames[t]
	}
	return fmt.Sprintf("trigger(%d)", uint8(t))
}

// transitions is the whole life of a capture: other steps are refused. docs/protocol.md
// has the same table (a test compares the two).
var transitions = Transitions{
	0: {Created: session.Arming},
	session.Arming: {
		FirstScan: session.Running, StopAsked: session.Incomplete, Failed: session.Incomplete,
		Restarted: session.Incomplete,
	},
	session.Running: {
		StopAsked: session.Stopping, Failed: session.Incomplete, LeaseEnded: session.Incomplete,
		Restarted: session.Incomplete,
	},
	session.Stopping:   {TailWritten: session.Complete, Failed: session.Incomplete, Restarted: session.Incomplete},
	session.Complete:   {ReleaseDone: session.Released},
	session.Incomplete: {ReleaseDone: session.Released},
	session.Released:   {},
}

// Transitions is a table of a capture's life.
type Transitions map[session.State]map[Trigger]session.State

// Life returns a copy of the table that captures follow.
func Life() Transitions {
	t := Transitions{}
	for s, m := range transitions {
		t[s] = maps.Clone(m)
	}
	return t
}

// Next returns the state that a trigger leads to. Errors wrap ErrTransition.
func (t Transitions) Next(s session.State, on Trigger) (session.State, error) {
	if n, ok := t[s][on]; ok {
		return n, nil
	}
	return s, fmt.Errorf("%w: %q while %v", ErrTransition, on, s)
}
