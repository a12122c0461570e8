package faults

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"

	"wattmark/cmd/campaign/crowd"
	"wattmark/cmd/campaign/foreign"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure/chunk"
	"wattmark/monitor/capture"
	"wattmark/monitor/clocktest"
	"wattmark/store"
)

// Broken is a fault of the product itself, to see that the campaign finds it.
type Broken uint8

// The builds.
const (
	// Whole is the product as it is.
	Whole Broken = iota
	// AckBeforeSync is a monitor that says that samples are durable before they
	// were synced.
	AckBeforeSync
	// ReleaseBeforeStore is a host that lets the monitor drop a capture before its
	// own database has it.
	ReleaseBeforeStore
	// CommitBeforeSync is a host whose database calls durable what was not synced, as
	// SQLite does without synchronous=FULL.
	CommitBeforeSync
	// KeepLog is a host that has a capture dropped while what it stored is in its
	// database's log alone.
	KeepLog
	// GiveUp is a host that takes samples for lost that were changed on the line.
	GiveUp
	// OldPlot is a host whose plots lack scans that came late.
	OldPlot
	// BlindCheck is a check of the database that trusts its calibrations.
	BlindCheck
	// ClearSpool is a monitor that removes from its spool what is no capture.
	ClearSpool
	// CrowdedOut is a monitor that lets so many connections in, whoever makes them.
	CrowdedOut
)

// rotExcuse is what allows samples that were acknowledged to be missing: the disk
// itself lost them.
const rotExcuse = "the monitor's disk flipped a bit"

// logExcuse allows what the database acknowledged to be missing where its capture was not
// released: the host's disk lost it, and the monitor has it still.
const logExcuse = "the log of the host's database flipped a bit"

// world is one schedule being played.
type world struct {
	ctx      context.Context
	schedule Schedule
	broken   Broken
	dir      string

	card        *card
	cable       cable
	planted     *foreign.Planted // in the spool
	crowds      []crowd.Crowd
	hitErr      error // of the measurement that was hit
	line        line
	monitor     *monitorSide
	monitorGate gate
	hostGate    gate

	// apart: the card is driven by another program than the host's.
	apart bool

	databaseFull atomic.Bool
	worked       atomic.Pointer[span] // the work in true scans

	rngMu sync.Mutex
	rng   *rand.Rand

	mu        sync.Mutex
	reached   map[Step]int
	fired     []bool
	struckBy  []Fault // of schedule.Faults, in their order
	host      *hostSide
	heals     sync.WaitGroup
	database  *hostDisk // as it is now
	databases []*hostDisk
	seen      record
}

// record is what the world saw, to hold the end against.
type record struct {
	violations []string
	excuses    map[string]bool
	stops      map[string]monitorclient.Summary // by capture, as StopCapture answered
	trailers   map[string]monitorclient.Trailer
	stored     map[store.TaskID]map[uint64]uint32 // checksums of chunks that the database acknowledged
	tasks      map[store.TaskID]promise           // what else it acknowledged
	released   map[string]bool                    // captures whose release was asked
	firm       map[string]bool                    // those of them before the log's bit was flipped
	moves      map[Move]int
	outcome    string
	hit        store.Task // as it ended
	kept       int
	off        float64 // of a complete task's energy, in U; NaN without one
}

// promise is what the database acknowledged of a task that was begun.
type promise struct {
	capture string
	kernels int
	edges   int // of markers
	ended   store.State
}

// promised takes note of what was acknowledged, by a process that still lives.
func (w *world) promised(id store.TaskID, change func(*promise)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.seen.tasks[id]
	change(&p)
	w.seen.tasks[id] = p
}

// Move is a step of a capture's life, as its log tells it.
type Move struct {
	From capture.State
	On   capture.Trigger
	To   capture.State
}

func newWorld(ctx context.Context, s Schedule, b Broken, dir string) *world {
	w := &world{
		ctx: ctx, schedule: s, broken: b, dir: dir, card: newCard(),
		rng: rand.New(rand.NewPCG(s.Seed, 1)), reached: map[Step]int{}, fired: make([]bool, len(s.Faults)),
		seen: record{
			excuses: map[string]bool{}, stops: map[string]monitorclient.Summary{}, trailers: map[string]monitorclient.Trailer{},
			stored: map[store.TaskID]map[uint64]uint32{}, tasks: map[store.TaskID]promise{}, moves: map[Move]int{}, released: map[string]bool{}, off: math.NaN(),
		},
	}
	for _, f := range s.Faults {
		w.apart = w.apart || f.Kind == ClockStepApart
	}
	w.monitor = &monitorSide{w: w, disk: newDisk(w), clock: clocktest.New(), dir: filepath.Join(dir, "spool0")}
	return w
}

// fail takes note of a violation.
func (w *world) fail(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.violations = append(w.seen.violations, fmt.Sprintf(format, a...))
}

func (w *world) excuse(e string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.excuses[e] = true
}

func (w *world) stopped(id string, s monitorclient.Summary) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, again := w.seen.stops[id]; !again {
		w.seen.stops[id] = s
	}
}

func (w *world) ended(id string, t monitorclient.Trailer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.trailers[id] = t
}

func (w *world) stored(id store.TaskID, chunks []*chunk.Chunk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen.stored[id] == nil {
		w.seen.stored[id] = map[uint64]uint32{}
	}
	for _, c := range chunks {
		w.seen.stored[id][c.No] = c.CRC
	}
}

func (w *world) released(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.released[id] = true
}

// logRotted remembers what must survive: that of which the monitor's copy was let go.
func (w *world) logRotted() {
	w.excuse(logExcuse)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.firm = maps.Clone(w.seen.released)
}

// excused tells whether what the database acknowledged of a capture may be lost.
func (w *world) excused(capture string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen.excuses[logExcuse] && !w.seen.firm[capture]
}

// moved holds a capture's step against the table.
func (w *world) moved(id string, from capture.State, on capture.Trigger, to capture.State) {
	if from == to && to.Ended() {
		return // a monitor that starts writes an end again that lay in a log without its last words
	}
	if next, err := capture.Life().Next(from, on); err != nil || next != to {
		w.fail("capture %s went from %v by %q to %v, which the table does not have", id, from, on, to)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.moves[Move{from, on, to}]++
}
