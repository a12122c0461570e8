package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

func TestLabelsAndProvenance(t *testing.T) {
	noRaces(t)
	d, ctx := open(t), t.Context()
	n := newTask("gemm-fp16_4096", "lab")
	n.Tags, n.Note = map[string]string{"node": "a3", "cooler": "water"}, "first light"
	n.Provenance = &Provenance{
		Host: "gpu1", OS: "linux/amd64", Version: "1", MonitorVersion: "2", Directory: "/src", GitCommit: "abc", GitDirty: true,
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
	ok(t, d.DeleteTask(ctx, id))
	if got := search(Query{Search: "gemm"}); got != nil {
		t.Errorf("found after it was deleted: %v", got)
	}
	if r := must(d.Check(ctx, CheckOptions{}))(t); len(r.Findings) > 0 {
		t.Errorf("%+v", r.Findings)
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
	_, noteErr := d.AddNote(ctx, 99, epoch, "x")
	for _, err := range []error{
		d.SetTags(ctx, 99, map[string]string{"a": "b"}, nil), noteErr, d.RemoveNote(ctx, id, 7), d.Pin(ctx, 99, true), d.PutProvenance(ctx, 99, Provenance{}),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("of what is not there: %v", err)
		}
	}
}
