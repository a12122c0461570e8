package faults

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

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
	for id := range w.seen.tasks {
		if !slices.ContainsFunc(tasks, func(t store.Row) bool { return t.ID == id }) {
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
	w.checkHeld(tasks, held)
	w.checkFolder(held)
}

func (w *world) checkTask(id store.TaskID, held []monitorclient.Capture) {
	t, err := w.host.db.Task(w.ctx, id)
	if err != nil {
		w.fail("task %d cannot be read: %v", id, err)
		return
	}
	w.seen.outcome = map[store.State]Outcome{
		store.Complete: OutcomeComplete, store.Incomplete: OutcomeIncomplete, store.Untrimmed: OutcomeUntrimmed,
	}[t.State]
	if t.State != store.Complete && t.Reason == "" {
		w.fail("task %d is half done (state %d) without a reason", t.ID, t.State)
	}
	kept := slices.ContainsFunc(held, func(c monitorclient.Capture) bool { return c.ID == t.CaptureID })
	x := examination{w: w, t: &t, have: map[uint64]uint32{}, kept: kept}
	x.chunks()
	x.acknowledged()
	if x.n > 0 && t.State == store.Complete {
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
		w.seen.kept++
	}
	w.monitor.expireAll(len(held))
}

// checkFolder: the spool's folder holds the captures that are listed, and nothing else.
func (w *world) checkFolder(held []monitorclient.Capture) {
	entries, err := os.ReadDir(w.monitor.dir)
	if err != nil {
		w.fail("%v", err)
	}
	for _, e := range entries {
		listed := slices.ContainsFunc(held, func(c monitorclient.Capture) bool { return c.ID == e.Name() })
		if e.Name() != ".lock" && e.Name() != ".waits" && !listed && !w.seen.excuses[rotExcuse] {
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
