package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

func idsOf(list []store.Brief) (out []store.TaskID) {
	for _, t := range list {
		out = append(out, t.ID)
	}
	return out
}

// reads asks another handle all that lists, sums and finds tasks, by what was asked.
func reads(t *testing.T, d *store.DB) map[string]any {
	t.Helper()
	ctx, out := t.Context(), map[string]any{}
	for name, q := range map[string]store.ListQuery{
		"by id": {}, "by energy": {Order: store.ByEnergy}, "by name": {Order: store.ByName}, "by launch": {Order: store.ByLaunched, Ascending: true},
		"of a user": {Filter: store.Filter{User: "ada"}}, "of a name": {Filter: store.Filter{Name: "gem*"}}, "of few names": {Filter: store.Filter{Name: "g*"}, Ascending: true},
		"of a tag": {Filter: store.Filter{Tags: []store.Tag{{Key: "node", Value: "a3"}}}}, "found": {Filter: store.Filter{Search: "remark"}},
		"that run": {Filter: store.Filter{States: []store.State{store.Running}}},
	} {
		out["list "+name] = idsOf(must(d.List(ctx, q))(t).Tasks)
	}
	var rows []store.Brief
	for _, r := range must(d.Tasks(ctx, store.Query{}))(t) {
		rows = append(rows, r.Brief)
	}
	out["tasks"] = idsOf(rows)
	out["ids"] = must(d.TaskIDs(ctx))(t)
	out["selected"] = idsOf(must(d.Selected(ctx, store.Filter{}, []store.TaskID{1, 2, 3}))(t))
	out["totals"] = fmt.Sprint(must(d.Totals(ctx, store.Filter{}))(t))
	for _, by := range []store.Grouping{store.ByUser, store.ByDay, store.ByGPU, store.ByKernel, store.ByJob, store.ByTag} {
		out[fmt.Sprint("totals by ", by)] = fmt.Sprint(must(d.Aggregate(ctx, store.AggregateQuery{By: by, Tag: "node"}))(t))
	}
	out["users"] = must(d.Users(ctx))(t)
	out["count"] = must(d.Stats(ctx))(t).Tasks
	out["marks"] = must(d.Marks(ctx, 1, nil))(t)
	out["unfinished"] = must(d.Unfinished(ctx))(t)
	out["untagged"] = must(d.Untagged(ctx, "replicated", 10))(t)
	out["tagged"] = must(d.Tagged(ctx, "node"))(t)
	out["cold"] = must(d.Cold(ctx, time.Now().Add(time.Hour)))(t)
	out["of a capture"] = must(d.TaskOfCapture(ctx, "c-2"))(t)
	out["of a bench"] = len(must(d.OfBenchCapture(ctx, "lab-1", "c-2"))(t))
	var n int
	ok(t, d.SQL().QueryRowContext(ctx, `SELECT count(DISTINCT taskID) FROM data`).Scan(&n))
	out["view data"] = n
	return out
}

// absent asks for a task by its number, and tries to change it: it is not there.
func absent(t *testing.T, d *store.DB, id store.TaskID) {
	t.Helper()
	ctx, other := t.Context(), openFile(t)
	first := func() (err error) {
		for _, err = range d.Chunks(ctx, id, 0) {
			break
		}
		return err
	}
	pin := true
	for what, f := range map[string]func() error{
		"task":      func() error { _, err := d.Task(ctx, id); return err },
		"chunks":    first,
		"extent":    func() error { _, _, err := d.Extent(ctx, id); return err },
		"window":    func() error { _, _, _, err := d.Window(ctx, id); return err },
		"envelope":  func() error { _, err := d.Envelope(ctx, id, 0, 1, 8); return err },
		"energy":    func() error { _, err := d.SpanEnergy(ctx, id, 0, 1); return err },
		"timeline":  func() error { _, err := d.Timeline(ctx, id, 0, 1, 8); return err },
		"kernels":   func() error { _, err := d.Kernels(ctx, id); return err },
		"pin":       func() error { return d.Relabel(ctx, id, store.Relabelling{Pinned: &pin}) },
		"note":      func() error { _, err := d.AddNote(ctx, id, epoch, "x"); return err },
		"pack":      func() error { _, err := d.Compact(ctx, id); return err },
		"copy":      func() error { _, err := d.CopyTask(ctx, other, id, store.CopyOptions{}); return err },
		"check":     func() error { _, err := d.Check(ctx, store.CheckOptions{Task: id}); return err },
		"ofCapture": func() error { _, err := d.OfCapture(ctx, "bench:7000", "c-2"); return err },
	} {
		if what == "check" && strings.HasPrefix(d.Path(), "postgres") {
			continue // of files alone
		}
		if err := f(); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if x := must(d.DeleteByName(ctx, "gemm 2", store.DeleteOptions{}))(t); x.Tasks != 0 {
		t.Errorf("%d tasks were deleted by their name", x.Tasks)
	}
}

// execAt changes a database as another program could.
func execAt(t *testing.T, address, text string) {
	t.Helper()
	if strings.HasPrefix(address, "postgres") {
		psql(t, address, text)
		return
	}
	d := must(sql.Open("sqlite", address))(t)
	defer d.Close()
	_, err := d.ExecContext(t.Context(), text)
	ok(t, err)
}

// everywhere runs a test on a file and on a server.
func everywhere(t *testing.T, f func(t *testing.T, address string)) {
	t.Run("file", func(t *testing.T) { f(t, filepath.Join(t.TempDir(), "power.db")) })
	t.Run("server", func(t *testing.T) { f(t, database(t)) })
}

// Nobody but the handle that stores it sees a task before it is whole, and then everybody
// sees all of it.
func TestPartialTasksAreNowhere(t *testing.T) {
	coverage.Long(t)
	everywhere(t, func(t *testing.T, address string) {
		ctx, rng := t.Context(), rand.New(rand.NewPCG(7, 1))
		w, r := openAt(t, address), openAt(t, address)
		k := talk{d: w, ctx: ctx}
		first := newTask("gemm 1", "ada")
		first.Tags, first.Note = map[string]string{"node": "a3"}, "a remark"
		k.measured(t, must(w.BeginTask(ctx, first))(t), rng)
		before := reads(t, r)
		second := newTask("gemm 2", "bob")
		second.Partial, second.CaptureID, second.Tags, second.Note = true, "c-2", map[string]string{"node": "a3"}, "a remark"
		group := must(w.BeginGroup(ctx, store.NewGroup{Name: "train", User: "bob", Launched: epoch, Members: []store.GroupMember{{GPU: "H200"}}}))(t)
		second.Group = store.GroupRef{Group: group}
		id := must(w.BeginTask(ctx, second))(t)
		nowhere := func(when string) {
			t.Helper()
			for what, now := range reads(t, r) {
				if !reflect.DeepEqual(now, before[what]) {
					t.Errorf("%s: %s: %+v\nwant %+v", when, what, now, before[what])
				}
			}
			absent(t, r, id)
			if g := must(r.Group(ctx, group))(t); g.Members[0].Task != 0 {
				t.Errorf("%s: its group has it", when)
			}
		}
		nowhere("begun")
		s := randomSetup(rng, measure.Timebase{TickHz: 1e6, TicksPerScan: 50})
		ok(t, w.PutHeader(ctx, id, header(s)))
		chunks, _ := randomChunks(t, rng, s)
		ok(t, w.AppendChunks(ctx, id, chunks, nil))
		ok(t, w.PutKernels(ctx, id, []store.Kernel{{Name: "k", Start: epoch, End: epoch.Add(time.Second)}}))
		nowhere("with samples")
		if x := must(w.Task(ctx, id))(t); x.Chunks != uint64(len(chunks)) {
			t.Errorf("the handle that stores it reads %d chunks of %d", x.Chunks, len(chunks))
		}
		if n := must(w.Sweep(ctx))(t); n != 0 {
			t.Errorf("%d tasks of a process that runs were swept", n)
		}
		ok(t, w.Finish(ctx, id, store.Outcome{State: store.Untrimmed, Reason: "no window"}))
		x := must(r.Task(ctx, id))(t)
		if x.State != store.Untrimmed || x.Chunks != uint64(len(chunks)) || x.Cold || x.Owner != "" {
			t.Errorf("published: state %d, %d chunks, cold %v, owner %q", x.State, x.Chunks, x.Cold, x.Owner)
		}
		for what, now := range reads(t, r) {
			if what != "list of a user" && what != "list that run" && what != "unfinished" && what != "totals by 4" && reflect.DeepEqual(now, before[what]) {
				t.Errorf("published: %s is as before: %+v", what, now)
			}
		}
	})
}

// What a process that is gone has left is named by a check and swept; an interrupted copy
// can be continued for a day.
func TestPartialTasksOfTheDeadAreSwept(t *testing.T) {
	everywhere(t, func(t *testing.T, address string) {
		ctx, rng := t.Context(), rand.New(rand.NewPCG(7, 2))
		from := openFile(t)
		k := talk{d: from, ctx: ctx}
		id := must(from.BeginTask(ctx, newTask("gemm", "lab")))(t)
		k.measured(t, id, rng)
		d := openAt(t, address)
		n := newTask("import", "lab")
		n.Partial = true
		imported := must(d.BeginTask(ctx, n))(t)
		s := randomSetup(rng, measure.Timebase{TickHz: 1e6, TicksPerScan: 50})
		ok(t, d.PutHeader(ctx, imported, header(s)))
		chunks, _ := randomChunks(t, rng, s)
		ok(t, d.AppendChunks(ctx, imported, chunks, nil))
		stopped, stop := context.WithCancel(ctx)
		if _, err := from.CopyTask(stopped, d, id, store.CopyOptions{Samples: func(uint64) { stop() }}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		change := func(text string) { t.Helper(); execAt(t, address, text) }
		change(`UPDATE task SET owner=replace(owner, 'start=', 'start=9')`)
		if swept := must(d.Sweep(ctx))(t); swept != 1 {
			t.Errorf("%d tasks were swept, want the import alone", swept)
		}
		if !strings.HasPrefix(d.Path(), "postgres") {
			found := must(d.Check(ctx, store.CheckOptions{}))(t).Findings
			if len(found) != 1 || found[0].Kind != store.Unfinished || !strings.Contains(found[0].Remedy, "copy again") {
				t.Errorf("check says %+v", found)
			}
		}
		change(`UPDATE task SET owner='pid=1 start=1 space=x boot=x host=elsewhere', stored_ns=stored_ns-90000000000000`)
		if swept := must(d.Sweep(ctx))(t); swept != 0 {
			t.Error("a copy was swept that another machine makes")
		}
		done := must(from.CopyTask(ctx, d, id, store.CopyOptions{}))(t)
		if !done.Resumed {
			t.Errorf("copied again: %+v", done)
		}
		change(`UPDATE task SET state=6, cold=2, owner='pid=1 start=1 space=x boot=x host=elsewhere', stored_ns=stored_ns-700000000000000`)
		if swept := must(d.Sweep(ctx))(t); swept != 1 {
			t.Errorf("%d tasks of a week ago were swept", swept)
		}
		var left int
		ok(t, d.SQL().QueryRowContext(ctx, `SELECT (SELECT count(*) FROM task)+(SELECT count(*) FROM chunk)`).Scan(&left))
		if left != 0 {
			t.Errorf("%d rows are left", left)
		}
	})
}

// A task whose state alone was changed to partial is damage: a check says how to show it
// again, a repair and a sweep leave it, and what is salvaged has it.
func TestChangedStateDeletesNoTask(t *testing.T) {
	coverage.Long(t)
	everywhere(t, func(t *testing.T, address string) {
		ctx := t.Context()
		d := openAt(t, address)
		k := talk{d: d, ctx: ctx}
		id := must(d.BeginTask(ctx, newTask("gemm", "lab")))(t)
		k.measured(t, id, rand.New(rand.NewPCG(7, 3)))
		want := must(d.Task(ctx, id))(t)
		for _, change := range []string{"cold=0", "cold=0, owner='pid=1 start=1 space=x boot=x host=elsewhere'", "cold=2, owner=NULL", "cold=2, owner=''"} {
			execAt(t, address, `UPDATE task SET state=6, stored_ns=1, `+change)
			if swept := must(d.Sweep(ctx))(t); swept != 0 {
				t.Fatalf("%s: %d tasks were swept", change, swept)
			}
			if !strings.HasPrefix(d.Path(), "postgres") {
				changedState(t, d, id)
			}
			execAt(t, address, fmt.Sprintf(`UPDATE task SET owner=NULL, cold=0, state=%d`, want.State))
			if x := must(d.Task(ctx, id))(t); x.Chunks != want.Chunks || x.State != want.State {
				t.Errorf("%s: shown again: state %d, %d chunks of %d", change, x.State, x.Chunks, want.Chunks)
			}
		}
	})
}

func changedState(t *testing.T, d *store.DB, id store.TaskID) {
	t.Helper()
	found := must(d.Check(t.Context(), store.CheckOptions{Quick: true}))(t).Findings
	i := slices.IndexFunc(found, func(f store.Finding) bool { return f.Kind == store.BadState })
	if i < 0 || found[i].Task != id || found[i].Mendable || !strings.Contains(found[i].Remedy, "UPDATE task SET state=2") {
		t.Fatalf("check says %+v", found)
	}
	if r := must(d.Repair(t.Context(), found[i:i+1]))(t); len(r.Left) != 1 {
		t.Errorf("repair: %+v", r)
	}
	saved := filepath.Join(t.TempDir(), "saved.db")
	must(store.Salvage(t.Context(), d.Path(), saved, nil))(t)
	s := openAt(t, saved)
	if x := must(s.Task(t.Context(), id))(t); x.State != store.Incomplete || !strings.HasPrefix(x.Reason, "its state was damaged") || x.Chunks == 0 {
		t.Errorf("salvaged: state %d with %d chunks: %s", x.State, x.Chunks, x.Reason)
	}
}
