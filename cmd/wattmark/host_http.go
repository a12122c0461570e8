package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

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
	fl.BoolVar(&f.public, "http-public", false, "let --http be an address that other machines can reach")
	fl.BoolVar(&f.profiles, "pprof", false, "serve profiles of this program below /debug/pprof/ of --http")
}

// check refuses to be open to the network by mistake.
func (f webFlags) check() error {
	if f.listen == "" {
		if f.public || f.profiles {
			return withCode(exitUsage, fmt.Errorf("--http-public and --pprof say how --http serves: name its address too"))
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return withCode(exitUsage, fmt.Errorf("--http %s: %w: want an address and a port, as in 127.0.0.1:7553", f.listen, err))
	}
	if !f.public && !web.IsLoopback(f.listen) {
		return withCode(exitUsage, fmt.Errorf("--http %s can be reached from other machines, and whoever reaches it may read and delete: use 127.0.0.1 and a tunnel, or add --http-public", f.listen))
	}
	return nil
}

// pipeSize is the buffer between the JSON gateway and the gRPC server, in bytes.
const pipeSize = 256 << 10

// serveWeb serves a gRPC server's calls as JSON within g, until stop is called.
func serveWeb(ctx context.Context, g *errgroup.Group, server *grpc.Server, counts *metrics.Metrics, f webFlags, log *slog.Logger) (stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return nil, fmt.Errorf("host: %w: choose another --http", err)
	}
	pipe := bufconn.Listen(pipeSize)
	conn, err := grpc.NewClient("passthrough:///host", append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))...)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("host: %w", err)
	}
	handler, err := web.Handler(ctx, conn, web.Options{Metrics: counts.Handler(), Profiles: f.profiles, Loopback: web.IsLoopback(f.listen)})
	if err != nil {
		l.Close()
		conn.Close()
		return nil, fmt.Errorf("host: %w", err)
	}
	s := web.NewServer(l, handler, log)
	g.Go(func() error { return server.Serve(pipe) })
	g.Go(s.Serve)
	log.Info("serving JSON over HTTP", "address", "http://"+l.Addr().String(), "openapi", "/openapi.json")
	return func() {
		s.Stop(2 * time.Second)
		_ = conn.Close()
	}, nil
}
