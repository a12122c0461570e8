package perf

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
)

// madeCapture is a synthetic capture that is encoded and stored as fast as both go, without
// a meter and a network.
type madeCapture struct {
	G     *generator
	Rate  measure.Hertz // of its samples
	Scans uint64
	// steady leaves the kernels out: the counts then repeat with the generator's period.
	steady bool
}

// chunksAtOnce is the number of chunks in a transaction, as of a host that is behind.
const chunksAtOnce = 4

// Store encodes and stores the capture as a new task, in two goroutines, and returns the
// time until all is durable. Rate must be set; the task ends Incomplete, without a result.
func (m *madeCapture) Store(ctx context.Context, db *store.DB, name string,
) (id store.TaskID, took time.Duration, err error) {
	in := m.G.Inputs()
	in.Timebase.TickHz = m.Rate
	s, err := m.G.Setup(in)
	if err != nil {
		return 0, 0, err
	}
	if id, err = db.BeginTask(ctx, store.NewTask{Name: name, User: "bench", Launched: time.Now()}); err != nil {
		return 0, 0, err
	}
	if err := db.PutHeader(ctx, id, store.Header{
		Bench: "generator", Setup: s, CalibrationID: s.CalibrationID(),
	}); err != nil {
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

// code encodes the chunks and sends them in batches. Kernels of 0.05 to 5 s alternate with
// rest; noise, steps and ripple are the generator's. It blocks while the store is behind.
func (m *madeCapture) code(ctx context.Context, tb measure.Timebase, out chan<- []*chunk.Chunk) error {
	e, err := chunk.NewEncoder(tb, len(m.G.busy), chunk.MaxScans)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(3, 5))
	b := measure.Block{Counts: make([][]measure.Count, len(m.G.busy))}
	no, busy, until := uint64(0), false, uint64(0)
	if m.steady {
		busy, until = true, m.Scans
	}
	var batch []*chunk.Chunk
	send := func() error {
		batch = append(batch, e.Flush(no).Clone())
		no++
		if len(batch) < chunksAtOnce && b.FirstScan < m.Scans {
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
	for b.FirstScan < m.Scans {
		if b.FirstScan >= until {
			busy, until = !busy, b.FirstScan+uint64(float64(m.Rate)*(0.05+4.95*rng.Float64()))
		}
		at := b.FirstScan % generatorPeriod
		// A block must not cross the table's end, a change of load, or the capture's end.
		n := min(generatorBlock, generatorPeriod-at, until-b.FirstScan, m.Scans-b.FirstScan)
		for c := range b.Counts {
			b.Counts[c] = m.G.quiet[c][at : at+n]
			if busy {
				b.Counts[c] = m.G.busy[c][at : at+n]
			}
		}
		b.FirstTick = int64(b.FirstScan)
		took, err := e.Append(&b)
		if err != nil {
			return fmt.Errorf("code scan %d: %w", b.FirstScan, err)
		}
		b.FirstScan += uint64(took)
		if e.Full() || b.FirstScan == m.Scans {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return nil
}

// longRateHz is the sample rate of a long made-up capture.
const longRateHz = 100e3
