package limits

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/wire"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Guard holds a server's peers to its limits. It is safe for concurrent use; the
// servers and listeners of one service share one.
type Guard struct {
	cfg Config
	now func() time.Time

	mu      sync.Mutex
	peers   map[peerName]*usage
	swept   time.Time
	open    int // connections from other machines that are known
	all     int // connections
	calls   int
	refused map[reason]uint64
}

// usage is one peer's share of the limits.
type usage struct {
	connections, calls int
	bucket             *rate.Limiter // nil for no limit
}

// peerName is whose limits a call counts against.
type peerName struct {
	name string
	// stranger is set where callers are asked who they are, and this one has not been let in.
	stranger bool
}

// reason is the limit behind a refusal, as metrics name it.
type reason string

const (
	connections     reason = "connections"
	strangers       reason = "strangers"
	silent          reason = "handshake"
	peerConnections reason = "peer_connections"
	peerCalls       reason = "peer_calls"
	peerRate        reason = "peer_rate"
	slowRequest     reason = "request_time"
	stalled         reason = "stall"
)

var reasons = []reason{connections, strangers, silent, peerConnections, peerCalls, peerRate, slowRequest, stalled}

// New makes a guard of limits that were checked.
func New(cfg Config) *Guard {
	if cfg.Peer == nil {
		cfg.Peer = func(ctx context.Context) (string, bool) { return Origin(ctx), false }
	}
	return &Guard{cfg: cfg, now: time.Now, peers: map[peerName]*usage{}, refused: map[reason]uint64{}}
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
	// The bytes that a peer may send unread are held in this process.
	window := int32(max(leastWindow, min(c.Request, 1<<20)))
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(c.Request),
		grpc.MaxHeaderListSize(32 << 10),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(2 * window),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: wire.PingEvery, Timeout: wire.PingTimeout, MaxConnectionIdle: c.Idle, MaxConnectionAge: c.Age,
		}),
		grpc.ChainStreamInterceptor(g.stream),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
			handler grpc.UnaryHandler,
		) (any, error) {
			if w, ok := ctx.Value(watchedKey{}).(watched); ok && w.timer != nil { // the request was read
				w.timer.Stop()
			}
			return handler(ctx, req)
		}),
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

// Origin names where a call comes from: the address of its connection's other end
// without the port, or the account, as "uid 1000", where that is on this machine. It is
// empty for a pipe within this process.
func Origin(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if at, ok := p.LocalAddr.(place); ok {
		return at.conn.from
	}
	return host(p.Addr)
}

// Named returns whose limits a call of a user counts against, for Config.Peer: the user's
// at that origin, so that the machines of one user do not share them; or, without a user,
// those of all strangers there.
func Named(user, origin string) (name string, stranger bool) {
	switch {
	case origin == "": // a pipe within this process
		return "", user == ""
	case user == "":
		return origin, true
	}
	return user + " at " + origin, false
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
	name, stranger := g.cfg.Peer(ctx)
	by := peerName{name, stranger}
	if p, ok := peer.FromContext(ctx); ok && !stranger {
		if err := g.meet(p.LocalAddr, by); err != nil {
			return ctx, err
		}
	}
	if err := g.begin(by); err != nil {
		return ctx, err
	}
	// gRPC ends the context with the call, however it ends.
	context.AfterFunc(ctx, func() { g.end(by) })
	return g.watch(ctx), nil
}

// begin counts a call, or refuses it.
func (g *Guard) begin(by peerName) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.of(by)
	if most := g.cfg.PeerCalls; by.name != "" && most > 0 && u.calls >= most { // no name: no limits of its own
		g.refused[peerCalls]++
		return status.Errorf(codes.ResourceExhausted, "%s has %d calls open here, which is the limit: end some",
			by.name, u.calls)
	}
	if err := g.take(by, u, 1); err != nil {
		return err
	}
	u.calls++
	g.calls++
	return nil
}

// end takes a call that has ended off its peer's usage.
func (g *Guard) end(by peerName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of(by).calls--
	g.calls--
}

// strangersShare is the part of the calls a second that strangers of one origin have, all
// together, beside those that are let in.
const strangersShare = 10

// of returns a peer's usage. The lock is held.
func (g *Guard) of(by peerName) *usage {
	if now := g.now(); now.Sub(g.swept) >= sweepEvery {
		// Peers that have nothing open and a full bucket are forgotten, so that many addresses do not
		// grow the memory.
		g.swept = now
		maps.DeleteFunc(g.peers, func(_ peerName, u *usage) bool {
			full := u.bucket == nil || u.bucket.TokensAt(now) >= float64(u.bucket.Burst())
			return u.calls == 0 && u.connections == 0 && full
		})
	}
	u := g.peers[by]
	if u == nil {
		u = &usage{}
		if perSecond, burst := g.cfg.PeerRate, g.cfg.PeerBurst; perSecond > 0 {
			if by.stranger {
				perSecond, burst = perSecond/strangersShare, max(1, burst/strangersShare)
			}
			u.bucket = rate.NewLimiter(rate.Limit(perSecond), burst)
		}
		g.peers[by] = u
	}
	return u
}

// sweepEvery is how often peers that are gone are forgotten.
const sweepEvery = time.Minute

// refuse counts a refusal for the metrics.
func (g *Guard) refuse(r reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused[r]++
}

var (
	errSlow    = errors.New("the request took too long to arrive")
	errStalled = errors.New("the reader took nothing for too long")
)

// watched is a call's context that ends when its request does not come, or its
// reader does not read.
type watched struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // until the request is there; nil for no limit
}

type watchedKey struct{}

func (w watched) Value(key any) any {
	if key == (watchedKey{}) {
		return w
	}
	return w.Context.Value(key)
}

// Err returns DeadlineExceeded where time ran out: gRPC makes the status of it.
func (w watched) Err() error {
	err := w.Context.Err()
	if err != nil && (errors.Is(context.Cause(w.Context), errSlow) || errors.Is(context.Cause(w.Context), errStalled)) {
		return context.DeadlineExceeded
	}
	return err
}

// watch gives a call's request its time.
func (g *Guard) watch(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	w := watched{Context: ctx, cancel: cancel}
	if g.cfg.RequestTime <= 0 {
		return w
	}
	// Stopped at the first message.
	w.timer = time.AfterFunc(g.cfg.RequestTime, func() {
		if ctx.Err() == nil {
			g.refuse(slowRequest)
			cancel(errSlow)
		}
	})
	context.AfterFunc(ctx, func() { w.timer.Stop() })
	return w
}

// stream ends a stream whose reader takes nothing for Config.Stall.
func (g *Guard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	w, ok := s.Context().Value(watchedKey{}).(watched)
	limited := &stream{ServerStream: s, request: w.timer, stall: g.cfg.Stall}
	if ok && g.cfg.Stall > 0 {
		// A send that waits for the reader ends with the call's own context.
		limited.timer = time.AfterFunc(g.cfg.Stall, func() { w.cancel(errStalled) })
		limited.timer.Stop()
	}
	err := handler(srv, limited)
	if errors.Is(context.Cause(s.Context()), errStalled) {
		g.refuse(stalled)
		return status.Errorf(codes.DeadlineExceeded,
			"the reader took nothing for %v: the stream is ended; read on from the first that is missing", g.cfg.Stall)
	}
	return err
}

// stream is a stream whose reader is watched.
type stream struct {
	grpc.ServerStream
	request *time.Timer // until the request is there; nil for no limit
	stall   time.Duration
	timer   *time.Timer // nil for no limit
}

// RecvMsg ends the time limit of the request with its first message.
func (s *stream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if s.request != nil && (err == nil || errors.Is(err, io.EOF)) {
		s.request.Stop()
	}
	return err
}

// SendMsg sends a message; the timer of a stalled reader runs meanwhile.
func (s *stream) SendMsg(m any) error {
	if s.timer != nil {
		s.timer.Reset(s.stall)
		defer s.timer.Stop()
	}
	return s.ServerStream.SendMsg(m)
}

// accountOf returns the account that made a connection within this machine: the owner of
// the socket at its other end. It is false where the kernel has no answer: the connection
// is closed, or sock_diag(7) is not to be had.
func accountOf(c net.Conn) (uid uint32, ok bool) {
	far, err1 := netip.ParseAddrPort(c.RemoteAddr().String())
	near, err2 := netip.ParseAddrPort(c.LocalAddr().String())
	if err1 != nil || err2 != nil {
		return 0, false
	}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, false
	}
	defer unix.Close(s)
	if err := unix.Sendto(s, diagRequest(far, near), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, false
	}
	// The kernel has answered by the time that sendto returns.
	answer := make([]byte, 1024)
	n, _, err := unix.Recvfrom(s, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, false
	}
	return diagOwner(answer[:n])
}

// Messages of sock_diag(7): struct nlmsghdr, then struct inet_diag_req_v2 or struct
// inet_diag_msg, in the machine's order but for ports and addresses.
const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	headerSize   = unix.SizeofNlMsghdr
	requestSize  = headerSize + 8 + 48
	ownerAt      = headerSize + 4 + 48 + 12
	established  = 1 // TCP_ESTABLISHED
)

// diagRequest asks for the one TCP socket with these ends. It is looked up, not searched
// for: the time does not depend on how many sockets there are.
func diagRequest(local, peer netip.AddrPort) []byte {
	b := make([]byte, requestSize)
	order := binary.NativeEndian
	order.PutUint32(b, requestSize)
	order.PutUint16(b[4:], diagByFamily)
	order.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[headerSize:]
	r[0], r[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if local.Addr().Unmap().Is4() {
		r[0] = unix.AF_INET
	}
	order.PutUint32(r[4:], 0xffffffff) // any state
	binary.BigEndian.PutUint16(r[8:], local.Port())
	binary.BigEndian.PutUint16(r[10:], peer.Port())
	copy(r[12:28], local.Addr().Unmap().AsSlice())
	copy(r[28:44], peer.Addr().Unmap().AsSlice())
	for i := 48; i < 56; i++ {
		r[i] = 0xff // no cookie
	}
	return b
}

// diagOwner returns the owner of the socket that an answer describes, if that is open.
func diagOwner(answer []byte) (uid uint32, ok bool) {
	if len(answer) < ownerAt+4 || binary.NativeEndian.Uint16(answer[4:]) != diagByFamily ||
		answer[headerSize+1] != established {
		return 0, false
	}
	return binary.NativeEndian.Uint32(answer[ownerAt:]), true
}
