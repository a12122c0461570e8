// Package service has the long-lived commands: the monitor, the host with its page, JSON
// API and programs' socket, and the credentials of both (auth, takeover). Each is an
// errgroup of parts with Run(ctx); SIGTERM drains, SIGHUP reloads.
package service

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/api/metrics"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/spool"
)

// monitorFlags are the flags of wattmark monitor.
type monitorFlags struct {
	session.BenchFlags
	daemon.ServiceFlags
	doorFlags
	spool string
	// drain is the time a capture may go on after SIGTERM; keep that after which a
	// capture never fetched is dropped, 0 for never.
	drain, keep time.Duration
	room        daemon.RoomFlags
	publish     publishFlags
}

// monitorCmd returns monitor, a service that drains when its context ends.
func monitorCmd(a *cli.App) *cobra.Command {
	var f monitorFlags
	c := f.Command(a, "monitor", "Serve the meter: capture, find markers, stream",
		func(ctx context.Context, r *config.Reloader, log *slog.Logger) error {
			if err := f.check(); err != nil {
				return err
			}
			return runMonitor(ctx, &f, r, log)
		})
	fl := c.Flags()
	f.BenchFlags.AddTo(fl)
	fl.StringVar(&f.GPU, "gpu", "", "GPU of --instrument nvml by index, UUID or PCI bus id")
	f.doorFlags.addTo(fl, cli.DefaultMonitor,
		"also serve metrics for Prometheus at /metrics of this address, as in 127.0.0.1:7554; empty for not")
	fl.StringVar(&f.spool, "spool", DefaultSpool(), "directory of the spool")
	// The unit in packaging/systemd allows more than this default before it kills.
	fl.DurationVar(&f.drain, "drain", time.Minute, "how long a capture may go on after SIGTERM")
	fl.DurationVar(&f.keep, "keep", 0,
		"drop captures that no host has fetched so long after they ended, counted while a monitor runs; 0 keeps them")
	f.room.AddTo(fl)
	cli.Section(fl, "The cluster", func() { f.publish.addTo(fl) })
	f.More = cli.TrustFlags
	f.ServiceFlags.AddTo(c, "monitor")
	return c
}

// check refuses contradictory flags before anything is opened.
func (f *monitorFlags) check() error {
	switch err := f.BenchFlags.Check(); {
	case err != nil:
		return err
	case f.publish.after < 0:
		return cli.Usagef("--record-after: want 0 or more")
	case f.drain < 0 || f.keep < 0:
		return cli.Usagef("--drain and --keep: want 0 or more")
	}
	return f.http.check()
}

// DefaultSpool returns a folder of the user's state, or the cache folder's of earlier versions while that has captures.
func DefaultSpool() string {
	if left, _ := filepath.Glob(filepath.Join(cacheSpool(), "*", "header.json")); len(left) > 0 {
		return cacheSpool()
	}
	dir, err := session.StatePath("monitor-spool")
	if err != nil {
		return cacheSpool()
	}
	return dir
}

// cacheSpool returns the default of earlier versions.
func cacheSpool() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "wattmark", "spool")
}

// monitorService is a monitor that rereads its configuration at SIGHUP and drains
// at SIGTERM.
type monitorService struct {
	*monitor.Monitor
	door
	f      *monitorFlags
	within *daemon.Self
	bench  *bench.Bench // in force; changed by rebind only
	// keep and drain are the values in force, in ns. The flags themselves are
	// overwritten while a file is tried, so other goroutines must not read them.
	keep, drain atomic.Int64
}

// runMonitor opens the bench, the address and the spool, and serves until ctx
// ends. What it opened is closed on return.
func runMonitor(ctx context.Context, f *monitorFlags, r *config.Reloader, log *slog.Logger) error {
	if f.spool == cacheSpool() {
		log.Warn("the spool is in the cache folder, which may be cleared: the default moves to the state folder once "+
			"these captures are released", "spool", f.spool)
	}
	n := daemon.NewNotifier(log)
	s := &monitorService{f: f}
	var err error
	if s.bench, err = f.BenchFlags.Load(); err != nil {
		return err
	}
	b, closeBench, err := session.MakeBench(s.bench, f.Folder())
	if err != nil {
		return err
	}
	defer closeBench()
	s.door, err = f.doorFlags.open(ctx, "monitor", "choose another --listen; wattmark doctor says who may have it", log)
	defer s.door.close()
	if err != nil {
		return err
	}
	s.within = daemon.NewSelf(s.x)
	counts := metrics.New()
	cfg := monitor.Config{
		Bench: b, Dir: f.spool, Version: cli.Version(), Log: log, Listeners: []net.Listener{s.guard.Listen(s.listener), s.within},
		Quota: f.room.Room(), AwaitReplicas: f.publish.Servers != "",
		ServerOptions: slices.Concat(counts.ServerOptions(), s.x.ServerOptions(s.guard)),
	}
	if s.Monitor, err = monitor.New(cfg); errors.Is(err, spool.ErrUnsafe) || errors.Is(err, fs.ErrPermission) {
		return cli.WithCode(cli.ExitUsage, err) // a restart does not mend it
	} else if err != nil {
		return err
	}
	if f.http.listen != "" {
		stop, err := s.serveMetrics(ctx, counts)
		if err != nil {
			return err
		}
		defer stop()
	}
	s.keep.Store(int64(f.keep))
	s.drain.Store(int64(f.drain))
	// The flags that may change at SIGHUP. The logger reads its level itself, and rebind the calibration.
	r.Live["log-level"], r.Live["calibration"] = func() {}, func() {}
	r.Live["drain"] = func() { s.drain.Store(int64(f.drain)) }
	r.Live["keep"] = func() { s.keep.Store(int64(f.keep)) }
	r.Always = func() error { return errors.Join(s.x.Reopen(), s.rebind(ctx)) }
	address := s.listener.Addr().String()
	log.Info("serving the bench", "bench", b.Name, "address", address, "spool", f.spool)
	return s.run(ctx, n, r, address)
}

// run serves until ctx ends and the drain is over. over outlives ctx: expiry,
// publication and reloads go on while the last capture ends.
func (s *monitorService) run(ctx context.Context, n *daemon.Notifier, r *config.Reloader, address string) error {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var g sync.WaitGroup
	serves := "serving bench " + s.bench.Name + " on " + address
	g.Go(func() { daemon.OnHangups(over, func() { reportReload(n, serves, r.Reload()) }) })
	g.Go(func() { daemon.OnSecond(ctx, over, s.Hurry) })
	g.Go(func() {
		for expire := true; expire; expire = cli.SleepUntil(over, time.Now().Add(time.Minute)) {
			if keep := time.Duration(s.keep.Load()); keep > 0 {
				_, _ = s.Expire(keep) // captures that ended longer ago and were never fetched
			}
		}
	})
	g.Go(func() { s.x.Run(over) })
	g.Go(func() { (&capturePublisher{mon: s.Monitor, flags: s.f.publish, log: s.log}).Run(over) })
	g.Go(func() {
		n.Watchdog(over, func(check context.Context) error {
			// Draining is no hang: the watchdog must not kill a monitor that lets a capture end.
			if ctx.Err() != nil {
				return nil
			}
			return s.within.Answers(check)
		})
	})
	// serving ends with ctx, after the drain has been set: SIGTERM drains, SIGINT does not.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g.Go(func() {
		select {
		case <-ctx.Done():
			n.Tell("STOPPING=1\nSTATUS=letting the capture that runs end")
			if cli.AskedPolitely(ctx) {
				s.SetDrain(time.Duration(s.drain.Load()))
			}
			stop()
		case <-over.Done():
		}
	})
	n.Tell("READY=1\nSTATUS=" + serves)
	err := s.Run(serving)
	end()
	g.Wait()
	if errors.Is(err, capture.ErrMisfit) {
		return cli.WithCode(cli.ExitUsage, err) // as for any other fault of the bench file
	}
	return err
}

// rebind rereads the bench file and the calibration records. A capture that runs
// keeps those it began with. Other instruments, GPU or name need a restart; then,
// and after an error, the bench stays as it was. The error returned was logged.
func (s *monitorService) rebind(ctx context.Context) error {
	fresh, err := s.f.BenchFlags.Load()
	if err == nil && !s.bench.SameInstruments(fresh) {
		err = fmt.Errorf("%s names other instruments, another GPU or another name: this needs a restart", s.f.File)
	}
	if err == nil {
		err = s.Rebind(monitor.Bench{Setup: fresh.Setup, Calibrate: s.f.Folder().Calibrate})
	}
	if err != nil {
		s.log.Error("reload: the bench stays as it is", "error", bench.OneLine(err))
		return err
	}
	s.bench = fresh
	s.log.Info("the bench file and the calibration records were read again: they hold from the next capture on",
		"bench", fresh.Name)
	go s.Probe(ctx) // it waits for a capture that runs, and ends with the monitor
	return nil
}

// reportReload sets the status that the service manager shows: serves, and the fault of the last reload unless nil.
func reportReload(n *daemon.Notifier, serves string, fault error) {
	if fault != nil {
		serves += "; the last reload failed: " + bench.OneLine(fault)
	}
	n.Tell("STATUS=" + serves)
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	credentials := &cobra.Command{Use: "auth", Short: "Say who may do what: a private CA, certificates, tokens"}
	credentials.AddCommand(authInitCmd(a), authTokenCmd(a), authCertCmd(a), authListCmd(a), authRevokeCmd(a))
	return cli.In(cli.Machines, help, monitorCmd(a), hostCmd(a), credentials, takeoverCmd(a))
}
