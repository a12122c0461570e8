package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/api/metrics"
	"wattmark/cmd/config"
	"wattmark/monitor"
	"wattmark/monitor/bench"
	"wattmark/monitor/capture"
)

// monitorService is a monitor as a service: its configuration can be read again,
// and it ends without cutting a capture.
type monitorService struct {
	*monitor.Monitor
	f      *monitorFlags
	log    *slog.Logger
	x      *access
	within *self
	bench  *bench.Bench // as it is in force
	// What the flags said last: a file that is being read sets them for a trial.
	keep, drain atomic.Int64
}

func (a *app) monitor(ctx context.Context, f *monitorFlags, r *config.Reloader, log *slog.Logger) error {
	n := newNotifier(log)
	s := &monitorService{f: f, log: log}
	var err error
	if s.bench, err = f.benchFlags.load(); err != nil {
		return err
	}
	b, closeBench, err := makeBench(s.bench, f.folder())
	if err != nil {
		return err
	}
	defer closeBench()
	guard, err := f.limits.guard()
	if err != nil {
		return err
	}
	if s.x, err = f.access.open(log); err != nil {
		return err
	}
	defer s.x.audit.Close()
	l, err := s.x.listen(ctx, f.listen, "choose another --listen; wattmark doctor says who may have it")
	if err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	traces, err := openTracing(ctx, f.otlp, "wattmark-monitor", warnOf(log))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { warnOf(log)(traces.close(ctx)) }()
	s.within = newSelf(s.x)
	counts := metrics.New()
	cfg := monitor.Config{
		Bench: b, Dir: f.spool, Version: version(), Log: log, Listeners: []net.Listener{guard.Listen(l), s.within}, Room: f.room.room(), Hold: f.publish.servers != "",
		ServerOptions: slices.Concat(counts.ServerOptions(), traces.server(), s.x.serverOptions(guard)),
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

// configure says what can change while the monitor runs.
func (s *monitorService) configure(ctx context.Context, r *config.Reloader) {
	r.Live["log-level"] = func() {} // the flag is the level
	r.Live["drain"] = func() { s.drain.Store(int64(s.f.drain)) }
	r.Live["keep"] = func() { s.keep.Store(int64(s.f.keep)) }
	r.Live["calibration"] = func() {} // rebind looks
	r.Always = func() {
		s.x.reopen()
		s.rebind(ctx)
	}
}

func (s *monitorService) run(ctx context.Context, n *notifier, r *config.Reloader, address string) error {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var g errgroup.Group
	side := func(f func()) {
		g.Go(func() error {
			f()
			return nil
		})
	}
	side(func() { onHangups(over, r.Reload) })
	side(func() { onSecond(ctx, over, s.Hurry) })
	side(func() { s.expire(over) })
	side(func() { s.x.run(over) })
	side(func() { (&capturePublisher{mon: s.Monitor, flags: s.f.publish, log: s.log}).Run(over) })
	side(func() {
		n.watchdog(over, func(check context.Context) error {
			if ctx.Err() != nil {
				return nil // it is being stopped, and lets a capture end
			}
			return s.within.answers(check)
		})
	})
	side(func() {
		select {
		case <-ctx.Done():
			n.tell("STOPPING=1\nSTATUS=letting the capture that runs end")
		case <-over.Done():
		}
	})
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	side(func() {
		select {
		case <-ctx.Done():
			if askedPolitely(ctx) {
				s.SetDrain(time.Duration(s.drain.Load()))
			}
			stop()
		case <-over.Done():
		}
	})
	n.tell("READY=1\nSTATUS=serving bench " + s.bench.Name + " on " + address)
	err := s.Run(serving)
	end()
	_ = g.Wait() // none of them returns an error
	if errors.Is(err, capture.ErrMisfit) {
		return withCode(exitUsage, err) // as for any other fault of the bench file
	}
	return err
}

// rebind reads the bench file and the calibration records again. What a capture
// that runs has begun with stays with it.
func (s *monitorService) rebind(ctx context.Context) {
	fresh, err := s.f.benchFlags.load()
	switch {
	case err != nil:
		s.log.Error("reload: the bench stays as it is", "error", err)
		return
	case !s.bench.SameInstruments(fresh):
		s.log.Warn("reload: the bench file names other instruments, another GPU or another name: this needs a restart", "bench", s.f.file)
		return
	}
	if err := s.Rebind(monitor.Bench{Setup: fresh.Setup, Calibrate: s.f.folder().Calibrate}); err != nil {
		s.log.Error("reload: the bench stays as it is", "error", err)
		return
	}
	s.bench = fresh
	s.log.Info("the bench file and the calibration records were read again: they hold from the next capture on", "bench", fresh.Name)
	go s.Probe(ctx) // it waits for a capture that runs, and ends with the monitor
}

// expire drops captures that nobody fetches, now and then.
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

// expireEvery is how often old captures are looked for.
const expireEvery = time.Minute
