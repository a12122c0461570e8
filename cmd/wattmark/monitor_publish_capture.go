package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
	"wattmark/monitor/capture"
	"wattmark/monitor/spool"
	"wattmark/store"
	"wattmark/store/relay"
)

// captureSending is a capture on its way to the cluster. It takes the stream that a host
// would be sent: trimmed to the markers, as far as they were found.
type captureSending struct {
	pub    *relay.Publisher
	c      *capture.Capture
	ctx    context.Context
	to     *relay.Capture // nil before the stream begins
	buf    []byte
	chunks uint64
	sum    capture.Summary
}

// samples returns when the cluster has all chunks of the capture, which has ended then.
func (s *captureSending) samples(ctx context.Context) error {
	for again := true; again; {
		var cancel context.CancelFunc
		s.ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		s.chunks = 0
		err := s.c.Read(s.ctx, capture.ReadOptions{Follow: true}, s)
		if err == nil {
			again, err = s.to.Published(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Header begins the stream; it is told once more where what it began with was lost.
func (s *captureSending) Header(h capture.ReadHeader) (err error) {
	if s.to != nil {
		return nil
	}
	user, _, _ := strings.Cut(h.Holder, "@")
	s.to, err = s.pub.Capture(s.ctx, relay.CaptureHeader{
		Header: store.Header{
			Bench: h.Bench, BenchGPU: h.GPU, Instrument: h.Instrument, Setup: h.Setup, CalibrationID: h.CalibrationID, Started: h.Started,
		},
		Task: store.NewTask{
			Name: firstOf(h.TaskName, "capture "+h.CaptureID), User: firstOf(user, "unknown"), Launched: h.Started, CaptureID: h.CaptureID, Marker: h.Marker,
		},
	})
	return err
}

// Chunk publishes a chunk.
func (s *captureSending) Chunk(h spool.ChunkHead, load func(*[]byte) ([]byte, error)) error {
	payload, err := load(&s.buf)
	if err != nil {
		return err
	}
	s.chunks++
	return s.to.Chunk(head(h), payload)
}

func head(h spool.ChunkHead) *chunk.Chunk {
	return &chunk.Chunk{No: h.No, FirstScan: h.FirstScan, FirstTick: h.FirstTick, Scans: int(h.Scans), CRC: h.CRC}
}

// Event takes note of an event.
func (s *captureSending) Event(e measure.Event) error {
	s.to.Event(e)
	return nil
}

// Trailer takes note of what the capture came to.
func (s *captureSending) Trailer(t capture.Trailer) error {
	s.sum = t.Summary
	return nil
}

// ended is when the last scan was taken, by the monitor's clock.
func (s *captureSending) ended() time.Time { return s.c.Started().Add(s.sum.End.Duration()) }

// outcome is what a capture came to as its monitor alone can tell: the window is what lies
// between the markers. Something is always missing: kernels, and what software read.
func (s *captureSending) outcome(ctx context.Context) (store.Outcome, error) {
	o := store.Outcome{State: store.Incomplete, Markers: s.sum.Markers}
	why := []string{"filed by its monitor: no host has published what was measured"}
	if s.sum.Reason != "" {
		why = append(why, "the capture ended early: "+s.sum.Reason)
	}
	if s.sum.Window == nil {
		why = append(why, "no window: "+s.sum.NoWindowReason)
	} else if r, err := s.integrate(ctx); err != nil {
		why = append(why, fmt.Sprintf("no result: %v", err))
	} else {
		o.Result = r
		why = append(why, "the window is what lies between the markers, guards included")
	}
	o.Reason = strings.Join(why, "; ")
	return o, ctx.Err()
}

func (s *captureSending) integrate(ctx context.Context) (*measure.Result, error) {
	h := s.c.Header()
	g, err := measure.NewIntegrator(&h.Setup, s.sum.Window.From, s.sum.Window.To)
	if err != nil {
		return nil, err
	}
	if err := s.c.Read(ctx, capture.ReadOptions{}, &adding{g: g, setup: &h.Setup}); err != nil {
		return nil, err
	}
	var e measure.Edges
	if start, stop := marker.Pair(s.sum.Markers); start != nil && stop != nil {
		e = measure.Edges{UFrom: start.U, UTo: stop.U}
	}
	r, err := g.Result(e)
	return &r, err
}

// adding integrates a capture's stream.
type adding struct {
	g     *measure.Integrator
	setup *measure.Setup
	buf   []byte
	block measure.Block
}

// Header is part of capture.Receiver.
func (*adding) Header(capture.ReadHeader) error { return nil }

// Event is part of capture.Receiver.
func (*adding) Event(measure.Event) error { return nil }

// Trailer is part of capture.Receiver.
func (*adding) Trailer(capture.Trailer) error { return nil }

// Chunk adds a chunk.
func (a *adding) Chunk(h spool.ChunkHead, load func(*[]byte) ([]byte, error)) error {
	payload, err := load(&a.buf)
	if err != nil {
		return err
	}
	c := head(h)
	if err := chunk.ParsePayload(c, payload); err != nil {
		return err
	}
	if err := chunk.Decode(c, a.setup.Timebase, len(a.setup.Channels), &a.block); err != nil {
		return err
	}
	return a.g.Add(&a.block)
}
