package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"wattmark/api"
	"wattmark/api/metrics"
	"wattmark/api/wire"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/store"
)

// The ports that the two machines listen on unless told otherwise.
const (
	defaultMonitor = "127.0.0.1:7551"
	defaultHost    = "127.0.0.1:7552"
)

// hostFlags say where a host serves, and what it measures with.
type hostFlags struct {
	serviceFlags
	listen, socket, mode, monitor string
	retry, retainEvery            time.Duration
	keep                          retainFlags
	http                          webFlags
}

func (a *app) hostCmd() *cobra.Command {
	var f hostFlags
	c := &cobra.Command{
		Use: "host", Short: "Serve the task database on the GPU machine, and measure for its programs", Args: cobra.NoArgs,
		Long: `Serve the task database over gRPC (TaskService, health, reflection), and finish
the tasks that an interrupted run left behind: what the monitor still holds is
fetched, what it no longer holds is marked incomplete with the reason. With
--retain-older-than or --retain-keep-size old tasks are deleted now and then, as by
wattmark db retain.

Programs on this machine that use libwattmark measure through its unix socket
(HostService): monitor and database are then the host's, the GPU, its context
and its streams stay the program's. A program finds the socket by itself, or by
WATTMARK_HOST=unix:PATH; with WATTMARK_HOST=none it measures on its own. When a
program dies, its measurement is given up at once.

With --http the calls of TaskService are served as JSON too, with an OpenAPI file,
health and metrics for Prometheus (docs/json-api.md). There is no authentication:
it keeps to this machine unless told otherwise.`,
		Example: `  wattmark host --listen 127.0.0.1:7552
  wattmark host --socket /run/wattmark/host.sock --socket-mode 0660 --monitor meter:7551
  wattmark host --config /etc/wattmark/host.yaml
  grpcurl -plaintext 127.0.0.1:7552 wattmark.v1.TaskService/ListUsers
  wattmark host --http 127.0.0.1:7553
  curl 'http://127.0.0.1:7553/v1/tasks?name=gemm*&order=TASK_ORDER_ENERGY'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := a.serviceLog(&f.level)
			r := newReloader(f.flags(cmd), log)
			var err error
			if r.file, err = f.load(cmd); err != nil {
				return err
			}
			if f.retry <= 0 {
				return withCode(exitUsage, errors.New("--recover-every: want more than 0"))
			}
			if err := f.http.check(); err != nil {
				return err
			}
			if _, err := f.keep.options(time.Now()); err != nil {
				return err
			}
			return a.host(cmd.Context(), &f, r, log)
		},
	}
	f.more = []string{"db"}
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", defaultHost, "address to serve on; it is open to all who reach it, so keep it local or behind a tunnel")
	fl.StringVar(&f.socket, "socket", "", "unix socket to measure for programs on, or none (default $XDG_RUNTIME_DIR/wattmark/host.sock, /run/wattmark/host.sock or /tmp/wattmark-UID/host.sock)")
	fl.StringVar(&f.mode, "socket-mode", "0600", "who may use the socket: 0600 this user, 0660 its group too")
	fl.StringVar(&f.monitor, "monitor", firstOf(os.Getenv("WATTMARK_MONITOR"), defaultMonitor), "monitor that programs are measured with (also WATTMARK_MONITOR)")
	f.http.addTo(fl, "also serve JSON over HTTP on this address, as in 127.0.0.1:7553; empty for not")
	fl.DurationVar(&f.retry, "recover-every", time.Minute, "how often to look for unfinished tasks")
	f.keep.register(fl, "retain-")
	fl.DurationVar(&f.retainEvery, "retain-every", time.Hour, "how often to look for tasks that are too old")
	f.addTo(c, "host")
	return c
}

// reloads says what of the flags changes while the host runs, and returns how often
// to look for unfinished tasks, now and after each change.
func (f *hostFlags) reloads(r *reloader, log *slog.Logger) <-chan time.Duration {
	every := make(chan time.Duration, 1)
	every <- f.retry
	r.live["log-level"] = func() {} // the flag is the level
	r.live["recover-every"] = func() {
		if f.retry <= 0 {
			log.Error("reload: recover_every must be more than 0: it stays as it was")
			return
		}
		select {
		case <-every: // not taken yet
		default:
		}
		every <- f.retry
	}
	return every
}

func (a *app) host(ctx context.Context, f *hostFlags, r *reloader, log *slog.Logger) error {
	n := newNotifier(log)
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer db.Close()
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("host: %w: is another wattmark host running? choose another --listen; wattmark doctor says who may have it", err)
	}
	defer l.Close()
	programs, err := a.openPrograms(db, f, log)
	if err != nil {
		return err
	}
	defer programs.close()
	counts := metrics.New()
	if err := counts.Register(&metrics.Database{Stats: db.Stats}); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	server := grpc.NewServer(slices.Concat(wire.ServerOptions(), wire.TellVersion(version()), counts.ServerOptions())...)
	service := api.New(db)
	health := service.Register(server)
	log.Info("serving the task database", "address", l.Addr().String(), "database", a.db)
	every := f.reloads(r, log)
	g, ctx := errgroup.WithContext(ctx)
	stopWeb := func() {}
	if f.http.listen != "" {
		if stopWeb, err = serveWeb(ctx, g, server, counts, f.http, log); err != nil {
			return err
		}
	}
	g.Go(func() error { return server.Serve(l) })
	for _, side := range []func(){
		func() { onHangups(ctx, r.reload) },
		func() { n.watchdog(ctx, func(ctx context.Context) error { return answers(ctx, l.Addr().String()) }) },
	} {
		g.Go(func() error {
			side()
			return nil
		})
	}
	n.tell("READY=1\nSTATUS=serving " + a.db + " on " + l.Addr().String())
	g.Go(func() error {
		<-ctx.Done()
		n.tell("STOPPING=1")
		health.Shutdown()
		service.Close()
		stopWeb()
		stopServer(server)
		return nil
	})
	g.Go(func() error { return programs.serve(ctx) })
	g.Go(func() error { return recoverLoop(ctx, programs.others(db), log, every) })
	g.Go(func() error { return retainLoop(ctx, db, log, f.keep, f.retainEvery) })
	return g.Wait()
}

// stopServer lets calls end for a moment, then ends them.
func stopServer(s *grpc.Server) {
	timer := time.AfterFunc(2*time.Second, s.Stop)
	defer timer.Stop()
	s.GracefulStop()
}

// whileOpen is how often unfinished tasks are looked at whose captures still run:
// those of a host that died go on until their leases end.
const whileOpen = 5 * time.Second

// recoverLoop finishes what interrupted runs left, now and then: as often as
// every said last.
func recoverLoop(ctx context.Context, db measurement.Store, log *slog.Logger, every <-chan time.Duration) error {
	usual := <-every
	for {
		pause := usual
		ids, err := measurement.Recover(ctx, db, dialMonitor)
		for _, id := range ids {
			log.Info("finished a task that was interrupted", "task", int64(id))
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("could not finish all interrupted tasks", "error", err)
		} else if open, err := db.Unfinished(ctx); err == nil && len(open) > 0 {
			pause = min(pause, whileOpen)
		}
		select {
		case <-ctx.Done():
			return nil
		case usual = <-every:
		case <-time.After(pause):
		}
	}
}

// dialMonitor connects to a monitor, and refuses one that is not understood.
func dialMonitor(ctx context.Context, address string) (measurement.Monitor, func() error, error) {
	c, err := monitorclient.Dial(address, monitorclient.Options{Version: version()})
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.GetBench(ctx); errors.Is(err, monitorclient.ErrVersion) {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, c.Close, nil
}

func (a *app) trimCmd() *cobra.Command {
	var from, to time.Duration
	c := &cobra.Command{
		Use: "trim TASK --from T --to T", Short: "Set a task's window by hand", Args: oneTask,
		Long: `Set the window of a task by hand, in device time as wattmark show plots it, and
compute its energy anew. For tasks whose markers were not found: their samples
are all kept.`,
		Example: "  wattmark trim 42 --from 1.25s --to 3.5s",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to <= from {
				return withCode(exitUsage, errors.New("trim: --to must lie after --from; look at the plot of wattmark show"))
			}
			ctx := cmd.Context()
			db, err := a.openDB(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			t, err := a.task(ctx, db, args[0])
			if err != nil {
				return err
			}
			w := measurement.Window{From: seconds(from), To: seconds(to)}
			if err := measurement.Retrim(ctx, db, t.ID, w); err != nil {
				return err
			}
			return a.showTask(ctx, db, t.ID, nil)
		},
	}
	c.Flags().DurationVar(&from, "from", 0, "device time at which the window begins")
	c.Flags().DurationVar(&to, "to", 0, "device time at which it ends")
	return a.jsonFlag(c)
}
