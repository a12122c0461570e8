package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// storedAgo makes a task one that came into the database some days before epoch.
func storedAgo(t *testing.T, d *DB, id TaskID, days int) {
	t.Helper()
	must(d.writer.Exec("UPDATE task SET stored_ns=? WHERE task_id=?", epoch.AddDate(0, 0, -days).UnixNano(), int64(id)))(t)
}

// aged makes a finished task that was launched, and stored, so many days before epoch.
func aged(t *testing.T, d *DB, days int) TaskID {
	t.Helper()
	n := newTask(fmt.Sprintf("day %d", days), "lab")
	n.Launched = epoch.AddDate(0, 0, -days)
	id := must(d.BeginTask(t.Context(), n))(t)
	ok(t, d.PutHeader(t.Context(), id, header(threeRails(evenly))))
	ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, ripple(rand.New(rand.NewPCG(uint64(days), 3)), 6, 60000, 30), 10000, 0), nil))
	ok(t, d.Finish(t.Context(), id, Outcome{State: Complete}))
	storedAgo(t, d, id, days)
	return id
}

func TestRetain(t *testing.T) {
	noRaces(t)
	d, ctx := open(t), t.Context()
	var ids []TaskID
	for _, days := range []int{5, 100, 3, 200, 300, 1} {
		ids = append(ids, aged(t, d, days))
	}
	ageless := newTask("no launch", "lab")
	ageless.Launched = time.Time{}
	kept := must(d.BeginTask(ctx, ageless))(t)
	ok(t, d.Finish(ctx, kept, Outcome{State: Incomplete}))
	must(d.writer.Exec("UPDATE task SET stored_ns=NULL WHERE task_id=?", int64(kept)))(t) // as nobody writes it today
	ok(t, d.Pin(ctx, ids[3], true))                                                       // 200 days
	running := newTask("runs", "lab")
	running.Launched = epoch.AddDate(-3, 0, 0)
	runs := must(d.BeginTask(ctx, running))(t)
	storedAgo(t, d, runs, 3*365)

	of := func(r *Retention) (out []TaskID) {
		for _, x := range r.Tasks {
			out = append(out, x.Task)
		}
		return out
	}
	left := func() (out []TaskID) { return must(d.TaskIDs(ctx))(t) }
	all := left()
	old := RetainOptions{Before: epoch.AddDate(0, 0, -90)}
	plan := must(d.Retention(ctx, old))(t)
	if want := []TaskID{ids[4], ids[1]}; !slices.Equal(of(plan), want) || plan.Kept != 2 || !plan.Tasks[0].Aged || !slices.Equal(left(), all) {
		t.Errorf("would take %v, want %v: %+v", of(plan), want, plan)
	}
	// What it says to free is what is then free, near enough.
	done := must(d.Retain(ctx, old))(t)
	after := must(d.Retention(ctx, RetainOptions{}))(t)
	if freed := plan.Used - after.Used; !slices.Equal(of(done), of(plan)) || float64(freed) < 0.7*float64(plan.Free) || float64(freed) > 1.5*float64(plan.Free) {
		t.Errorf("said %d, freed %d", plan.Free, freed)
	}
	if slices.Contains(left(), ids[4]) || !slices.Contains(left(), ids[3]) || !slices.Contains(left(), runs) {
		t.Errorf("left: %v", left())
	}
	// For the room: the oldest, only as many as it takes.
	one := must(d.Retention(ctx, RetainOptions{KeepBytes: after.Used - 1}))(t)
	if len(one.Tasks) != 1 || one.Tasks[0].Task != kept || one.Tasks[0].Aged {
		t.Errorf("for one byte: %+v", one)
	}
	must(d.Retain(ctx, RetainOptions{KeepBytes: 1}))(t)
	if !slices.Equal(left(), []TaskID{ids[3], runs}) {
		t.Errorf("for all the room: %v", left())
	}
	if f := check(t, d); len(f) > 0 {
		t.Errorf("%+v", f)
	}
}

// An old recording is new in the database that it comes into, by whatever way: retention
// counts from then.
func TestRetainCountsFromTheComing(t *testing.T) {
	noRaces(t)
	ctx := t.Context()
	source := open(t)
	old := aged(t, source, 1000) // launched and stored
	ninety := RetainOptions{Before: time.Now().AddDate(0, 0, -90)}
	if r := must(source.Retention(ctx, ninety))(t); len(r.Tasks) != 1 || !r.Tasks[0].Aged || !r.Tasks[0].Stored.Equal(epoch.AddDate(0, 0, -1000)) {
		t.Fatalf("at its source: %+v", r)
	}
	for way, come := range map[string]func(d *DB) error{
		"stored": func(d *DB) error {
			n := newTask("recording", "lab")
			n.Launched = epoch.AddDate(-3, 0, 0)
			id, err := d.BeginTask(ctx, n)
			return errors.Join(err, d.Finish(ctx, id, Outcome{State: Complete}))
		},
		"imported": func(d *DB) error { _, err := d.Import(ctx, source, ImportOptions{}); return err },
		"detached": func(d *DB) error { _, err := d.Import(ctx, source, ImportOptions{KeepIDs: true}); return err },
		"copied": func(d *DB) error {
			_, err := source.CopyTask(ctx, d, old, CopyOptions{})
			return err
		},
		"updated": func(d *DB) error {
			_, err := source.CopyTask(ctx, d, old, CopyOptions{})
			note := must(source.AddNote(ctx, old, time.Now(), "later"))(t)
			done, again := source.CopyTask(ctx, d, old, CopyOptions{Update: true})
			if !slices.Equal(done.Differs, []string{"notes"}) {
				t.Errorf("differs in %v", done.Differs)
			}
			return errors.Join(err, again, source.RemoveNote(ctx, old, note))
		},
	} {
		d := open(t)
		ok(t, come(d))
		if r := must(d.Retain(ctx, ninety))(t); len(r.Tasks) > 0 || len(must(d.TaskIDs(ctx))(t)) != 1 {
			t.Errorf("%s, and gone on the same day: %+v", way, r)
		}
		tomorrow := RetainOptions{Before: time.Now().AddDate(0, 0, 1)}
		if r := must(d.Retain(ctx, tomorrow))(t); len(r.Tasks) != 1 || !r.Tasks[0].Aged {
			t.Errorf("%s, and never aged: %+v", way, r)
		}
	}
	// What is salvaged takes the place of the broken file.
	d := open(t)
	must(d.Import(ctx, source, ImportOptions{KeepIDs: true, Salvage: true}))(t)
	if r := must(d.Retention(ctx, ninety))(t); len(r.Tasks) != 1 {
		t.Errorf("salvaged: %+v", r)
	}
}
