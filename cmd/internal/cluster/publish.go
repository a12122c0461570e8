package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/backoff"
	capture "github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// Gate keeps monitors' captures until a cluster has their tasks: a released capture is a
// replicated one. Without servers captures are released at once. Every command that measures
// has one. It is safe for concurrent use.
//
//	Release ─ hold (a tag in the database) ─ Replicate ─ Release at the monitor ─ tag removed
//
// A step that fails leaves the task held; wattmark host --cluster or wattmark relay
// publishes it later.
type Gate struct {
	Flags GateFlags
	DB    *store.DB
	Log   *slog.Logger
	// late delays the publication of a task until the next one ends, or the command: by then
	// the command has added all its results to the task.
	late bool
	ctx  context.Context // for delayed publications: values of the command's, no cancellation

	mu      sync.Mutex
	bus     *relay.Bus // nil until the first publication
	pub     *relay.Publisher
	pending func() error // publishes the delayed task and releases its capture; nil if none
}

// OpenGate returns the gate of a command that measures. Close it before the database and
// the monitors' connections. It does not connect.
func OpenGate(a *cli.App, ctx context.Context, f GateFlags, db *store.DB) *Gate {
	return &Gate{
		Flags: f.Usual(), DB: db, Log: daemon.ServiceLog(a, new(slog.LevelVar)), late: true, ctx: context.WithoutCancel(ctx),
	}
}

// GateFlags are the flags for the cluster to which a measurement is published.
type GateFlags struct {
	ClusterFlags
	// wait limits the wait for the cluster at the end of a measurement; a task not replicated
	// by then is published later, by wattmark host or relay.
	wait time.Duration
}

// Usual returns the flags with defaults for those not set: WATTMARK_CLUSTER and 30 s. The
// value none, also of the variable, means no cluster.
func (f GateFlags) Usual() GateFlags {
	f.Servers = cmp.Or(f.Servers, os.Getenv("WATTMARK_CLUSTER"))
	if f.Servers == "none" {
		f.Servers = ""
	}
	f.wait = cmp.Or(f.wait, clusterWait)
	return f
}

// clusterWait is the default of --cluster-wait.
const clusterWait = 30 * time.Second

// AddTo adds the flags to fl, in a section of the help.
func (f *GateFlags) AddTo(fl *pflag.FlagSet) {
	cli.Section(fl, "The cluster", func() {
		f.Register(fl, "also publish tasks to this cluster, and release their captures only then: nodes with "+
			"commas between them (also WATTMARK_CLUSTER; none for not)", "")
		fl.DurationVar(&f.wait, "cluster-wait", clusterWait, "how long a measurement waits for the cluster at its "+
			"end; its capture stays at the monitor until the cluster has the task")
	})
}

// Close publishes the delayed task, if there is one, and closes the connection. It blocks
// for at most the wait of the flags; a failure is logged.
func (g *Gate) Close() {
	if err := g.exchangePending(nil); err != nil {
		g.Log.Warn("a capture was not released", "error", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bus != nil {
		g.bus.Close()
	}
}

// publisher returns the publisher and connects on first use, within ctx. The mutex is not
// held while dialling: concurrent callers may both dial, and the second closes its connection.
func (g *Gate) publisher(ctx context.Context) (*relay.Publisher, error) {
	g.mu.Lock()
	known := g.pub
	g.mu.Unlock()
	if known != nil {
		return known, nil
	}
	b, err := g.Flags.Dial(ctx, "gate", g.Log)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pub != nil { // a concurrent call has connected
		b.Close()
		return g.pub, nil
	}
	g.bus, g.pub = b, &relay.Publisher{DB: g.DB, Bus: b, Program: cli.Version()}
	return g.pub, nil
}

// Monitor returns m with releases through the gate, or m itself without servers.
func (g *Gate) Monitor(m measurement.Monitor) measurement.Monitor {
	if g.Flags.Servers == "" {
		return m
	}
	return heldMonitor{m, g}
}

// Dial connects to a monitor whose captures are released through the gate. The second
// result closes the connection.
func (g *Gate) Dial(ctx context.Context, address string) (measurement.Monitor, func() error, error) {
	m, closeConn, err := session.DialMonitor(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	return g.Monitor(m), closeConn, nil
}

// heldMonitor is a monitor whose captures are released through a gate.
type heldMonitor struct {
	measurement.Monitor
	gate *Gate
}

// Captures lists the captures in the monitor's spool; nil if the monitor has no such list.
func (m heldMonitor) Captures(ctx context.Context) ([]capture.Capture, error) {
	if l, ok := m.Monitor.(interface {
		Captures(ctx context.Context) ([]capture.Capture, error)
	}); ok {
		return l.Captures(ctx)
	}
	return nil, nil
}

// Release publishes the capture's task and then releases the capture. If the task cannot be
// published in time, the capture stays at the monitor; that is logged and no error. A late
// gate only marks the task as held, and publishes the one held before.
func (m heldMonitor) Release(ctx context.Context, capture string) error {
	id, err := m.gate.DB.OfCapture(ctx, m.Address(), capture)
	if err != nil { // no task came of it
		return m.Monitor.Release(ctx, capture)
	}
	if m.gate.late {
		if err := m.hold(ctx, id); err != nil {
			return err
		}
		return m.gate.exchangePending(func() error { return m.publishAndRelease(m.gate.ctx, id, capture) })
	}
	return m.publishAndRelease(ctx, id, capture)
}

// hold notes that the monitor keeps a task's capture until the streams have the task.
func (m heldMonitor) hold(ctx context.Context, id store.TaskID) error {
	return m.gate.DB.SetTags(ctx, id, map[string]string{relay.TagHeld: m.Address()}, nil)
}

// exchangePending makes next the delayed release, and runs the previous one.
func (g *Gate) exchangePending(next func() error) error {
	g.mu.Lock()
	release := g.pending
	g.pending = next
	g.mu.Unlock()
	if release == nil {
		return nil
	}
	return release()
}

// publishAndRelease publishes a task within the wait of the flags, and on success releases its
// capture and clears the mark that holds it. The mark comes first: after a crash in between the
// capture is still known to be unreleased.
func (m heldMonitor) publishAndRelease(ctx context.Context, id store.TaskID, capture string) error {
	err := m.hold(ctx, id)
	if err == nil {
		within, cancel := context.WithTimeout(ctx, m.gate.Flags.wait)
		defer cancel()
		var p *relay.Publisher
		if p, err = m.gate.publisher(within); err == nil {
			_, err = p.Replicate(within, id)
		}
	}
	if err != nil {
		m.gate.Log.Warn("the task is stored here, and not replicated yet: its capture stays at the monitor until "+
			"wattmark host --cluster or wattmark relay has published it", "task", int64(id), "error", err)
		return nil
	}
	if err := m.Monitor.Release(ctx, capture); err != nil {
		return err
	}
	return m.gate.DB.SetTags(ctx, id, nil, []string{relay.TagHeld})
}

// Run publishes the tasks that releases through the gate left unpublished, until ctx ends. It
// tries to connect every 5 s. Without servers it returns at once.
func (g *Gate) Run(ctx context.Context) error {
	if g.Flags.Servers == "" {
		return nil
	}
	for range backoff.Rounds(ctx.Done(), 5*time.Second) {
		p, err := g.publisher(ctx)
		if err == nil {
			g.Log.Info("publishing tasks", "servers", g.Flags.Servers)
			s := newShipper(g.DB, p.Bus, 0, g.Log)
			s.Publisher = p
			return s.Run(ctx)
		}
		if ctx.Err() == nil {
			g.Log.Warn("cannot publish tasks", "error", err)
		}
	}
	return nil
}

// relayFlags are the flags of relay.
type relayFlags struct {
	daemon.ServiceFlags
	ClusterFlags
	once  bool          // return once all ended tasks are published
	every time.Duration // between looks at the database
}

// relayCmd returns the command relay, a service next to a host's database: it publishes the
// ended tasks until its context ends, or once.
func relayCmd(a *cli.App) *cobra.Command {
	var f relayFlags
	c := f.Command(a, "relay", "Publish the tasks of this database to a cluster",
		func(ctx context.Context, _ *config.Reloader, log *slog.Logger) error {
			db, err := store.Open(ctx, a.DB)
			if err != nil {
				return err
			}
			defer db.Close()
			// Ready before it is connected: a cluster that is down delays publication and is no failure of the service.
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
		})
	f.More = append([]string{"db"}, cli.TrustFlags...)
	f.Register(c.Flags(), serversUsage, usualServers())
	c.Flags().BoolVar(&f.once, "once", false, "publish what there is, and end")
	c.Flags().DurationVar(&f.every, "every", 2*time.Second, "how often to look for tasks that have ended")
	f.AddTo(c, "relay")
	return c
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
	f.More = append([]string{"db"}, cli.TrustFlags...)
	f.Register(c.Flags(), serversUsage, usualServers())
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
