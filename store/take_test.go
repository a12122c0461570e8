package store

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"testing"

	"wattmark/measure/chunk"
)

// bare makes a file of all of a task but its samples.
func bare(t *testing.T, d *DB, id TaskID) *DB {
	t.Helper()
	out := must(Open(t.Context(), filepath.Join(t.TempDir(), "bare.db")))(t)
	t.Cleanup(func() { ok(t, out.Close()) })
	in := must(out.Import(t.Context(), d, ImportOptions{Tasks: []TaskID{id}, KeepIDs: true, NoSamples: true}))(t)
	if n := len(payloads(t, out, in.Tasks[0].To, 0)); n != 0 {
		t.Fatalf("%d chunks in a file without samples", n)
	}
	return out
}

// arriving hands out a task's chunks, and ends with why after so many of them.
func arriving(t *testing.T, d *DB, id TaskID, most int, why error) Arriving {
	t.Helper()
	var a Arriving
	for c, err := range d.Chunks(t.Context(), id, 0) {
		ok(t, err)
		a.CRCs = append(a.CRCs, c.CRC)
	}
	a.Chunks = func(ctx context.Context, from uint64) iter.Seq2[*chunk.Chunk, error] {
		return func(yield func(*chunk.Chunk, error) bool) {
			n := 0
			for c, err := range d.Chunks(ctx, id, from) {
				if n == most {
					yield(nil, why)
					return
				}
				if n++; !yield(c, err) {
					return
				}
			}
		}
	}
	return a
}

func TestTakeTask(t *testing.T) {
	noRaces(t)
	from, to := open(t), open(t)
	captured(t, to, "other", "ada", "c-9", 9) // numbers differ
	id := captured(t, from, "gemm", "ada", "c-1", 1)
	meta := bare(t, from, id)
	gone := errors.New("the line broke")
	_, err := to.TakeTask(t.Context(), meta, id, arriving(t, from, id, 2, gone))
	if !errors.Is(err, gone) {
		t.Fatalf("%v", err)
	}
	if _, err := to.Task(t.Context(), 2); !errors.Is(err, ErrNotFound) {
		t.Errorf("a task half taken is shown: %v", err)
	}
	got := must(to.TakeTask(t.Context(), meta, id, arriving(t, from, id, -1, nil)))(t)
	if !got.Resumed || got.To != 2 || got.Chunks != 5 || got.Scans != 3000 {
		t.Errorf("%+v", got)
	}
	same(t, from, id, to, got.To)
	if f := check(t, to); len(f) > 0 {
		t.Errorf("%+v", f)
	}
	again := must(to.TakeTask(t.Context(), meta, id, arriving(t, from, id, 0, errors.New("nothing is read"))))(t)
	if !again.Known || again.To != 2 {
		t.Errorf("taken again: %+v", again)
	}
}

// A cold task travels as it was before it was packed.
func TestTakeColdTask(t *testing.T) {
	noRaces(t)
	from, to := open(t), open(t)
	id := captured(t, from, "gemm", "ada", "c-1", 1)
	must(from.Compact(t.Context(), id))(t)
	got := must(to.TakeTask(t.Context(), bare(t, from, id), id, arriving(t, from, id, -1, nil)))(t)
	must(from.Expand(t.Context(), id))(t)
	same(t, from, id, to, got.To)
}

// Of a task whose samples are not those that were told, nothing stays.
func TestTakeTaskChecksItsSamples(t *testing.T) {
	noRaces(t)
	from, to := open(t), open(t)
	id := captured(t, from, "gemm", "ada", "c-1", 1)
	meta := bare(t, from, id)
	for name, spoil := range map[string]func(*Arriving){
		"another checksum": func(a *Arriving) { a.CRCs[4]++ },
		"one too few":      func(a *Arriving) { a.CRCs = append(a.CRCs, 1) },
	} {
		a := arriving(t, from, id, -1, nil)
		spoil(&a)
		if _, err := to.TakeTask(t.Context(), meta, id, a); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if s := must(to.Stats(t.Context()))(t); s.Tasks != 0 {
			t.Errorf("%s: %d tasks", name, s.Tasks)
		}
		var n int
		if ok(t, to.writer.QueryRow(`SELECT (SELECT count(*) FROM task)+(SELECT count(*) FROM chunk)`).Scan(&n)); n != 0 {
			t.Errorf("%s: %d rows are left", name, n)
		}
	}
}

func TestTagsFindTasks(t *testing.T) {
	noRaces(t)
	d := open(t)
	a, b := captured(t, d, "one", "ada", "c-1", 1), captured(t, d, "two", "ada", "c-2", 2)
	begin(t, d, threeRails(evenly)) // still runs
	ok(t, d.SetTags(t.Context(), a, map[string]string{"replicated": "now"}, nil))
	if ids := must(d.Untagged(t.Context(), "replicated", 10))(t); len(ids) != 1 || ids[0] != b {
		t.Errorf("without the tag: %v", ids)
	}
	if m := must(d.Tagged(t.Context(), "replicated"))(t); len(m) != 1 || m[a] != "now" {
		t.Errorf("with the tag: %v", m)
	}
	if id := must(d.OfCapture(t.Context(), "bench:7000", "c-2"))(t); id != b {
		t.Errorf("capture c-2 is of task %d", id)
	}
	if _, err := d.OfCapture(t.Context(), "elsewhere", "c-2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}
