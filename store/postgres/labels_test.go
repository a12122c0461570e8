package postgres_test

import (
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
		for i := range list {
			list[i].Notes = nil
		}
		k.say("search "+q.Search, err, list)
	}
	ids, err := k.d.TaskIDs(k.ctx)
	k.say("ids", err, ids)
	k.measured(t, id, rand.New(rand.NewPCG(9, 9)))
	k.say("delete", k.d.DeleteTask(k.ctx, id))
	list, err := k.d.Tasks(k.ctx, store.Query{Search: "gemm"})
	k.say("search", err, list)
}
