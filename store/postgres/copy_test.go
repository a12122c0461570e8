package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/store"
)

// TestCopyThereAndBack copies a file's tasks to a server and from there to a new
// file, where they must be what they were.
func TestCopyThereAndBack(t *testing.T) {
	ctx := t.Context()
	first, server, last := openFile(t), open(t), openFile(t)
	rng := rand.New(rand.NewPCG(5, 5))
	k := talk{d: first, ctx: ctx}
	group := must(first.BeginGroup(ctx, store.NewGroup{Name: "two", User: "lab", Launched: epoch, Members: []store.GroupMember{{GPU: "H200"}, {GPU: "H200", Reason: "none"}}}))(t)
	for i := range 4 {
		n := newTask("gemm", []string{"lab", "Lab"}[i%2])
		n.CaptureID = string(rune('a' + i))
		if i == 2 {
			n.Group = store.GroupRef{Group: group}
		}
		id := must(first.BeginTask(ctx, n))(t)
		if i > 0 {
			k.measured(t, id, rng)
		}
	}
	k.analyses()
	k.instructions()
	copyAll(t, first, server)
	copyAll(t, server, last)
	for id := store.TaskID(2); id <= 4; id++ {
		was, is := talk{d: first, ctx: ctx}, talk{d: last, ctx: ctx}
		was.everything(id)
		is.everything(id - 1) // the first still ran, and was left out
		for i := range was.said {
			for _, s := range []*said{&was.said[i], &is.said[i]} {
				if x, isTask := firstOf(s.Values).(store.Task); isTask {
					x.ID = 0
					s.Values[0] = x
				}
			}
			if diff := cmp.Diff(was.said[i], is.said[i], nans...); diff != "" {
				t.Fatalf("task %d, %s: (-first file +last file)\n%s", id, was.said[i].Call, diff)
			}
		}
	}
	for _, d := range []*store.DB{server, last} {
		if got := must(d.Group(ctx, 1))(t); got.Members[0].Task != 2 || got.Members[1].Reason != "none" {
			t.Errorf("the group is %+v", got)
		}
		if n := len(must(d.Analyses(ctx, ""))(t)); n != 2 {
			t.Errorf("%d analyses, want 2", n)
		}
	}
}

// A seal that a server made holds in a file, and the other way round.
func TestSealsHoldInEveryDatabase(t *testing.T) {
	file, server, last := openFile(t), open(t), openFile(t)
	for i, d := range []*store.DB{file, server} {
		n := newTask("gemm", "lab")
		n.CaptureID = string(rune('a' + i))
		k := talk{d: d, ctx: t.Context()}
		k.measured(t, must(d.BeginTask(t.Context(), n))(t), rand.New(rand.NewPCG(uint64(i), 5)))
	}
	for _, way := range [][2]*store.DB{{file, server}, {server, last}} {
		for _, x := range must(way[0].Tasks(t.Context(), store.Query{}))(t) {
			must(way[0].CopyTask(t.Context(), way[1], x.ID, store.CopyOptions{}))(t)
		}
	}
	for _, d := range []*store.DB{file, last} {
		var tasks, sealed int
		ok(t, d.SQL().QueryRow(`SELECT count(*), count(seal) FROM task`).Scan(&tasks, &sealed))
		if sealed != tasks || d == last && tasks != 2 {
			t.Errorf("%d of %d tasks are sealed", sealed, tasks)
		}
		for _, f := range must(d.Check(t.Context(), store.CheckOptions{}))(t).Findings {
			if f.Kind == store.BadSeal || f.Kind == store.BadCalibration {
				t.Errorf("%+v", f)
			}
		}
	}
}

func firstOf(v []any) any {
	if len(v) == 0 {
		return nil
	}
	return v[0]
}

// copyAll copies what does not run any more, twice: the second time all is known.
func copyAll(t *testing.T, from, to *store.DB) {
	t.Helper()
	ids := map[store.TaskID]store.TaskID{}
	for round := range 2 {
		list := must(from.Tasks(t.Context(), store.Query{}))(t)
		for i := range list {
			x := must(from.Task(t.Context(), list[len(list)-1-i].ID))(t)
			done, err := from.CopyTask(t.Context(), to, x.ID, store.CopyOptions{})
			if x.State == store.Running {
				if !errors.Is(err, store.ErrRunning) {
					t.Fatalf("a task that runs: %v", err)
				}
				continue
			}
			ok(t, err)
			if done.Known != (round == 1) || len(done.Differs) > 0 || round == 0 && (done.Chunks != x.Chunks || done.Scans != x.Scans || done.Rows == 0) {
				t.Fatalf("round %d: %+v of %d chunks and %d scans", round, done, x.Chunks, x.Scans)
			}
			ids[x.ID] = done.To
		}
		if n := must(from.CopyAnalyses(t.Context(), to, ids))(t); (n == 0) != (round == 1) {
			t.Fatalf("round %d: %d analyses were copied", round, n)
		}
	}
}

// TestCopyGoesOnWhereItWasInterrupted breaks a copy off behind its samples.
func TestCopyGoesOnWhereItWasInterrupted(t *testing.T) {
	from, to := openFile(t), open(t)
	k := talk{d: from, ctx: t.Context()}
	id := must(from.BeginTask(t.Context(), newTask("gemm", "lab")))(t)
	k.measured(t, id, rand.New(rand.NewPCG(5, 6)))
	ctx, stop := context.WithCancel(t.Context())
	_, err := from.CopyTask(ctx, to, id, store.CopyOptions{Samples: func(uint64) { stop() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("an interrupted copy says %v", err)
	}
	if _, err := to.Task(t.Context(), 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("half a copy is shown: %v", err)
	}
	if ids := must(to.TaskIDs(t.Context()))(t); len(ids) != 0 {
		t.Errorf("half a copy is listed: %v", ids)
	}
	if n := must(to.Sweep(t.Context()))(t); n != 0 {
		t.Errorf("half a copy of a process that runs was swept")
	}
	done := must(from.CopyTask(t.Context(), to, id, store.CopyOptions{}))(t)
	if !done.Resumed || done.Known || done.To != 1 {
		t.Errorf("the second copy says %+v", done)
	}
	if got := must(to.Task(t.Context(), 1))(t); got.State != store.Complete || got.Scans == 0 {
		t.Errorf("the copy is in state %d with %d scans", got.State, got.Scans)
	}
}

// TestCopyTellsAndUpdatesWhatDiffers changes tasks behind a copy's back, on a server
// and in a file.
func TestCopyTellsAndUpdatesWhatDiffers(t *testing.T) {
	ctx := t.Context()
	first, server, last := openFile(t), open(t), openFile(t)
	for i, pair := range [][2]*store.DB{{first, server}, {server, last}} {
		from, to := pair[0], pair[1]
		if i == 0 {
			n := newTask("gemm", "lab")
			n.Tags, n.Note, n.Provenance = map[string]string{"node": "a"}, "first", &store.Provenance{Host: "h"}
			id := must(from.BeginTask(ctx, n))(t)
			k := talk{d: from, ctx: ctx}
			k.measured(t, id, rand.New(rand.NewPCG(6, 6)))
		}
		done := must(from.CopyTask(ctx, to, 1, store.CopyOptions{}))(t)
		differs := func(o store.CopyOptions, want ...string) {
			t.Helper()
			x := must(from.CopyTask(ctx, to, 1, o))(t)
			if d := cmp.Diff(want, x.Differs); d != "" || !x.Known || x.Updated != (o.Update && len(want) > 0) || x.To != done.To {
				t.Fatalf("%d: %s in %+v", i, d, x)
			}
		}
		differs(store.CopyOptions{Update: true})
		ok(t, to.SetTags(ctx, done.To, map[string]string{"own": "x"}, nil))
		differs(store.CopyOptions{}, "tags")
		differs(store.CopyOptions{Update: true}, "tags")
		ok(t, from.SetTags(ctx, 1, map[string]string{"node": []string{"b", "c"}[i]}, nil))
		must(from.AddNote(ctx, 1, epoch, "second"))(t)
		ok(t, from.Pin(ctx, 1, i == 0))
		ok(t, from.PutProvenance(ctx, 1, store.Provenance{Host: []string{"other", "third"}[i]}))
		differs(store.CopyOptions{}, "notes", "pin", "provenance", "tags")
		before := must(to.Task(ctx, done.To))(t)
		if before.Provenance.Host == []string{"other", "third"}[i] || len(before.Notes) != 1+i {
			t.Errorf("%d: it was touched: %+v", i, before.Notes)
		}
		x := must(from.Task(ctx, 1))(t)
		x.Setup.Channels[0].Gain *= 1.01
		x.Result.Total.Energy *= 1.01
		if _, _, err := from.AddResult(ctx, 1, x.Setup, x.Result); err != nil {
			t.Fatal(err)
		}
		differs(store.CopyOptions{}, "notes", "pin", "provenance", "results", "tags")
		differs(store.CopyOptions{Update: true}, "notes", "pin", "provenance", "results", "tags")
		differs(store.CopyOptions{Update: true})
		was, is := talk{d: from, ctx: ctx}, talk{d: to, ctx: ctx}
		was.everything(1)
		is.everything(done.To)
		if d := cmp.Diff(was.said, is.said, nans...); d != "" {
			t.Fatalf("%d: (-from +to)\n%s", i, d)
		}
	}
}
