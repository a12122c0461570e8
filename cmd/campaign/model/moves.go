package model

import (
	"fmt"
	"math/bits"

	"wattmark/monitor/capture"
	"wattmark/store"
)

// move is a kind of step that the model can make.
type move uint8

// The moves.
const (
	startAsked move = iota
	hostGivesUp
	hostKilled
	workDone
	stopAskedAgain
	releaseAskedAgain
	patienceEnds
	chunkStored
	trailerRead
	captureGone
	pastTheEnd
	outcomeStored
	daemonKilled
	recoveryBegins
	recoveredStored
	recoveredReleased
	leftReleased
	firstScan
	meterNever
	callerGone
	chunkWritten
	logSynced
	tailWritten
	meterFails
	leaseEnds
	tooLate
	monitorKilled
	powerCut
	monitorStarts
	lost
	arrives
	arrivesTwice
	// By others' hands.
	otherStops
	otherTakes
	revised
	moves // how many there are
)

var moveNames = [moves]string{
	"start asked", "host gives up", "host killed", "work done", "stop asked again", "release asked again", "host's patience ends",
	"chunk stored", "trailer read", "capture is gone", "past the end", "outcome stored", "daemon killed", "recovery begins",
	"recovered outcome stored", "recovered capture released", "left capture released", "first scan", "meter does not begin",
	"caller is gone", "chunk written", "log synced", "tail written", "meter or disk fails", "lease ends", "trigger comes too late",
	"monitor killed", "monitor's power cut", "monitor starts", "message lost", "message arrives", "message arrives, and comes again",
	"another stops the capture", "another takes the bench", "task looked at anew",
}

func (m move) String() string { return moveNames[m] }

var messageNames = map[message]string{
	askStart: "start request", saidStarted: "started", saidFailed: "not started", askStop: "stop request", saidStopped: "stopped",
	askRelease: "release request", saidReleased: "released",
}

func (w message) String() string { return messageNames[w] }

// taken counts what an exploration did.
type taken struct {
	moves    [moves][16]int                                        // by what they are about
	actions  [moves][16]action                                     // the same by name
	captures [capture.Released + 1][capture.ReleaseDone + 1][2]int // refused, taken
	tasks    [store.Failed + 1][store.RevisedFailed + 1][2]int
}

// move counts one. A move is about a message, an event or a trigger, or about nothing.
func (t *taken) move(a action) {
	about := max(bits.Len8(uint8(a.w)), int(a.on), int(a.late))
	t.moves[a.move][about]++
	t.actions[a.move][about] = a
}

func captureRow(s capture.State, on capture.Trigger) string {
	return fmt.Sprintf("capture %v %v", s, on)
}
func taskRow(s store.State, on store.Event) string { return fmt.Sprintf("task %d %v", s, on) }

// rows tells by name what was taken, and what was refused.
func (t *taken) rows() (done, refused map[string]int) {
	done, refused = map[string]int{}, map[string]int{}
	for m := range t.moves {
		for about, n := range t.moves[m] {
			if n > 0 {
				done[t.actions[m][about].String()] = n
			}
		}
	}
	put := func(row string, n [2]int) {
		if n[0] > 0 {
			refused[row] = n[0]
		}
		if n[1] > 0 {
			done[row] = n[1]
		}
	}
	for s := range t.captures {
		for on, n := range t.captures[s] {
			put(captureRow(capture.State(s), capture.Trigger(on)), n)
		}
	}
	for s := range t.tasks {
		for on, n := range t.tasks[s] {
			put(taskRow(store.State(s), store.Event(on)), n)
		}
	}
	return done, refused
}

// captureStep looks a capture's step up, and counts it.
func (m *machine) captureStep(s capture.State, on capture.Trigger) (capture.State, error) {
	to, err := m.r.Capture.Next(s, on)
	m.taken.captures[s][on][counted(err)]++
	return to, err
}

// taskStep looks a task's step up, and counts it.
func (m *machine) taskStep(s store.State, on store.Event) (store.State, error) {
	to, err := m.r.Task.Next(s, on)
	m.taken.tasks[s][on][counted(err)]++
	return to, err
}

func counted(err error) int {
	if err != nil {
		return 0
	}
	return 1
}
