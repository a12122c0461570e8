package faults

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"wattmark/cmd/campaign/play"
	"wattmark/hostagent/measurement"
	"wattmark/measure/marker"
	"wattmark/store"
)

// Result is what became of a schedule.
type Result struct {
	play.Result
	Fired []Fault // that struck; the steps of the others were never reached
	// Kept is how many captures the monitor rightly still keeps: of a task whose samples
	// its disk has damaged, or of nobody's.
	Kept int
	// Off is by how many U the energy of a complete task was off; NaN without one.
	Off   float64
	Moves map[Move]int
}

// The outcomes: the state in which the measurement's task ended.
const (
	OutcomeComplete   = "complete"
	OutcomeIncomplete = "incomplete"
	OutcomeUntrimmed  = "untrimmed"
	OutcomeNone       = "no task"
)

// hitLease is short, so that a fault can outlast it.
const hitLease = 1500 * time.Millisecond

// patience bounds how long a world that has healed may take to come to rest.
const patience = 60 * time.Second

// emptyDatabase is a database without a task: its schema is made once.
var emptyDatabase = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "wattmark-campaign-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "power.db")
	db, err := store.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// Play plays one schedule in a folder of its own below dir. An error means that
// the campaign itself could not do it.
func Play(ctx context.Context, s Schedule, b Broken, dir string) (Result, error) {
	empty, err := emptyDatabase()
	if err != nil {
		return Result{}, err
	}
	own, err := os.MkdirTemp(dir, fmt.Sprintf("world%d-", s.Seed))
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(own)
	w := newWorld(ctx, s, b, own)
	path := filepath.Join(own, "power.db")
	w.mendRecords()
	if err := errors.Join(w.plant(w.monitor.dir), os.WriteFile(path, empty, 0o600), w.watchDatabase(path)); err != nil {
		return Result{}, err
	}
	err = w.play()
	for _, d := range w.databases {
		d.disk.Forget()
	}
	if err != nil && !errors.Is(err, errLost) {
		return Result{}, fmt.Errorf("%v: %w", s, err)
	}
	if open := openFiles(own); len(open) > 0 {
		w.fail("files are open that nobody closed: %v", open)
	}
	r := Result{Fired: w.struckBy, Kept: w.seen.kept, Off: w.seen.off, Moves: w.seen.moves}
	r.Schedule, r.Again, r.Outcome, r.Violations = s.String(), fmt.Sprintf("--schedules 1 --verbose --seed %d", s.Seed), w.seen.outcome, w.seen.violations
	for _, f := range w.struckBy {
		r.Struck = append(r.Struck, string(f.Kind))
	}
	if !math.IsNaN(r.Off) {
		r.Notes = append(r.Notes, fmt.Sprintf("its energy is off by %.2f U", r.Off))
	}
	return r, nil
}

// play lives through the schedule: a measurement with its faults, recovery until
// nothing is half done, the invariants, and a measurement without faults.
func (w *world) play() error {
	defer w.heals.Wait()
	life, end := context.WithCancel(w.ctx)
	defer end()
	go w.card.run(life)
	if err := w.enterHost(); err != nil {
		return err
	}
	if err := w.monitor.start(); err != nil {
		return err
	}
	defer w.monitor.retire()
	_, w.hitErr = w.measure("hit", hitLease) // what became of it is looked at in the database
	if err := w.comeToRest(); err != nil {
		return err
	}
	w.check()
	w.afterwards()
	w.leave()
	w.checkPlanted()
	if err := w.host.end(); err != nil || !w.struck(StoredRot) {
		return err
	}
	return w.damaged()
}

// enterHost starts a process of the host, in place of one that ended.
func (w *world) enterHost() error {
	w.mu.Lock()
	old := w.host
	w.mu.Unlock()
	if old != nil {
		if err := old.end(); err != nil {
			return err
		}
	}
	for begun := time.Now(); ; {
		h, err := newHost(w)
		switch {
		case h != nil || err != nil:
			return err
		case time.Since(begun) > patience:
			w.fail("the host's database cannot be opened within %v", patience)
			return errLost
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-w.ctx.Done():
		}
	}
}

var spec = marker.Spec{Code: marker.M31, Chip: 203.1e-6, Guard: 6, TagBits: 4, Tag: 11}

func (w *world) measure(name string, lease time.Duration) (store.TaskID, error) {
	w.mu.Lock()
	h := w.host
	w.mu.Unlock()
	m := spec
	g := gpu{w.card, w}
	return measurement.Measure(h.ctx, measurement.Config{
		DB: stores{h.db, h}, Monitor: asks{h}, Device: g, Name: name, User: "campaign", Holder: "campaign@host",
		Marker: &m, Lead: 4 * time.Millisecond, Lease: lease, NoMethods: true, Now: w.card.now,
	}, g.work)
}

// comeToRest starts the host anew and lets it recover, as its daemon does, until
// no task is half done and nobody has the bench.
func (w *world) comeToRest() error {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if err := w.enterHost(); err != nil {
		return err
	}
	for {
		w.mu.Lock()
		h := w.host
		w.mu.Unlock()
		w.at(StepRecover)
		_, rerr := measurement.Recover(h.ctx, stores{h.db, h}, w.reach)
		if h.dead.Load() || h.ctx.Err() != nil {
			if err := w.enterHost(); err != nil {
				return err
			}
			continue
		}
		open, err := h.db.Unfinished(ctx)
		if err = errors.Join(rerr, err); err == nil && len(open) == 0 {
			b, berr := h.client.GetBench(ctx)
			if berr == nil && b.Holder == "" {
				break
			}
			err = fmt.Errorf("the bench is held by %q: %w", b.Holder, berr)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			if w.ctx.Err() != nil {
				return w.ctx.Err()
			}
			w.fail("after %v of recovery there are %d half tasks: %v", patience, len(open), err)
			w.heals.Wait()
			w.heal()
			return nil
		}
	}
	// Faults that have not struck yet have missed their step.
	w.mu.Lock()
	w.schedule.Faults = nil
	w.mu.Unlock()
	w.heals.Wait()
	w.heal()
	// What was out of reach at the last look is in reach now.
	if _, err := measurement.Recover(w.host.ctx, stores{w.host.db, w.host}, w.reach); err != nil {
		w.fail("recovery fails without a fault: %v", err)
	}
	return nil
}

// reach is measurement.Dial.
func (w *world) reach(context.Context, string) (measurement.Monitor, func() error, error) {
	return asks{w.host}, func() error { return nil }, nil
}
