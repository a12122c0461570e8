package main

import (
	"context"
	"fmt"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
	"wattmark/store/exchange/textin"
)

// storeIncoming fills a Partial task and publishes it.
func storeIncoming(ctx context.Context, db *store.DB, id store.TaskID, in *incoming) error {
	if err := db.PutHeader(ctx, id, in.header); err != nil {
		return err
	}
	if in.before != nil {
		if err := in.before(ctx, db, id); err != nil {
			return err
		}
	}
	s := chunkStore{ctx: ctx, db: db, id: id, tb: in.header.Setup.Timebase, channels: in.header.Setup.Channels}
	var err error
	if s.encoder, err = chunk.NewEncoder(s.tb, len(in.header.Setup.Channels), importChunk); err != nil {
		return err
	}
	if err := in.stream(textin.Sink{Block: s.block, Event: s.event}); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	if !s.some {
		return fmt.Errorf("%w: it holds no samples", textin.ErrInput)
	}
	return in.finish(ctx, db, id, s.samples)
}

// importChunk is the number of scans of a chunk.
const importChunk = 1 << 16

// chunkStore codes blocks into a task's chunks.
type chunkStore struct {
	ctx      context.Context
	db       *store.DB
	id       store.TaskID
	tb       measure.Timebase
	channels []measure.Channel
	encoder  *chunk.Encoder
	no       uint64
	events   []measure.Event
	samples  measure.Window
	some     bool
}

func (s *chunkStore) event(e measure.Event) error {
	s.events = append(s.events, e)
	return nil
}

func (s *chunkStore) block(b *measure.Block) error {
	n := b.Scans()
	if n == 0 {
		return nil
	}
	if !s.some {
		s.samples.From, s.some = s.tb.Seconds(b.TickAt(s.tb, 0)), true
	}
	s.samples.To = s.tb.Seconds(b.TickAt(s.tb, n-1))
	for done := 0; done < n; {
		rest := b.Slice(s.tb, done, n)
		took, err := s.encoder.Append(&rest)
		if err != nil {
			return err
		}
		if done += took; done < n || s.encoder.Full() {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *chunkStore) flush() error {
	var chunks []*chunk.Chunk
	if c := s.encoder.Flush(s.no); c != nil {
		if err := c.OverRangeEvents(s.channels, s.event); err != nil {
			return err
		}
		chunks = append(chunks, c)
		s.no++
	}
	if len(chunks)+len(s.events) == 0 {
		return nil
	}
	err := s.db.AppendChunks(s.ctx, s.id, chunks, s.events)
	s.events = s.events[:0]
	return err
}

// finishWindow ends an imported task with the energy over a window.
func finishWindow(ctx context.Context, db *store.DB, id store.TaskID, w measure.Window, reason string, edges measure.Edges) error {
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	g, err := measure.NewIntegrator(&t.Setup, w.From, w.To)
	if err != nil {
		return err
	}
	for b, err := range blocks(ctx, db, &t) {
		if err == nil {
			err = g.Add(b)
		}
		if err != nil {
			return err
		}
	}
	res, err := g.Result(edges)
	if err != nil {
		return err
	}
	return db.Finish(ctx, id, store.Outcome{State: store.Complete, Reason: reason, Result: &res})
}
