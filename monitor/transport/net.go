package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// MessageReader is a Conn whose device speaks only when it is read from, and in
// whole messages, as USBTMC does: reading without having asked is an error on
// the device.
type MessageReader interface {
	// ReadsMessages reports whether a read asks the device to speak.
	ReadsMessages() bool
}

// messageSize holds the largest message in one read: bytes beyond the buffer of a
// read would be lost.
const messageSize = 4 << 20

// messageConn is a Conn over a file whose reads and writes are whole messages:
// /dev/usbtmcN, or a SOCK_SEQPACKET socket.
type messageConn struct {
	writer
	f    io.ReadWriteCloser
	lock *portLock

	reads   chan struct{}
	got     chan result // of the read that was asked for; its bytes are in buf
	buf     []byte
	reading bool   // a read was asked for and has not come back
	rest    []byte // of the message last read
}

// openMessages opens a USBTMC device, which is locked as a port is.
func openMessages(path string) (Conn, error) {
	address := "usbtmc:" + path
	lock, err := lockPort(path)
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_RDWR, 0); err == nil {
			return newMessages(f, address, lock), nil
		}
		lock.release()
	}
	return nil, openError(path, address, "is the instrument plugged in, and is the usbtmc module loaded?", err)
}

// NewMessages makes a Conn of a file whose reads and writes are whole messages.
// The Conn owns it. A read that the system ends with a time-out is repeated
// while the caller still waits.
func NewMessages(f io.ReadWriteCloser, name string) Conn { return newMessages(f, name, nil) }

// newMessages starts the two goroutines of a message link.
func newMessages(f io.ReadWriteCloser, address string, lock *portLock) *messageConn {
	m := &messageConn{
		writer: newWriter(address, "message"), f: f, lock: lock, reads: make(chan struct{}, 1),
		got: make(chan result, 1), buf: make([]byte, messageSize),
	}
	go m.reader()
	go m.run(func(p []byte) (int, error) {
		n, err := f.Write(p)
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		return n, err
	})
	return m
}

// ReadsMessages is true: see MessageReader.
func (m *messageConn) ReadsMessages() bool { return true }

// reader makes the blocking reads. The kernel ends them only after its own
// time-out, so that one that was given up is answered later.
func (m *messageConn) reader() {
	for {
		select {
		case <-m.done:
			return
		case <-m.reads:
		}
		n, err := m.f.Read(m.buf)
		if n == 0 && err == nil {
			err = io.EOF
		}
		m.got <- result{n, err}
	}
}

// Read implements Conn; a message is handed out in pieces where p is short. The reader's memory is
// read out before it is asked again.
func (m *messageConn) Read(ctx context.Context, p []byte) (int, error) {
	for len(m.rest) == 0 {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("read %s: %w", m.address, err)
		}
		if m.closed.Load() {
			return 0, fmt.Errorf("read %s: %w", m.address, ErrClosed)
		}
		if !m.reading {
			m.reading = true
			m.reads <- struct{}{}
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("read %s: %w", m.address, ctx.Err())
		case <-m.done:
			return 0, fmt.Errorf("read %s: %w", m.address, ErrClosed)
		case r := <-m.got:
			if err := m.take("read", r); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// take takes over the message of a read that came back; one that the system timed out has none.
func (m *messageConn) take(op string, r result) error {
	m.reading = false
	if r.err != nil && !timedOut(r.err) {
		return m.fail(op, r.err)
	}
	m.rest = m.buf[:r.n]
	return nil
}

// Drain drops the bytes read already, and a reply that is still owed. It never
// asks the device for more: a reply that was not asked for does not come.
func (m *messageConn) Drain(ctx context.Context, _ time.Duration) (n int, err error) {
	if m.reading {
		select {
		case r := <-m.got:
			n = len(m.rest)
			err = m.take("drain", r)
		case <-ctx.Done():
			err = fmt.Errorf("drain %s: %w", m.address, ctx.Err())
		}
	}
	n += len(m.rest)
	m.rest = nil
	return n, err
}

// Close implements Conn. A read that the kernel still waits for ends with its own time-out.
func (m *messageConn) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	close(m.done)
	defer m.lock.release()
	return m.f.Close()
}

// netConn is a Conn over any net.Conn.
type netConn struct {
	c       net.Conn
	address string
	lock    *portLock // of the address; nil for none
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

// dialTCP connects, with the lock of the address where exclusive, and with keep-alive probes, so
// that a peer that vanished is noticed within seconds.
func dialTCP(ctx context.Context, target string, exclusive bool) (_ Conn, err error) {
	n := &netConn{address: "tcp:" + target}
	if exclusive {
		if n.lock, err = lockAddress(target); err != nil {
			return nil, fmt.Errorf("open %s: %w", n.address, err)
		}
	}
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
	}}
	if n.c, err = d.DialContext(ctx, "tcp", target); err == nil {
		return n, nil
	}
	n.lock.release()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("open %s: %w", n.address, ctx.Err())
	}
	return nil, fmt.Errorf("%w (is the device switched on and its address right?)",
		disconnected("open", n.address, err))
}

// past is a deadline that has gone by: it ends a blocked call at once.
var past = time.Unix(1, 0)

// during runs one I/O call that ends when ctx does.
func (n *netConn) during(ctx context.Context, op string, clear func(time.Time) error, call func() (int, error)) (int,
	error,
) {
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

// Read implements Conn; an error that came with bytes is returned by the next call.
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

// Write implements Conn.
func (n *netConn) Write(ctx context.Context, p []byte) (int, error) {
	return n.during(ctx, "write", n.c.SetWriteDeadline, func() (int, error) { return n.c.Write(p) })
}

// Drain implements Conn.
func (n *netConn) Drain(ctx context.Context, quiet time.Duration) (int, error) {
	return drain(ctx, n, quiet)
}

// Close implements Conn, and releases the address's lock.
func (n *netConn) Close() error {
	if n.closed.Swap(true) {
		return nil
	}
	defer n.lock.release()
	return n.c.Close()
}
