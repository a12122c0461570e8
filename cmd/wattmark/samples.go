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
	from, to, err := db.Extent(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return drawTrace(ctx, db, t, from, to, columns)
}

// drawTrace draws a span of device time into columns, out of the task's pyramid.
func drawTrace(ctx context.Context, db *store.DB, t *store.Task, from, to measure.Seconds, columns int) (*trace, error) {
	e, err := db.Envelope(ctx, t.ID, from, to, columns)
	if err != nil {
		return nil, err
	}
	rails := len(t.Setup.Rails)
	tr := newTrace(e.From, e.To, e.Series[:rails], columns)
	for c := range columns {
		tr.counts[c] = int(e.Columns[0][c].N)
		for r := range rails {
			tr.rails[r][c] = e.Columns[r][c].Sum
			tr.total[c] += e.Columns[r][c].Sum
		}
	}
	tb := t.Setup.Timebase
	tr.finish(measure.Seconds(float64(tb.TicksPerScan) / float64(tb.TickHz)))
	return tr, nil
}
