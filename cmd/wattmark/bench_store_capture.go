package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// madeCapture is a capture that is coded and stored as fast as both go, without a
// meter and a network.
type madeCapture struct {
	g     *generator
	rate  measure.Hertz // of its samples
	scans uint64
	// steady leaves the kernels out: the counts are then the generator's, period by period.
	steady bool
}

// chunksAtOnce is how many chunks go into one transaction, as a host does that is
// behind.
const chunksAtOnce = 4

// store makes a task of it, and returns how long it took until all was durable.
func (m *madeCapture) store(ctx context.Context, db *store.DB, name string) (id store.TaskID, took time.Duration, err error) {
	in := m.g.Inputs()
	in.Timebase.TickHz = m.rate
	s, err := m.g.setup(in)
	if err != nil {
		return 0, 0, err
	}
	if id, err = db.BeginTask(ctx, store.NewTask{Name: name, User: "bench", Launched: time.Now()}); err != nil {
		return 0, 0, err
	}
	if err := db.PutHeader(ctx, id, store.Header{Bench: "generator", Setup: s, CalibrationID: s.CalibrationID()}); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	batches := make(chan []*chunk.Chunk, 2)
	work, wctx := errgroup.WithContext(ctx)
	work.Go(func() error {
		defer close(batches)
		return m.code(wctx, s.Timebase, batches)
	})
	work.Go(func() error {
		for b := range batches {
			if err := db.AppendChunks(wctx, id, b, nil); err != nil {
				return err
			}
		}
		return wctx.Err()
	})
	if err := work.Wait(); err != nil {
		return 0, 0, err
	}
	err = db.Finish(ctx, id, store.Outcome{State: store.Incomplete, Reason: "made by a benchmark"})
	return id, time.Since(begin), err
}

// code makes the chunks. Kernels of 0.05 to 5 s come and go; noise, steps and ripple
// are the generator's.
func (m *madeCapture) code(ctx context.Context, tb measure.Timebase, out chan<- []*chunk.Chunk) error {
	e, err := chunk.NewEncoder(tb, len(m.g.busy), chunk.MaxScans)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(3, 5))
	b := measure.Block{Counts: make([][]measure.Count, len(m.g.busy))}
	no, busy, until := uint64(0), false, uint64(0)
	if m.steady {
		busy, until = true, m.scans
	}
	var batch []*chunk.Chunk
	send := func() error {
		batch = append(batch, e.Flush(no).Clone())
		no++
		if len(batch) < chunksAtOnce && b.FirstScan < m.scans {
			return nil
		}
		select {
		case out <- batch:
		case <-ctx.Done():
			return ctx.Err()
		}
		batch = nil
		return nil
	}
	for b.FirstScan < m.scans {
		if b.FirstScan >= until {
			busy, until = !busy, b.FirstScan+uint64(float64(m.rate)*(0.05+4.95*rng.Float64()))
		}
		at := b.FirstScan % generatorPeriod
		n := min(generatorBlock, generatorPeriod-at, until-b.FirstScan, m.scans-b.FirstScan)
		for c := range b.Counts {
			b.Counts[c] = m.g.quiet[c][at : at+n]
			if busy {
				b.Counts[c] = m.g.busy[c][at : at+n]
			}
		}
		b.FirstTick = int64(b.FirstScan)
		took, err := e.Append(&b)
		if err != nil {
			return fmt.Errorf("code scan %d: %w", b.FirstScan, err)
		}
		b.FirstScan += uint64(took)
		if e.Full() || b.FirstScan == m.scans {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return nil
}
