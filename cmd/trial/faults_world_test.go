package trial

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/clocktest"
	"github.com/wattmark/wattmark/store"
)

// FaultBuild is a fault of the product itself, to see that the campaign finds it.
type FaultBuild uint8

// The builds.
const (
	// Whole is the product as it is.
	Whole FaultBuild = iota
	// AckBeforeSync is a monitor that calls samples durable before they were
	// synced.
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
	// ClearSpool is a monitor that removes foreign files from its spool.
	ClearSpool
	// CrowdedOut is a monitor whose limit of connections is one for all peers.
	CrowdedOut
)

// rotExcuse allows samples that were acknowledged to be missing: the disk
// itself lost them.
const rotExcuse = "the monitor's disk flipped a bit"

// logExcuse allows what the database acknowledged to be missing where its capture was not
// released: the host's disk lost it, and the monitor has it still.
const logExcuse = "the log of the host's database flipped a bit"

// world is one schedule being played.
type world struct {
	ctx      context.Context
	schedule FaultSchedule
	broken   FaultBuild
	dir      string

	card        *card
	cable       cable
	planted     *Planted // in the spool
	crowds      []Crowd
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

// record is the world's observations, which the end is compared with.
type record struct {
	violations []string
	excuses    map[string]bool
	stops      map[string]session.Summary // by capture, as StopCapture answered
	trailers   map[string]session.Trailer
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

// promise is the database's acknowledgements about a task that was begun.
type promise struct {
	capture string
	kernels int
	edges   int // of markers
	ended   store.State
}

// promised records an acknowledgement to a process that still lives.
func (w *world) promised(id store.TaskID, change func(*promise)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.seen.tasks[id]
	change(&p)
	w.seen.tasks[id] = p
}

// Move is a step of a capture's life, from its log.
type Move struct {
	From session.State
	On   capture.Trigger
	To   session.State
}

func newWorld(ctx context.Context, s FaultSchedule, b FaultBuild, dir string) *world {
	w := &world{
		ctx: ctx, schedule: s, broken: b, dir: dir, card: newCard(),
		rng: rand.New(rand.NewPCG(s.Seed, 1)), reached: map[Step]int{}, fired: make([]bool, len(s.Faults)),
		seen: record{
			excuses: map[string]bool{}, stops: map[string]session.Summary{}, trailers: map[string]session.Trailer{},
			stored: map[store.TaskID]map[uint64]uint32{}, tasks: map[store.TaskID]promise{}, moves: map[Move]int{},
			released: map[string]bool{}, off: math.NaN(),
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

func (w *world) stopped(id string, s session.Summary) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, again := w.seen.stops[id]; !again {
		w.seen.stops[id] = s
	}
}

func (w *world) ended(id string, t session.Trailer) {
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

// logRotted remembers which captures must survive: those that the monitor was asked to release.
func (w *world) logRotted() {
	w.excuse(logExcuse)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.firm = maps.Clone(w.seen.released)
}

// excused reports whether acknowledged rows of a capture may be lost.
func (w *world) excused(capture string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen.excuses[logExcuse] && !w.seen.firm[capture]
}

// moved holds a capture's step against the table.
func (w *world) moved(id string, from session.State, on capture.Trigger, to session.State) {
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

// hostAt reaches a step of the host's that is neither call nor database.
func (w *world) hostAt(s Step) error {
	w.mu.Lock()
	h := w.host
	w.mu.Unlock()
	return h.at(s)
}

// at reaches a step: faults that wait for it strike now.
func (w *world) at(s Step) {
	for _, f := range w.due(s) {
		w.strike(f)
	}
}

func (w *world) due(s Step) (out []Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached[s]++
	for i, f := range w.schedule.Faults {
		if !w.fired[i] && f.Step == s && w.reached[s] >= f.Nth {
			w.fired[i] = true
			out = append(out, f)
			w.struckBy = append(w.struckBy, f)
		}
	}
	return out
}

// struck reports whether a fault of a kind has struck.
func (w *world) struck(k Kind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.struckBy, func(f Fault) bool { return f.Kind == k })
}

// later does something when a fault's time is over. The world does not end before.
func (w *world) later(d time.Duration, f func()) {
	w.heals.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-w.ctx.Done():
		}
		f()
	})
}

// strike makes a fault happen. It is called on the goroutine that reached the
// step, which may be one of the side that is hit.
func (w *world) strike(f Fault) {
	switch f.Kind {
	case KillMonitor, CutPower, SpoolRot, HeaderRot:
		w.strikeDown(f)
	case StopMonitor:
		w.heals.Go(func() {
			w.monitor.end()
			w.line.cut(false)
			w.restart()
		})
	case KillHost, CutHost, LogRot, CancelHost:
		w.mu.Lock()
		h := w.host
		w.mu.Unlock()
		if f.Kind == CancelHost {
			h.cancel(context.Canceled)
		} else {
			h.kill(damageOf[f.Kind])
		}
	case ClockStep, ClockStepApart:
		w.card.disturb(f.Size, 0)
	case ClockSkew:
		w.card.disturb(0, f.Size)
	case MonitorStep:
		w.monitor.clock.Step(time.Duration(f.Size * float64(time.Second)))
	case MonitorSkew:
		w.monitor.clock.Skew(f.Size)
	case Corrupt:
		w.line.corruptOne()
	case StoredRot: // once all is quiet: see damaged
	case RecordRot:
		w.flipRecord()
		w.later(f.Hold, w.mendRecords)
	case Crowded:
		w.gather()
	case Reset:
		w.line.cut(false)
	default:
		w.strikeFor(f)
	}
}

// damageOf is the damage of each fault to its side's disk.
var damageOf = map[Kind]damage{
	KillMonitor: intact, CutPower: torn, SpoolRot: rotten, HeaderRot: rottenHeader,
	KillHost: intact, CutHost: torn, LogRot: rotten,
}

// strikeDown kills the monitor, with what that does to its disk, and starts it
// again later.
func (w *world) strikeDown(f Fault) {
	w.monitor.kill(damageOf[f.Kind])
	w.later(f.Hold, w.restart)
}

func (w *world) restart() {
	if err := w.monitor.start(); err != nil {
		w.fail("the monitor does not start again: %v", err)
	}
}

// strikeFor makes a fault that lasts.
func (w *world) strikeFor(f Fault) {
	d := w.monitor.disk
	switch f.Kind {
	case PauseMonitor:
		w.monitorGate.shut()
		w.line.down.shut()
		w.later(f.Hold, func() { w.monitorGate.open(); w.line.down.open() })
	case SpoolSlow:
		w.monitorGate.shut()
		w.later(f.Hold, w.monitorGate.open)
	case PauseHost:
		w.hostGate.shut()
		w.line.up.shut()
		w.later(f.Hold, func() { w.hostGate.open(); w.line.up.open() })
	case Partition:
		w.line.cut(true)
		w.later(f.Hold, w.line.heal)
	case HoldBoth:
		w.line.up.shut()
		w.line.down.shut()
		w.later(f.Hold, w.line.heal)
	case HoldUp:
		w.line.up.shut()
		w.later(f.Hold, w.line.heal)
	case HoldDown:
		w.line.down.shut()
		w.later(f.Hold, w.line.heal)
	case LoseDown:
		w.line.down.shut()
		w.later(f.Hold, func() { w.line.cut(false); w.line.heal() })
	case SpoolFull:
		d.set(func(d *disk) { d.full = true })
		w.later(f.Hold, func() { d.set(func(d *disk) { d.full = false }) })
	case SpoolWrite:
		d.set(func(d *disk) { d.badWrit++ })
	case SpoolSync:
		d.set(func(d *disk) { d.badSync++ })
	case DatabaseWrite:
		w.disk().broken.Add(1)
	case DatabaseSync:
		w.disk().deaf.Add(1)
	case DatabaseFull:
		w.databaseFull.Store(true)
		w.later(f.Hold, func() { w.databaseFull.Store(false) })
	case Unplug:
		w.cable.set(true, false)
		w.later(f.Hold, func() { w.cable.set(false, false) })
	case UnplugLong:
		w.cable.set(true, false)
		w.later(beyondLease, func() { w.cable.set(false, false) })
	case OtherMeter:
		w.cable.set(true, true)
		w.later(f.Hold, func() { w.cable.set(false, true) })
		w.later(beyondLease, func() { w.cable.set(false, false) })
	}
}

// heal takes all faults away that are left.
func (w *world) heal() {
	w.line.heal()
	w.monitorGate.open()
	w.hostGate.open()
	w.databaseFull.Store(false)
	w.disk().broken.Store(0)
	w.disk().deaf.Store(0)
	w.cable.set(false, false)
	w.mendRecords()
	w.monitor.disk.set(func(d *disk) { d.full, d.badSync, d.badWrit = false, 0, 0 })
}
