package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"wattmark/api/wire"
)

// serviceLog writes to the standard error; under systemd the journal knows the
// time already.
func (a *app) serviceLog(level *slog.LevelVar) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if os.Getenv("JOURNAL_STREAM") != "" {
		o.ReplaceAttr = func(groups []string, x slog.Attr) slog.Attr {
			if len(groups) == 0 && x.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return x
		}
	}
	return slog.New(tracedLog{slog.NewTextHandler(a.err, o)})
}

// onHangups calls f with each SIGHUP until ctx ends. Under nohup there are none.
func onHangups(ctx context.Context, f func()) {
	h, ok := ctx.Value(hangupsKey{}).(*hangups)
	if ok && signal.Ignored(syscall.SIGHUP) {
		<-ctx.Done()
		return
	}
	if ok {
		h.reload.Store(true)
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	defer signal.Stop(c)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c:
			f()
		}
	}
}

// onSecond calls f with the first signal to end that follows the one that ended
// ctx, until over ends.
func onSecond(ctx, over context.Context, f func()) {
	select {
	case <-ctx.Done():
	case <-over.Done():
		return
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(c)
	select {
	case <-c:
		f()
	case <-over.Done():
	}
}

// self is a way to a service from within its process: the same server and handshake as
// at its address, but no crowd there can keep it out.
type self struct {
	*bufconn.Listener
	x *access
}

func newSelf(x *access) *self { return &self{bufconn.Listen(pipeSize), x} }

// answers asks the service for its health, as any client does.
func (s *self) answers(ctx context.Context) error {
	_, err := askVersion(ctx, "passthrough:///self", "", s.x.itself(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.DialContext(ctx) }))
	return err
}

// askVersion asks a server of ours for the health of a service by name, empty for
// the whole server, and returns the version that it tells.
func askVersion(ctx context.Context, address, service string, more ...grpc.DialOption) (string, error) {
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{plainly()}, more...)...)
	if err != nil {
		return "", err
	}
	var head metadata.MD
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.Header(&head))
	return strings.Join(head.Get(wire.VersionHeader), " "), errors.Join(err, conn.Close())
}
