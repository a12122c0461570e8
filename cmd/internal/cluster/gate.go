package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	sessioncmd "github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// Gate keeps monitors' captures until a cluster has their tasks: a released capture is a
// replicated one. Without servers captures are released at once. Every command that measures
// has one. It is safe for concurrent use.
//
//	Release ─ Hold (a tag in the database) ─ Replicate ─ Release at the monitor ─ LetGo
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
	if f.wait == 0 {
		f.wait = clusterWait
	}
	return f
}

// clusterWait is the default of --cluster-wait.
const clusterWait = 30 * time.Second

// AddTo adds the flags to fl.
func (f *GateFlags) AddTo(fl *pflag.FlagSet) {
	f.Register(fl, "cluster", "also publish tasks to this cluster, and release their captures only then: nodes with "+
		"commas between them (also WATTMARK_CLUSTER; none for not)", "")
	fl.DurationVar(&f.wait, "cluster-wait", clusterWait, "how long a measurement waits for the cluster at its end; "+
		"its capture stays at the monitor until the cluster has the task")
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
	m, closeConn, err := sessioncmd.DialMonitor(ctx, address)
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
func (m heldMonitor) Captures(ctx context.Context) ([]session.Capture, error) {
	l, ok := m.Monitor.(interface {
		Captures(ctx context.Context) ([]session.Capture, error)
	})
	if !ok {
		return nil, nil
	}
	return l.Captures(ctx)
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
		if err := (&relay.Publisher{DB: m.gate.DB}).Hold(ctx, id, m.Address()); err != nil {
			return err
		}
		return m.gate.exchangePending(func() error { return m.publishAndRelease(m.gate.ctx, id, capture) })
	}
	return m.publishAndRelease(ctx, id, capture)
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

// publishAndRelease publishes a task, and on success releases its capture and clears the
// mark that holds it.
func (m heldMonitor) publishAndRelease(ctx context.Context, id store.TaskID, capture string) error {
	if err := m.gate.replicate(ctx, id, m.Address()); err != nil {
		m.gate.Log.Warn("the task is stored here, and not replicated yet: its capture stays at the monitor until "+
			"wattmark host --cluster or wattmark relay has published it", "task", int64(id), "error", err)
		return nil
	}
	if err := m.Monitor.Release(ctx, capture); err != nil {
		return err
	}
	return (&relay.Publisher{DB: m.gate.DB}).LetGo(ctx, id)
}

// replicate marks a task as held and publishes it within the wait of the flags. The mark
// comes first: after a crash in between the capture is still known to be unreleased.
func (g *Gate) replicate(ctx context.Context, id store.TaskID, monitor string) error {
	held := &relay.Publisher{DB: g.DB}
	if err := held.Hold(ctx, id, monitor); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, g.Flags.wait)
	defer cancel()
	p, err := g.publisher(ctx)
	if err != nil {
		return err
	}
	_, err = p.Replicate(ctx, id)
	return err
}

// Run publishes the tasks that releases through the gate left unpublished, until ctx ends. It
// tries to connect every 5 s. Without servers it returns at once.
func (g *Gate) Run(ctx context.Context) error {
	if g.Flags.Servers == "" {
		return nil
	}
	for {
		p, err := g.publisher(ctx)
		if err == nil {
			g.Log.Info("publishing tasks", "servers", g.Flags.Servers)
			s := newShipper(g.DB, p.Bus, 0, g.Log)
			s.Publisher = p
			return s.Run(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		g.Log.Warn("cannot publish tasks", "error", err)
		if !cli.SleepUntil(ctx, time.Now().Add(5*time.Second)) {
			return nil
		}
	}
}
