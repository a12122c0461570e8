package store

import (
	"context"
	"fmt"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/wall"
)

// AtWall returns what the whole machine took over a window by the meter at its wall, given the card's result
// there with the uncertainty of the window's ends. It reads the window's chunks twice. Errors wrap
// ErrNotFound, ErrNoHeader, ErrSpan, or those of package wall: ErrNone where there is no such meter.
func (d *DB) AtWall(ctx context.Context, id TaskID, card *measure.Result, e measure.Edges) (*wall.Result, error) {
	op := fmt.Sprintf("the whole machine's energy of task %d", id)
	setup, _, err := d.setupOf(ctx, id)
	if err != nil {
		return nil, wrap(op, err)
	}
	m, err := wall.New(setup, measure.Window{From: card.From, To: card.To})
	if err != nil {
		return nil, err
	}
	if err := d.eachBlock(ctx, id, setup, card.From-2*wall.Reach(setup), card.To, m.Add, m.Done); err != nil {
		return nil, wrap(op, err)
	}
	spans, err := m.Spans()
	if err != nil {
		return nil, err
	}
	w, err := measure.NewWindows(setup, spans)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := d.eachBlock(ctx, id, setup, spans[0].From, card.To, w.Add, w.Done); err != nil {
		return nil, wrap(op, err)
	}
	of := map[measure.Window]measure.Joule{}
	for i, g := range w.Integrators() {
		r, err := g.Result(measure.Edges{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		of[spans[i]] = r.Total.Energy
	}
	out := m.Result(card, e, of)
	return &out, nil
}

// eachBlock hands a task's blocks on, from the chunk before a span on until done.
func (d *DB) eachBlock(ctx context.Context, id TaskID, s *measure.Setup, from, to measure.Seconds,
	add func(*measure.Block) error, done func() bool,
) error {
	first, err := d.spanFirst(ctx, id, s.Timebase, from, to)
	if err != nil {
		return err
	}
	for b, err := range chunk.DecodeAll(d.Chunks(ctx, id, first), s) {
		if err == nil {
			err = add(b)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || done() {
			return err
		}
	}
	return nil
}
