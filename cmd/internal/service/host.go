package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/metrics"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/cluster"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/db"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// hostFlags are the flags of wattmark host.
type hostFlags struct {
	daemon.ServiceFlags
	doorFlags
	socket, mode string
	monitors     daemon.Addresses // programs are measured with the first
	// retry is the pause between recoveries of interrupted tasks, retainEvery that
	// between deletions of old ones.
	retry, retainEvery time.Duration
	keep               db.RetainFlags
	roles              map[string]string // by account, on the socket
	cluster            cluster.GateFlags
	room               session.DatabaseFlags
}

// hostCmd returns host, a service that runs until its context ends.
func hostCmd(a *cli.App) *cobra.Command {
	var f hostFlags
	c := f.Command(a, "host", "Serve the task database, and measure for programs",
		func(ctx context.Context, r *config.Reloader, log *slog.Logger) error {
			if err := f.check(); err != nil {
				return err
			}
			s := &hostService{hostFlags: &f, door: door{log: log}}
			defer s.close() // what was opened, also after an error
			if err := s.open(ctx, a); err != nil {
				return err
			}
			if err := s.register(ctx, a); err != nil {
				return err
			}
			log.Info("serving the task database", "address", s.listener.Addr().String(), "database", a.DB)
			return s.serve(ctx, r)
		})
	f.More = append([]string{"db"}, cli.TrustFlags...)
	f.register(c.Flags())
	f.AddTo(c, "host")
	return c
}

// check refuses contradictory flags, as wrong usage, before anything is opened.
func (f *hostFlags) check() error {
	if f.retry <= 0 {
		return cli.Usagef("--recover-every: want more than 0")
	}
	if err := f.http.check(); err != nil {
		return err
	}
	_, err := f.keep.Options(time.Now())
	return err
}

func (f *hostFlags) register(fl *pflag.FlagSet) {
	f.doorFlags.addTo(fl, cli.DefaultHost,
		"also serve a page and JSON over HTTP on this address, as in 127.0.0.1:7553; empty for not")
	fl.StringVar(&f.socket, "socket", "",
		"unix socket to measure for programs on, or none (default $XDG_RUNTIME_DIR/wattmark/host.sock, "+
			"/run/wattmark/host.sock or /tmp/wattmark-UID/host.sock)")
	fl.StringVar(&f.mode, "socket-mode", "0600", "who may use the socket: 0600 this user, 0660 its group too")
	f.monitors.List = strings.Split(cmp.Or(os.Getenv("WATTMARK_MONITOR"), cli.DefaultMonitor), ",")
	fl.Var(&f.monitors, "monitor",
		"monitor to show live, several times for several; programs are measured with the first (also WATTMARK_MONITOR)")
	fl.StringToStringVar(&f.roles, "socket-role", nil,
		"roles of accounts on the socket, as in ada=operator; others measure for themselves, "+"root and this user may all")
	f.cluster.AddTo(fl)
	fl.DurationVar(&f.retry, "recover-every", time.Minute, "how often to look for unfinished tasks")
	f.keep.Register(fl, "retain-")
	fl.DurationVar(&f.retainEvery, "retain-every", time.Hour, "how often to look for tasks that are too old")
	f.room.AddTo(fl)
}

// reloads registers the flags that may change at SIGHUP and returns the pause
// between recoveries, now and after each change. The channel holds one value; a
// new one replaces a value not yet taken, so the reload never blocks.
func (f *hostFlags) reloads(r *config.Reloader, log *slog.Logger) <-chan time.Duration {
	every := make(chan time.Duration, 1)
	every <- f.retry
	// The logger reads the flag itself.
	r.Live["log-level"] = func() {}
	r.Live["recover-every"] = func() {
		if f.retry <= 0 {
			log.Error("reload: recover_every must be more than 0: it stays as it was")
			return
		}
		select {
		case <-every: // not taken yet, and replaced: only the newest matters
		default:
		}
		every <- f.retry
	}
	return every
}

// hostService is a running host: database, listeners, and the parts that serve.
type hostService struct {
	*hostFlags
	door
	db       *store.DB
	gate     *cluster.Gate
	programs *programs
	monitors *monitors
	recorder *measurement.Recorder
	counts   *metrics.Metrics
	power    *metrics.Power
	server   *grpc.Server
	inside   *grpc.Server // the same services for HTTP, behind a pipe; nil without --http
	ends     []func()     // stops of the services, in order
	closes   []func()     // closes of the resources, in reverse order
}

// open takes database, address and socket, and prepares all that needs no answer
// from another machine: a host starts without its monitors and its cluster. Each
// resource adds its close, so that a failure half-way leaves nothing open.
func (s *hostService) open(ctx context.Context, a *cli.App) (err error) {
	if s.db, err = store.Open(ctx, a.DB); err != nil {
		return err
	}
	s.closes = append(s.closes, func() { s.db.Close() })
	s.db.SetLimits(s.room.Limits())
	if err = s.db.OpenAll(ctx); err != nil {
		return err
	}
	s.door, err = s.hostFlags.doorFlags.open(ctx, "host",
		"is another wattmark host running? choose another --listen; wattmark doctor says who may have it", s.log)
	s.closes = append(s.closes, s.door.close)
	if err != nil {
		return err
	}
	s.gate = &cluster.Gate{Flags: s.cluster.Usual(), DB: s.db, Log: s.log}
	s.closes = append(s.closes, func() { s.gate.Close() })
	if s.programs, err = openPrograms(ctx, s); err != nil {
		return err
	}
	s.closes = append(s.closes, func() { s.programs.close() })
	s.recorder = measurement.NewRecorder(s.db, s.gate.Dial, store.Owner())
	if s.monitors, err = OpenMonitors(ctx, s.db, s.hostFlags.monitors.List, s.recorder); err != nil {
		return err
	}
	s.closes = append(s.closes, func() { s.monitors.Close() })
	return nil
}

func (s *hostService) close() {
	for _, c := range slices.Backward(s.closes) {
		c()
	}
}

// register creates the gRPC servers with their services: one for the network, and
// with --http one for the gateway.
func (s *hostService) register(ctx context.Context, a *cli.App) error {
	s.counts = metrics.New()
	s.power = metrics.NewPower(s.http.look, s.monitors.watchPower)
	if err := errors.Join(s.counts.Register(&metrics.Database{Context: ctx, Stats: s.db.Stats, Tasks: s.db.Tasks}),
		s.counts.Register(s.guard), s.counts.Register(s.power)); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	tasks, reports := api.New(ctx, s.db, api.Options{Works: works(s.db)}), OpenReports(ctx, a, s.db)
	serve := func(options []grpc.ServerOption) *grpc.Server {
		shared := append(wire.ServerOptions(), wire.TellVersion(cli.Version()))
		server := grpc.NewServer(slices.Concat(shared, s.counts.ServerOptions(), options)...)
		health := tasks.Register(server)
		s.monitors.Register(server)
		reports.Register(server)
		s.ends = append(s.ends, health.Shutdown)
		return server
	}
	s.server = serve(s.x.ServerOptions(s.guard))
	if s.http.listen != "" {
		// All HTTP clients share the pipe's one connection, so the limit of calls per
		// connection must not apply: one viewer could exhaust it for the others.
		s.inside = serve(s.x.InsideOptions(s.guard))
	}
	s.ends = append(s.ends, func() { tasks.Close() }, func() { reports.Close() }, s.recorder.Close)
	return nil
}

// serve runs all parts until ctx ends or one fails. On the end it announces the
// stop to the service manager, stops the services in order, and grants calls two
// seconds.
func (s *hostService) serve(ctx context.Context, r *config.Reloader) error {
	n := daemon.NewNotifier(s.log)
	every := s.reloads(r, s.log)
	r.Always = s.x.Reopen
	g, ctx := errgroup.WithContext(ctx)
	if s.http.listen != "" {
		stop, err := s.serveWeb(ctx, g)
		if err != nil {
			return err
		}
		s.ends = append(s.ends, stop)
	}
	address, within := s.listener.Addr().String(), daemon.NewSelf(s.x)
	// The sides of the service end with ctx and have no error: only a server that fails ends the host.
	var sides sync.WaitGroup
	defer sides.Wait()
	serves := "serving " + s.db.Path() + " on " + address
	sides.Go(func() { daemon.OnHangups(ctx, func() { reportReload(n, serves, r.Reload()) }) })
	sides.Go(func() { n.Watchdog(ctx, within.Answers) })
	sides.Go(func() { s.x.Run(ctx) })
	sides.Go(func() {
		<-ctx.Done()
		n.Tell("STOPPING=1")
		for _, end := range s.ends {
			end()
		}
		stopServer(s.server)
		if s.inside != nil {
			stopServer(s.inside)
		}
	})
	sides.Go(func() {
		if err := daemon.SweepPartial(ctx, s.db, s.log); err != nil && ctx.Err() == nil {
			s.log.Warn("could not delete what interrupted imports left", "error", err)
		}
	})
	sides.Go(func() { s.recoverLoop(ctx, every) })
	sides.Go(func() { s.power.Run(ctx) })
	sides.Go(func() { s.makePyramids(ctx) })
	g.Go(func() error { return s.server.Serve(s.guard.Listen(s.listener)) })
	// The watchdog calls this process through a listener of its own, which no limit
	// blocks.
	g.Go(func() error { return s.server.Serve(within) })
	g.Go(func() error { return s.monitors.relay.Run(ctx) })
	g.Go(func() error { return s.programs.serve(ctx) })
	g.Go(func() error { return s.gate.Run(ctx) })
	g.Go(func() error { return db.RetainLoop(ctx, s.db, s.log, s.keep, s.retainEvery) })
	n.Tell("READY=1\nSTATUS=" + serves)
	return g.Wait()
}

// stopServer grants open calls two seconds, then cancels them.
func stopServer(s *grpc.Server) {
	timer := time.AfterFunc(2*time.Second, s.Stop)
	defer timer.Stop()
	s.GracefulStop()
}

// makePyramids builds, once, the pyramids of finished tasks that an older version
// measured; until then they are drawn from their samples, slowly. Failures are
// logged and never end the host.
func (s *hostService) makePyramids(ctx context.Context) {
	made := 0
	err := s.db.BuildPyramids(ctx, func(id store.TaskID, err error) {
		if err != nil {
			s.log.Warn("could not make a task's pyramid: it is drawn from its samples", "task", int64(id), "error", err)
			return
		}
		made++
	})
	if made > 0 {
		s.log.Info("made pyramids of older tasks", "tasks", made)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("could not make pyramids", "error", err)
	}
}

// recoverLoop finishes the tasks of interrupted runs, at the pause last received
// from every, until ctx ends. Failures are logged and retried.
func (s *hostService) recoverLoop(ctx context.Context, every <-chan time.Duration) {
	db := notOurs{s.db, s.programs.link}
	usual := <-every
	for {
		pause := usual
		ids, err := measurement.Recover(ctx, db, s.gate.Dial)
		for _, id := range ids {
			s.log.Info("finished a task that was interrupted", "task", int64(id))
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("could not finish all interrupted tasks", "error", err)
		} else if open, err := db.Unfinished(ctx); err == nil && len(open) > 0 {
			// Captures of a host that died run on until their leases end: look again soon.
			pause = min(pause, 5*time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case usual = <-every:
		case <-time.After(pause):
		}
	}
}
