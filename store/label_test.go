package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
)

func TestLabelsAndProvenance(t *testing.T) {
	noRaces(t)
	d, ctx := open(t), t.Context()
	n := newTask("gemm-fp16_4096", "lab")
	n.Tags, n.Note = map[string]string{"node": "a3", "cooler": "water"}, "first light"
	n.Provenance = &Provenance{
		Host: "gpu1", OS: "linux/amd64", Version: "1", MonitorVersion: "2", Directory: "/src", GitCommit: "abc", GitDirty: true, TraceID: "0123456789abcdef0123456789abcdef",
		Command: []string{"wattmark", "run", "--", "./gemm", "\x1b[2J"},
	}
	id := must(d.BeginTask(ctx, n))(t)
	other := must(d.BeginTask(ctx, newTask("attention", "lab")))(t)
	ok(t, d.SetTags(ctx, id, map[string]string{"node": "b1", "psu": "x"}, []string{"cooler", "never"}))
	if no := must(d.AddNote(ctx, id, epoch, "fan at 40 %"))(t); no != 2 {
		t.Errorf("note %d", no)
	}
	ok(t, d.RemoveNote(ctx, id, 1))
	ok(t, d.Pin(ctx, id, true))
	got := must(d.Task(ctx, id))(t)
	if diff := cmp.Diff(map[string]string{"node": "b1", "psu": "x"}, got.Tags); diff != "" || !got.Pinned {
		t.Error(diff, got.Pinned)
	}
	if diff := cmp.Diff([]Note{{2, epoch, "fan at 40 %"}}, got.Notes); diff != "" {
		t.Error(diff)
	}
	want := *n.Provenance
	want.Command = []string{"wattmark", "run", "--", "./gemm", measure.Printable("\x1b[2J")}
	if diff := cmp.Diff(&want, got.Provenance); diff != "" {
		t.Error(diff)
	}
	if list := must(d.Tasks(ctx, Query{}))(t); list[1].Tags["psu"] != "x" || list[0].Tags != nil || !list[1].Pinned {
		t.Errorf("tags in a list: %+v", list)
	}
	search := func(q Query) (ids []TaskID) {
		for _, x := range must(d.Tasks(ctx, q))(t) {
			ids = append(ids, x.ID)
		}
		return ids
	}
	for _, c := range []struct {
		q    Query
		want []TaskID
	}{
		{Query{Search: "gemm fp16"}, []TaskID{id}},
		{Query{Search: "fp GEM"}, []TaskID{id}}, // beginnings of words, any case, any order
		{Query{Search: "fan"}, []TaskID{id}},
		{Query{Search: "first"}, nil}, // the note was removed
		{Query{Search: "b1"}, []TaskID{id}},
		{Query{Search: "water"}, nil},
		{Query{Search: `"`}, nil},
		{Query{Search: "att* OR gemm"}, nil}, // signs have no meaning
		{Query{Search: "att", Tags: map[string]string{"psu": ""}}, nil},
		{Query{Tags: map[string]string{"psu": "", "node": "b1"}}, []TaskID{id}},
		{Query{Tags: map[string]string{"node": "a3"}}, nil},
		{Query{Search: "  "}, []TaskID{other, id}},
	} {
		if diff := cmp.Diff(c.want, search(c.q)); diff != "" {
			t.Errorf("%+v: %s", c.q, diff)
		}
	}
	ok(t, d.DeleteTasks(ctx, []TaskID{id}, DeleteOptions{Pinned: true}))
	if got := search(Query{Search: "gemm"}); got != nil {
		t.Errorf("found after it was deleted: %v", got)
	}
	if r := must(d.Check(ctx, CheckOptions{}))(t); len(r.Findings) > 0 {
		t.Errorf("%+v", r.Findings)
	}
}

// Each change of labels changes the task's mark and no other's, and adding up by a
// tag knows those without it.
func TestRelabelling(t *testing.T) {
	noRaces(t)
	d, ctx := open(t), t.Context()
	n := newTask("gemm", "lab")
	n.Tags = map[string]string{"node": "a3", "cooler": "water"}
	id := must(d.BeginTask(ctx, n))(t)
	must(d.BeginTask(ctx, newTask("axpy", "lab")))(t)
	yes, no := true, false
	before := must(d.Marks(ctx, 1, nil))(t)
	for i, c := range []struct {
		r      Relabelling
		want   map[string]string
		pinned bool
	}{
		{Relabelling{Pinned: &yes}, map[string]string{"node": "a3", "cooler": "water"}, true},
		{Relabelling{Set: map[string]string{"node": "b1", "psu": "x"}, Remove: []string{"cooler", "never"}}, map[string]string{"node": "b1", "psu": "x"}, true},
		{Relabelling{Set: map[string]string{"node": "b2"}, Only: true, Pinned: &no}, map[string]string{"node": "b2"}, false},
		{Relabelling{Only: true}, nil, false},
	} {
		ok(t, d.Relabel(ctx, id, c.r))
		got := must(d.Task(ctx, id))(t)
		if diff := cmp.Diff(c.want, got.Tags); diff != "" || got.Pinned != c.pinned {
			t.Errorf("change %d: %s, pinned %v", i, diff, got.Pinned)
		}
		after := must(d.Marks(ctx, 2, []TaskID{id}))(t)
		if len(after) != 2 || after[0].Sum == before[0].Sum || after[1].Sum != before[1].Sum {
			t.Errorf("change %d: marks %v, then %v", i, before, after)
		}
		before = after
		rows := must(d.Aggregate(ctx, AggregateQuery{By: ByTag, Tag: "node"}))(t)
		if v := c.want["node"]; len(rows) == 0 || (v == "") != (len(rows) == 1) || rows[0].Key != "" || v != "" && rows[1].Key != v {
			t.Errorf("change %d: by node %+v", i, rows)
		}
	}
	must(d.AddNote(ctx, id, epoch, "fan"))(t)
	if after := must(d.Marks(ctx, 1, nil))(t); after[0].Sum == before[0].Sum {
		t.Error("a note changed no mark")
	}
}

func TestTagsToSelectBy(t *testing.T) {
	for s, want := range map[string]Tag{"a=b": {"a", "b"}, "a": {"a", ""}, "a=b=c": {"a", "b=c"}, "узел=核 1": {"узел", "核 1"}} {
		if got := must(ParseTag(s))(t); got != want {
			t.Errorf("%q: %+v", s, got)
		}
	}
	for _, s := range []string{"", "=b", "a=", "a b", "-a", "a\x1b=1", "a=\xff", strings.Repeat("k", 65)} {
		if got, err := ParseTag(s); err == nil {
			t.Errorf("%q is %+v", s, got)
		}
	}
	for words, want := range map[string]bool{"": true, "gemm fp16": true, "核 \t x": true, "\x00": false, "a\xff": false, strings.Repeat("a ", 33): false} {
		if err := CheckSearch(words); (err == nil) != want {
			t.Errorf("%q: %v", words, err)
		}
	}
}

func TestLabelsRefused(t *testing.T) {
	noRaces(t)
	d, ctx := open(t), t.Context()
	id := must(d.BeginTask(ctx, newTask("a", "b")))(t)
	for _, k := range []string{"", "a b", "a=b", "-a", "\x1b", strings.Repeat("k", 65)} {
		if err := d.SetTags(ctx, id, map[string]string{k: "v"}, nil); err == nil {
			t.Errorf("tag %q was taken", k)
		}
	}
	for _, note := range []string{"", " ", "\x1b[2J", strings.Repeat("x", 5000)} {
		if _, err := d.AddNote(ctx, id, epoch, note); err == nil {
			t.Errorf("note %.20q was taken", note)
		}
	}
	many := map[string]string{}
	for i := range maxTags {
		many[fmt.Sprint("k", i)] = ""
	}
	ok(t, d.SetTags(ctx, id, many, nil))
	ok(t, d.SetTags(ctx, id, map[string]string{"k0": "again"}, nil))
	if err := d.SetTags(ctx, id, map[string]string{"one more": ""}, nil); err == nil {
		t.Error("a key with a space was taken")
	}
	if err := d.SetTags(ctx, id, map[string]string{"more": ""}, nil); !errors.Is(err, ErrConflict) || len(must(d.Task(ctx, id))(t).Tags) != maxTags {
		t.Errorf("one tag more than there may be: %v", err)
	}
	_, err := d.writer.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<?) INSERT INTO task_note SELECT ?, i, 0, 'x' FROM n`, maxNotes, int64(id))
	ok(t, err)
	if _, err := d.AddNote(ctx, id, epoch, "x"); !errors.Is(err, ErrConflict) || len(must(d.Task(ctx, id))(t).Notes) != maxNotes {
		t.Errorf("one note more than there may be: %v", err)
	}
	_, noteErr := d.AddNote(ctx, 99, epoch, "x")
	for _, err := range []error{
		d.SetTags(ctx, 99, map[string]string{"a": "b"}, nil), noteErr, d.RemoveNote(ctx, id, 999), d.Pin(ctx, 99, true), d.PutProvenance(ctx, 99, Provenance{}),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("of what is not there: %v", err)
		}
	}
}
