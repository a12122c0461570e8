package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// The invariants. Whatever the faults did, when they have passed:
//
//   - each task has ended, and one that is not complete has a reason;
//   - each chunk that the database acknowledged is in it, once and unchanged;
//   - each sample in it is the one that was taken, once, and each gap is recorded;
//   - samples that StopCapture called durable are in the database, or still on the monitor
//     with a task that has a reason;
//   - the chunks of a task add up to the trailer of its capture;
//   - a complete task has the energy that was drawn, or a note of what its clock did;
//   - the bench is free, and a measurement can be made;
//   - the monitor keeps a capture only where the task needs it, or where no host ever
//     heard of it; its folder holds nothing else; its wall clock drops none of them, and
//     time does;
//   - no file, and no goroutine, is left (openFiles, Leaks).

func (w *world) check() {
	tasks, err := w.host.db.Tasks(w.ctx, store.Query{})
	if err != nil {
		w.fail("tasks cannot be listed: %v", err)
		return
	}
	for id, p := range w.seen.tasks {
		if !slices.ContainsFunc(tasks, func(t store.Row) bool { return t.ID == id }) && !w.excused(p.capture) {
			w.fail("task %d, whose begin the database acknowledged, is not there", id)
		}
	}
	var sound string
	if err := w.host.db.SQL().QueryRowContext(w.ctx, "PRAGMA integrity_check").Scan(&sound); err != nil || sound != "ok" {
		w.fail("the database is not sound: %q, %v", sound, err)
	}
	w.seen.outcome = OutcomeNone
	held, err := w.host.client.Captures(w.ctx)
	if err != nil {
		w.fail("captures cannot be listed: %v", err)
		return
	}
	for i := range tasks {
		w.checkTask(tasks[i].ID, held)
	}
	w.checkMild()
	w.checkHeld(tasks, held)
	w.checkFolder(held)
}

func (w *world) checkTask(id store.TaskID, held []session.Capture) {
	t, err := w.host.db.Task(w.ctx, id)
	if err != nil {
		w.fail("task %d cannot be read: %v", id, err)
		return
	}
	w.seen.hit = t
	w.seen.outcome = map[store.State]string{
		store.Complete: OutcomeComplete, store.Incomplete: OutcomeIncomplete, store.Untrimmed: OutcomeUntrimmed,
	}[t.State]
	kept := slices.ContainsFunc(held, func(c session.Capture) bool { return c.ID == t.CaptureID })
	x := examination{w: w, t: &t, kept: kept}
	x.Samples = Examine(w.ctx, w.host.db, &t, x.chunk, w.fail)
	x.setup()
	x.acknowledged()
	if x.looked && t.State == store.Complete {
		x.energy()
	}
}

// checkHeld asks of each capture on the monitor why it is there.
func (w *world) checkHeld(tasks []store.Row, held []session.Capture) {
	for _, c := range held {
		if !c.State.Ended() {
			w.fail("capture %s has not ended: %d", c.ID, c.State)
		}
		i := slices.IndexFunc(tasks, func(t store.Row) bool { return t.CaptureID == c.ID })
		if i >= 0 && tasks[i].State != store.Incomplete {
			w.fail("the monitor still keeps capture %s of task %d, which has ended (state %d)", c.ID, tasks[i].ID,
				tasks[i].State)
		}
		if i >= 0 {
			w.checkRest(&tasks[i], c)
		}
		w.seen.kept++
	}
	w.monitor.expireAll(len(held))
}

// checkRest: what the monitor keeps of a task that has ended it cannot give, or the task
// would have it.
func (w *world) checkRest(t *store.Row, c session.Capture) {
	has := numbers{}
	if _, err := w.host.client.Read(w.ctx, monitorclient.ReadOptions{CaptureID: c.ID}, has); err == nil {
		w.fail("task %d is incomplete for good (%s), and the monitor gives all of its capture %s (%s): %d chunks", t.ID,
			t.Reason, c.ID, c.Reason, len(has))
	}
}

// mild are faults that may cost nothing.
var mild = []Kind{Corrupt, Crowded, StoredRot}

// checkMild: where nothing else happened the measurement is complete; on a busy machine its
// lease may have ended, or a marker have been shifted.
func (w *world) checkMild() {
	if len(w.struckBy) == 0 || slices.ContainsFunc(w.struckBy,
		func(f Fault) bool { return !slices.Contains(mild, f.Kind) }) {
		return
	}
	if t := w.seen.hit; t.State != store.Complete && !strings.Contains(t.Reason, "lease") &&
		!strings.Contains(t.Reason, "marker") {
		w.fail("it is in state %d: %q, for nothing that may cost anything; the run said: %v", t.State, t.Reason, w.hitErr)
	}
}

// plant adds other programs' files to the spool's folder.
func (w *world) plant(dir string) (err error) {
	w.planted, err = Plant(dir)
	return err
}

func (w *world) checkPlanted() {
	for _, c := range w.planted.Changed() {
		w.fail("another program's file in the spool: %s", c)
	}
}

// gather lets a crowd come to the monitor, which stays until the world ends.
func (w *world) gather() {
	w.line.mu.Lock()
	address := w.line.address
	w.line.mu.Unlock()
	if address == "" {
		return
	}
	w.rngMu.Lock()
	defer w.rngMu.Unlock()
	c, err := Gather(w.ctx, w.rng.IntN, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	})
	if err != nil {
		return // it went down meanwhile
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crowds = append(w.crowds, c)
}

func (w *world) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.crowds {
		c.Leave()
	}
}

// checkFolder: the spool's folder holds the captures that are listed, and nothing else.
func (w *world) checkFolder(held []session.Capture) {
	entries, err := os.ReadDir(w.monitor.dir)
	if err != nil {
		w.fail("%v", err)
	}
	for _, e := range entries {
		listed := slices.ContainsFunc(held, func(c session.Capture) bool { return c.ID == e.Name() })
		if e.Name() != ".lock" && !strings.HasPrefix(e.Name(), ".waits") && !listed && !w.planted.Own(e.Name()) &&
			!w.seen.excuses[rotExcuse] {
			w.fail("%s is left in the spool", e.Name())
		}
	}
}

// afterwards makes a measurement without faults: the bench works.
func (w *world) afterwards() {
	var why error
	for range 3 { // a machine that is busy enough shifts a marker
		id, err := w.measure("afterwards", time.Minute)
		if err == nil {
			var t store.Task
			if t, err = w.host.db.Task(w.ctx, id); err == nil && t.State == store.Complete {
				return
			}
			err = errors.Join(fmt.Errorf("state %d: %s", t.State, t.Reason), err)
		}
		why = err
	}
	w.fail("no measurement can be made afterwards: %v", why)
}

// examination compares one task with the world's record.
type examination struct {
	Samples
	w    *world
	t    *store.Task
	kept bool // the monitor still has the capture

	true0  uint64 // scan of the card's life at scan number 0 of the last chunk's stretch
	last   uint64 // last scan of the card's life that is stored
	looked bool
}

// chunk compares a chunk's samples with the card's power.
func (x *examination) chunk(c *chunk.Chunk, b *measure.Block) {
	card := x.w.card
	card.mu.Lock()
	defer card.mu.Unlock()
	for i := range b.Scans() {
		scan := uint64(b.Counts[1][i])
		if x.looked && scan <= x.last {
			x.w.fail("task %d: chunk %d has a sample that is there already, or out of order", x.t.ID, c.No)
			return
		}
		x.last, x.looked = scan, true
		if b.Counts[0][i] != card.countOf(scan) {
			x.w.fail("task %d: chunk %d: a sample is %d, and %d was sampled", x.t.ID, c.No, b.Counts[0][i], card.countOf(scan))
			return
		}
		if i == 0 {
			x.true0 = scan - c.FirstScan
		} else if scan-uint64(b.FirstScan)-uint64(i) != x.true0 {
			x.w.fail("task %d: chunk %d has a hole inside", x.t.ID, c.No)
			return
		}
	}
}

// acknowledged compares the task with the database's promises.
func (x *examination) acknowledged() {
	w, t := x.w, x.t
	w.mu.Lock()
	stored, stop := w.seen.stored[t.ID], w.seen.stops[t.CaptureID]
	trailer, ended := w.seen.trailers[t.CaptureID]
	promised := w.seen.tasks[t.ID]
	rotten := w.seen.excuses[rotExcuse]
	w.mu.Unlock()
	if w.excused(t.CaptureID) {
		return
	}
	if p := promised; p.ended > store.Running && p.ended != t.State {
		w.fail("task %d had ended (state %d), as the database acknowledged, and is in state %d", t.ID, p.ended, t.State)
	}
	x.rows(promised)
	for no, crc := range stored {
		if got, there := x.CRCs[no]; !there || got != crc {
			w.fail("task %d: chunk %d was acknowledged by the database, and is not there as it was", t.ID, no)
		}
	}
	if n := uint64(len(x.CRCs)); ended && (n != trailer.Chunks || x.Scans != trailer.Scans || x.CRC != trailer.CRC) &&
		!x.explained() {
		w.fail("task %d: %d chunks, %d scans, %08x are stored; the trailer said %d, %d, %08x", t.ID, n, x.Scans, x.CRC,
			trailer.Chunks, trailer.Scans, trailer.CRC)
	}
	if stop.State == 0 || rotten || strings.Contains(stop.Reason, "could not be made durable") {
		return
	}
	// What lies before the first that was sent lies before the start marker.
	var still map[uint64]bool
	for no := max(stop.FirstChunk, x.First); no < stop.EndChunk; no++ {
		if _, there := x.CRCs[no]; there {
			continue
		}
		if still == nil {
			still = x.onMonitor()
		}
		if !x.explained() || !still[no] {
			w.fail("task %d (%s): chunk %d was durable on the monitor when it answered the stop request, and is lost", t.ID,
				t.Reason, no)
			return
		}
	}
}

// rows compares the stored kernels and edges with the acknowledged ones.
func (x *examination) rows(p promise) {
	kernels, err := x.w.host.db.Kernels(x.w.ctx, x.t.ID)
	edges, perr := x.w.host.db.Played(x.w.ctx, x.t.ID)
	if err = errors.Join(err, perr); err != nil || len(kernels) < p.kernels || len(edges) < p.edges {
		x.w.fail("task %d has %d kernels and %d edges; the database acknowledged %d and %d: %v", x.t.ID, len(kernels),
			len(edges), p.kernels, p.edges, err)
	}
}

// onMonitor are the chunks of the task that the monitor can still send.
func (x *examination) onMonitor() map[uint64]bool {
	numbers := numbers{}
	if x.kept {
		// An error only means that there are no more: the rows count.
		_, _ = x.w.host.client.Read(x.w.ctx, monitorclient.ReadOptions{CaptureID: x.t.CaptureID, Untrimmed: true}, numbers)
	}
	return numbers
}

// numbers takes the numbers of chunks.
type numbers map[uint64]bool

func (n numbers) Header(store.Header, uint64) error { return nil }
func (n numbers) Event(measure.Event) error         { return nil }
func (n numbers) Chunk(c *chunk.Chunk) error {
	n[c.No] = true
	return nil
}

// explained: the samples are not all here, and the monitor has them still; or its disk has
// lost some that are here.
func (x *examination) explained() bool {
	x.w.mu.Lock()
	rotten, trailer := x.w.seen.excuses[rotExcuse], x.w.seen.trailers[x.t.CaptureID]
	x.w.mu.Unlock()
	return (x.kept || rotten && uint64(len(x.CRCs)) >= trailer.Chunks) && x.t.State == store.Incomplete && x.t.Reason != ""
}

// How many U an energy may be off. U is of k = 2, so that one normal error in twenty
// is larger; but it holds what does not go wrong here, a gain that is off and power that
// follows its kernel late: of 1600 without skew 95 % were within 0.13 U, the largest 0.2. A clock whose
// rate changes by up to 1 % between two markers, a hundred times what a quartz does, is
// none that U knows; up to 1.34 U was seen.
const (
	margin       = 1.0
	skewedMargin = 2.0
)

// energy compares the result with the energy that was drawn.
func (x *examination) energy() {
	work := x.w.worked.Load()
	if x.t.Result == nil || x.t.Clock == nil || work == nil {
		x.w.fail("task %d is complete without a result", x.t.ID)
		return
	}
	told := slices.ContainsFunc(x.t.Events, func(e measure.Event) bool { return e.Kind == measure.EventClock })
	if x.w.apart && x.w.card.torn() && !told {
		x.w.fail("task %d: its times were taken by a clock that was set in between, and it does not say so", x.t.ID)
	}
	if x.t.Reason != "" { // a note names the fault, as with a clock that was stepped
		return
	}
	truth, total := busyW*workFor.Seconds(), x.t.Result.Total
	off := math.Abs(float64(total.Energy) - truth)
	limit := margin
	if x.w.struck(ClockSkew) {
		limit = skewedMargin
	}
	if x.w.seen.off = off / float64(total.U); x.w.seen.off > limit {
		x.w.fail("task %d is complete with %v ± %v, and %.4f J were drawn", x.t.ID, total.Energy, total.U, truth)
	}
	room := 200e-6 + 6*math.Sqrt(x.t.Clock.VarA)
	from, to := seconds(work.from-x.true0), seconds(work.to-x.true0)
	if r := x.t.Result; math.Abs(float64(r.From)-from) > room || math.Abs(float64(r.To)-to) > room {
		x.w.fail("task %d is complete with a window from %v to %v; the work was from %.6f to %.6f s", x.t.ID, r.From, r.To,
			from, to)
	}
}

// label marks the goroutines of a world, and those that they start.
const label = "campaign-world"

// openFiles lists the files below dir that this process has open; none where the system has no /proc.
func openFiles(dir string) (open []string) {
	all, _ := Descriptors(os.Getpid())
	for _, f := range all {
		if below, is := strings.CutPrefix(f, dir); is {
			open = append(open, below)
		}
	}
	return open
}

// Leaks returns the stacks of goroutines that outlived their worlds. What is on
// its way out is given a moment.
func Leaks() (stacks []string) {
	for end := time.Now().Add(20 * time.Second); ; {
		stacks = stacks[:0]
		var b bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			return []string{fmt.Sprint(err)}
		}
		for _, s := range strings.Split(b.String(), "\n\n") {
			if strings.Contains(s, label) {
				stacks = append(stacks, s)
			}
		}
		if len(stacks) == 0 || time.Now().After(end) {
			return stacks
		}
		<-time.After(50 * time.Millisecond)
	}
}
