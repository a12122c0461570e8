package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/store"
	"wattmark/store/relay"
)

// gate keeps monitors' captures until a cluster has their tasks: ReleaseCapture then
// means replicated. Without servers it is open. Every command that measures has one.
type gate struct {
	flags gateFlags
	db    *store.DB
	log   *slog.Logger
	// late gates publish a task when the next one ends, or the command: it has all by then
	// that the command finds out about it.
	late bool
	ctx  context.Context // of what is late: without its end

	mu      sync.Mutex
	bus     *relay.Bus
	pub     *relay.Publisher
	pending *lateRelease
}

// lateRelease is what is late.
type lateRelease struct {
	m       heldMonitor
	task    store.TaskID
	capture string
}

// gate is that of a command that measures. Its close must come before the database's and
// the monitors'.
func (a *app) gate(ctx context.Context, f gateFlags, db *store.DB) *gate {
	return &gate{flags: f.usual(), db: db, log: a.serviceLog(new(slog.LevelVar)), late: true, ctx: context.WithoutCancel(ctx)}
}

// gateFlags say which cluster a measurement is published to.
type gateFlags struct {
	clusterFlags
	// wait is how long a measurement waits for the cluster at its end. What is not
	// replicated then is later, by wattmark host or relay.
	wait time.Duration
}

// usual fills in what no flag said.
func (f gateFlags) usual() gateFlags {
	if f.servers == "" {
		f.servers = os.Getenv("WATTMARK_CLUSTER")
	}
	if f.servers == noCluster {
		f.servers = ""
	}
	if f.wait == 0 {
		f.wait = clusterWait
	}
	return f
}

// noCluster is said where WATTMARK_CLUSTER names one that is not wanted.
const noCluster = "none"

const clusterWait = 30 * time.Second

func (f *gateFlags) addTo(fl *pflag.FlagSet) {
	f.register(fl, "cluster", clusterUsage, "")
	fl.DurationVar(&f.wait, "cluster-wait", clusterWait, "how long a measurement waits for the cluster at its end; its capture stays at the monitor until the cluster has the task")
}

// close publishes what is late, and ends the connection.
func (g *gate) close() {
	if err := g.later(nil); err != nil {
		g.log.Warn("a capture was not released", "error", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bus != nil {
		g.bus.Close()
	}
}

// publisher connects when it is first wanted: a cluster that is away holds no
// measurement up for longer than its context says.
func (g *gate) publisher(ctx context.Context) (*relay.Publisher, error) {
	g.mu.Lock()
	there := g.pub
	g.mu.Unlock()
	if there != nil {
		return there, nil
	}
	b, err := g.flags.dial(ctx, "gate", g.log)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pub != nil { // another measurement was faster
		b.Close()
		return g.pub, nil
	}
	g.bus, g.pub = b, &relay.Publisher{DB: g.db, Bus: b, Program: version()}
	return g.pub, nil
}

// monitor is a monitor whose captures are released through the gate.
func (g *gate) monitor(m measurement.Monitor) measurement.Monitor {
	if g.flags.servers == "" {
		return m
	}
	return heldMonitor{m, g}
}

// dial connects to a monitor whose captures are released through the gate.
func (g *gate) dial(ctx context.Context, address string) (measurement.Monitor, func() error, error) {
	m, closeConn, err := dialMonitor(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	return g.monitor(m), closeConn, nil
}

type heldMonitor struct {
	measurement.Monitor
	gate *gate
}

// Captures lists what the monitor keeps, where it can tell.
func (m heldMonitor) Captures(ctx context.Context) ([]monitorclient.Capture, error) {
	l, ok := m.Monitor.(interface {
		Captures(ctx context.Context) ([]monitorclient.Capture, error)
	})
	if !ok {
		return nil, nil
	}
	return l.Captures(ctx)
}

// Release publishes the capture's task and releases it. What cannot be published in
// time keeps its capture at the monitor; the measurement is none the worse for it.
func (m heldMonitor) Release(ctx context.Context, capture string) error {
	id, err := m.gate.db.OfCapture(ctx, m.Address(), capture)
	if err != nil { // it became no task
		return m.Monitor.Release(ctx, capture)
	}
	if m.gate.late {
		if err := (&relay.Publisher{DB: m.gate.db}).Hold(ctx, id, m.Address()); err != nil {
			return err
		}
		return m.gate.later(&lateRelease{m, id, capture})
	}
	return m.let(ctx, id, capture)
}

// later publishes what was late so far, and takes note of what is from now on.
func (g *gate) later(next *lateRelease) error {
	g.mu.Lock()
	r := g.pending
	g.pending = next
	g.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.m.let(g.ctx, r.task, r.capture)
}

// let publishes a task, and releases its capture where that is done.
func (m heldMonitor) let(ctx context.Context, id store.TaskID, capture string) error {
	if err := m.gate.replicate(ctx, id, m.Address()); err != nil {
		m.gate.log.Warn("the task is stored here, and not replicated yet: its capture stays at the monitor until wattmark host --cluster or wattmark relay has published it",
			"task", int64(id), "error", err)
		return nil
	}
	if err := m.Monitor.Release(ctx, capture); err != nil {
		return err
	}
	return (&relay.Publisher{DB: m.gate.db}).LetGo(ctx, id)
}

func (g *gate) replicate(ctx context.Context, id store.TaskID, monitor string) error {
	held := &relay.Publisher{DB: g.db}
	if err := held.Hold(ctx, id, monitor); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, g.flags.wait)
	defer cancel()
	p, err := g.publisher(ctx)
	if err != nil {
		return err
	}
	_, err = p.Replicate(ctx, id)
	return err
}

// run publishes what the gate could not, until the context ends.
func (g *gate) run(ctx context.Context) error {
	if g.flags.servers == "" {
		return nil
	}
	for {
		p, err := g.publisher(ctx)
		if err == nil {
			g.log.Info("publishing tasks", "servers", g.flags.servers)
			s := newShipper(g.db, p.Bus, 0, g.log)
			s.Publisher = p
			return s.Run(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		g.log.Warn("cannot publish tasks", "error", err)
		if !sleepUntil(ctx, time.Now().Add(5*time.Second)) {
			return nil
		}
	}
}

const clusterUsage = "also publish tasks to this cluster, and release their captures only then: nodes with commas between them (also WATTMARK_CLUSTER; none for not)"
