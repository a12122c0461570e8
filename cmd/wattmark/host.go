package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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

func (a *app) hostCmd() *cobra.Command {
	var listen string
	var retry time.Duration
	var http webFlags
	c := &cobra.Command{
		Use: "host", Short: "Serve the task database on the GPU machine", Args: cobra.NoArgs,
		Long: `Serve the task database over gRPC (TaskService, health, reflection), and finish
the tasks that an interrupted run left behind: what the monitor still holds is
fetched, what it no longer holds is marked incomplete with the reason.

With --http the same calls are served as JSON, with an OpenAPI file, health and
metrics for Prometheus (docs/json-api.md). There is no authentication: it keeps to
this machine unless told otherwise.`,
		Example: `  wattmark host --listen 127.0.0.1:7552
  grpcurl -plaintext 127.0.0.1:7552 wattmark.v1.TaskService/ListUsers
  wattmark host --http 127.0.0.1:7553
  curl 'http://127.0.0.1:7553/v1/tasks?name=gemm*&order=TASK_ORDER_ENERGY'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := http.check(); err != nil {
				return err
			}
			return a.host(cmd.Context(), listen, retry, http)
		},
	}
	c.Flags().StringVar(&listen, "listen", defaultHost, "address to serve on; it is open to all who reach it, so keep it local or behind a tunnel")
	c.Flags().StringVar(&http.listen, "http", "", "also serve JSON over HTTP on this address, as in 127.0.0.1:7553; empty for not")
	c.Flags().BoolVar(&http.public, "http-public", false, "let --http be an address that other machines can reach")
	c.Flags().BoolVar(&http.profiles, "pprof", false, "serve profiles of this program below /debug/pprof/ of --http")
	c.Flags().DurationVar(&retry, "recover-every", time.Minute, "how often to look for unfinished tasks")
	return c
}

func (a *app) host(ctx context.Context, listen string, retry time.Duration, http webFlags) error {
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer db.Close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("host: %w: is another wattmark host running? choose another --listen", err)
	}
	log := slog.New(slog.NewTextHandler(a.err, nil))
	counts := metrics.New()
	if err := counts.Register(&metrics.Database{Stats: db.Stats}); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	server := grpc.NewServer(append(wire.ServerOptions(), counts.ServerOptions()...)...)
	service := api.New(db)
	health := service.Register(server)
	g, ctx := errgroup.WithContext(ctx)
	stopWeb := func() {}
	if http.listen != "" {
		if stopWeb, err = serveWeb(ctx, g, server, counts, http, log); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	log.Info("serving the task database", "address", l.Addr().String(), "database", a.db)
	g.Go(func() error { return server.Serve(l) })
	g.Go(func() error {
		<-ctx.Done()
		health.Shutdown()
		service.Close()
		stopWeb()
		stopServer(server)
		return nil
	})
	g.Go(func() error { return recoverLoop(ctx, db, log, retry) })
	return g.Wait()
}

// stopServer lets calls end for a moment, then ends them.
func stopServer(s *grpc.Server) {
	timer := time.AfterFunc(2*time.Second, s.Stop)
	defer timer.Stop()
	s.GracefulStop()
}

// recoverLoop finishes what interrupted runs left, now and then.
func recoverLoop(ctx context.Context, db *store.DB, log *slog.Logger, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ids, err := measurement.Recover(ctx, db, dialMonitor)
		for _, id := range ids {
			log.Info("finished a task that was interrupted", "task", int64(id))
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("could not finish all interrupted tasks", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// dialMonitor connects to a monitor.
func dialMonitor(_ context.Context, address string) (measurement.Monitor, func() error, error) {
	c, err := monitorclient.Dial(address, monitorclient.Options{})
	if err != nil {
		return nil, nil, err
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
