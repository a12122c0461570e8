package postgres_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// thinned is a task of which most samples are deleted while it runs.
func thinned(t *testing.T, d *store.DB, capture string) (store.TaskID, measure.Result) {
	t.Helper()
	const scans, chunks = 1 << 14, 40
	ctx, n := t.Context(), newTask("serve", "lab")
	n.CaptureID = capture
	id := must(d.BeginTask(ctx, n))(t)
	s := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10},
		Channels: []measure.Channel{{Name: "i", Unit: measure.UnitAmpere, Gain: 0.001, MaxCount: 65535}, {Name: "v", Unit: measure.UnitVolt, Gain: 0.001, MaxCount: 65535}},
		Rails:    []measure.Rail{{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}},
	}
	ok(t, d.PutHeader(ctx, id, header(s)))
	rng, e := rand.New(rand.NewPCG(2, 3)), must(chunk.NewEncoder(s.Timebase, 2, scans))(t)
	g := must(measure.NewIntegrator(&s, 0.01, 6.5))(t)
	for no := range chunks {
		b := measure.Block{FirstScan: uint64(no * scans), FirstTick: int64(10 * no * scans), Counts: make([][]measure.Count, 2)}
		for c := range b.Counts {
			for range scans {
				b.Counts[c] = append(b.Counts[c], rng.Int32N(1<<16))
			}
		}
		must(e.Append(&b))(t)
		ok(t, g.Add(&b))
		ok(t, d.AppendChunks(ctx, id, []*chunk.Chunk{e.Flush(uint64(no))}, nil))
	}
	r := must(g.Result(measure.Edges{}))(t)
	next := must(d.Thin(ctx, id, 1, 6, []measure.Window{{From: 2, To: 2.1}}))(t)
	ok(t, d.Finish(ctx, id, store.Outcome{State: store.Complete, Result: &r}))
	if x := must(d.Task(ctx, id))(t); x.Chunks > 20 || x.Scans != scans*chunks || next < 20 {
		t.Fatalf("%d chunks, %d scans, goes on at %d", x.Chunks, x.Scans, next)
	}
	return id, r
}

// Samples are thinned on a server as in a file, and go there and back with the same energies.
func TestThinnedTasksThereAndBack(t *testing.T) {
	first, server, last := openFile(t), open(t), openFile(t)
	_, want := thinned(t, first, "a")
	thinned(t, server, "b")
	must(first.CopyTask(t.Context(), server, 1, store.CopyOptions{}))(t)
	for id := store.TaskID(1); id <= 2; id++ {
		must(server.CopyTask(t.Context(), last, id, store.CopyOptions{}))(t)
	}
	for name, d := range map[string]*store.DB{"first": first, "server": server, "last": last} {
		list := must(d.Tasks(t.Context(), store.Query{}))(t)
		for _, row := range list {
			got := must(d.SpanEnergy(t.Context(), row.ID, want.From, want.To))(t)
			if off := math.Abs(float64(got.Total.Energy/want.Total.Energy) - 1); !(off < 1e-12) || !row.Cold {
				t.Errorf("%s, task %d: %v, want %v; packed %v", name, row.ID, got.Total, want.Total, row.Cold)
			}
			if _, err := d.SpanEnergy(t.Context(), row.ID, 1, 2); !errors.Is(err, measure.ErrThinned) {
				t.Errorf("%s, task %d: from amid deleted samples: %v", name, row.ID, err)
			}
			if _, err := d.Expand(t.Context(), row.ID); !errors.Is(err, measure.ErrThinned) {
				t.Errorf("%s, task %d: expanded: %v", name, row.ID, err)
			}
		}
		if len(list) != map[string]int{"first": 1, "server": 2, "last": 2}[name] {
			t.Errorf("%s: %d tasks", name, len(list))
		}
	}
	if found := must(last.Check(t.Context(), store.CheckOptions{}))(t); len(found.Findings) > 0 {
		t.Errorf("%+v", found.Findings)
	}
}
