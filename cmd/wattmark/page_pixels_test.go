//go:build linux

package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// gapIn is a task in which samples are missing from one device time to another.
type gapIn struct {
	Task int64   `json:"task"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// What is drawn is what was measured, on every screen and at every zoom: of a recording of
// others, of an emulated meter, and of one that lost samples.
func TestPixelsInBrowser(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	pageModules(t)
	r := &rig{t: t, db: demoDB(t, pulseDemo)}
	gap := r.lossyTask()
	setup := pageSetup{Dense: []int64{1}, Gaps: []gapIn{gap}}
	// The recording is not in every checkout.
	if dir := filepath.Join("..", "..", "..", "shared", "data", "pmd", "3090-square"); inside(t, "replay", "--db", r.db, "--shift", "-50ms", "--utc-offset", "1h", dir).code == 0 {
		setup.Dense = append(setup.Dense, 3)
	}
	setup.URL = r.pageOf()
	visitPage(t, "pixels.mjs", setup)
}

// lossyTask is task 1 without the tenth of its scans from the middle on.
func (r *rig) lossyTask() gapIn {
	r.t.Helper()
	ctx := r.t.Context()
	db, err := store.Open(ctx, r.db)
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	whole, err := db.Task(ctx, 1)
	must(err)
	id, err := db.BeginTask(ctx, store.NewTask{Name: "lossy", User: "ada", Launched: time.Now()})
	must(err)
	must(db.PutHeader(ctx, id, store.Header{Bench: "lab", Setup: whole.Setup, CalibrationID: whole.CalibrationID, Started: time.Now()}))
	tb, first, behind := whole.Setup.Timebase, whole.Scans/2, whole.Scans*6/10
	enc, err := chunk.NewEncoder(tb, len(whole.Setup.Channels), chunk.MaxScans)
	must(err)
	var chunks []*chunk.Chunk
	for b, err := range chunk.DecodeAll(db.Chunks(ctx, 1, 0), &whole.Setup) {
		must(err)
		end := b.FirstScan + uint64(b.Scans())
		for _, keep := range [][2]uint64{{b.FirstScan, min(end, first)}, {max(b.FirstScan, behind), end}} {
			for at := keep[0]; at < keep[1]; {
				kept := b.Slice(tb, int(at-b.FirstScan), int(keep[1]-b.FirstScan))
				n, err := enc.Append(&kept)
				must(err)
				if at += uint64(n); at < keep[1] {
					chunks = append(chunks, enc.Flush(uint64(len(chunks))).Clone())
				}
			}
		}
	}
	chunks = append(chunks, enc.Flush(uint64(len(chunks))).Clone())
	lost := measure.Event{Kind: measure.EventGap, FirstScan: first, Scans: behind - first, Exact: true, Channel: -1}
	must(db.AppendChunks(ctx, id, chunks, []measure.Event{lost}))
	must(db.Finish(ctx, id, store.Outcome{State: store.Untrimmed, Reason: "no markers were found"}))
	scan := tb.TicksPerScan / float64(tb.TickHz)
	return gapIn{int64(id), float64(first) * scan, float64(behind) * scan}
}
