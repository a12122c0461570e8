package niface

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"

	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// Serve serves on a listener until ctx ends; it returns nil then. Sessions end
// with the server, as its process would have ended.
func (f *Face) Serve(ctx context.Context, l net.Listener) error {
	s := grpc.NewServer(grpc.MaxSendMsgSize(2 * maxRoom))
	nipb.RegisterNiDAQmxServer(s, f)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	err := s.Serve(&listener{l, f})
	s.Stop()
	f.forget()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("emulated %s: %w", f.cfg.Product, err)
}

// forget ends all tasks and their sessions.
func (f *Face) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, t := range f.sessions {
		t.end()
		delete(f.sessions, name)
	}
}

// listener keeps the connections, so that they can be broken.
type listener struct {
	net.Listener
	f *Face
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	k := &conn{c, l.f}
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.f.conns[k] = struct{}{}
	return k, nil
}

// conn is a connection that is forgotten once it is closed.
type conn struct {
	net.Conn
	f *Face
}

func (c *conn) Close() error {
	c.f.mu.Lock()
	delete(c.f.conns, c)
	c.f.mu.Unlock()
	return c.Conn.Close()
}
