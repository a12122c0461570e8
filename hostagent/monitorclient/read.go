package monitorclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// ReadOptions select the part of a capture to read.
type ReadOptions struct {
	CaptureID string
	From      uint64 // first chunk wanted
	Follow    bool   // stay until the capture has ended
	Untrimmed bool   // include the samples outside the markers
}

// Sink takes the items of a stream, in order. Chunks are borrowed until the call returns.
// An error ends the stream and is returned by Read.
type Sink interface {
	chunk.Sink
	// Header comes first, and again each time the stream is resumed.
	Header(h store.Header, firstChunk uint64) error
}

// Read reads a capture into a sink, chunk by chunk in order, and returns the trailer. A
// broken stream is resumed from the next chunk, after growing pauses, until it has brought
// no item for longer than the client's patience (ErrUnreachable). Every chunk is checked
// against its own checksum and its predecessor's number; one that does not fit may have
// been changed on the line and is requested again, up to four times (ErrMismatch). Without
// Follow a capture that still runs ends without a trailer (ErrRunning).
func (c *Client) Read(ctx context.Context, o ReadOptions, sink Sink) (session.Trailer, error) {
	r := &reading{c: c, o: o, sink: sink, next: o.From}
	pauses, since, misfits := backoff.Backoff{First: c.o.Pause}, time.Now(), 0
	for {
		before, next := r.items, r.next
		t, err := r.stream(ctx)
		if err == nil {
			return t, nil
		}
		if r.next > next {
			misfits = 0
		}
		misfit := errors.Is(err, ErrMismatch)
		if misfit {
			misfits++
		}
		if r.items > before && misfits <= 1 {
			pauses.Reset()
			since = time.Now()
		}
		broken, resumable := errors.AsType[*brokenStream](err)
		if !resumable && (!misfit || misfits > maxMisfits) {
			return session.Trailer{}, err
		}
		if resumable && time.Since(since) > c.o.Patience {
			err := c.fail("read", broken.err)
			return session.Trailer{}, r.errorf("gave up after %v without an item: %w", c.o.Patience, err)
		}
		if err := pauses.Wait(ctx); err != nil {
			return session.Trailer{}, r.errorf("%w", err)
		}
	}
}

// maxMisfits is how often a chunk that does not fit is requested again.
const maxMisfits = 4

// brokenStream is an error after which the stream can be resumed.
type brokenStream struct{ err error }

func (b *brokenStream) Error() string { return b.err.Error() }

// reading is one Read over any number of streams.
type reading struct {
	c     *Client
	o     ReadOptions
	sink  Sink
	next  uint64 // chunk wanted next
	any   bool   // a chunk has arrived: next must follow, or a gap explain why not
	scan  uint64 // one past the last that arrived
	items int

	setup   measure.Setup
	columns int
	chunk   chunk.Chunk
	// pending holds the events since the last chunk: those before a chunk that never
	// arrived are sent again when the stream is resumed.
	pending []measure.Event
}

// errorf names the capture in an error.
func (r *reading) errorf(format string, a ...any) error {
	return fmt.Errorf("read capture %s: "+format, append([]any{r.o.CaptureID}, a...)...)
}

// stream reads until the trailer, or until the connection breaks.
func (r *reading) stream(ctx context.Context) (session.Trailer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.pending = r.pending[:0]
	s, err := r.c.rpc.ReadCapture(ctx, &pb.ReadCaptureRequest{
		CaptureId: r.o.CaptureID, FromChunk: r.next, Follow: r.o.Follow, Untrimmed: r.o.Untrimmed,
	})
	if err != nil {
		return session.Trailer{}, r.fail(ctx, err)
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return session.Trailer{}, r.errorf("%w", ErrRunning)
		}
		if err != nil {
			return session.Trailer{}, r.fail(ctx, err)
		}
		r.items++
		t, done, err := r.item(m)
		if err != nil {
			return session.Trailer{}, r.errorf("%w", err)
		}
		if done {
			return t, nil
		}
	}
}

// fail converts an error of the stream; a broken connection becomes a *brokenStream.
func (r *reading) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil { // the status only follows from it
		return r.errorf("%w", context.Cause(ctx))
	}
	if retriable(err) { // this call has no deadline: DEADLINE_EXCEEDED is the monitor's, of a slow reader
		return &brokenStream{err}
	}
	return r.c.fail("read capture "+r.o.CaptureID, err)
}

// item takes one item of the stream; done is set with the trailer. Items of a later version
// are ignored.
func (r *reading) item(m *pb.ReadCaptureResponse) (t session.Trailer, done bool, err error) {
	switch {
	case m.GetHeader() != nil:
		err = r.header(m.GetHeader())
	case r.columns == 0:
		err = fmt.Errorf("%w: the stream does not begin with a header", ErrMismatch)
	case m.GetChunk() != nil:
		err = r.take(m.GetChunk())
	case m.GetEvent() != nil:
		var e measure.Event
		e, err = wire.ParseEvent(m.GetEvent())
		r.pending = append(r.pending, e)
	case m.GetTrailer() != nil:
		if t, err = wire.ParseTrailer(m.GetTrailer()); err != nil {
			return session.Trailer{}, false, err
		}
		return t, true, r.events()
	}
	return t, false, err
}

// header takes the header of a stream, which must resume where the last one broke.
func (r *reading) header(p *pb.Header) error {
	h, err := wire.ParseOpening(p)
	if err != nil {
		return err
	}
	if r.any && h.FirstChunk > r.next {
		return fmt.Errorf("%w: the stream resumes at chunk %d, wanted %d", ErrMismatch, h.FirstChunk, r.next)
	}
	r.setup, r.columns = h.Setup, chunk.Columns(h.Setup.Timebase, len(h.Setup.Channels))
	return r.sink.Header(store.Header{
		Bench: h.Bench, BenchGPU: h.GPU, Instrument: h.Instrument, Setup: h.Setup,
		CalibrationID: h.CalibrationID, Started: h.Started,
	}, h.FirstChunk)
}

// take checks a chunk and passes it on.
func (r *reading) take(p *pb.Chunk) error {
	if err := wire.ParseChunk(p, r.columns, &r.chunk); err != nil {
		return err
	}
	if r.any && r.chunk.No < r.next {
		return nil // sent again
	}
	if r.chunk.No < r.next || (r.any && r.chunk.No > r.next && !r.explained(r.chunk.FirstScan)) {
		return fmt.Errorf("%w: chunk %d came, wanted %d", ErrMismatch, r.chunk.No, r.next)
	}
	if err := r.chunk.Validate(r.setup.Timebase, len(r.setup.Channels)); err != nil {
		return fmt.Errorf("%w: chunk %d: %w", ErrMismatch, r.chunk.No, err)
	}
	if err := r.events(); err != nil {
		return err
	}
	if err := r.sink.Chunk(&r.chunk); err != nil {
		return err
	}
	r.any, r.next = true, r.chunk.No+1
	r.scan = r.chunk.FirstScan + uint64(r.chunk.Scans)
	return nil
}

// explained reports whether the events before a chunk count all scans between the last
// chunk and it as lost: chunk numbers are missing only where the monitor's disk lost the
// chunks.
func (r *reading) explained(first uint64) bool {
	next := r.scan
	for _, e := range r.pending {
		if e.Kind == measure.EventGap && e.FirstScan == next {
			next += e.Scans
		}
	}
	return next > r.scan && next == first
}

// events passes on the events before the chunk or the trailer that has arrived.
func (r *reading) events() error {
	for _, e := range r.pending {
		if err := r.sink.Event(e); err != nil {
			return err
		}
	}
	r.pending = r.pending[:0]
	return nil
}
