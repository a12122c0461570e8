package postgres_test

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"

	"wattmark/measure/chunk"
	"wattmark/store"
)

// Several programs that take the same task at once store it once.
func TestTakenOnceBySeveral(t *testing.T) {
	ctx := t.Context()
	host, bare, server := openFile(t), openFile(t), open(t)
	k := talk{d: host, ctx: ctx}
	id := must(host.BeginTask(ctx, newTask("gemm", "lab")))(t)
	k.measured(t, id, rand.New(rand.NewPCG(5, 6)))
	must(bare.Import(ctx, host, store.ImportOptions{Tasks: []store.TaskID{id}, KeepIDs: true, NoSamples: true}))(t)
	a := store.Arriving{Chunks: func(ctx context.Context, from uint64) iter.Seq2[*chunk.Chunk, error] {
		return host.Chunks(ctx, id, from)
	}}
	for c, err := range host.Chunks(ctx, id, 0) {
		ok(t, err)
		a.CRCs = append(a.CRCs, c.CRC)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := server.TakeTask(ctx, bare, id, a); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ids := must(server.TaskIDs(ctx))(t); len(ids) != 1 {
		t.Fatalf("it is there %d times", len(ids))
	}
	x, want := must(server.Task(ctx, 1))(t), must(host.Task(ctx, id))(t)
	if x.State != want.State || x.Chunks != want.Chunks || x.Scans != want.Scans {
		t.Errorf("%v, %d chunks, %d scans; want %v, %d, %d", x.State, x.Chunks, x.Scans, want.State, want.Chunks, want.Scans)
	}
}
