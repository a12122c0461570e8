package service

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

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/api/metrics"
	"github.com/wattmark/wattmark/api/web"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
)

// webFlags select the HTTP address beside gRPC.
type webFlags struct {
	listen   string // "" for no HTTP
	public   bool
	profiles bool
}

// addTo defines the flags; the second parameter is the help of --http.
func (f *webFlags) addTo(fl *pflag.FlagSet, what string) {
	fl.StringVar(&f.listen, "http", "", what)
	fl.BoolVar(&f.public, "http-public", false, "")
	_ = fl.MarkDeprecated("http-public",
		"an address that other machines can reach wants --auth, or --insecure") // the flag exists: no error is possible
	fl.BoolVar(&f.profiles, "pprof", false, "serve profiles of this program below /debug/pprof/ of --http")
}

// check refuses a bad address, and --pprof without one, as wrong usage.
func (f webFlags) check() error {
	if f.listen == "" {
		if f.profiles {
			return cli.Usagef("--pprof says how --http serves: name its address too")
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return cli.Usagef("--http %s: %w: want an address and a port, as in 127.0.0.1:7553", f.listen, err)
	}
	return nil
}

// serveWeb serves page, JSON and gRPC-Web in g until stop is called. The gateway reaches
// server through an in-memory pipe, as any other client does: authentication and limits
// then have one place. Live streams use a connection of their own.
func serveWeb(ctx context.Context, g *errgroup.Group, server *grpc.Server, counts *metrics.Metrics, guard *limits.Guard,
	f webFlags, x *daemon.Access, log *slog.Logger,
) (stop func(), err error) {
	l, err := x.Listen(ctx, f.listen, "choose another --http")
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	pipe := bufconn.Listen(daemon.PipeSize)
	conn, err := dialPipe(pipe, wire.DialOptions())
	live, lerr := dialPipe(pipe, wire.LiveDialOptions())
	if err := errors.Join(err, lerr); err != nil {
		l.Close()
		return nil, fmt.Errorf("host: %w", err)
	}
	ask, user := x.Ask(ctx)
	handler, err := web.Handler(ctx, conn, web.Options{
		Metrics: counts.Handler(), Profiles: f.profiles, Loopback: web.IsLoopback(f.listen), Live: live, Ask: ask,
	})
	if err != nil {
		l.Close()
		conn.Close()
		live.Close()
		return nil, fmt.Errorf("host: %w", err)
	}
	l, scheme := x.Web(guard.Listen(l))
	s := web.NewServer(l, guard.Handler(handler, user), daemon.Calm(log))
	g.Go(func() error { return server.Serve(auth.Inside(pipe)) })
	g.Go(s.Serve)
	log.Info("serving JSON over HTTP", "address", scheme+l.Addr().String(), "page", "/", "openapi", "/openapi.json")
	return func() {
		s.Stop(ctx, 2*time.Second)
		_, _ = conn.Close(), live.Close()
	}, nil
}

// dialPipe connects to the gRPC server of this process.
func dialPipe(pipe *bufconn.Listener, options []grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///host", append(slices.Concat(options, auth.RelayOptions()), cli.Plainly(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return pipe.DialContext(ctx)
		}))...)
}
