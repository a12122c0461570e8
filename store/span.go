package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"wattmark/measure"
	"wattmark/measure/chunk"
)

// MaxSpanScans is the longest span that SpanEnergy integrates, so that one question
// cannot keep a processor for minutes: 55 minutes at 20 kHz are within it.
const MaxSpanScans = 1 << 26

// ErrSpan: a span of device time cannot be integrated.
var ErrSpan = errors.New("bad span")

// SpanEnergy integrates a task's power from one device time to another, under the
// calibration in use. It reads the chunks of the span and one on either side. The
// uncertainty takes the two times as exact. Errors wrap ErrNotFound, ErrNoHeader,
// ErrSpan or measure.ErrWindow.
func (d *DB) SpanEnergy(ctx context.Context, id TaskID, from, to measure.Seconds) (measure.Result, error) {
	op := fmt.Sprintf("integrate task %d from %v to %v", id, from, to)
	if err := d.shown(ctx, id); err != nil {
		return measure.Result{}, wrap(op, err)
	}
	setup, _, err := d.setupOf(ctx, id)
	if err != nil {
		return measure.Result{}, wrap(op, err)
	}
	g, err := measure.NewIntegrator(setup, from, to)
	if err != nil {
		return measure.Result{}, fmt.Errorf("%s: %w", op, err)
	}
	first, err := d.spanFirst(ctx, id, setup.Timebase, from, to)
	if err != nil {
		return measure.Result{}, wrap(op, err)
	}
	for b, err := range chunk.DecodeAll(d.Chunks(ctx, id, first), setup) {
		if err == nil {
			err = g.Add(b)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return measure.Result{}, wrap(op, err)
		}
		// Chunks behind the span add nothing.
		if _, last, ok := g.Covered(); ok && last > to {
			break
		}
	}
	r, err := g.Result(measure.Edges{})
	if errors.Is(err, measure.ErrNoData) { // it knows of the chunks near the span only
		lo, hi, _ := d.Extent(ctx, id)
		return measure.Result{}, fmt.Errorf("%s: %w: the task has samples from %v to %v", op, measure.ErrNoData, lo, hi)
	}
	if err != nil {
		return measure.Result{}, fmt.Errorf("%s: %w", op, err)
	}
	return r, nil
}

// spanFirst returns the chunk before the one that a span begins in: a rail's window
// may be moved by its channels' skew.
func (d *DB) spanFirst(ctx context.Context, id TaskID, tb measure.Timebase, from, to measure.Seconds) (uint64, error) {
	tick := tb.Ticks(from)
	no, err := d.lastChunk(ctx, id, func(_ uint64, first int64) bool { return float64(first) <= tick })
	if err != nil {
		return 0, err
	}
	a, err := d.scanAt(ctx, id, tb, from)
	if err != nil {
		return 0, err
	}
	b, err := d.scanAt(ctx, id, tb, to)
	if err != nil {
		return 0, err
	}
	if b-a > MaxSpanScans && b > a {
		return 0, fmt.Errorf("%w: %d samples: at most %d at once; part it, the parts add up", ErrSpan, b-a, uint64(MaxSpanScans))
	}
	var before sql.NullInt64
	err = d.reader.QueryRowContext(ctx, `SELECT max(chunk_no) FROM chunk WHERE task_id=? AND chunk_no<?`, int64(id), int64(no)).Scan(&before)
	if before.Valid {
		no = uint64(before.Int64)
	}
	return no, err
}

// Window returns the window of a task's result in use, in device time; ok is false
// where there is none. Errors wrap ErrNotFound.
func (d *DB) Window(ctx context.Context, id TaskID) (from, to measure.Seconds, ok bool, err error) {
	op := fmt.Sprintf("read the window of task %d", id)
	err = d.reader.QueryRowContext(ctx, `SELECT has_result, from_s, to_s FROM task t WHERE task_id=?`+d.unlessMine(id), int64(id)).Scan(&ok, realTo(&from), realTo(&to))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, false, fmt.Errorf("%s: %w", op, ErrNotFound)
	}
	return from, to, ok && from < to, wrap(op, err)
}
