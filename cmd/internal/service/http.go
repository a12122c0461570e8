package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/api/metrics"
	"github.com/wattmark/wattmark/api/web"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
)

// doorFlags select how a service is reached: its address, HTTP beside it, access and limits.
type doorFlags struct {
	listen string
	http   webFlags
	access daemon.AccessFlags
	limits daemon.LimitFlags
}

// addTo defines the flags; address is the default of --listen, web the help of --http.
func (f *doorFlags) addTo(fl *pflag.FlagSet, address, web string) {
	fl.StringVar(&f.listen, "listen", address, "address to serve on; another one than this machine's own wants --auth")
	f.http.addTo(fl, web)
	cli.Section(fl, "Who may call", func() { f.access.AddTo(fl) })
	cli.Section(fl, "Limits of callers", func() { f.limits.AddTo(fl) })
}

// door is how a service is reached: its address, with limits and access control.
type door struct {
	guard    *limits.Guard
	x        *daemon.Access
	listener net.Listener
	log      *slog.Logger
}

// open takes the address for the service name; remedy is added to the error of an address
// that is taken. The caller closes the door, also after an error.
func (f *doorFlags) open(ctx context.Context, name, remedy string, log *slog.Logger) (d door, err error) {
	d.log = log
	if d.guard, err = f.limits.Guard(); err != nil {
		return d, err
	}
	if d.x, err = f.access.Open(log); err != nil {
		return d, err
	}
	if d.listener, err = d.x.Listen(ctx, f.listen, remedy); err != nil {
		return d, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

func (d *door) close() {
	if d.listener != nil {
		d.listener.Close()
	}
	if d.x != nil {
		d.x.Audit.Close()
	}
}

// site takes the address of --http and returns the server of what handler makes there, not
// yet serving, and its URL.
func (d *door) site(ctx context.Context, f webFlags, counts *metrics.Metrics,
	handler func(web.Options) (http.Handler, error),
) (*web.Server, string, error) {
	l, err := d.x.Listen(ctx, f.listen, "choose another --http")
	if err != nil {
		return nil, "", err
	}
	ask, user := d.x.Ask(ctx)
	h, err := handler(web.Options{
		Metrics: counts.Handler(), Profiles: f.profiles, Loopback: auth.IsLoopback(f.listen), Ask: ask,
		Charge: limits.Charge,
	})
	if err != nil {
		return nil, "", errors.Join(err, l.Close())
	}
	l, scheme := d.x.Web(d.guard.Listen(l))
	return web.NewServer(l, d.guard.Handler(h, user), daemon.Calm(d.log)), scheme + l.Addr().String(), nil
}

// webFlags select the HTTP address beside gRPC.
type webFlags struct {
	listen   string // "" for no HTTP
	public   bool
	profiles bool
	look     bool // a scrape counts as a look at an idle bench
}

// addTo defines the flags; the second parameter is the help of --http.
func (f *webFlags) addTo(fl *pflag.FlagSet, what string) {
	fl.StringVar(&f.listen, "http", "", what)
	fl.BoolVar(&f.public, "http-public", false, "")
	_ = fl.MarkDeprecated("http-public",
		"an address that other machines can reach wants --auth, or --insecure") // the flag exists: no error is possible
	fl.BoolVar(&f.look, "scrape-idle", false,
		"sample free benches while /metrics is scraped, for watts and joules between measurements")
	fl.BoolVar(&f.profiles, "pprof", false, "serve profiles of this program below /debug/pprof/ of --http")
}

// check refuses a bad address, and --pprof without one, as wrong usage.
func (f webFlags) check() error {
	switch _, _, err := net.SplitHostPort(f.listen); {
	case f.listen == "" && f.profiles:
		return cli.Usagef("--pprof says how --http serves: name its address too")
	case f.listen != "" && err != nil:
		return cli.Usagef("--http %s: %w: want an address and a port, as in 127.0.0.1:7553", f.listen, err)
	}
	return nil
}

// serveWeb serves page, JSON and gRPC-Web in g until stop is called. The gateway reaches
// the server inside through an in-memory pipe, as any other client does: authentication and
// limits then have one place. Live streams use a connection of their own.
func (s *hostService) serveWeb(ctx context.Context, g *errgroup.Group) (stop func(), err error) {
	pipe := bufconn.Listen(daemon.PipeSize)
	conn, err := dialPipe(pipe, wire.DialOptions())
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	live, err := dialPipe(pipe, wire.LiveDialOptions())
	if err != nil {
		return nil, fmt.Errorf("host: %w", errors.Join(err, conn.Close()))
	}
	server, address, err := s.site(ctx, s.http, s.counts, func(o web.Options) (http.Handler, error) {
		o.Live = live
		return web.Handler(ctx, conn, o)
	})
	if err != nil {
		return nil, fmt.Errorf("host: %w", errors.Join(err, conn.Close(), live.Close()))
	}
	g.Go(func() error { return s.inside.Serve(auth.Inside(pipe)) })
	g.Go(server.Serve)
	s.log.Info("serving JSON over HTTP", "address", address, "page", "/", "openapi", "/openapi.json")
	return func() {
		server.Stop(ctx, 2*time.Second)
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

// monitorStats collects the counters of a bench for Prometheus.
type monitorStats struct{ stats func() capture.Stats }

// Describe implements prometheus.Collector.
func (m monitorStats) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector from one snapshot, so that the values
// agree. Names and help are part of the interface.
func (m monitorStats) Collect(ch chan<- prometheus.Metric) {
	s, yes := m.stats(), map[bool]float64{true: 1}
	for _, c := range []struct {
		value      float64
		name, help string
	}{
		{float64(s.Captures), "wattmark_monitor_captures_total", "Captures begun, and found in the spool."},
		{float64(s.Scans), "wattmark_monitor_scans_total", "Scans taken."},
		{float64(s.Gaps), "wattmark_monitor_gaps_total", "Gaps between scans."},
		{float64(s.Lost), "wattmark_monitor_lost_scans_total", "Scans lost in gaps."},
		{float64(s.OverRange), "wattmark_monitor_over_range_total", "Readings at the end of a converter's range."},
		{float64(s.SpoolBytes), "wattmark_monitor_spool_bytes", "Size of the captures in the spool."},
		{
			float64(s.SetAside), "wattmark_monitor_spool_set_aside",
			"Entries of the spool that could not be used when the monitor started.",
		},
		{yes[s.Busy], "wattmark_monitor_busy", "1 while somebody has the bench."},
		{yes[s.Trouble], "wattmark_monitor_instrument_trouble", "1 from a failure of the instrument until it has answered again."},
		{float64(s.Lag), "wattmark_monitor_lag_seconds", "How far the samples of the running capture are behind the wall clock."},
	} {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(c.name, "_total") {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(c.name, c.help, nil, nil), kind, c.value)
	}
	held := prometheus.NewDesc("wattmark_monitor_captures_held", "Captures in the spool, by state.",
		[]string{"state"}, nil)
	for state := session.Arming; state <= session.Incomplete; state++ {
		ch <- prometheus.MustNewConstMetric(held, prometheus.GaugeValue, float64(s.Held[state]), state.String())
	}
}

// health answers /healthz as the host does: 503 while the gRPC server does not answer.
func (s *monitorService) health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		state := healthgrpc.HealthCheckResponse_SERVING
		w.Header().Set("Content-Type", "application/json")
		if s.within.Answers(r.Context()) != nil {
			state = healthgrpc.HealthCheckResponse_NOT_SERVING
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintf(w, `{"status":%q}`, state.String())
	})
	return mux
}

// serveMetrics serves /metrics, /healthz, and profiles if wanted, until stop is called,
// which waits up to two seconds for open requests.
func (s *monitorService) serveMetrics(ctx context.Context, counts *metrics.Metrics) (stop func(), err error) {
	bench := metrics.Bench{Name: s.bench.Name, GPU: s.bench.GPU}
	power := metrics.NewPower(s.f.http.look, func(ctx context.Context, idle bool,
		see func(metrics.Bench, session.Moment),
	) error {
		return s.Watch(ctx, session.WatchOptions{Every: metrics.PowerEvery, Idle: idle}, func(m session.Moment) error {
			see(bench, m)
			return nil
		})
	})
	err = errors.Join(counts.Register(monitorStats{s.Stats}), counts.Register(s.guard), counts.Register(power))
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	server, address, err := s.site(ctx, s.f.http, counts, func(o web.Options) (http.Handler, error) {
		return web.Beside(o, s.health()), nil
	})
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	watching, end := context.WithCancel(ctx)
	go power.Run(watching)
	go func() {
		if err := server.Serve(); err != nil {
			s.log.Error("metrics are not served any more", "error", err)
		}
	}()
	s.log.Info("serving metrics", "address", address+"/metrics")
	return func() {
		end()
		server.Stop(ctx, 2*time.Second)
	}, nil
}
