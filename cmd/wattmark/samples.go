package main

import (
	"context"
	"iter"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// blocks decodes a task's stored scans in order. The block is reused.
func blocks(ctx context.Context, db *store.DB, t *store.Task) iter.Seq2[*measure.Block, error] {
	return chunk.DecodeAll(db.Chunks(ctx, t.ID, 0), &t.Setup)
}

// loadTrace draws all stored scans of a task into columns.
func loadTrace(ctx context.Context, db *store.DB, t *store.Task, columns int) (*trace, error) {
	from, to, err := extent(ctx, db, t)
	if err != nil {
		return nil, err
	}
	return drawTrace(ctx, db, t, from, to, columns)
}

// drawTrace draws the scans of a span of device time into columns.
func drawTrace(ctx context.Context, db *store.DB, t *store.Task, from, to measure.Seconds, columns int) (*trace, error) {
	meter, err := measure.NewPowerMeter(&t.Setup)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range t.Setup.Rails {
		names = append(names, r.Name)
	}
	tr := newTrace(from, to, names, columns)
	cols := make([]measure.Columns, len(names))
	for b, err := range blocks(ctx, db, t) {
		if err != nil {
			return nil, err
		}
		for r := range cols {
			meter.Rail(r, b, &cols[r])
		}
		for i := range b.Scans() {
			c := tr.column(t.Setup.Timebase.Seconds(b.TickAt(t.Setup.Timebase, i)))
			if c < 0 {
				continue
			}
			tr.counts[c]++
			for r := range cols {
				tr.rails[r][c] += float64(cols[r].P[i])
				tr.total[c] += float64(cols[r].P[i])
			}
		}
	}
	tr.finish()
	return tr, nil
}

// extent is the span of device time that is stored.
func extent(ctx context.Context, db *store.DB, t *store.Task) (from, to measure.Seconds, err error) {
	tb, first := t.Setup.Timebase, true
	for c, err := range db.Chunks(ctx, t.ID, 0) {
		if err != nil {
			return 0, 0, err
		}
		at := tb.Seconds(float64(c.FirstTick))
		if first {
			from, first = at, false
		}
		to = at + tb.Seconds(float64(c.Scans)*tb.TicksPerScan)
	}
	return from, to, nil
}
