package soak

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// cable is a line between TCP clients and a server that can be cut. Its methods may be called from any goroutine.
type cable struct {
	listener net.Listener
	to       string

	mu        sync.Mutex
	unplugged bool
	conns     map[net.Conn]bool
}

// newCable listens on the loopback and passes connections on to an address until close.
func newCable(to string) (*cable, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &cable{listener: l, to: to, conns: map[net.Conn]bool{}}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go p.pass(c)
		}
	}()
	return p, nil
}

// address returns the clients' end of the line.
func (l *cable) address() string { return l.listener.Addr().String() }

// pass copies bytes both ways until either side closes.
func (l *cable) pass(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer up.Close()
	l.mu.Lock()
	if l.unplugged {
		l.mu.Unlock()
		return
	}
	l.conns[c], l.conns[up] = true, true
	l.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	delete(l.conns, up)
}

// cut closes all connections. With unplug, no new one is passed on until plug.
func (l *cable) cut(unplug bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unplugged = unplug
	for c := range l.conns {
		_ = c.Close()
	}
}

// plug lets new connections through again.
func (l *cable) plug() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unplugged = false
}

// close closes the line and all that is connected by it.
func (l *cable) close() {
	_ = l.listener.Close()
	l.cut(true)
}

// A line passes bytes both ways until it is cut, and again once it is plugged in.
func TestCable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	p, err := newCable(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	echo := func() (net.Conn, bool) {
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = c.Write([]byte("x")) // a failure shows in the read
		b := make([]byte, 1)
		_, err = io.ReadFull(c, b)
		return c, err == nil
	}
	c, ok := echo()
	if !ok {
		t.Fatal("nothing comes through")
	}
	p.cut(true)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it was not cut")
	}
	if _, ok := echo(); ok {
		t.Error("it passes while unplugged")
	}
	p.plug()
	if _, ok := echo(); !ok {
		t.Error("nothing comes through again")
	}
}
