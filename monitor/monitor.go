package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/monitor/capture"
	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
)

// Bench is what a monitor measures with. It is made from a bench file, or by
// hand in a test.
type Bench struct {
	// Name is shown to hosts.
	Name string
	// GPU is the UUID of the GPU that the bench measures; empty where it is not
	// said.
	GPU string
	// Instrument belongs to the monitor from New on.
	Instrument instrument.Instrument
	// Setup makes rails of what the instrument delivers, with the calibration in
	// force. It is called whenever the instrument was opened.
	Setup func(instrument.Inputs) (measure.Setup, error)
	// Calibrate puts calibration records on what Setup made; nil for none.
	Calibrate func(measure.Setup, instrument.Identity) (measure.Setup, []string, error)
}

// Open opens the instrument, and makes the setup under which a monitor would measure
// now; notes are what an operator should know of the calibration records. The
// instrument must be closed, also after an error.
func (b *Bench) Open(ctx context.Context) (setup measure.Setup, notes []string, err error) {
	if err := b.Instrument.Open(ctx); err != nil {
		return setup, nil, err
	}
	_, setup, notes, err = capture.Calibrated(b.Instrument.Inputs(), b.Instrument.Identity(), b.GPU, b.Setup, b.Calibrate)
	return setup, notes, err
}

// Config is what a monitor is made of.
type Config struct {
	Bench Bench
	// Dir is the spool's directory; it is created, and locked while the monitor lives.
	Dir string
	// Listeners are served by Run, and closed by it.
	Listeners []net.Listener
	// Version is shown to hosts.
	Version string
	// Log gets what an operator wants to know; nil for silence.
	Log *slog.Logger
	// Drain is how long a capture that runs may take to end by itself when the
	// monitor is stopped; zero ends it at once. See SetDrain.
	Drain time.Duration
	// Room is what captures may take of the spool and its disk.
	Room capture.Room
	// Hold keeps captures that were released until Replicated is told of them.
	Hold bool
	// Tune changes the capture's defaults; Bench, GPU, Instrument, Setup, Calibrate,
	// Store, Room, Hold and Log in it are not looked at.
	Tune capture.Config
	// Spool changes the spool's defaults.
	Spool spool.Options
	// ServerOptions are added to the server's: credentials, interceptors.
	ServerOptions []grpc.ServerOption
}

// callsTime is how long calls may take to end when the monitor is stopped.
const callsTime = 3 * time.Second

// Monitor is a monitor machine.
type Monitor struct {
	cfg    Config
	store  *spool.Store
	owner  *capture.Owner
	health *health.Server
	// stopping is closed before the server drains, so that streams that would
	// never end do.
	stopping chan struct{}
	stopOnce sync.Once
	drain    atomic.Int64  // Config.Drain, as it is now
	hurry    chan struct{} // closed when running captures are not waited for
	haste    sync.Once
}

// New takes the spool's directory and restores the captures in it. It does not
// touch the instrument. Errors wrap spool.ErrLocked when another monitor has
// the directory.
func New(cfg Config) (*Monitor, error) {
	if cfg.Dir == "" {
		return nil, errors.New("monitor: no directory for the spool")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Spool.Log == nil {
		cfg.Spool.Log = cfg.Log
	}
	store, err := spool.Open(cfg.Dir, cfg.Spool)
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	c := cfg.Tune
	c.Bench, c.Instrument, c.Setup, c.Store, c.Log = cfg.Bench.Name, cfg.Bench.Instrument, cfg.Bench.Setup, store, cfg.Log
	c.Calibrate, c.GPU = cfg.Bench.Calibrate, cfg.Bench.GPU
	c.Room, c.Hold = cfg.Room, cfg.Hold
	owner, err := capture.New(c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("monitor: %w", err), store.Close())
	}
	m := &Monitor{
		cfg: cfg, store: store, owner: owner, health: health.NewServer(), stopping: make(chan struct{}), hurry: make(chan struct{}),
	}
	m.SetDrain(cfg.Drain)
	return m, nil
}

// NewServer returns a gRPC server with MonitorService, health and reflection.
func (m *Monitor) NewServer() *grpc.Server {
	options := append(wire.ServerOptions(), wire.TellVersion(m.cfg.Version)...)
	s := grpc.NewServer(append(options, m.cfg.ServerOptions...)...)
	wattmarkv1.RegisterMonitorServiceServer(s, &service{monitor: m, owner: m.owner, version: m.cfg.Version})
	grpc_health_v1.RegisterHealthServer(s, m.health)
	reflection.Register(s)
	return s
}

// Run owns the instrument and serves the listeners until ctx ends. A capture
// that then runs may end by itself for as long as Config.Drain says; then it ends
// INCOMPLETE. All that was taken is durable when Run returns.
func (m *Monitor) Run(ctx context.Context) error {
	defer m.store.Close()
	server := m.NewServer()
	asked := ctx
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.owner.Run(ctx) })
	g.Go(func() error {
		m.owner.Probe(ctx) // who starts a monitor learns at once that its instrument is not there
		return nil
	})
	for _, l := range m.cfg.Listeners {
		g.Go(func() error {
			// Stopped before it began to serve is stopped as asked.
			if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("monitor: serve %s: %w", l.Addr(), err)
			}
			return nil
		})
	}
	m.setServing(true)
	g.Go(func() error {
		select {
		case <-ctx.Done(): // something failed
		case <-asked.Done():
			m.setServing(false)
			stop(m.awaitCaptures(ctx))
		}
		m.setServing(false)
		m.endCalls(server)
		return nil
	})
	return g.Wait()
}

func (m *Monitor) setServing(yes bool) {
	s := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if yes {
		s = grpc_health_v1.HealthCheckResponse_SERVING
	}
	m.health.SetServingStatus("", s)
	m.health.SetServingStatus(wattmarkv1.MonitorService_ServiceDesc.ServiceName, s)
}

// endCalls lets calls end: readers get the trailer of the capture that was just
// ended, viewers are told that the monitor stops.
func (m *Monitor) endCalls(s *grpc.Server) {
	m.stopOnce.Do(func() { close(m.stopping) })
	timer := time.AfterFunc(callsTime, s.Stop)
	defer timer.Stop()
	s.GracefulStop()
}
