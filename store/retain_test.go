package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// aged makes a finished task of a day's age.
func aged(t *testing.T, d *DB, days int) TaskID {
	t.Helper()
	n := newTask(fmt.Sprintf("day %d", days), "lab")
	n.Launched = epoch.AddDate(0, 0, -days)
	id := must(d.BeginTask(t.Context(), n))(t)
	ok(t, d.PutHeader(t.Context(), id, header(threeRails(evenly))))
	ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, ripple(rand.New(rand.NewPCG(uint64(days), 3)), 6, 60000, 30), 10000, 0), nil))
	ok(t, d.Finish(t.Context(), id, Outcome{State: Complete}))
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
	ok(t, d.Pin(ctx, ids[3], true)) // 200 days
	running := newTask("runs", "lab")
	running.Launched = epoch.AddDate(-3, 0, 0)
	runs := must(d.BeginTask(ctx, running))(t)

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
