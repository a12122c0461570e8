// Package limits keeps one peer of a service from taking the resources of all: connections, calls, calls a second,
// the size of a request, and time. Monitor and host are served with the same.
//
// A peer is all callers that share an address, without the port, or on this machine an account, unless Config.Peer
// names it otherwise. A connection belongs to a stranger until its first call that is let in; strangers have a small
// budget of their own, and little time. What is refused is refused before its request was read, with
// RESOURCE_EXHAUSTED; a peer that is too slow, a request or the reader of a stream, ends with DEADLINE_EXCEEDED.
package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Config is the limits. Zero is no limit, but for those that gRPC always has; Default suits a lab.
type Config struct {
	// Connections is how many there may be at once that made a call which was let in;
	// those from this machine do not count.
	Connections int
	// Strangers is how many connections of one listener may be open that made no such
	// call yet; half of them of one origin. The oldest is closed for the newest.
	Strangers int
	// PeerConnections is how many one peer may have at once.
	PeerConnections int
	// Streams is how many calls may be open on one connection.
	Streams uint32
	// PeerCalls is how many calls one peer may have open at once, long ones as a followed capture among them.
	PeerCalls int
	// PeerRate is how many calls a second one peer may begin in the long run, and PeerBurst how many at once.
	PeerRate  float64
	PeerBurst int
	// Request is the largest request, in bytes, after any decompression. No
	// message to a monitor or a host is a tenth of the default.
	Request int
	// Handshake is how long a new connection may take to its first call that is let in.
	Handshake time.Duration
	// RequestTime is how long a request may take from its first byte to its last.
	RequestTime time.Duration
	// Stall is how long a reader of a stream may take nothing.
	Stall time.Duration
	// Idle ends connections that had no call for so long.
	Idle time.Duration
	// Age ends connections that are older once their calls have ended; clients connect anew by themselves.
	Age time.Duration

	// Peer names the caller of a call, and reports a stranger, let in to calls open to everybody; [Origin], and no
	// stranger, when nil. A server that knows its users names them here. An empty name has no limits of its own.
	Peer func(ctx context.Context) (name string, stranger bool)
}

// Default is the need of a lab's benches, many times over.
func Default() Config {
	return Config{
		Connections: 256, Strangers: 256, PeerConnections: 32, Streams: 64, PeerCalls: 128, PeerRate: 500,
		PeerBurst: 1000, Request: 4 << 20,
		Handshake: 5 * time.Second, RequestTime: 10 * time.Second, Stall: 5 * time.Minute, Idle: 30 * time.Minute,
	}
}

// leastRequest is the size of the largest request of a well-behaved client, in bytes.
const leastRequest = 64 << 10

// Check refuses limits that cannot be meant.
func (c *Config) Check() error {
	var errs []error
	names := []string{"connections", "strangers", "connections of a peer", "calls of a peer", "burst of a peer"}
	for i, n := range []int{c.Connections, c.Strangers, c.PeerConnections, c.PeerCalls, c.PeerBurst} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("limit of %s: %d: want 0, for none, or more", names[i], n))
		}
	}
	if c.PeerRate < 0 || c.PeerRate > 0 && c.PeerBurst == 0 {
		errs = append(errs, fmt.Errorf(
			"limit of %g calls a second with a burst of %d: want 0 for none, or both above 0", c.PeerRate, c.PeerBurst))
	}
	if c.Request < leastRequest || c.Request > 1<<30 {
		errs = append(errs, fmt.Errorf("limit of a request: %d bytes: want %d to %d", c.Request, leastRequest, 1<<30))
	}
	for _, d := range []time.Duration{c.Handshake, c.RequestTime, c.Stall, c.Idle, c.Age} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("a time limit of %v: want 0, for none, or more", d))
		}
	}
	return errors.Join(errs...)
}

var (
	descRefused = prometheus.NewDesc("wattmark_limit_refused_total",
		"Connections, calls and streams that were refused or ended, by the limit.", []string{"limit"}, nil)
	descConnections = prometheus.NewDesc("wattmark_connections", "Connections that are open.", nil, nil)
	descCalls       = prometheus.NewDesc("wattmark_calls_open", "Calls that are open.", nil, nil)
	descPeers       = prometheus.NewDesc("wattmark_peers",
		"Peers that are known: those with something open, and those that were there a moment ago.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (g *Guard) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect is part of prometheus.Collector.
func (g *Guard) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range reasons {
		ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(g.refused[r]), string(r))
	}
	ch <- prometheus.MustNewConstMetric(descConnections, prometheus.GaugeValue, float64(g.all))
	ch <- prometheus.MustNewConstMetric(descCalls, prometheus.GaugeValue, float64(g.calls))
	ch <- prometheus.MustNewConstMetric(descPeers, prometheus.GaugeValue, float64(len(g.peers)))
}

// Listen limits the connections that a listener gives. A new connection is a stranger's until its first call that is
// let in, which must come within Config.Handshake. Strangers have a budget of their own, in which the oldest makes
// room for the newest: idle strangers never block new ones, nor known peers. Each listener has its own strangers.
func (g *Guard) Listen(l net.Listener) net.Listener { return &listener{Listener: l, guard: g} }

type listener struct {
	net.Listener
	guard     *Guard
	strangers []*conn // the oldest first; guard.mu protects it
}

// Accept is part of net.Listener. A connection comes from the account at its other end, if that is
// on this machine and the kernel names its owner, otherwise from the address.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	x := &conn{Conn: c, listener: l, from: host(c.RemoteAddr())}
	a, err := netip.ParseAddr(x.from)
	if x.local = err != nil || a.IsLoopback(); x.local { // a unix socket has no address
		if uid, ok := accountOf(c); ok {
			x.from = "uid " + strconv.FormatUint(uint64(uid), 10)
		}
	}
	if old := l.admit(x); old != nil {
		_ = old.Close()
	}
	return x, nil
}

// admit counts a new connection among the strangers, and returns the one that must make
// room for it, or nil. One origin has half of the room at most.
func (l *listener) admit(c *conn) *conn {
	g := l.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	var old *conn
	if most := g.cfg.Strangers; most > 0 {
		count := map[string]int{}
		for _, s := range l.strangers {
			count[s.from]++
		}
		// Where the newcomer's origin has its share, its own oldest connection goes; else, when all is
		// full, the oldest of the origin that has most.
		if count[c.from] >= max(1, most/2) {
			old = l.strangers[slices.IndexFunc(l.strangers, func(s *conn) bool { return s.from == c.from })]
		} else if len(l.strangers) >= most {
			old = slices.MaxFunc(l.strangers, func(a, b *conn) int { return cmp.Compare(count[a.from], count[b.from]) })
		}
		if old != nil {
			g.refused[strangers]++
			old.settle()
		}
	}
	l.strangers = append(l.strangers, c)
	g.all++
	if g.cfg.Handshake > 0 {
		c.timer = time.AfterFunc(g.cfg.Handshake, c.late)
	}
	return old
}

// conn is a connection that counts until it is closed. The guard's lock protects all that changes.
type conn struct {
	net.Conn
	listener *listener
	from     string
	local    bool

	timer  *time.Timer // until its first call must have come; nil for no limit
	asking int         // HTTP requests that are being answered: the timer waits for them
	known  *usage      // of its caller; nil of a stranger
	closed bool
}

// place is the near end of a connection, by which a call finds its connection.
type place struct {
	net.Addr
	conn *conn
}

// LocalAddr is part of net.Conn.
func (c *conn) LocalAddr() net.Addr { return place{c.Conn.LocalAddr(), c} }

// SyscallConn is part of syscall.Conn.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// late closes the connection of a stranger that made no call in time.
func (c *conn) late() {
	g := c.listener.guard
	g.mu.Lock()
	waits := c.known == nil && !c.closed && c.asking == 0
	if waits {
		g.refused[silent]++
		c.leave() // under the same lock: no request begins on a connection that is about to close
	}
	g.mu.Unlock()
	if waits {
		_ = c.Conn.Close()
	}
}

// Close is part of net.Conn.
func (c *conn) Close() error {
	g := c.listener.guard
	g.mu.Lock()
	c.leave()
	g.mu.Unlock()
	return c.Conn.Close()
}

// leave takes a connection out of all counts, once. The guard's lock is held.
func (c *conn) leave() {
	g := c.listener.guard
	if c.closed {
		return
	}
	c.closed = true
	g.all--
	c.settle()
	if c.known != nil {
		c.known.connections--
	}
	if c.known != nil && !c.local {
		g.open--
	}
}

// settle takes the connection from the strangers. The guard's lock is held.
func (c *conn) settle() {
	c.listener.strangers = slices.DeleteFunc(c.listener.strangers, func(s *conn) bool { return s == c })
	if c.timer != nil {
		c.timer.Stop()
	}
}

// meet counts the connection of a call that was let in as its caller's, or refuses the
// call: the caller, or all from elsewhere, have connections enough. at is the near end;
// of pipes and sockets that were not limited nothing is counted.
func (g *Guard) meet(at net.Addr, by peerName) error {
	p, ok := at.(place)
	if !ok {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c, u := p.conn, g.of(by)
	switch {
	case c.known != nil || c.closed:
		return nil
	case g.cfg.PeerConnections > 0 && u.connections >= g.cfg.PeerConnections:
		g.refused[peerConnections]++
		return status.Errorf(codes.ResourceExhausted,
			"%s has %d connections open here, which is the limit (limit_peer_connections of this service): close "+
				"some", by.name, u.connections)
	case g.cfg.Connections > 0 && g.open >= g.cfg.Connections && !c.local:
		g.refused[connections]++
		return status.Errorf(codes.ResourceExhausted,
			"%d connections from other machines are open here, which is the limit (limit_connections of this "+
				"service): try again later", g.open)
	}
	u.connections++
	if c.known = u; !c.local {
		g.open++
	}
	c.settle()
	return nil
}

// busy keeps the connection of a stranger open while a request of it is answered; done
// ends that, and leaves the answer, which the server sends after its handler, Config.Handshake
// to arrive. ok is false where the connection is closed already: an answer could not be sent.
func (g *Guard) busy(at net.Addr) (done func(), ok bool) {
	p, limited := at.(place)
	if !limited {
		return func() {}, true
	}
	c := p.conn
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.closed {
		return func() {}, false
	}
	if c.asking++; c.timer != nil {
		c.timer.Stop()
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if c.asking--; c.asking == 0 && c.known == nil && !c.closed && c.timer != nil {
			c.timer.Reset(g.cfg.Handshake)
		}
	}, true
}

// Handler holds the peers of an HTTP server to the same limits: of calls, of a
// request's size and time, and of a reader that takes nothing. user returns the name
// of a request's user, empty for a stranger; it is nil where requests are not authenticated.
func (g *Guard) Handler(next http.Handler, user func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		by := peerName{name: r.RemoteAddr}
		if name, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			by.name = name
		}
		if p, ok := at.(place); ok { // as Origin
			by.name = p.conn.from
		}
		if user != nil {
			by.name, by.stranger = Named(user(r), by.name)
		}
		var err error
		if !by.stranger {
			err = g.meet(at, by)
		}
		if err == nil {
			err = g.begin(by)
		}
		if err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, status.Convert(err).Message(), http.StatusTooManyRequests)
			return
		}
		defer g.end(by)
		done, ok := g.busy(at)
		if !ok {
			panic(http.ErrAbortHandler)
		}
		defer done()
		control := http.NewResponseController(w)
		if r.ContentLength != 0 {
			r.Body = http.MaxBytesReader(w, r.Body, int64(g.cfg.Request))
			if g.cfg.RequestTime > 0 && control.SetReadDeadline(g.now().Add(g.cfg.RequestTime)) == nil {
				r.Body = &body{r.Body, control}
			}
		}
		if g.cfg.Stall > 0 {
			w = &writer{ResponseWriter: w, control: control, stall: g.cfg.Stall}
		}
		charge := func(n int) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.take(by, g.of(by), n)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), chargeKey{}, charge)))
	})
}

// chargeKey is the key of the function that Charge calls.
type chargeKey struct{}

// Charge counts n calls more for the request of ctx, which came through Handler, or refuses them.
func Charge(ctx context.Context, n int) error {
	if charge, ok := ctx.Value(chargeKey{}).(func(int) error); ok {
		return charge(n)
	}
	return nil
}

// take takes n calls from a peer's rate. The lock is held.
func (g *Guard) take(by peerName, u *usage, n int) error {
	if by.name == "" || u.bucket == nil || u.bucket.AllowN(g.now(), n) { // no name: no limits of its own
		return nil
	}
	g.refused[peerRate]++
	return status.Errorf(codes.ResourceExhausted, "%s calls more than %g times a second: wait a little", by.name,
		u.bucket.Limit())
}

// body is a request's body that has a time to come in.
type body struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read takes the deadline away at the end: an answer may take longer.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// writer gives each write its time.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

// Unwrap lets http.ResponseController find the writer below.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) Write(p []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stall))
	return w.ResponseWriter.Write(p)
}

// Flush is part of http.Flusher.
func (w *writer) Flush() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stall))
	_ = w.control.Flush()
}
