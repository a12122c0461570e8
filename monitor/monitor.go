// Package monitor is the machine with the meter as a gRPC service: captures
// (monitor/capture) of one bench, kept in a spool (monitor/spool), served as
// wattmark.v1.MonitorService with health and reflection. docs/protocol.md has the exchange
// step by step.
//
//	Config ─▶ New ─▶ Monitor ─▶ Run: listeners ─▶ service ─▶ capture.Owner
//
// A monitor that is stopped drains: it takes no new captures, lets the running one end and
// be fetched within Config.Drain, and ends it Incomplete after that.
package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/spool"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// Bench is the measuring setup of a monitor.
type Bench = capture.Bench

// Config describes a monitor.
type Config struct {
	Bench Bench
	// Dir is the spool's directory; it is created, and locked while the monitor lives.
	Dir string
	// Listeners are served by Run, and closed by it.
	Listeners []net.Listener
	// Version is shown to hosts.
	Version string
	// Log records events for the operator; nil for silence.
	Log *slog.Logger
	// Drain is how long a running capture may take to end by itself when the monitor is
	// stopped; zero ends it at once. See SetDrain.
	Drain time.Duration
	// Quota bounds the captures in the spool and on its disk.
	Quota capture.Quota
	// AwaitReplicas keeps captures that were released until Replicated.
	AwaitReplicas bool
	// Tune changes the capture's defaults. Its Bench, Store, Quota, AwaitReplicas and Log are ignored.
	Tune capture.Config
	// Spool changes the spool's defaults.
	Spool spool.Options
	// ServerOptions are added to the server's: credentials, interceptors.
	ServerOptions []grpc.ServerOption
}

// Monitor is a monitor machine: the owner of its bench, with a spool and a server. Its methods
// are safe for concurrent use.
type Monitor struct {
	*capture.Owner
	cfg    Config
	store  *spool.Store
	health *health.Server
	drain  atomic.Int64 // Config.Drain, as it is now
	// stopping ends before the server drains, so that endless streams end, and hurry when running
	// captures are no longer awaited.
	stopping, hurry     context.Context
	endStreams, noWaits context.CancelFunc
}

// New takes the spool's directory and restores the captures in it. It does not touch the
// instrument. Errors wrap spool.ErrLocked when another monitor has the directory.
func New(cfg Config) (*Monitor, error) {
	if cfg.Dir == "" {
		return nil, errors.New("monitor: no directory for the spool")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Spool.Log = cmp.Or(cfg.Spool.Log, cfg.Log)
	store, err := spool.Open(cfg.Dir, cfg.Spool)
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	c := cfg.Tune
	c.Bench, c.Store, c.Log, c.Quota, c.AwaitReplicas = cfg.Bench, store, cfg.Log, cfg.Quota, cfg.AwaitReplicas
	owner, err := capture.New(c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("monitor: %w", err), store.Close())
	}
	m := &Monitor{Owner: owner, cfg: cfg, store: store, health: health.NewServer()}
	m.stopping, m.endStreams = context.WithCancel(context.Background())
	m.hurry, m.noWaits = context.WithCancel(context.Background())
	m.SetDrain(cfg.Drain)
	return m, nil
}

// NewServer returns a gRPC server with MonitorService, health and reflection.
func (m *Monitor) NewServer() *grpc.Server {
	options := append(wire.ServerOptions(), wire.TellVersion(m.cfg.Version))
	s := grpc.NewServer(append(options, m.cfg.ServerOptions...)...)
	pb.RegisterMonitorServiceServer(s, &service{monitor: m})
	grpc_health_v1.RegisterHealthServer(s, m.health)
	reflection.Register(s)
	return s
}

// Run owns the instrument and serves the listeners until ctx ends, and then drains. All
// samples are durable when it returns. Errors are a listener's, or wrap capture.ErrMisfit.
func (m *Monitor) Run(ctx context.Context) error {
	defer m.store.Close()
	server := m.NewServer()
	asked := ctx
	// Draining outlives ctx: the tasks end with a context of their own.
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.Owner.Run(ctx) })
	g.Go(func() error {
		m.Probe(ctx) // logs at once that an instrument is not there
		return nil
	})
	for _, l := range m.cfg.Listeners {
		g.Go(func() error {
			// A server that was stopped before it began to serve has no fault.
			if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("monitor: serve %s: %w", l.Addr(), err)
			}
			return nil
		})
	}
	m.setServing(grpc_health_v1.HealthCheckResponse_SERVING)
	g.Go(func() error {
		select {
		case <-ctx.Done(): // a task failed
		case <-asked.Done():
			m.setServing(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
			stop(m.awaitCaptures(ctx))
		}
		m.setServing(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		// Calls may end: readers get the trailer of the capture that was just ended, viewers the
		// error that the monitor stops.
		m.endStreams()
		defer time.AfterFunc(3*time.Second, server.Stop).Stop() // calls that are still open end then
		server.GracefulStop()
		return nil
	})
	return g.Wait()
}

// setServing sets the status of the health service.
func (m *Monitor) setServing(s grpc_health_v1.HealthCheckResponse_ServingStatus) {
	m.health.SetServingStatus("", s)
	m.health.SetServingStatus(pb.MonitorService_ServiceDesc.ServiceName, s)
}

// SetDrain changes Config.Drain.
func (m *Monitor) SetDrain(limit time.Duration) { m.drain.Store(int64(limit)) }

// Hurry ends the wait for running captures, now or later.
func (m *Monitor) Hurry() { m.noWaits() }

// awaitCaptures refuses new holders and waits until the running capture has ended and was
// fetched, or ctx has ended. It returns the cause that ends a capture that is left.
func (m *Monitor) awaitCaptures(ctx context.Context) error {
	free := m.Drain()
	limit := time.Duration(m.drain.Load())
	select {
	case <-free:
		return nil
	default:
	}
	if limit <= 0 {
		return nil
	}
	id := ""
	all := m.List()
	if i := slices.IndexFunc(all, func(c session.Capture) bool { return !c.State.Ended() }); i >= 0 {
		id = all[i].ID
	}
	m.cfg.Log.Info("stopping: the capture that runs may end by itself", "capture", id, "limit", limit)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-free:
	case <-ctx.Done(): // a task failed meanwhile
		return nil
	case <-m.hurry.Done():
		return capture.StopCause("the monitor was stopped at once, while it waited for this capture to end")
	case <-timer.C:
		return capture.StopCause(fmt.Sprintf(
			"the monitor was stopped: this capture had not ended %v after it was asked to", limit))
	}
	// A host has 5 s to fetch and release it.
	fetch := time.Now().Add(5 * time.Second)
	for now := range backoff.Rounds(m.hurry.Done(), 20*time.Millisecond) {
		if c, err := m.Get(id); err != nil || c.Has(spool.MarkReleased) {
			break
		}
		if !now.Before(fetch) {
			m.cfg.Log.Warn("stopping: the capture that ended was not fetched; it stays in the spool", "capture", id)
			break
		}
	}
	return nil
}
