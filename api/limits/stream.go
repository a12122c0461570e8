package limits

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	errSlow    = errors.New("the request took too long to arrive")
	errStalled = errors.New("the reader took nothing for too long")
)

// watched is a call's context that ends when its request does not come, or its
// reader does not read.
type watched struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // until the request is there; nil for no limit
}

type watchedKey struct{}

func (w watched) Value(key any) any {
	if key == (watchedKey{}) {
		return w
	}
	return w.Context.Value(key)
}

// Err says that time ran out where it did: gRPC makes the status of it.
func (w watched) Err() error {
	err := w.Context.Err()
	if err != nil && (errors.Is(context.Cause(w.Context), errSlow) || errors.Is(context.Cause(w.Context), errStalled)) {
		return context.DeadlineExceeded
	}
	return err
}

// watch gives a call's request its time.
func (g *Guard) watch(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	w := watched{Context: ctx, cancel: cancel}
	if g.cfg.RequestTime <= 0 {
		return w
	}
	w.timer = time.AfterFunc(g.cfg.RequestTime, func() {
		if ctx.Err() == nil {
			g.refuse(slowRequest)
			cancel(errSlow)
		}
	})
	context.AfterFunc(ctx, func() { w.timer.Stop() })
	return w
}

// arrived takes note that a call's request is there.
func arrived(ctx context.Context) {
	if w, ok := ctx.Value(watchedKey{}).(watched); ok && w.timer != nil {
		w.timer.Stop()
	}
}

// unary is called when the request was read.
func unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	arrived(ctx)
	return handler(ctx, req)
}

func (g *Guard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	limited := &stream{ServerStream: s, ctx: ctx, cancel: cancel}
	if g.cfg.Stall > 0 {
		limited.stall = g.cfg.Stall
		limited.timer = time.AfterFunc(g.cfg.Stall, limited.stop)
		limited.timer.Stop()
	}
	err := handler(srv, limited)
	if errors.Is(context.Cause(s.Context()), errStalled) {
		g.refuse(stalled)
		return status.Errorf(codes.DeadlineExceeded, "the reader took nothing for %v: the stream is ended; read on from the first that is missing", g.cfg.Stall)
	}
	return err
}

// stream is a stream whose reader is watched.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	cancel context.CancelCauseFunc
	begun  bool
	stall  time.Duration
	timer  *time.Timer // nil for no limit
}

func (s *stream) Context() context.Context { return s.ctx }

// stop ends the call, and with it a send that waits for the reader.
func (s *stream) stop() {
	s.cancel(errStalled)
	if w, ok := s.ServerStream.Context().Value(watchedKey{}).(watched); ok {
		w.cancel(errStalled)
	}
}

func (s *stream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if !s.begun && (err == nil || errors.Is(err, io.EOF)) {
		s.begun = true
		arrived(s.ServerStream.Context())
	}
	return err
}

func (s *stream) SendMsg(m any) error {
	if s.timer != nil {
		s.timer.Reset(s.stall)
		defer s.timer.Stop()
	}
	return s.ServerStream.SendMsg(m)
}
