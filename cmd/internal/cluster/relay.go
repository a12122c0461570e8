package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// relayFlags are the flags of relay.
type relayFlags struct {
	daemon.ServiceFlags
	ClusterFlags
	once  bool          // return once all ended tasks are published
	every time.Duration // between looks at the database
}

// relayCmd returns the command relay, a service next to a host's database.
func relayCmd(a *cli.App) *cobra.Command {
	var f relayFlags
	c := f.Command(a, "relay", "Publish the tasks of this database to a cluster",
		func(ctx context.Context, _ *config.Reloader, log *slog.Logger) error {
			return runRelay(ctx, a, &f, log)
		})
	f.More = []string{"db"}
	f.Register(c.Flags(), "servers", serversUsage, usualServers())
	c.Flags().BoolVar(&f.once, "once", false, "publish what there is, and end")
	c.Flags().DurationVar(&f.every, "every", 2*time.Second, "how often to look for tasks that have ended")
	f.AddTo(c, "relay")
	return c
}

// runRelay publishes the ended tasks of the database until ctx ends, or once. It reports
// READY to the service manager before it is connected: a cluster that is down delays
// publication and is no failure of the service.
func runRelay(ctx context.Context, a *cli.App, f *relayFlags, log *slog.Logger) error {
	db, err := store.Open(ctx, a.DB)
	if err != nil {
		return err
	}
	defer db.Close()
	n := daemon.NewNotifier(log)
	n.Tell("READY=1\nSTATUS=waiting for the cluster")
	b, err := f.Dial(ctx, "relay", log)
	if err != nil {
		return err
	}
	defer b.Close()
	s := newShipper(db, b, f.every, log)
	log.Info("publishing tasks", "database", a.DB, "partitions", b.Partitions())
	n.Tell("STATUS=publishing tasks")
	if f.once {
		return s.All(ctx)
	}
	return s.Run(ctx)
}

// newShipper returns a shipper that looks for ended tasks at the interval every (0 for its
// default), releases their captures at the monitors and logs each task.
func newShipper(db *store.DB, b *relay.Bus, every time.Duration, log *slog.Logger) *relay.Shipper {
	return &relay.Shipper{
		Publisher: &relay.Publisher{DB: db, Bus: b, Program: cli.Version()}, Every: every, Log: log,
		Release: func(ctx context.Context, monitor, capture string) error { // over a connection of its own
			m, closeConn, err := session.DialMonitor(ctx, monitor)
			if err != nil {
				return err
			}
			return errors.Join(m.Release(ctx, capture), closeConn())
		},
		Shipped: func(p relay.Published) {
			log.Info("published a task", "task", int64(p.Task), "key", p.Key, "chunks", p.Chunks, "bytes", p.Bytes,
				"known", p.Known)
		},
	}
}

// consumeFlags are the flags of store.
type consumeFlags struct {
	daemon.ServiceFlags
	ClusterFlags
	name, partitions string        // partitions as in 0,1,4-7; empty for all
	free             time.Duration // between removals from the cluster; 0 for none
}

// storeCmd returns the command store, a service that fills one database.
func storeCmd(a *cli.App) *cobra.Command {
	var f consumeFlags
	c := f.Command(a, "store", "Take tasks from a cluster into this database",
		func(ctx context.Context, _ *config.Reloader, log *slog.Logger) error {
			return runStore(ctx, a, &f, log)
		})
	f.More = []string{"db"}
	f.Register(c.Flags(), "servers", serversUsage, usualServers())
	c.Flags().StringVar(&f.name, "name", "store",
		"name of the store, by which the cluster knows what it has; the same each time")
	c.Flags().StringVar(&f.partitions, "partitions", "", "only these, as in 0,1,4-7 (default: all)")
	c.Flags().DurationVar(&f.free, "free-every", time.Minute,
		"how often to remove from the cluster what all stores have; 0 leaves it there")
	f.AddTo(c, "store")
	return c
}

// runStore takes tasks from the cluster into the database until ctx ends. The remains of
// tasks that an earlier process stored in part are deleted first: the cluster still has
// their messages and delivers them again.
func runStore(ctx context.Context, a *cli.App, f *consumeFlags, log *slog.Logger) error {
	parts, err := parsePartitions(f.partitions)
	if err == nil {
		err = relay.CheckName(f.name)
	}
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	db, err := store.Open(ctx, a.DB)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := daemon.SweepPartial(ctx, db, log); err != nil {
		return err
	}
	n := daemon.NewNotifier(log)
	n.Tell("READY=1\nSTATUS=waiting for the cluster")
	b, err := f.Dial(ctx, "store", log)
	if err != nil {
		return err
	}
	defer b.Close()
	log.Info("taking tasks", "database", a.DB, "name", f.name, "partitions", cmp.Or(f.partitions, "all"))
	n.Tell("STATUS=taking tasks")
	c := &relay.Consumer{
		Bus: b, DB: db, Name: f.name, Partitions: parts, Free: f.free, Log: log,
		Taken: func(t relay.Taken) {
			log.Info("stored a task", "task", int64(t.To), "key", t.Key, "user", t.User, "name", t.Name, "chunks",
				t.End.Chunks, "known", t.Known, "took", t.Stored.Round(time.Millisecond))
		},
	}
	return c.Run(ctx)
}

// parsePartitions parses a list of numbers and ranges such as 0,1,4-7. An empty list gives
// nil, which stands for all partitions.
func parsePartitions(s string) (out []int, err error) {
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		first, last, several := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && several {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 0 || to < from || to >= relay.MaxPartitions {
			return nil, fmt.Errorf("--partitions %q: want numbers and ranges, as in 0,1,4-7", s)
		}
		for p := from; p <= to; p++ {
			out = append(out, p)
		}
	}
	return out, nil
}
