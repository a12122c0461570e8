package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"wattmark/api"
	"wattmark/api/limits"
	"wattmark/api/metrics"
	"wattmark/api/wire"
	"wattmark/cmd/config"
	"wattmark/store"
)

// hostService is a host with all that it serves and looks after.
type hostService struct {
	*hostFlags
	log      *slog.Logger
	db       *store.DB
	guard    *limits.Guard
	x        *access
	listener net.Listener
	traces   *tracing
	gate     *gate
	programs *programs
	monitors *monitors
	counts   *metrics.Metrics
	server   *grpc.Server
	inside   *grpc.Server // the same for HTTP, behind a pipe; nil without
	ends     []func()     // of what is served, the first first
	closes   []func()     // of what was opened, the last first
}

func (a *app) host(ctx context.Context, f *hostFlags, r *config.Reloader, log *slog.Logger) error {
	s := &hostService{hostFlags: f, log: log}
	defer s.close()
	if err := s.open(ctx, a); err != nil {
		return err
	}
	if err := s.register(a); err != nil {
		return err
	}
	log.Info("serving the task database", "address", s.listener.Addr().String(), "database", a.db)
	return s.serve(ctx, r)
}

// open takes the database, the address and the socket, and prepares all that needs
// no answer of others.
func (s *hostService) open(ctx context.Context, a *app) (err error) {
	if s.db, err = store.Open(ctx, a.db); err != nil {
		return err
	}
	s.closes = append(s.closes, func() { s.db.Close() })
	s.db.SetLimits(s.room.limits())
	if err = s.db.OpenAll(ctx); err != nil {
		return err
	}
	if s.guard, err = s.limits.guard(); err != nil {
		return err
	}
	if s.x, err = s.access.open(s.log); err != nil {
		return err
	}
	s.closes = append(s.closes, func() { s.x.audit.Close() })
	if s.listener, err = s.x.listen(ctx, s.listen, "is another wattmark host running? choose another --listen; wattmark doctor says who may have it"); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	s.closes = append(s.closes, func() { s.listener.Close() })
	if s.traces, err = openTracing(ctx, s.otlp, "wattmark-host", warnOf(s.log)); err != nil {
		return err
	}
	s.closes = append(s.closes, func() { warnOf(s.log)(s.traces.close(ctx)) })
	s.gate = &gate{flags: s.cluster.usual(), db: s.db, log: s.log}
	s.closes = append(s.closes, func() { s.gate.close() })
	if s.programs, err = a.openPrograms(ctx, s.db, s.hostFlags, s.x, s.gate, s.traces, s.log); err != nil {
		return err
	}
	s.closes = append(s.closes, func() { s.programs.close() })
	if s.monitors, err = openMonitors(ctx, s.db, s.hostFlags.monitors.list); err != nil {
		return err
	}
	s.closes = append(s.closes, func() { s.monitors.close() })
	return nil
}

func (s *hostService) close() {
	for _, c := range slices.Backward(s.closes) {
		c()
	}
}

// register makes the gRPC server with its services.
func (s *hostService) register(a *app) error {
	s.counts = metrics.New()
	if err := errors.Join(s.counts.Register(&metrics.Database{Stats: s.db.Stats}), s.counts.Register(s.guard)); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	tasks, reports := api.New(s.db), a.openReports(s.db)
	serve := func(options []grpc.ServerOption) *grpc.Server {
		server := grpc.NewServer(slices.Concat(wire.ServerOptions(), wire.TellVersion(version()),
			s.counts.ServerOptions(), s.traces.server(), options)...)
		health := tasks.Register(server)
		s.monitors.register(server)
		reports.Register(server)
		s.ends = append(s.ends, health.Shutdown)
		return server
	}
	s.server = serve(s.x.serverOptions(s.guard))
	if s.http.listen != "" {
		// All who come over HTTP share the pipe's one connection: the limit of calls of a
		// connection would let those who watch keep out everybody else.
		s.inside = serve(s.x.insideOptions(s.guard))
	}
	s.ends = append(s.ends, func() { tasks.Close() }, func() { reports.Close() })
	return nil
}

// serve runs until ctx ends.
func (s *hostService) serve(ctx context.Context, r *config.Reloader) error {
	n := newNotifier(s.log)
	every := s.reloads(r, s.log)
	r.Always = s.x.reopen
	g, ctx := errgroup.WithContext(ctx)
	if s.http.listen != "" {
		stop, err := serveWeb(ctx, g, s.inside, s.counts, s.guard, s.http, s.x, s.log)
		if err != nil {
			return err
		}
		s.ends = append(s.ends, stop)
	}
	address, within := s.listener.Addr().String(), newSelf(s.x)
	for _, side := range []func(){
		func() { onHangups(ctx, r.Reload) },
		func() { n.watchdog(ctx, within.answers) },
		func() { s.x.run(ctx) },
		func() {
			<-ctx.Done()
			n.tell("STOPPING=1")
			for _, end := range s.ends {
				end()
			}
			stopServer(s.server)
			if s.inside != nil {
				stopServer(s.inside)
			}
		},
	} {
		g.Go(func() error {
			side()
			return nil
		})
	}
	g.Go(func() error { return s.server.Serve(s.guard.Listen(s.listener)) })
	g.Go(func() error { return s.server.Serve(within) })
	g.Go(func() error { return s.monitors.relay.Run(ctx) })
	g.Go(func() error { return s.programs.serve(ctx) })
	g.Go(func() error {
		if err := sweepPartial(ctx, s.db, s.log); err != nil && ctx.Err() == nil {
			s.log.Warn("could not delete what interrupted imports left", "error", err)
		}
		return nil
	})
	g.Go(func() error { return recoverLoop(ctx, s.programs.others(s.db), s.gate.dial, s.log, every) })
	g.Go(func() error { return s.gate.run(ctx) })
	g.Go(func() error { return makePyramids(ctx, s.db, s.log) })
	g.Go(func() error { return retainLoop(ctx, s.db, s.log, s.keep, s.retainEvery) })
	n.tell("READY=1\nSTATUS=serving " + s.db.Path() + " on " + address)
	return g.Wait()
}

// stopServer lets calls end for a moment, then ends them.
func stopServer(s *grpc.Server) {
	timer := time.AfterFunc(2*time.Second, s.Stop)
	defer timer.Stop()
	s.GracefulStop()
}
