package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// netConn is a Conn over any net.Conn.
type netConn struct {
	c       net.Conn
	address string
	closed  atomic.Bool
}

// NewNet makes a Conn of a net.Conn, for example one end of net.Pipe. The Conn
// owns it.
func NewNet(c net.Conn) Conn {
	address := "connection"
	if a := c.RemoteAddr(); a != nil {
		address = a.Network() + ":" + a.String()
	}
	return &netConn{c: c, address: address}
}

func dialTCP(ctx context.Context, target string) (Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	c, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("open tcp:%s: %w", target, ctx.Err())
		}
		return nil, fmt.Errorf("%w (is the device switched on and its address right?)", disconnected("open", "tcp:"+target, err))
	}
	return &netConn{c: c, address: "tcp:" + target}, nil
}

// past is a deadline that has gone by: it ends a blocked call at once.
var past = time.Unix(1, 0)

// during runs one I/O call that ends when ctx does.
func (n *netConn) during(ctx context.Context, op string, clear func(time.Time) error, call func() (int, error)) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%s %s: %w", op, n.address, err)
	}
	if ctx.Done() != nil {
		fired := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { defer close(fired); _ = clear(past) })
		defer func() {
			if !stop() {
				<-fired // or its deadline would hit the next call
				_ = clear(time.Time{})
			}
		}()
	}
	k, err := call()
	switch {
	case err == nil:
		return k, nil
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return k, fmt.Errorf("%s %s: %w", op, n.address, ctx.Err())
	case n.closed.Load():
		return k, fmt.Errorf("%s %s: %w", op, n.address, ErrClosed)
	}
	return k, disconnected(op, n.address, err)
}

func (n *netConn) Read(ctx context.Context, p []byte) (int, error) {
	for {
		k, err := n.during(ctx, "read", n.c.SetReadDeadline, func() (int, error) { return n.c.Read(p) })
		if k > 0 {
			return k, nil // an error comes back at the next call
		}
		if err != nil || len(p) == 0 {
			return 0, err
		}
	}
}

func (n *netConn) Write(ctx context.Context, p []byte) (int, error) {
	return n.during(ctx, "write", n.c.SetWriteDeadline, func() (int, error) { return n.c.Write(p) })
}

func (n *netConn) Drain(ctx context.Context, quiet time.Duration) (int, error) {
	return drain(ctx, n, quiet)
}

func (n *netConn) Close() error {
	if n.closed.Swap(true) {
		return nil
	}
	return n.c.Close()
}
