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
	"time"

	"wattmark/measure"
	"wattmark/monitor/spool"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ReadOptions says what to read.
type ReadOptions struct {
	From      uint64 // first chunk wanted
	Follow    bool   // stay until the capture has ended
	Untrimmed bool   // also what lies outside the markers
}

// ReadHeader begins a stream.
type ReadHeader struct {
	spool.Header
	Started    time.Time // monitor's wall clock at device time zero
	FirstChunk uint64    // the first chunk that follows
}

// Trailer ends a stream that reached the end of its capture.
type Trailer struct {
	Summary Summary
	// Chunks, Scans and CRC are about the whole stream, wherever it was resumed:
	// CRC is the CRC-32C over the chunks' own, each as four little-endian bytes.
	Chunks, Scans uint64
	CRC           uint32
}

// Receiver takes what a stream brings, in order. An error ends the stream.
type Receiver interface {
	Header(ReadHeader) error
	// Chunk takes a chunk whose payload is read from the spool by load, into
	// memory that the receiver brings: load appends it to (*buf)[:0], verified.
	Chunk(head spool.ChunkHead, load func(buf *[]byte) ([]byte, error)) error
	Event(measure.Event) error
	Trailer(Trailer) error
}

// Read streams the capture: header, events and chunks in order, and a trailer
// when the stream reached the end of a capture that has ended. A trimmed stream
// begins with the chunk in which the start marker begins, as soon as it is
// recognised, and ends with the chunk in which the stop marker ends. Errors:
// ErrNoStart, ErrPastEnd, ctx's, the receiver's.
func (c *Capture) Read(ctx context.Context, o ReadOptions, to Receiver) error {
	r := &reading{c: c, o: o, to: to, mended: c.mended.Load()}
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("read capture %s: %w", c.id, err)
	}
	return nil
}

// reading is one stream.
type reading struct {
	c    *Capture
	o    ReadOptions
	to   Receiver
	log  *spool.Reader
	sum  uint32
	n    uint64 // chunks of the stream, sent or skipped
	past uint64 // one past the last of them
	scan uint64
	// held are the events since the last chunk: they go out before the next one,
	// once it is known to belong to the stream.
	held []measure.Event
	// next is a chunk that was met before it was known whether it belongs.
	next   *spool.Record
	mended uint64 // how often the log had been mended when the stream began
}

func (r *reading) run(ctx context.Context) error {
	first, err := r.first(ctx)
	if err != nil {
		return err
	}
	if r.log, err = r.c.log.NewReader(); err != nil {
		return err
	}
	defer r.log.Close()
	h := ReadHeader{Header: r.c.header, Started: r.c.Started(), FirstChunk: max(first, r.o.From)}
	if err := r.to.Header(h); err != nil {
		return err
	}
	for {
		// Taken before looking, so that no change is missed in between.
		more := r.c.log.Changed()
		v, changed := r.c.look()
		if err := r.sendUpTo(ctx, v, first); err != nil {
			return err
		}
		switch {
		case v.State.Ended():
			if r.n == 0 && v.FirstChunk < first && !r.o.Untrimmed {
				return r.anew(ctx)
			}
			return r.end(v, first)
		case !r.o.Follow:
			return nil
		}
		select {
		case <-more:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// anew begins the stream once more. Its start marker was seen, and then the disk lost
// it with all that was to be sent: what there is begins earlier.
func (r *reading) anew(ctx context.Context) error {
	defer r.log.Close()
	again := &reading{c: r.c, o: r.o, to: r.to, mended: r.c.mended.Load()}
	return again.run(ctx)
}

// first waits until the stream's first chunk is known.
func (r *reading) first(ctx context.Context) (uint64, error) {
	for {
		v, changed := r.c.look()
		switch {
		case v.State == Arming:
		case r.o.Untrimmed:
			return 0, nil
		case v.startKnown:
			return v.FirstChunk, nil
		case v.State.Ended():
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

// limit is the chunk before which the stream ends, as far as known. A reader that followed
// may have chunks from before the stop marker was recognised: they are of its stream.
func (r *reading) limit(v view) uint64 {
	if r.o.Untrimmed || !v.stopKnown {
		return ^uint64(0)
	}
	return max(v.EndChunk, r.o.From)
}

// sendUpTo sends what the log holds, up to the limit.
func (r *reading) sendUpTo(ctx context.Context, v view, first uint64) error {
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
			if rec.Chunk.No >= r.limit(v) {
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
	if r.next != nil {
		rec := *r.next
		r.next = nil
		return rec, nil
	}
	return r.log.Next()
}

// chunk counts a chunk and sends it, unless the host has it already.
func (r *reading) chunk(rec spool.Record, first uint64) error {
	no := rec.Chunk.No
	if no < first {
		r.held = slices.DeleteFunc(r.held, func(e measure.Event) bool { return !ofTheWhole(e) })
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
	return r.to.Chunk(rec.Chunk, func(buf *[]byte) ([]byte, error) {
		b, err := r.log.Body(rec, buf)
		if errors.Is(err, spool.ErrTorn) {
			err = r.c.mend(err, r.mended)
		}
		return b, err
	})
}

// mend has the log of a capture that has ended checked, where a reader met a damaged
// record, which becomes an event. The error wraps ErrMended when reading on from that
// chunk goes well now, and is the reader's own otherwise. since is how often the log had
// been mended when the reader began.
func (c *Capture) mend(damage error, since uint64) error {
	c.data.Lock()
	defer c.data.Unlock()
	v, _ := c.look()
	if !v.State.Ended() || v.State == Released {
		return damage
	}
	if n := c.mended.Load(); n == since {
		holes, err := c.log.Mend()
		if err != nil || holes == 0 {
			return errors.Join(damage, err)
		}
		t, err := retell(c.log)
		if err != nil {
			return errors.Join(damage, err)
		}
		v.Scans, v.Lost, v.Gaps = t.scans, t.lost, t.gaps
		c.show(v)
		c.mended.Add(1)
		c.owner.cfg.Log.Error("a capture was damaged on the disk; what is lost is an event now", "capture", c.id, "places", holes, "error", damage)
	}
	return fmt.Errorf("%w: %s", ErrMended, strings.ReplaceAll(damage.Error(), "\n", "; "))
}

// ofTheWhole tells of a note that was made before the first scan: it concerns all
// of the capture, as how its instruments were aligned, and stays with what is
// trimmed.
func ofTheWhole(e measure.Event) bool {
	return e.Kind == measure.EventNote && e.FirstScan == 0 && e.Scans == 0
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

// end sends the trailer. What happened behind the last chunk of all is sent
// before it; behind the last chunk of a trimmed stream it is none of its.
func (r *reading) end(v view, first uint64) error {
	end := max(first, r.past)
	if r.o.From > end {
		return fmt.Errorf("%w: chunk %d was asked for, the stream has chunks %d to %d", ErrPastEnd, r.o.From, first, end)
	}
	if r.next == nil {
		if err := r.sendHeld(); err != nil {
			return err
		}
	}
	return r.to.Trailer(Trailer{Summary: v.Summary, Chunks: r.n, Scans: r.scan, CRC: r.sum})
}
