package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/pipeline"
	"github.com/wattmark/wattmark/monitor/spool"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ReadOptions select the part of a capture to read.
type ReadOptions struct {
	From      uint64 // first chunk wanted
	Follow    bool   // stay until the capture has ended
	Untrimmed bool   // include the samples outside the markers
}

// Receiver takes the items of a stream, in order. An error ends the stream.
type Receiver interface {
	Header(session.Opening) error
	// Chunk takes a chunk without columns, and its verified payload, which is valid until the
	// call returns.
	Chunk(head chunk.Chunk, payload []byte) error
	Event(measure.Event) error
	Trailer(session.Trailer) error
}

// Read streams the capture: header, events and chunks in order, and a trailer when the
// stream reached the end of a capture that has ended. A trimmed stream begins with the
// chunk in which the start marker begins, as soon as it is recognised, and ends with the
// chunk in which the stop marker ends. Errors: ErrNoStart, ErrPastEnd, ErrMended, ctx's,
// the receiver's.
func (c *Capture) Read(ctx context.Context, o ReadOptions, to Receiver) error {
	for {
		r := &reading{c: c, o: o, to: to, mended: c.mended.Load()}
		again, err := r.run(ctx)
		if err != nil {
			return fmt.Errorf("read capture %s: %w", c.id, err)
		}
		if !again {
			return nil
		}
	}
}

// reading is one stream. It walks the log once: events are held until the chunk behind them
// is known to belong to the stream, and a chunk that may lie behind the end of the trim is
// put back until the trim is final.
type reading struct {
	c    *Capture
	o    ReadOptions
	to   Receiver
	log  *spool.Reader
	buf  []byte // of the last chunk's payload
	sum  uint32
	n    uint64 // chunks of the stream, sent or skipped
	past uint64 // one past the last of them
	scan uint64 // scans of the stream
	// held are the events since the last chunk. They go out before the next one, once it
	// is known to belong to the stream.
	held []measure.Event
	// next is a chunk that was met before it was known whether it belongs.
	next   *spool.Record
	mended uint64 // number of mends of the log when the stream began
}

// run streams once. again is set when the stream begins earlier than in its header: the
// start marker was seen, and then the disk lost it with all chunks that were to be sent.
func (r *reading) run(ctx context.Context) (again bool, err error) {
	first, err := r.first(ctx)
	if err != nil {
		return false, err
	}
	if r.log, err = r.c.log.NewReader(); err != nil {
		return false, err
	}
	defer r.log.Close()
	h := session.Opening{Header: *r.c.header, Started: r.c.Started(), FirstChunk: max(first, r.o.From)}
	if err := r.to.Header(h); err != nil {
		return false, err
	}
	for {
		// Taken before looking, so that no change is missed in between.
		more := r.c.log.Changed()
		s, changed := r.c.look()
		if err := r.sendUpTo(ctx, s, first); err != nil {
			return false, err
		}
		switch {
		case s.State.Ended() && r.n == 0 && s.FirstChunk < first && !r.o.Untrimmed:
			return true, nil
		case s.State.Ended():
			return false, r.end(s, first)
		case !r.o.Follow:
			return false, nil
		}
		select {
		case <-more:
		case <-changed:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// first waits until the stream's first chunk is known.
func (r *reading) first(ctx context.Context) (uint64, error) {
	for {
		s, changed := r.c.look()
		switch {
		case s.State == session.Arming:
		case r.o.Untrimmed:
			return 0, nil
		case s.startKnown:
			return s.FirstChunk, nil
		case s.State.Ended():
			return 0, nil // no start marker: everything
		}
		if !r.o.Follow {
			return 0, fmt.Errorf("%w: follow the capture, or read it untrimmed", ErrNoStart)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// sendUpTo sends the log's records up to the chunk before which the stream ends, as far as
// known. A reader that followed may have chunks from before the stop marker was recognised:
// they belong to its stream.
func (r *reading) sendUpTo(ctx context.Context, s snapshot, first uint64) error {
	limit := ^uint64(0)
	if s.stopKnown && !r.o.Untrimmed {
		limit = max(s.EndChunk, r.o.From)
	}
	for ctx.Err() == nil {
		rec, err := r.take()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch rec.Type {
		case spool.RecordEvent:
			e, err := r.log.Event(rec)
			if err != nil {
				return err
			}
			r.held = append(r.held, e)
		case spool.RecordChunk:
			if rec.Chunk.No >= limit {
				r.next = &rec
				return nil
			}
			if err := r.chunk(rec, first); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// take returns the chunk that was put back, or the log's next record.
func (r *reading) take() (spool.Record, error) {
	if rec := r.next; rec != nil {
		r.next = nil
		return *rec, nil
	}
	return r.log.Next()
}

// chunk counts a chunk and sends it, unless the host has it already.
func (r *reading) chunk(rec spool.Record, first uint64) error {
	no := rec.Chunk.No
	if no < first {
		// Notes from before the first scan, as on the alignment of instruments, and the rails'
		// voltages concern the whole capture and stay with the trimmed stream.
		r.held = slices.DeleteFunc(r.held, func(e measure.Event) bool {
			return e.Kind != measure.EventSupply && (e.Kind != measure.EventNote || e.FirstScan != 0 || e.Scans != 0)
		})
		return nil
	}
	r.n, r.past = r.n+1, no+1
	r.scan += uint64(rec.Chunk.Scans)
	r.sum = crc32.Update(r.sum, castagnoli, binary.LittleEndian.AppendUint32(nil, rec.Chunk.CRC))
	if no < r.o.From {
		r.held = r.held[:0]
		return nil
	}
	if err := r.sendHeld(); err != nil {
		return err
	}
	payload, err := r.log.Body(rec, &r.buf)
	if errors.Is(err, spool.ErrTorn) {
		err = r.c.mend(err, r.mended)
	}
	if err != nil {
		return err
	}
	return r.to.Chunk(rec.Chunk, payload)
}

func (r *reading) sendHeld() error {
	for _, e := range r.held {
		if err := r.to.Event(e); err != nil {
			return err
		}
	}
	r.held = r.held[:0]
	return nil
}

// end sends the trailer. Events behind the last chunk of all are sent before it; those
// behind the last chunk of a trimmed stream do not belong to it.
func (r *reading) end(s snapshot, first uint64) error {
	end := max(first, r.past)
	if r.o.From > end {
		return fmt.Errorf("%w: chunk %d was asked for, the stream has chunks %d to %d",
			ErrPastEnd, r.o.From, first, end)
	}
	if r.next == nil {
		if err := r.sendHeld(); err != nil {
			return err
		}
	}
	return r.to.Trailer(session.Trailer{Summary: s.Summary, Chunks: r.n, Scans: r.scan, CRC: r.sum})
}

// mend checks the log of a capture that has ended, where a reader met a damaged record:
// damage becomes events. The error wraps ErrMended when reading on from that chunk works
// now, and is damage itself otherwise. since is the number of mends when the reader began:
// one of several readers mends, the others read on.
func (c *Capture) mend(damage error, since uint64) error {
	c.data.Lock()
	defer c.data.Unlock()
	s, _ := c.look()
	if !s.State.Ended() || s.State == session.Released {
		return damage
	}
	if c.mended.Load() == since {
		holes, err := c.log.Mend()
		if err != nil || holes == 0 {
			return errors.Join(damage, err)
		}
		t, err := pipeline.Recount(c.log)
		if err != nil {
			return errors.Join(damage, err)
		}
		s.Scans, s.Lost, s.Gaps = t.Scans, t.Lost, t.Gaps
		c.show(s)
		c.mended.Add(1)
		c.owner.logDamage(c.id, holes, damage)
	}
	return fmt.Errorf("%w: %s", ErrMended, strings.ReplaceAll(damage.Error(), "\n", "; "))
}
