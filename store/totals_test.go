package store

import (
	"math"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// Errors that last add up within an instrument, all others by their squares.
func TestTotalsKeepSharedErrorsTogether(t *testing.T) {
	d, ctx := open(t), t.Context()
	add := func(user, serial string, day int, gain, noise, k float64) TaskID {
		n := newTask("gemm", user)
		n.Launched = epoch.AddDate(0, 0, day)
		id := must(d.BeginTask(ctx, n))(t)
		h := header(threeRails(evenly))
		h.Instrument.Serial = serial
		ok(t, d.PutHeader(ctx, id, h))
		r := &measure.Result{To: 2, Samples: 10, Total: measure.Estimate{Energy: 100, U: measure.Joule(k * math.Hypot(gain, noise))}, Budget: []measure.Contribution{
			{Source: "gain psu.i", U: measure.Joule(gain), Systematic: true}, {Source: "noise", U: measure.Joule(noise)},
		}}
		ok(t, d.Finish(ctx, id, Outcome{State: Complete, Result: r}))
		return id
	}
	add("ann", "1", 0, 3, 1, 2)
	add("ann", "1", 0, 4, 2, 2)
	add("bob", "2", 1, 5, 3, 2)
	must(d.BeginTask(ctx, newTask("running", "ann")))(t)
	want := func(what string, got Totals, tasks, measured uint64, energy, u float64) {
		t.Helper()
		if got.Tasks != tasks || got.Measured != measured || float64(got.Energy.Energy) != energy || math.Abs(float64(got.Energy.U)-u) > 1e-12 ||
			float64(got.Duration) != 2*float64(measured) || got.Samples != 10*measured {
			t.Errorf("%s: %+v, want %d tasks, %d measured, %v ± %v", what, got, tasks, measured, energy, u)
		}
	}
	ann := 2 * math.Sqrt(7*7+1+4)
	all := 2 * math.Sqrt(7*7+1+4+5*5+3*3)
	want("all", must(d.Totals(ctx, Filter{}))(t), 4, 3, 300, all)
	users := must(d.Aggregate(ctx, AggregateQuery{By: ByUser}))(t)
	if len(users) != 2 || users[0].Key != "ann" || users[1].Key != "bob" {
		t.Fatalf("%+v", users)
	}
	want("ann", users[0].Totals, 3, 2, 200, ann)
	want("bob", users[1].Totals, 1, 1, 100, 2*math.Hypot(5, 3))
	days := must(d.Aggregate(ctx, AggregateQuery{By: ByDay, Filter: Filter{States: []State{Complete}}}))(t)
	if len(days) != 2 || days[0].Key != "2026-03-05" || days[1].Key != "2026-03-04" {
		t.Fatalf("%+v", days)
	}
	want("a day", days[1].Totals, 2, 2, 200, ann)
	// 05:06 UTC is the day before on the west coast.
	west := must(d.Aggregate(ctx, AggregateQuery{By: ByDay, Offset: measure.SecondsOf(-8 * time.Hour)}))(t)
	if west[len(west)-1].Key != "2026-03-03" {
		t.Errorf("%+v", west)
	}
	gpus := must(d.Aggregate(ctx, AggregateQuery{By: ByGPU}))(t)
	if len(gpus) != 1 || gpus[0].Key != "GPU-1" || gpus[0].Label != "H200" {
		t.Errorf("%+v", gpus)
	}
	jobs := must(d.Aggregate(ctx, AggregateQuery{By: ByJob}))(t)
	if len(jobs) != 1 || jobs[0].Key != "train 7" {
		t.Errorf("%+v", jobs)
	}
	if got := must(d.Totals(ctx, Filter{User: "nobody"}))(t); got != (Totals{}) {
		t.Errorf("of nobody: %+v", got)
	}
	if _, err := d.Aggregate(ctx, AggregateQuery{}); err == nil {
		t.Error("no grouping was taken")
	}
}

func TestAggregateByKernel(t *testing.T) {
	d, ctx := open(t), t.Context()
	for i := range 3 {
		id := begin(t, d, threeRails(evenly))
		ok(t, d.Finish(ctx, id, fullOutcome()))
		ok(t, d.PutNameEnergies(ctx, id, 1, []NameEnergy{
			{Class: KernelEnergy, Name: "gemm", Launches: 3, Busy: 1, Energy: measure.Estimate{Energy: 10, U: 1}},
			{Class: KernelEnergy, Name: []string{"axpy", "dot", "axpy"}[i], Launches: 1, Busy: 2, Energy: measure.Estimate{Energy: 4, U: 0.5}},
			{Class: IdleEnergy, Energy: measure.Estimate{Energy: 50, U: 1}},
		}))
	}
	rows := must(d.Aggregate(ctx, AggregateQuery{By: ByKernel}))(t)
	want := []AggregateRow{
		{Label: NoKernel, Totals: Totals{Tasks: 3, Measured: 3, Energy: measure.Estimate{Energy: 150, U: 3}}},
		{Key: "gemm", Launches: 9, Totals: Totals{Tasks: 3, Measured: 3, Energy: measure.Estimate{Energy: 30, U: 3}, Duration: 3}},
		{Key: "axpy", Launches: 2, Totals: Totals{Tasks: 2, Measured: 2, Energy: measure.Estimate{Energy: 8, U: 1}, Duration: 4}},
		{Key: "dot", Launches: 1, Totals: Totals{Tasks: 1, Measured: 1, Energy: measure.Estimate{Energy: 4, U: 0.5}, Duration: 2}},
	}
	if len(rows) != len(want) {
		t.Fatalf("%+v", rows)
	}
	for i := range want {
		if rows[i] != want[i] {
			t.Errorf("row %d: %+v, want %+v", i, rows[i], want[i])
		}
	}
}

func TestWatchSeesEveryWrite(t *testing.T) {
	d, ctx := open(t), t.Context()
	w := must(d.NewWatch(ctx))(t)
	defer w.Close()
	changed := func(want bool, what string) {
		t.Helper()
		if got := must(w.Changed(ctx))(t); got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	changed(true, "at first")
	changed(false, "without a write")
	id := must(d.BeginTask(ctx, newTask("a", "b")))(t)
	changed(true, "a new task")
	before := must(d.Marks(ctx, 1, nil))(t)
	changed(false, "reading")
	ok(t, d.PutHeader(ctx, id, header(threeRails(evenly))))
	ok(t, d.Finish(ctx, id, fullOutcome()))
	changed(true, "finished")
	after := must(d.Marks(ctx, id+1, []TaskID{id, 77}))(t)
	if len(before) != 1 || !before[0].Running || len(after) != 1 || after[0].Running || after[0].Sum == before[0].Sum {
		t.Errorf("%+v, then %+v", before, after)
	}
	if s := must(d.Stats(ctx))(t); s.Tasks != 1 || s.Running != 0 || s.Users != 1 || s.Bytes == 0 {
		t.Errorf("%+v", s)
	}
}
