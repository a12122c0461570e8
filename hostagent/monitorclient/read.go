package monitorclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// Read reads a capture into a sink, chunk by chunk in order, and returns the
// trailer. A broken line is resumed from the next chunk, after a pause that
// grows, until it has brought nothing for longer than the client's patience.
// Every chunk is held against its own checksum and its predecessor's number. What does not
// fit may have been changed on the line: it is asked for again, mismatches times, and is
// ErrMismatch then. Without Follow a capture that still runs ends without
// a trailer: ErrRunning.
func (c *Client) Read(ctx context.Context, o ReadOptions, sink Sink) (Trailer, error) {
	r := &reading{c: c, o: o, sink: sink, next: o.From}
	pause, since, misfits := c.o.Pause, time.Now(), 0
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
			pause, since = c.o.Pause, time.Now()
		}
		var broken *brokenLine
		if !errors.As(err, &broken) && (!misfit || misfits > mismatches) {
			return Trailer{}, err
		}
		if broken != nil && time.Since(since) > c.o.Patience {
			return Trailer{}, fmt.Errorf("read capture %s: gave up after %v without an item: %w", o.CaptureID, c.o.Patience, c.fail("read", broken.err))
		}
		if err := sleep(ctx, pause); err != nil {
			return Trailer{}, fmt.Errorf("read capture %s: %w", o.CaptureID, err)
		}
		pause = min(2*pause, longestPause)
	}
}

// mismatches is how often a chunk that does not fit is asked for again.
const mismatches = 4

// brokenLine is an error after which the stream can be resumed.
type brokenLine struct{ err error }

func (b *brokenLine) Error() string { return b.err.Error() }

// reading is one Read over however many streams it takes.
type reading struct {
	c     *Client
	o     ReadOptions
	sink  Sink
	next  uint64 // chunk wanted next
	any   bool   // a chunk has come by: next must follow, or a gap tells why not
	scan  uint64 // one past the last that came
	items int

	setup   measure.Setup
	columns int
	chunk   chunk.Chunk
	// pending holds the events of an unfinished stretch: those before a chunk
	// that never came are sent again when the stream is resumed.
	pending []measure.Event
}

// stream reads until the trailer, or until the line breaks.
func (r *reading) stream(ctx context.Context) (Trailer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.pending = r.pending[:0]
	s, err := r.c.rpc.ReadCapture(ctx, &wattmarkv1.ReadCaptureRequest{
		CaptureId: r.o.CaptureID, FromChunk: r.next, Follow: r.o.Follow, Untrimmed: r.o.Untrimmed,
	})
	if err != nil {
		return Trailer{}, r.fail(ctx, err)
	}
	in := wire.NewReceiver(s)
	defer in.Free()
	for {
		m, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return Trailer{}, fmt.Errorf("read capture %s: %w", r.o.CaptureID, ErrRunning)
		}
		if err != nil {
			return Trailer{}, r.fail(ctx, err)
		}
		r.items++
		t, done, err := r.item(m)
		if err != nil {
			return Trailer{}, fmt.Errorf("read capture %s: %w", r.o.CaptureID, err)
		}
		if done {
			if oteltrace.SpanFromContext(ctx).IsRecording() {
				end(in, cancel)
			}
			return t, nil
		}
	}
}

// end waits a moment for the end of a stream that has told all: left before it, a trace
// would show a call that was cancelled.
func end(in *wire.Receiver[wattmarkv1.ReadCaptureResponse], cancel func()) {
	timer := time.AfterFunc(time.Second, cancel)
	defer timer.Stop()
	_, _ = in.Recv()
}

func (r *reading) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil { // whatever the line says of it
		return fmt.Errorf("read capture %s: %w", r.o.CaptureID, context.Cause(ctx))
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded: // this call has no deadline: the monitor gave up a reader that was slow
		return &brokenLine{err}
	}
	return r.c.fail("read capture "+r.o.CaptureID, err)
}

func (r *reading) item(m *wattmarkv1.ReadCaptureResponse) (Trailer, bool, error) {
	switch {
	case m.GetHeader() != nil:
		return Trailer{}, false, r.header(m.GetHeader())
	case r.columns == 0:
		return Trailer{}, false, fmt.Errorf("%w: the stream does not begin with a header", ErrMismatch)
	case m.GetChunk() != nil:
		return Trailer{}, false, r.take(m.GetChunk())
	case m.GetEvent() != nil:
		e, err := wire.ParseEvent(m.GetEvent())
		r.pending = append(r.pending, e)
		return Trailer{}, false, err
	case m.GetTrailer() != nil:
		return r.trailer(m.GetTrailer())
	}
	return Trailer{}, false, nil // an item of a later version
}

func (r *reading) header(p *wattmarkv1.Header) error {
	setup, err := wire.ParseSetup(p.Setup)
	if err != nil {
		return err
	}
	id, err := instrument(p.Instrument)
	if err != nil {
		return err
	}
	at, err := wire.ParseTime("started", p.Started)
	if err != nil {
		return err
	}
	if r.any && p.FirstChunk > r.next {
		return fmt.Errorf("%w: the stream resumes at chunk %d, wanted %d", ErrMismatch, p.FirstChunk, r.next)
	}
	r.setup, r.columns = setup, len(setup.Channels)
	if setup.Timebase.Stamped {
		r.columns++
	}
	gpu, err := gpuUUID(p.GpuUuid)
	if err != nil {
		return err
	}
	h := store.Header{Bench: p.Bench, Instrument: id, Setup: setup, CalibrationID: p.CalibrationId, Started: at, BenchGPU: gpu}
	return r.sink.Header(h, p.FirstChunk)
}

func (r *reading) take(p *wattmarkv1.Chunk) error {
	if err := wire.ParseChunk(p, r.columns, &r.chunk); err != nil {
		return err
	}
	if r.any && r.chunk.No < r.next {
		return nil // sent again
	}
	if r.chunk.No < r.next || (r.any && r.chunk.No > r.next && !r.told(r.chunk.FirstScan)) {
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

// told reports whether the events before a chunk tell all scans to be lost that lie
// between the last chunk and it: numbers are missing only where the monitor's disk lost
// the chunks.
func (r *reading) told(first uint64) bool {
	next := r.scan
	for _, e := range r.pending {
		if e.Kind == measure.EventGap && e.FirstScan == next {
			next += e.Scans
		}
	}
	return next > r.scan && next == first
}

// events hands on what stood before the chunk or the trailer that has come.
func (r *reading) events() error {
	for _, e := range r.pending {
		if err := r.sink.Event(e); err != nil {
			return err
		}
	}
	r.pending = r.pending[:0]
	return nil
}

func (r *reading) trailer(p *wattmarkv1.Trailer) (Trailer, bool, error) {
	s, err := summary(p.Summary)
	if err != nil {
		return Trailer{}, false, err
	}
	return Trailer{Summary: s, Chunks: p.Chunks, Scans: p.Scans, CRC: p.Crc32C}, true, r.events()
}
