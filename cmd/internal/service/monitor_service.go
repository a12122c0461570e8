package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/api/metrics"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/capture"
	"golang.org/x/sync/errgroup"
)

// monitorService is a monitor that rereads its configuration at SIGHUP and drains
// at SIGTERM.
type monitorService struct {
	*monitor.Monitor
	f      *monitorFlags
	log    *slog.Logger
	x      *daemon.Access
	within *daemon.Self
	bench  *bench.Bench // in force; changed by rebind only
	// keep and drain are the values in force, in ns. The flags themselves are
	// overwritten while a file is tried, so other goroutines must not read them.
	keep, drain atomic.Int64
}

// runMonitor opens the bench, the address and the spool, and serves until ctx
// ends. What it opened is closed on return.
func runMonitor(ctx context.Context, a *cli.App, f *monitorFlags, r *config.Reloader, log *slog.Logger) error {
	n := daemon.NewNotifier(log)
	s := &monitorService{f: f, log: log}
	var err error
	if s.bench, err = f.BenchFlags.Load(); err != nil {
		return err
	}
	b, closeBench, err := session.MakeBench(s.bench, f.Folder())
	if err != nil {
		return err
	}
	defer closeBench()
	guard, err := f.limits.Guard()
	if err != nil {
		return err
	}
	if s.x, err = f.access.Open(log); err != nil {
		return err
	}
	defer s.x.Audit.Close()
	l, err := s.x.Listen(ctx, f.listen, "choose another --listen; wattmark doctor says who may have it")
	if err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	traces, err := cli.OpenTracing(ctx, f.otlp, "wattmark-monitor", cli.WarnOf(log))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { cli.WarnOf(log)(traces.Close(ctx)) }()
	s.within = daemon.NewSelf(s.x)
	counts := metrics.New()
	cfg := monitor.Config{
		Bench: b, Dir: f.spool, Version: cli.Version(), Log: log, Listeners: []net.Listener{guard.Listen(l), s.within},
		Quota: f.room.Room(), AwaitReplicas: f.publish.Servers != "",
		ServerOptions: slices.Concat(counts.ServerOptions(), traces.Server(), s.x.ServerOptions(guard)),
	}
	if s.Monitor, err = monitor.New(cfg); err != nil {
		return errors.Join(err, l.Close())
	}
	if f.http.listen != "" {
		stop, err := serveMetrics(ctx, counts, guard, s.Stats, f.http, s.x, log)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		defer stop()
	}
	s.keep.Store(int64(f.keep))
	s.drain.Store(int64(f.drain))
	s.configure(ctx, r)
	log.Info("serving the bench", "bench", b.Name, "address", l.Addr().String(), "spool", f.spool)
	return s.run(ctx, n, r, l.Addr().String())
}

// configure registers the flags that may change at SIGHUP.
func (s *monitorService) configure(ctx context.Context, r *config.Reloader) {
	r.Live["log-level"] = func() {} // the flag is the level
	r.Live["drain"] = func() { s.drain.Store(int64(s.f.drain)) }
	r.Live["keep"] = func() { s.keep.Store(int64(s.f.keep)) }
	r.Live["calibration"] = func() {} // rebind looks
	r.Always = func() {
		s.x.Reopen()
		s.rebind(ctx)
	}
}

// run serves until ctx ends and the drain is over. over outlives ctx: expiry,
// publication and reloads go on while the last capture ends.
func (s *monitorService) run(ctx context.Context, n *daemon.Notifier, r *config.Reloader, address string) error {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var g errgroup.Group
	side := func(f func()) {
		g.Go(func() error {
			f()
			return nil
		})
	}
	side(func() { daemon.OnHangups(over, r.Reload) })
	side(func() { daemon.OnSecond(ctx, over, s.Hurry) })
	side(func() { s.expire(over) })
	side(func() { s.x.Run(over) })
	side(func() { (&capturePublisher{mon: s.Monitor, flags: s.f.publish, log: s.log}).Run(over) })
	side(func() {
		n.Watchdog(over, func(check context.Context) error {
			// Draining is no hang: the watchdog must not kill a monitor that lets a capture
			// end.
			if ctx.Err() != nil {
				return nil // it is being stopped, and lets a capture end
			}
			return s.within.Answers(check)
		})
	})
	side(func() {
		select {
		case <-ctx.Done():
			n.Tell("STOPPING=1\nSTATUS=letting the capture that runs end")
		case <-over.Done():
		}
	})
	// serving ends with ctx, after the drain has been set: SIGTERM drains, SIGINT does
	// not.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	side(func() {
		select {
		case <-ctx.Done():
			if cli.AskedPolitely(ctx) {
				s.SetDrain(time.Duration(s.drain.Load()))
			}
			stop()
		case <-over.Done():
		}
	})
	n.Tell("READY=1\nSTATUS=serving bench " + s.bench.Name + " on " + address)
	err := s.Run(serving)
	end()
	_ = g.Wait()
	if errors.Is(err, capture.ErrMisfit) {
		return cli.WithCode(cli.ExitUsage, err) // as for any other fault of the bench file
	}
	return err
}

// rebind rereads the bench file and the calibration records. A capture that runs
// keeps those it began with. Other instruments, GPU or name need a restart; then,
// and after an error, the bench stays as it was.
func (s *monitorService) rebind(ctx context.Context) {
	fresh, err := s.f.BenchFlags.Load()
	switch {
	case err != nil:
		s.log.Error("reload: the bench stays as it is", "error", err)
		return
	case !s.bench.SameInstruments(fresh):
		s.log.Warn("reload: the bench file names other instruments, another GPU or another name: this needs a restart",
			"bench", s.f.File)
		return
	}
	if err := s.Rebind(monitor.Bench{Setup: fresh.Setup, Calibrate: s.f.Folder().Calibrate}); err != nil {
		s.log.Error("reload: the bench stays as it is", "error", err)
		return
	}
	s.bench = fresh
	s.log.Info("the bench file and the calibration records were read again: they hold from the next capture on",
		"bench", fresh.Name)
	go s.Probe(ctx) // it waits for a capture that runs, and ends with the monitor
}

// expire drops captures that ended longer than keep ago and were never fetched,
// every expireEvery until ctx ends.
func (s *monitorService) expire(ctx context.Context) {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		if keep := time.Duration(s.keep.Load()); keep > 0 {
			s.Expire(keep)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// expireEvery is the pause between looks for old captures.
const expireEvery = time.Minute
