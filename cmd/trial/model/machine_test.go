// Package model explores every interleaving of a small measuring place: one monitor
// with its spool, hosts that measure, the daemon that recovers their tasks, and a line
// between them that loses, repeats and delays messages. Each process may be killed at
// any moment, the monitor's power cut, and both started again.
//
// The steps of captures and tasks are not the model's own: they are looked up in the
// tables that the monitor and the store follow (capture.Life, store.Life). What a
// step does beside, as making the log durable, is written here as the code does it.
package model

import (
	"fmt"
	"math/bits"

	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/store"
)

// Most is how many captures a model can have.
const Most = 2

// Rules are the settings of an exploration.
type Rules struct {
	Captures, Chunks int
	// Together lets the captures' hosts measure beside each other; without, the second
	// begins when the first has ended or died, while its remains live on.
	Together bool
	// Hands lets others lay hands on what is there: somebody stops the capture or
	// takes the bench, and tasks are looked at anew.
	Hands   bool
	Capture capture.Transitions
	Task    store.Transitions
	// AckBeforeSync is a monitor that answers a stop request before it has synced.
	AckBeforeSync bool
}

// message is one that can be on its way between a host and the monitor.
type message uint8

const (
	askStart message = 1 << iota
	saidStarted
	saidFailed
	askStop
	saidStopped
	askRelease
	saidReleased

	toMonitor = askStart | askStop | askRelease
)

// phase is where a measurement, or the daemon's recovery of one, stands.
type phase uint8

const (
	resting phase = iota
	starting
	working
	stopping
	reading
	ending
	releasing
	done
	dead
)

// one is a capture with its task: what the monitor has, what the host has, and what
// is on its way.
type one struct {
	life     session.State
	chunks   uint8 // in the log
	synced   uint8 // of them survive a power cut
	told     bool  // so does the record that it has begun
	total    uint8 // in the log when the capture ended
	ended    session.State
	released bool

	session, daemon     phase
	sawWhole, daemonSaw bool // the trailer was of a complete capture
	state               store.State
	reason              bool
	worked              bool
	have                uint8 // chunks in the database
	acked               uint8 // chunks that a stop answer called durable, plus 1
	wire                message
	// What must never be: a step that the code needs and its table refuses, an end
	// that is not what happened, a task that ended twice.
	refused, untrue, twice bool
	begun, asked           bool // the first scan came; the monitor was asked to stop
	byHand                 bool // the task was ended by hand while its measurement had not
}

// place is a state of the whole.
type place struct {
	up    bool
	bench uint8 // 1 + the capture that has it; 0 for none
	all   [Most]one
}

// step is one possible next state.
type step struct {
	does  action
	fault bool
	to    place
}

// action is a move with its object.
type action struct {
	move
	w    message     // of those that are about a message
	on   store.Event // of those that end a task, or look at it anew
	late capture.Trigger
}

func (a action) String() string {
	switch {
	case a.w != 0:
		return a.move.String() + ": " + a.w.String()
	case a.on != 0:
		return a.move.String() + ": " + a.on.String()
	case a.late != 0:
		return a.move.String() + ": " + a.late.String()
	}
	return a.move.String()
}

// machine makes the steps of a place, and counts its look-ups in the tables.
type machine struct {
	r     Rules
	steps []step
	taken taken
}

// add appends the step that f makes of a copy of p.
func (m *machine) add(p place, does move, fault bool, f func(p *place)) {
	m.addOf(p, action{move: does}, fault, f)
}

func (m *machine) addOf(p place, does action, fault bool, f func(p *place)) {
	f(&p)
	m.steps = append(m.steps, step{does, fault, p})
}

// next returns all steps from a place. The slice is lent until the next call.
func (m *machine) next(p place) []step {
	m.steps = m.steps[:0]
	for i := range m.r.Captures {
		m.monitor(p, i)
		m.line(p, i)
		m.host(p, i)
		m.recovery(p, i)
		if m.r.Hands {
			m.hands(p, i)
		}
	}
	if p.up {
		m.add(p, monitorKilled, true, func(p *place) { m.crash(p, false) })
		m.add(p, powerCut, true, func(p *place) { m.crash(p, true) })
	} else {
		m.add(p, monitorStarts, false, m.restart)
	}
	return m.steps
}

// crash ends the monitor's process; its requests are lost with it.
func (m *machine) crash(p *place, power bool) {
	p.up, p.bench = false, 0
	for i := range m.r.Captures {
		c := &p.all[i]
		c.wire &^= toMonitor
		if power {
			c.chunks = min(c.chunks, c.synced)
			if !c.told && !c.life.Ended() && c.life != 0 {
				c.life, c.begun, c.asked = session.Arming, false, false
			}
		}
	}
}

// restart is capture.New: what was not ended is ended, what never began is dropped.
func (m *machine) restart(p *place) {
	p.up = true
	for i := range m.r.Captures {
		c := &p.all[i]
		switch {
		case c.life == 0 || c.life.Ended():
		case c.life == session.Arming && c.chunks == 0:
			c.drop()
		default:
			m.seal(p, i, capture.Restarted)
			c.synced, c.told = c.chunks, true
		}
	}
}

// drop takes a capture out of the spool.
func (c *one) drop() {
	c.life, c.chunks, c.synced, c.told, c.begun, c.asked = 0, 0, 0, false, false, false
}

// seal is capture.seal: the state moves, the log is synced, the bench is given up.
func (m *machine) seal(p *place, i int, t capture.Trigger) {
	c := &p.all[i]
	to, err := m.captureStep(c.life, t)
	if err != nil {
		c.refused = true
		return
	}
	c.untrue = c.untrue || (to == session.Complete) != (t == capture.TailWritten) || (t == capture.StopAsked && c.begun)
	c.life = to
	if !m.r.AckBeforeSync {
		c.synced, c.told = c.chunks, true
	}
	if c.life.Ended() {
		c.total, c.ended = c.chunks, c.life
	}
	if p.bench == uint8(i+1) {
		p.bench = 0
	}
}

// ends are the states that a task's ends and revisions lead to.
var ends = map[store.Event]store.State{
	store.EndedComplete: store.Complete, store.EndedIncomplete: store.Incomplete, store.EndedUntrimmed: store.Untrimmed,
	store.EndedFailed: store.Failed, store.RevisedFailed: store.Failed,
	store.RevisedComplete: store.Complete, store.RevisedIncomplete: store.Incomplete,
	store.RevisedUntrimmed: store.Untrimmed,
}

// end moves a task; one that has ended refuses, and stays as it is.
func (m *machine) end(c *one, on store.Event) {
	running := c.state == store.Running
	to, err := m.taskStep(c.state, on)
	if err != nil {
		c.refused = c.refused || running
		return
	}
	c.twice = c.twice || !running
	c.become(on, to)
	c.reason = c.reason || on != store.EndedComplete
}

// become gives a task the state that an event led to.
func (c *one) become(on store.Event, to store.State) {
	means, ends := ends[on]
	c.untrue = c.untrue || ends && to != means
	c.state = to
}

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
	"start asked", "host gives up", "host killed", "work done", "stop asked again", "release asked again",
	"host's patience ends",
	"chunk stored", "trailer read", "capture is gone", "past the end", "outcome stored", "daemon killed",
	"recovery begins",
	"recovered outcome stored", "recovered capture released", "left capture released", "first scan",
	"meter does not begin",
	"caller is gone", "chunk written", "log synced", "tail written", "meter or disk fails", "lease ends",
	"trigger comes too late",
	"monitor killed", "monitor's power cut", "monitor starts", "message lost", "message arrives",
	"message arrives, and comes again",
	"another stops the capture", "another takes the bench", "task looked at anew",
}

func (m move) String() string { return moveNames[m] }

var messageNames = map[message]string{
	askStart: "start request", saidStarted: "started", saidFailed: "not started", askStop: "stop request",
	saidStopped: "stopped",
	askRelease:  "release request", saidReleased: "released",
}

func (w message) String() string { return messageNames[w] }

// taken counts the steps of an exploration.
type taken struct {
	moves    [moves][16]int                                        // by their object
	actions  [moves][16]action                                     // the same by name
	captures [session.Released + 1][capture.ReleaseDone + 1][2]int // refused, taken
	tasks    [store.Failed + 1][store.RevisedFailed + 1][2]int
}

// move counts one. A move is about a message, an event or a trigger, or about nothing.
func (t *taken) move(a action) {
	about := max(bits.Len8(uint8(a.w)), int(a.on), int(a.late))
	t.moves[a.move][about]++
	t.actions[a.move][about] = a
}

func captureRow(s session.State, on capture.Trigger) string {
	return fmt.Sprintf("capture %v %v", s, on)
}
func taskRow(s store.State, on store.Event) string { return fmt.Sprintf("task %d %v", s, on) }

// rows returns the counts of taken and of refused rows by name.
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
			put(captureRow(session.State(s), capture.Trigger(on)), n)
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
func (m *machine) captureStep(s session.State, on capture.Trigger) (session.State, error) {
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
