package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"wattmark/cmd/campaign/crowd"
	"wattmark/cmd/campaign/examine"
	"wattmark/cmd/campaign/foreign"
	"wattmark/hostagent/monitorclient"
	"wattmark/store"
)

// The invariants. Whatever the faults did, when they have passed:
//
//   - each task has ended, and one that is not complete says why;
//   - each chunk that the database acknowledged is in it, once and unchanged;
//   - each sample in it is what was sampled, once, and each hole is told;
//   - what StopCapture answered as durable is in the database, or still on the monitor
//     with a task that says why;
//   - the chunks of a task add up to the trailer of its capture;
//   - a complete task has the energy that was drawn, or says what happened to its clock;
//   - nobody has the bench, and a measurement can be made;
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

func (w *world) checkTask(id store.TaskID, held []monitorclient.Capture) {
	t, err := w.host.db.Task(w.ctx, id)
	if err != nil {
		w.fail("task %d cannot be read: %v", id, err)
		return
	}
	w.seen.hit = t
	w.seen.outcome = map[store.State]string{
		store.Complete: OutcomeComplete, store.Incomplete: OutcomeIncomplete, store.Untrimmed: OutcomeUntrimmed,
	}[t.State]
	kept := slices.ContainsFunc(held, func(c monitorclient.Capture) bool { return c.ID == t.CaptureID })
	x := examination{w: w, t: &t, kept: kept}
	x.Samples = examine.Task(w.ctx, w.host.db, &t, x.chunk, w.fail)
	x.setup()
	x.acknowledged()
	if x.looked && t.State == store.Complete {
		x.energy()
	}
}

// checkHeld asks of each capture on the monitor why it is there.
func (w *world) checkHeld(tasks []store.Row, held []monitorclient.Capture) {
	for _, c := range held {
		if !c.State.Ended() {
			w.fail("capture %s has not ended: %d", c.ID, c.State)
		}
		i := slices.IndexFunc(tasks, func(t store.Row) bool { return t.CaptureID == c.ID })
		if i >= 0 && tasks[i].State != store.Incomplete {
			w.fail("the monitor still keeps capture %s of task %d, which has ended (state %d)", c.ID, tasks[i].ID, tasks[i].State)
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
func (w *world) checkRest(t *store.Row, c monitorclient.Capture) {
	has := numbers{}
	if _, err := w.host.client.Read(w.ctx, monitorclient.ReadOptions{CaptureID: c.ID}, has); err == nil {
		w.fail("task %d is incomplete for good (%s), and the monitor gives all of its capture %s (%s): %d chunks", t.ID, t.Reason, c.ID, c.Reason, len(has))
	}
}

// mild are faults that may cost nothing.
var mild = []Kind{Corrupt, Crowded, StoredRot}

// checkMild: where nothing else happened the measurement is complete; on a busy machine its
// lease may have ended, or a marker have been shifted.
func (w *world) checkMild() {
	if len(w.struckBy) == 0 || slices.ContainsFunc(w.struckBy, func(f Fault) bool { return !slices.Contains(mild, f.Kind) }) {
		return
	}
	if t := w.seen.hit; t.State != store.Complete && !strings.Contains(t.Reason, "lease") && !strings.Contains(t.Reason, "marker") {
		w.fail("it is in state %d: %q, for nothing that may cost anything; the run said: %v", t.State, t.Reason, w.hitErr)
	}
}

// plant puts into the spool's folder what is none of the monitor's.
func (w *world) plant(dir string) (err error) {
	w.planted, err = foreign.Plant(dir)
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
	c, err := crowd.Gather(w.ctx, w.rng.IntN, func(ctx context.Context) (net.Conn, error) {
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
func (w *world) checkFolder(held []monitorclient.Capture) {
	entries, err := os.ReadDir(w.monitor.dir)
	if err != nil {
		w.fail("%v", err)
	}
	for _, e := range entries {
		listed := slices.ContainsFunc(held, func(c monitorclient.Capture) bool { return c.ID == e.Name() })
		if e.Name() != ".lock" && !strings.HasPrefix(e.Name(), ".waits") && !listed && !w.planted.Own(e.Name()) && !w.seen.excuses[rotExcuse] {
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
