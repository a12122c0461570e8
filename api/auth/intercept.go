package auth

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// notes are what is known of a call, for the audit log.
type notes struct {
	mu    sync.Mutex
	attrs []slog.Attr
}

type notesKey struct{}

// Note adds to what the audit log says of a call: which task it became, which capture.
func Note(ctx context.Context, key, value string) {
	n, ok := ctx.Value(notesKey{}).(*notes)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.attrs = append(n.attrs, slog.String(key, shown(value)))
}

func (n *notes) take() []slog.Attr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.attrs
}

// mostNoted is how many fields of a request are noted.
const mostNoted = 8

// request notes the plain fields of a request: they say what it was about.
func (n *notes) request(req any) {
	m, ok := req.(proto.Message)
	if !ok || m == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() || f.IsMap():
		case f.Kind() == protoreflect.StringKind:
			n.attrs = append(n.attrs, slog.String(string(f.Name()), shown(v.String())))
		case strings.HasSuffix(string(f.Name()), "_id") && f.Kind() != protoreflect.BytesKind:
			n.attrs = append(n.attrs, slog.String(string(f.Name()), shown(v.String())))
		}
		return len(n.attrs) < mostNoted
	})
}

// unary keeps what was done, and ends a call of who is revoked meanwhile.
func (g *Guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if Rows[info.FullMethod].Role == Nobody {
		return handle(ctx, req)
	}
	n := &notes{}
	who, _ := From(ctx)
	ctx, leave := g.Watch(context.WithValue(ctx, notesKey{}, n), who)
	defer leave()
	resp, err := handle(ctx, req)
	err = ended(ctx, err)
	if g.kept(info.FullMethod, err) {
		n.request(req)
		g.keep(ctx, info.FullMethod, n, err)
	} else if g.reads(info.FullMethod) {
		n.request(req)
		g.keepRead(ctx, info.FullMethod, n, err)
	}
	return resp, err
}

// stream does the same for streams; what a client says in one is not noted.
func (g *Guard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if Rows[info.FullMethod].Role == Nobody {
		return handle(srv, s)
	}
	n := &notes{}
	who, _ := From(s.Context())
	ctx, leave := g.Watch(context.WithValue(s.Context(), notesKey{}, n), who)
	defer leave()
	x := &guarded{ServerStream: s, ctx: ctx}
	var once sync.Once
	read := func(err error) { once.Do(func() { g.keepRead(ctx, info.FullMethod, n, err) }) }
	if g.reads(info.FullMethod) {
		x.notes, x.first = n, func() { read(nil) }
	}
	err := ended(ctx, handle(srv, x))
	switch {
	case g.kept(info.FullMethod, err):
		g.keep(ctx, info.FullMethod, n, err)
	case x.first != nil:
		read(err) // it ended with nothing
	}
	return err
}

// guarded is a stream that gives nothing to who was revoked.
type guarded struct {
	grpc.ServerStream
	ctx   context.Context
	notes *notes // of a stream whose reading is kept; nil otherwise
	first func() // is called with the first answer: a stream can go on for days
}

// RecvMsg is part of grpc.ServerStream.
func (s *guarded) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.notes != nil {
		s.notes.request(m)
	}
	return err
}

// Context is part of grpc.ServerStream.
func (s *guarded) Context() context.Context { return s.ctx }

// SendMsg is part of grpc.ServerStream.
func (s *guarded) SendMsg(m any) error {
	if s.ctx.Err() != nil {
		return Status(context.Cause(s.ctx))
	}
	if s.first != nil {
		s.first()
	}
	return s.ServerStream.SendMsg(m)
}

// ended says of a call that was ended by Recheck why it was.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if cause := Status(context.Cause(ctx)); status.Code(cause) == codes.Unauthenticated {
		return cause
	}
	return err
}

// kept reports whether a call belongs into the audit log.
func (g *Guard) kept(method string, err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return true
	}
	return Rows[method].Changes
}

// reads reports whether a call is kept because of what it hands out.
func (g *Guard) reads(method string) bool { return g.cfg.Reads && Rows[method].Reads }

func (g *Guard) keep(ctx context.Context, method string, n *notes, err error) {
	g.cfg.Audit.Keep(entry(ctx, method, n, err))
}

func (g *Guard) keepRead(ctx context.Context, method string, n *notes, err error) {
	g.cfg.Audit.KeepRead(entry(ctx, method, n, err))
}

func entry(ctx context.Context, method string, n *notes, err error) Entry {
	who, _ := From(ctx)
	e := Entry{Who: who, From: fromOf(ctx), What: method, Code: status.Code(err).String(), On: n.take()}
	if err != nil {
		e.Why = status.Convert(err).Message()
	}
	return e
}
