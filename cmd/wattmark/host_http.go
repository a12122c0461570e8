package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"wattmark/api/auth"
	"wattmark/api/limits"
	"wattmark/api/metrics"
	"wattmark/api/web"
	"wattmark/api/wire"
)

// webFlags say what is served over HTTP beside gRPC.
type webFlags struct {
	listen   string // empty for nothing
	public   bool
	profiles bool
}

// addTo gives a command the flags.
func (f *webFlags) addTo(fl *pflag.FlagSet, what string) {
	fl.StringVar(&f.listen, "http", "", what)
	fl.BoolVar(&f.public, "http-public", false, "")
	_ = fl.MarkDeprecated("http-public", "an address that other machines can reach wants --auth, or --insecure") // it is there
	fl.BoolVar(&f.profiles, "pprof", false, "serve profiles of this program below /debug/pprof/ of --http")
}

// check refuses to be open to the network by mistake.
func (f webFlags) check() error {
	if f.listen == "" {
		if f.profiles {
			return withCode(exitUsage, fmt.Errorf("--pprof says how --http serves: name its address too"))
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return withCode(exitUsage, fmt.Errorf("--http %s: %w: want an address and a port, as in 127.0.0.1:7553", f.listen, err))
	}
	return nil
}

// pipeSize is the buffer between the JSON gateway and the gRPC server, in bytes.
const pipeSize = 256 << 10

// serveWeb serves a gRPC server's calls as JSON within g, until stop is called.
func serveWeb(ctx context.Context, g *errgroup.Group, server *grpc.Server, counts *metrics.Metrics, guard *limits.Guard, f webFlags, x *access, log *slog.Logger) (stop func(), err error) {
	l, err := x.listen(ctx, f.listen, "choose another --http")
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	pipe := bufconn.Listen(pipeSize)
	conn, err := dialPipe(pipe, wire.DialOptions())
	live, lerr := dialPipe(pipe, wire.LiveDialOptions())
	if err := errors.Join(err, lerr); err != nil {
		l.Close()
		return nil, fmt.Errorf("host: %w", err)
	}
	ask, user := x.ask()
	handler, err := web.Handler(ctx, conn, web.Options{Metrics: counts.Handler(), Profiles: f.profiles, Loopback: web.IsLoopback(f.listen), Live: live, Ask: ask})
	if err != nil {
		l.Close()
		conn.Close()
		live.Close()
		return nil, fmt.Errorf("host: %w", err)
	}
	l, scheme := x.web(guard.Listen(l))
	s := web.NewServer(l, guard.Handler(handler, user), calm(log))
	g.Go(func() error { return server.Serve(auth.Inside(pipe)) })
	g.Go(s.Serve)
	log.Info("serving JSON over HTTP", "address", scheme+l.Addr().String(), "page", "/", "openapi", "/openapi.json")
	return func() {
		s.Stop(2 * time.Second)
		_, _ = conn.Close(), live.Close()
	}, nil
}

// dialPipe connects to the gRPC server of this process.
func dialPipe(pipe *bufconn.Listener, options []grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///host", append(slices.Concat(options, auth.RelayOptions()),
		plainly(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))...)
}
