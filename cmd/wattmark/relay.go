package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/store"
	"wattmark/store/relay"
)

// relayFlags say what is published.
type relayFlags struct {
	serviceFlags
	clusterFlags
	once  bool
	every time.Duration
}

func (a *app) relayCmd() *cobra.Command {
	var f relayFlags
	c := &cobra.Command{
		Use: "relay", Short: "Publish the tasks of this database to a cluster", Args: cobra.NoArgs,
		Long: `Publish all tasks that have ended, those that are there and those that come, to a
cluster (wattmark cluster). A task whose last message was acknowledged bears the tag
replicated; captures that monitors kept for it are then released. While the cluster
does not acknowledge, it waits, and goes on by itself.`,
		Example: "  wattmark relay --db /var/lib/wattmark/power.db --servers nats://a:7561,nats://b:7561,nats://c:7561\n  wattmark relay --once\n  wattmark tasks --tag replicated",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := a.serviceLog(&f.level)
			if _, err := f.load(cmd); err != nil {
				return err
			}
			return a.relay(cmd.Context(), &f, log)
		},
	}
	f.more = []string{"db"}
	f.register(c.Flags(), "servers", serversUsage, usualServers())
	c.Flags().BoolVar(&f.once, "once", false, "publish what there is, and end")
	c.Flags().DurationVar(&f.every, "every", 2*time.Second, "how often to look for tasks that have ended")
	f.addTo(c, "relay")
	return c
}

func (a *app) relay(ctx context.Context, f *relayFlags, log *slog.Logger) error {
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer db.Close()
	n := newNotifier(log)
	n.tell("READY=1\nSTATUS=waiting for the cluster")
	b, err := f.dial(ctx, "relay", log)
	if err != nil {
		return err
	}
	defer b.Close()
	s := newShipper(db, b, f.every, log)
	log.Info("publishing tasks", "database", a.db, "partitions", b.Partitions())
	n.tell("STATUS=publishing tasks")
	if f.once {
		return s.All(ctx)
	}
	return s.Run(ctx)
}

func newShipper(db *store.DB, b *relay.Bus, every time.Duration, log *slog.Logger) *relay.Shipper {
	return &relay.Shipper{
		Publisher: &relay.Publisher{DB: db, Bus: b, Program: version()},
		Release:   releaseAt, Every: every, Log: log,
		Shipped: func(p relay.Published) {
			log.Info("published a task", "task", int64(p.Task), "key", p.Key, "chunks", p.Chunks, "bytes", p.Bytes, "known", p.Known)
		},
	}
}

// releaseAt tells a monitor that a capture need not be kept.
func releaseAt(ctx context.Context, monitor, capture string) error {
	m, closeConn, err := dialMonitor(ctx, monitor)
	if err != nil {
		return err
	}
	return errors.Join(m.Release(ctx, capture), closeConn())
}

// consumeFlags say what is taken.
type consumeFlags struct {
	serviceFlags
	clusterFlags
	name, partitions string
	free             time.Duration
}

func (a *app) storeCmd() *cobra.Command {
	var f consumeFlags
	c := &cobra.Command{
		Use: "store", Short: "Take tasks from a cluster into this database", Args: cobra.NoArgs,
		Long: `Take the tasks that hosts publish to a cluster into a database: a SQLite file, or a
PostgreSQL server. Each comes once, whole, whatever was sent twice. Several stores
under different names each get all; with --partitions each gets its part. Several
programs under one name share the work, as on one PostgreSQL server.

Tasks that all stores have are removed from the cluster now and then (--free-every).`,
		Example: `  wattmark store --db lab.db --name lab
  wattmark store --db shard0.db --name shard0 --partitions 0,1
  wattmark store --db postgres://wattmark@db/lab --name lab`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := a.serviceLog(&f.level)
			if _, err := f.load(cmd); err != nil {
				return err
			}
			return a.store(cmd.Context(), &f, log)
		},
	}
	f.more = []string{"db"}
	f.register(c.Flags(), "servers", serversUsage, usualServers())
	c.Flags().StringVar(&f.name, "name", "store", "name of the store, by which the cluster knows what it has; the same each time")
	c.Flags().StringVar(&f.partitions, "partitions", "", "only these, as in 0,1,4-7 (default: all)")
	c.Flags().DurationVar(&f.free, "free-every", time.Minute, "how often to remove from the cluster what all stores have; 0 leaves it there")
	f.addTo(c, "store")
	return c
}

func (a *app) store(ctx context.Context, f *consumeFlags, log *slog.Logger) error {
	parts, err := parsePartitions(f.partitions)
	if err == nil {
		err = relay.CheckName(f.name)
	}
	if err != nil {
		return withCode(exitUsage, err)
	}
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sweepPartial(ctx, db, log); err != nil {
		return err
	}
	n := newNotifier(log)
	n.tell("READY=1\nSTATUS=waiting for the cluster")
	b, err := f.dial(ctx, "store", log)
	if err != nil {
		return err
	}
	defer b.Close()
	log.Info("taking tasks", "database", a.db, "name", f.name, "partitions", firstOf(f.partitions, "all"))
	n.tell("STATUS=taking tasks")
	c := &relay.Consumer{Bus: b, DB: db, Name: f.name, Partitions: parts, Free: f.free, Log: log, Taken: func(t relay.Taken) {
		log.Info("stored a task", "task", int64(t.To), "key", t.Key, "user", t.User, "name", t.Name, "chunks", t.End.Chunks, "known", t.Known, "took", t.Stored.Round(time.Millisecond))
	}}
	return c.Run(ctx)
}

// parsePartitions reads a list as 0,1,4-7.
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
