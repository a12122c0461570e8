package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"wattmark/store/relay"
)

// Config says what a node is.
type Config struct {
	// Name is the node's, other than those of its peers, and the same each time.
	Name string
	// Dir is where its streams lie.
	Dir string
	// Listen is for clients, Cluster for the other nodes, Monitor for HTTP (/healthz,
	// /jsz, /varz), empty for none: host:port.
	Listen, Cluster, Monitor string
	// Peers are the addresses for nodes of all nodes, this one included or not; none for
	// a node that is alone.
	Peers []string
	// Sync is how often what was written is brought to the disk; 0 before each
	// acknowledgement.
	Sync time.Duration
	// MaxStore is how many bytes all streams may take of the disk; 0 leaves it to the
	// server, which takes three quarters of what is free.
	MaxStore int64
	// MaxUser is how many bytes one user who publishes under the own name may have in all streams; 0
	// is a quarter of what a stream may take, or of MaxStore.
	MaxUser int64
	// Access says who is let in; nil for who knows the password.
	Access *Access
	// Password of clients and nodes, where there is no Access; empty lets all in who reach
	// the address.
	Password string
	Streams  relay.StreamOptions
	Log      *slog.Logger
}

// The names that the servers know the cluster by.
const clusterName = "wattmark"

// Node is a node that runs.
type Node struct {
	cfg    Config
	server *server.Server
	door   *door // nil where nobody is asked
	// consumers is the connection by which it makes those of stores; nil where nobody is asked.
	consumers *nats.Conn
	ctx       context.Context // until Run ends
	end       context.CancelFunc
	log       *slog.Logger
}

// ErrStart: a node cannot start.
var ErrStart = errors.New("the node cannot start")

// Start starts a node; it takes part from then on, until Run ends.
func Start(cfg Config) (*Node, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	o, err := cfg.options()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	n := &Node{cfg: cfg, log: cfg.Log}
	n.ctx, n.end = context.WithCancel(context.Background())
	if cfg.Access != nil {
		n.door = newDoor(cfg.Access, cfg.Log)
		n.door.guard(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	n.server = s
	if n.door != nil {
		if err := n.door.export(s); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrStart, err)
		}
	}
	l := &lines{log: cfg.Log}
	s.SetLoggerV2(l, cfg.Log.Enabled(context.Background(), slog.LevelDebug), false, false)
	s.Start()
	// A port that is taken, or a folder that cannot be written, ends the server.
	if !s.ReadyForConnections(readyWithin) || !s.Running() {
		s.Shutdown()
		return nil, fmt.Errorf("%w: %s", ErrStart, l.fault())
	}
	if n.door == nil {
		return n, nil
	}
	n.door.limit = n.userLimit()
	if n.consumers, err = serveConsumers(s, n.door.secret); err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	return n, nil
}

// readyWithin is how long a node may read its files before it listens.
const readyWithin = 2 * time.Minute

func (c *Config) options() (*server.Options, error) {
	if err := relay.CheckName(c.Name); err != nil {
		return nil, err
	}
	o := &server.Options{
		ServerName: c.Name, JetStream: true, StoreDir: c.Dir, NoSigs: true, DisableJetStreamBanner: true,
		SyncInterval: c.Sync, SyncAlways: c.Sync == 0, JetStreamMaxStore: c.MaxStore,
		// Who was cut off does not say goodbye: it is noticed by its silence.
		PingInterval: 3 * time.Second, MaxPingsOut: 2, WriteDeadline: 5 * time.Second,
		LameDuckDuration: time.Second, LameDuckGracePeriod: 100 * time.Millisecond,
	}
	if c.Sync == 0 {
		o.SyncInterval = 2 * time.Minute
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
	if c.Password != "" {
		o.Username, o.Password = relay.User, c.Password
	}
	if len(c.Peers) == 0 {
		return o, nil
	}
	o.Cluster.Name, o.Cluster.PingInterval, o.Cluster.MaxPingsOut = clusterName, 3*time.Second, 2
	if o.Cluster.Host, o.Cluster.Port, err = hostPort(c.Cluster); err != nil {
		return nil, err
	}
	if c.Password != "" {
		o.Cluster.Username, o.Cluster.Password = relay.User, c.Password
	}
	for _, p := range c.Peers {
		if _, _, err := hostPort(p); err != nil {
			return nil, err
		}
		u := &url.URL{Scheme: "nats-route", Host: p}
		if c.Password != "" {
			u.User = url.UserPassword(relay.User, c.Password)
		}
		o.Routes = append(o.Routes, u)
	}
	return o, nil
}

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

// URL is where clients reach the node.
func (n *Node) URL() string { return n.server.ClientURL() }

// Address is the same as host and port.
func (n *Node) Address() string { return n.server.Addr().String() }

// Ready makes the streams, and returns when they are there: when enough nodes are up.
func (n *Node) Ready(ctx context.Context) error {
	o := relay.Options{Inside: n.server, Servers: "nats://" + n.Address(), Name: n.cfg.Name, Password: n.cfg.Password, Log: n.log}
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

// userLimit is how many bytes one user may have in the streams.
func (n *Node) userLimit() uint64 {
	if n.cfg.MaxUser > 0 {
		return uint64(n.cfg.MaxUser)
	}
	limit := n.cfg.Streams.MaxBytes
	if c := n.server.JetStreamConfig(); c != nil && c.MaxStore > 0 && (limit == 0 || c.MaxStore < limit) {
		limit = c.MaxStore
	}
	return uint64(limit) / 4
}

// Run returns when the context has ended and the node has handed over what it led, or
// when the server has ended by itself.
func (n *Node) Run(ctx context.Context) error {
	defer n.end()
	if n.consumers != nil {
		defer n.consumers.Close()
	}
	if n.door != nil {
		showing, cancel := context.WithCancel(ctx)
		defer cancel()
		go n.door.run(showing, n.server)
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

// lines passes the server's log on.
type lines struct {
	log  *slog.Logger
	last faults
}

// noise are lines of the server that say nothing to who runs a node.
var noise = []string{"Starting nats-server", "Git:", "Go build:", "Version:", "Max Memory", "Max Storage", "Store Directory", "Domain:", "API Level", "---------------"}

func (l *lines) Noticef(format string, v ...any) {
	text := strings.TrimSpace(fmt.Sprintf(format, v...))
	for _, n := range noise {
		if strings.HasPrefix(text, n) {
			l.log.Debug(text)
			return
		}
	}
	l.log.Info(text)
}

func (l *lines) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if strings.Contains(text, "TLS Handshake First") { // our clients do
		l.log.Debug(text)
		return
	}
	l.log.Warn(text)
}

func (l *lines) Errorf(format string, v ...any) {
	l.last.put(fmt.Sprintf(format, v...))
	l.log.Error(fmt.Sprintf(format, v...))
}

// Fatalf is told what ends the server; that it ended is seen elsewhere.
func (l *lines) Fatalf(format string, v ...any) { l.Errorf(format, v...) }
func (l *lines) Debugf(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *lines) Tracef(string, ...any)          {}

func (l *lines) fault() string { return l.last.get() }
