// Package cluster runs one node of the cluster between hosts and stores: a
// NATS server with JetStream, in this process. Three nodes on three machines hold every
// message three times, and go on when one of them is gone.
//
//	Config ─▶ Start ─▶ Node    the server; Ready makes the streams of package relay
//	Access ─▶ door             admits clients, each with an account of its Right, and
//	                           disconnects those whose right has ended
//	consumers                  makes the stores' consumers on their behalf, checked
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/store/relay"
)

// Config of a node.
type Config struct {
	// Name of the node, other than those of its peers, and the same each time.
	Name string
	// Dir is the folder of its streams.
	Dir string
	// Listen is for clients, Cluster for the other nodes, Monitor for HTTP (/healthz,
	// /jsz, /varz), empty for none: host:port.
	Listen, Cluster, Monitor string
	// Peers are the addresses for nodes of all nodes, this one included or not; none for
	// a node that is alone.
	Peers []string
	// Sync is the time between two syncs of the written messages to the disk; 0 syncs before
	// each acknowledgement.
	Sync time.Duration
	// MaxStore is the most bytes of all streams on the disk; 0 is the server's choice, three
	// quarters of the free space.
	MaxStore int64
	// MaxUser is the most bytes in all streams of a user with the right to publish under that
	// name alone; 0 is a quarter of a stream's limit, or of MaxStore.
	MaxUser int64
	// Access authenticates clients; nil where the password does.
	Access *Access
	// Password of clients and nodes, where there is no Access; empty admits every client that
	// reaches the address.
	Password string
	Streams  relay.StreamOptions
	Log      *slog.Logger
}

// clusterName is the cluster's name among the servers.
const clusterName = "wattmark"

// Node is a node that runs.
type Node struct {
	cfg    Config
	server *server.Server
	door   *door // nil without access control
	// consumers is the connection that makes the stores' consumers; nil without access control.
	consumers *nats.Conn
	ctx       context.Context // until Run ends
	end       context.CancelFunc
	log       *slog.Logger
}

// ErrStart is wrapped where a node cannot start.
var ErrStart = errors.New("the node cannot start")

// Start starts a node; it takes part from then on, until Run ends. It blocks until the node
// listens, at most readyWithin. Errors wrap ErrStart.
func Start(cfg Config) (n *Node, err error) {
	defer func() {
		if err != nil {
			n, err = nil, fmt.Errorf("%w: %w", ErrStart, err)
		}
	}()
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	o, err := cfg.options()
	if err != nil {
		return nil, err
	}
	n = &Node{cfg: cfg, log: cfg.Log}
	n.ctx, n.end = context.WithCancel(context.Background())
	if cfg.Access != nil {
		n.door = newDoor(cfg.Access, cfg.Log, o)
	}
	if n.server, err = server.NewServer(o); err != nil {
		return nil, err
	}
	if n.door != nil {
		if err := n.door.export(n.server); err != nil {
			return nil, err
		}
	}
	l := &lines{log: cfg.Log, fatal: make(chan struct{})}
	n.server.SetLoggerV2(l, cfg.Log.Enabled(n.ctx, slog.LevelDebug), false, false)
	n.server.Start()
	// Until the server listens. Where it cannot go on – a port that is taken, a folder that cannot be written
	// – its last error is the reason; the server itself goes on, without listening.
	ready := make(chan bool, 1)
	go func(s *server.Server) { ready <- s.ReadyForConnections(readyWithin) && s.Running() }(n.server)
	listens := false
	select {
	case listens = <-ready:
	case <-l.fatal:
	}
	if !listens {
		l.mu.Lock()
		err = errors.New(cmp.Or(l.last, "it did not listen in time"))
		l.mu.Unlock()
	} else if n.door != nil {
		n.door.limit = cfg.userLimit(n.server)
		n.consumers, err = serveConsumers(n.server, n.door.secret)
	}
	if err != nil {
		n.server.Shutdown()
	}
	return n, err
}

// readyWithin bounds the reading of a node's files before it listens.
const readyWithin = 2 * time.Minute

// userLimit returns the most bytes of one user in the streams.
func (c *Config) userLimit(s *server.Server) uint64 {
	if c.MaxUser > 0 {
		return uint64(c.MaxUser)
	}
	limit := c.Streams.MaxBytes
	if j := s.JetStreamConfig(); j != nil && j.MaxStore > 0 && (limit == 0 || j.MaxStore < limit) {
		limit = j.MaxStore
	}
	return uint64(limit) / 4
}

// options returns the server's options.
func (c *Config) options() (*server.Options, error) {
	if err := relay.CheckName(c.Name); err != nil {
		return nil, err
	}
	o := &server.Options{
		ServerName: c.Name, JetStream: true, StoreDir: c.Dir, NoSigs: true, DisableJetStreamBanner: true,
		SyncInterval: cmp.Or(c.Sync, 2*time.Minute), SyncAlways: c.Sync == 0, JetStreamMaxStore: c.MaxStore,
		// A client that was cut off does not close its connection: it is noticed by its silence.
		PingInterval: 3 * time.Second, MaxPingsOut: 2, WriteDeadline: 5 * time.Second,
		LameDuckDuration: time.Second, LameDuckGracePeriod: 100 * time.Millisecond,
	}
	var err error
	if o.Host, o.Port, err = hostPort(c.Listen); err != nil {
		return nil, err
	}
	if c.Monitor != "" {
		if o.HTTPHost, o.HTTPPort, err = hostPort(c.Monitor); err != nil {
			return nil, err
		}
	}
	var user *url.Userinfo // of the nodes' addresses
	if c.Password != "" {
		o.Username, o.Password, user = relay.User, c.Password, url.UserPassword(relay.User, c.Password)
	}
	if len(c.Peers) == 0 {
		return o, nil
	}
	o.Cluster.Name, o.Cluster.PingInterval, o.Cluster.MaxPingsOut = clusterName, 3*time.Second, 2
	o.Cluster.Username, o.Cluster.Password = o.Username, o.Password
	if o.Cluster.Host, o.Cluster.Port, err = hostPort(c.Cluster); err != nil {
		return nil, err
	}
	for _, p := range c.Peers {
		if _, _, err := hostPort(p); err != nil {
			return nil, err
		}
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: p, User: user})
	}
	return o, nil
}

// hostPort splits an address; port 0 is one of the server's choice.
func hostPort(address string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("address %q: want host:port", address)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// URL returns the URL at which clients reach the node.
func (n *Node) URL() string { return n.server.ClientURL() }

// Address returns the same as host and port.
func (n *Node) Address() string { return n.server.Addr().String() }

// Ready makes the streams, and blocks until they are there, which takes most of the nodes.
func (n *Node) Ready(ctx context.Context) error {
	o := relay.Options{
		Inside: n.server, Servers: "nats://" + n.Address(), Name: n.cfg.Name, Password: n.cfg.Password, Log: n.log,
	}
	if n.door != nil {
		o.Password = n.door.secret
	}
	if err := relay.EnsureStreams(ctx, o, n.cfg.Streams); err != nil || n.door == nil {
		return err
	}
	u, err := relay.NewUsage(ctx, o)
	if err != nil {
		return err
	}
	n.door.usage.Store(u)
	go u.Run(n.ctx)
	return nil
}

// Run blocks until the context has ended and the node has handed over the streams that it led,
// or the server has ended by itself, which is an error.
func (n *Node) Run(ctx context.Context) error {
	defer n.end()
	if n.consumers != nil {
		defer n.consumers.Close()
	}
	if n.door != nil {
		showing, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			for backoff.Sleep(showing, recheckEvery) == nil {
				n.door.recheck(n.server)
			}
		}()
	}
	over := make(chan struct{})
	go func() {
		n.server.WaitForShutdown()
		close(over)
	}()
	select {
	case <-over:
		return errors.New("the server ended by itself; its log says why")
	case <-ctx.Done():
		n.server.LameDuckShutdown()
		<-over
		return nil
	}
}

// lines passes the server's log on, and keeps the last error. Its methods may be called at the same time.
type lines struct {
	log   *slog.Logger
	mu    sync.Mutex
	last  string
	once  sync.Once
	fatal chan struct{} // closed at the first fatal error
}

// noise begins lines of the server that are logged at the level of debugging.
var noise = []string{
	"Starting nats-server", "Git:", "Go build:", "Version:", "Max Memory", "Max Storage", "Store Directory", "Domain:",
	"API Level", "---------------",
}

// Noticef is part of server.Logger.
func (l *lines) Noticef(format string, v ...any) {
	level, text := slog.LevelInfo, strings.TrimSpace(fmt.Sprintf(format, v...))
	if slices.ContainsFunc(noise, func(n string) bool { return strings.HasPrefix(text, n) }) {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, text)
}

// Warnf is part of server.Logger.
func (l *lines) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if strings.Contains(text, "TLS Handshake First") { // our clients do
		l.log.Debug(text)
		return
	}
	l.log.Warn(text)
}

// Errorf is part of server.Logger.
func (l *lines) Errorf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = fmt.Sprintf(format, v...)
	l.log.Error(l.last)
}

// Fatalf is part of server.Logger. It does not end the process: Start fails, and Run returns
// when the server has ended.
func (l *lines) Fatalf(format string, v ...any) {
	l.Errorf(format, v...)
	l.once.Do(func() { close(l.fatal) })
}

// Debugf is part of server.Logger.
func (l *lines) Debugf(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }

// Tracef is part of server.Logger; traces of the protocol are not wanted.
func (l *lines) Tracef(string, ...any) {}
