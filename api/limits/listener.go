package limits

import (
	"net"
	"net/netip"
	"sync"
)

// Listen limits the connections that a listener gives. Those beyond are closed at
// once: they wait nowhere, and hold up nobody.
func (g *Guard) Listen(l net.Listener) net.Listener { return &listener{l, g} }

type listener struct {
	net.Listener
	guard *Guard
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		name := host(c.RemoteAddr())
		if l.guard.enter(name) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.guard.leave(name) })}, nil
		}
		_ = c.Close()
	}
}

// isLocal tells of an address of this machine.
func isLocal(name string) bool {
	a, err := netip.ParseAddr(name)
	return err != nil || a.IsLoopback() // a unix socket has none
}

func (g *Guard) enter(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.of(name)
	switch c := &g.cfg; {
	case c.PeerConnections > 0 && u.connections >= c.PeerConnections:
		g.refused[peerConnections]++
		return false
	case c.Connections > 0 && g.open >= c.Connections && !isLocal(name):
		g.refused[connections]++
		return false
	}
	u.connections++
	g.all++
	if !isLocal(name) {
		g.open++
	}
	return true
}

func (g *Guard) leave(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of(name).connections--
	g.all--
	if !isLocal(name) {
		g.open--
	}
}

// conn is a connection that counts until it is closed.
type conn struct {
	net.Conn
	leave func()
}

func (c *conn) Close() error {
	c.leave()
	return c.Conn.Close()
}
