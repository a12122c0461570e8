package limits

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"wattmark/api/wire"
)

// Guard holds a server's peers to its limits. It is safe for concurrent use; the
// servers and listeners of one service share one.
type Guard struct {
	cfg Config
	now func() time.Time

	mu      sync.Mutex
	peers   map[string]*usage
	swept   time.Time
	open    int // connections that count
	all     int // connections
	calls   int
	refused map[reason]uint64
}

// usage is what one peer has taken.
type usage struct {
	connections, calls int
	bucket             *rate.Limiter // nil for no limit
}

// reason is what a refusal was for, as metrics name it.
type reason string

const (
	connections     reason = "connections"
	peerConnections reason = "peer_connections"
	peerCalls       reason = "peer_calls"
	peerRate        reason = "peer_rate"
	slowRequest     reason = "request_time"
	stalled         reason = "stall"
)

var reasons = []reason{connections, peerConnections, peerCalls, peerRate, slowRequest, stalled}

// New makes a guard of limits that were checked.
func New(cfg Config) *Guard {
	if cfg.Peer == nil {
		cfg.Peer = address
	}
	return &Guard{cfg: cfg, now: time.Now, peers: map[string]*usage{}, refused: map[reason]uint64{}}
}

// leastWindow is the smallest window that HTTP/2 begins with, in bytes.
const leastWindow = 64 << 10

// ServerOptions make a gRPC server keep the limits. They go behind
// wire.ServerOptions; no other option may be a tap.
func (g *Guard) ServerOptions() []grpc.ServerOption {
	return append(g.Options(), grpc.InTapHandle(g.Tap))
}

// Options are those without Tap, of which a server has room for one alone: for one that
// looks at calls itself and asks Tap then.
func (g *Guard) Options() []grpc.ServerOption {
	c := &g.cfg
	// What a peer may send unread is what it may make this process keep.
	window := int32(max(leastWindow, min(c.Request, 1<<20)))
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(c.Request),
		grpc.MaxHeaderListSize(32 << 10),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(2 * window),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: wire.PingEvery, Timeout: wire.PingTimeout, MaxConnectionIdle: c.Idle, MaxConnectionAge: c.Age,
		}),
		grpc.ChainUnaryInterceptor(unary), grpc.ChainStreamInterceptor(g.stream),
	}
	if c.Streams > 0 {
		options = append(options, grpc.MaxConcurrentStreams(c.Streams))
	}
	if c.Handshake > 0 {
		options = append(options, grpc.ConnectionTimeout(c.Handshake))
	}
	return options
}

// Inside are the options of a server behind a pipe within this process, to which Handler
// has let its peers: all of them share one connection, of which nothing is asked again.
func (g *Guard) Inside() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(g.cfg.Request)}
}

// address is a connection's other end without its port.
func address(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return host(p.Addr)
	}
	return ""
}

// host is empty for a pipe within this process: who is behind it was looked at
// before.
func host(a net.Addr) string {
	if a.Network() == "bufconn" {
		return ""
	}
	if h, _, err := net.SplitHostPort(a.String()); err == nil {
		return h
	}
	return a.Network()
}

// Tap decides on a call before its request is read.
func (g *Guard) Tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	name := g.cfg.Peer(ctx)
	if err := g.begin(name); err != nil {
		return ctx, err
	}
	// gRPC ends the context with the call, however it ends.
	context.AfterFunc(ctx, func() { g.end(name) })
	return g.watch(ctx), nil
}

// begin counts a call, or refuses it.
func (g *Guard) begin(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.of(name)
	switch c := &g.cfg; {
	case name == "": // no limits of its own
	case c.PeerCalls > 0 && u.calls >= c.PeerCalls:
		g.refused[peerCalls]++
		return status.Errorf(codes.ResourceExhausted, "%s has %d calls open here, which is the limit: end some", name, u.calls)
	case u.bucket != nil && !u.bucket.AllowN(g.now(), 1):
		g.refused[peerRate]++
		return status.Errorf(codes.ResourceExhausted, "%s calls more than %g times a second: wait a little", name, c.PeerRate)
	}
	u.calls++
	g.calls++
	return nil
}

func (g *Guard) end(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of(name).calls--
	g.calls--
}

// of returns what a peer has taken. The lock is held.
func (g *Guard) of(name string) *usage {
	g.sweep()
	u := g.peers[name]
	if u == nil {
		u = &usage{}
		if g.cfg.PeerRate > 0 {
			u.bucket = rate.NewLimiter(rate.Limit(g.cfg.PeerRate), g.cfg.PeerBurst)
		}
		g.peers[name] = u
	}
	return u
}

// sweepEvery is how often peers that are gone are forgotten.
const sweepEvery = time.Minute

// sweep forgets peers that have nothing open and a full bucket, so that many
// addresses do not grow the memory. The lock is held.
func (g *Guard) sweep() {
	now := g.now()
	if now.Sub(g.swept) < sweepEvery {
		return
	}
	g.swept = now
	for name, u := range g.peers {
		full := u.bucket == nil || u.bucket.TokensAt(now) >= float64(g.cfg.PeerBurst)
		if u.calls == 0 && u.connections == 0 && full {
			delete(g.peers, name)
		}
	}
}

func (g *Guard) refuse(r reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused[r]++
}
