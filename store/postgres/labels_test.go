package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/store"
)

// TestLabelsAsInAFile tags, notes, pins, searches and packs tasks in a file and on
// a server, which must say the same.
func TestLabelsAsInAFile(t *testing.T) {
	file, server := talk{d: openFile(t), ctx: t.Context()}, talk{d: open(t), ctx: t.Context()}
	for _, k := range []*talk{&file, &server} {
		labelled(t, k)
	}
	for i := range file.said {
		if diff := cmp.Diff(file.said[i], server.said[i], nans...); diff != "" {
			t.Fatalf("answer %d, %s: (-file +server)\n%s", i, file.said[i].Call, diff)
		}
	}
	if len(server.said) != len(file.said) {
		t.Fatalf("%d and %d answers", len(file.said), len(server.said))
	}
}

func labelled(t *testing.T, k *talk) {
	n := newTask("gemm 4096 fp16", "lab")
	n.Tags = map[string]string{"node": "n-17", "sweep": "a/b"}
	n.Provenance = &store.Provenance{Host: "h", OS: "linux", Command: []string{"./gemm", "é"}, GitCommit: "abc", GitDirty: true}
	id, err := k.d.BeginTask(k.ctx, n)
	k.say("begin", err, id)
	no, err := k.d.AddNote(k.ctx, id, epoch, "first light; fan at 30 %")
	k.say("note", err, no)
	second, err := k.d.BeginTask(k.ctx, newTask("gemv", "lab"))
	k.say("begin", err, second)
	k.say("tags", k.d.SetTags(k.ctx, id, map[string]string{"node": "n-18", "new": ""}, []string{"sweep"}))
	k.say("tags of none", k.d.SetTags(k.ctx, 99, map[string]string{"a": "b"}, nil))
	for _, text := range []string{"the fan stood still", "it runs again"} {
		no, err := k.d.AddNote(k.ctx, second, epoch, text)
		k.say("note", err, no)
	}
	k.say("remove note", k.d.RemoveNote(k.ctx, second, 1))
	k.say("pin", k.d.Pin(k.ctx, second, true))
	for _, q := range []store.Query{
		{Search: "gemm"},
		{Search: "fan 30"},
		{Search: "runs ag"},
		{Search: "n-18"},
		{Search: "n-17"},
		{Search: "stood"},
		{Search: `"; DROP`},
		{Tags: map[string]string{"node": "n-18"}},
		{Tags: map[string]string{"new": ""}},
		{Name: "gem*"},
	} {
		list, err := k.d.Tasks(k.ctx, q)
		k.say("search "+q.Search, err, list)
	}
	yes := true
	k.say("relabel", k.d.Relabel(k.ctx, id, store.Relabelling{Set: map[string]string{"узел": "a'b"}, Only: true, Pinned: &yes}))
	k.say("relabel none", k.d.Relabel(k.ctx, 99, store.Relabelling{Only: true}))
	k.say("tags", k.d.SetTags(k.ctx, id, map[string]string{"node": "n-18"}, nil))
	k.say("tags", k.d.SetTags(k.ctx, second, map[string]string{"node": "n-19"}, nil))
	for _, f := range []store.Filter{
		{Tags: []store.Tag{{Key: "node"}}, Without: []store.Tag{{Key: "node", Value: "n-19"}}},
		{Tags: []store.Tag{{Key: "узел", Value: "a'b"}}},
		{Without: []store.Tag{{Key: "узел"}}, Search: "gem runs"},
		{Search: "A'B n"},
		{Search: "- gemm"},
		{Search: "-"},
	} {
		page, err := k.d.List(k.ctx, store.ListQuery{Filter: f})
		k.say(fmt.Sprintf("list %+v", f), err, page)
		rows, err := k.d.Aggregate(k.ctx, store.AggregateQuery{Filter: f, By: store.ByTag, Tag: "node"})
		k.say(fmt.Sprintf("by tag %+v", f), err, rows)
	}
	for by := store.ByUser; by <= store.ByTag; by++ {
		rows, err := k.d.Aggregate(k.ctx, store.AggregateQuery{By: by, Tag: "node", Offset: 3600})
		k.say(fmt.Sprintf("by %d", by), err, rows)
	}
	for _, f := range []store.Filter{{Name: "*m*v"}, {Name: "*[x]*"}, {Name: `g?m? \\*`}, {Name: "%*%"}, {Name: "???v*?"}, {Name: "*_*"}, {GPU: "H2"}} {
		page, err := k.d.List(k.ctx, store.ListQuery{Filter: f, Order: store.ByName})
		k.say(fmt.Sprintf("list %+v", f), err, page)
	}
	sum, err := k.d.Totals(k.ctx, store.Filter{Name: "g*[x]*", GPU: "h", MinDuration: 1})
	k.say("totals", err, sum)
	list, err := k.d.Tasks(k.ctx, store.Query{Without: []store.Tag{{Key: "node", Value: "n-19"}}})
	k.say("without", err, len(list))
	marks, err := k.d.Marks(k.ctx, 1, nil)
	k.say("marks", err, len(marks)) // their sums count within one database
	ids, err := k.d.TaskIDs(k.ctx)
	k.say("ids", err, ids)
	k.measured(t, id, rand.New(rand.NewPCG(9, 9)))
	k.say("delete", k.d.DeleteTask(k.ctx, id))
	list, err = k.d.Tasks(k.ctx, store.Query{Search: "gemm"})
	k.say("search", err, list)
}
