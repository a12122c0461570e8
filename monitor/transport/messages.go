package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// MessageReader is a Conn whose device speaks only when it is read from, and in
// whole messages, as USBTMC does: reading without having asked is an error on
// the device.
type MessageReader interface {
	// ReadsMessages tells whether a read asks the device to speak.
	ReadsMessages() bool
}

// messageSize holds the largest message in one read: what does not fit into a
// message read would be lost.
const messageSize = 4 << 20

// messageConn is a Conn over a file whose reads and writes are whole messages:
// /dev/usbtmcN, or a SOCK_SEQPACKET socket.
type messageConn struct {
	f       io.ReadWriteCloser
	address string
	lock    *portLock

	reads   chan struct{}
	got     chan messageResult
	writes  chan []byte
	written chan error
	done    chan struct{}
	reading bool   // a read was asked for and has not come back
	writing bool   // a write was given up
	rest    []byte // of the message last read
	closed  atomic.Bool
}

type messageResult struct {
	p   []byte
	err error
}

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
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("open %s: %w (%s)", address, err, AccessHint(path))
	case gone(err):
		return nil, fmt.Errorf("%w (is the instrument plugged in, and is the usbtmc module loaded?)", disconnected("open", address, err))
	}
	return nil, fmt.Errorf("open %s: %w", address, err)
}

// NewMessages makes a Conn of a file whose reads and writes are whole messages.
// The Conn owns it. A read that the system ends with a time-out is repeated
// while the caller still waits.
func NewMessages(f io.ReadWriteCloser, name string) Conn { return newMessages(f, name, nil) }

func newMessages(f io.ReadWriteCloser, address string, lock *portLock) *messageConn {
	m := &messageConn{
		f: f, address: address, lock: lock, done: make(chan struct{}),
		reads: make(chan struct{}, 1), got: make(chan messageResult, 1),
		writes: make(chan []byte, 1), written: make(chan error, 1),
	}
	go m.reader()
	go m.writer()
	return m
}

// ReadsMessages is true: see MessageReader.
func (m *messageConn) ReadsMessages() bool { return true }

// reader makes the blocking reads. The kernel ends them only after its own
// time-out, so that one that was given up is answered later.
func (m *messageConn) reader() {
	buf := make([]byte, messageSize)
	for {
		select {
		case <-m.done:
			return
		case <-m.reads:
		}
		n, err := m.f.Read(buf)
		if n == 0 && err == nil {
			err = io.EOF
		}
		m.got <- messageResult{buf[:n], err}
	}
}

func (m *messageConn) writer() {
	for {
		select {
		case <-m.done:
			return
		case p := <-m.writes:
			n, err := m.f.Write(p)
			if err == nil && n < len(p) {
				err = io.ErrShortWrite
			}
			m.written <- err
		}
	}
}

func (m *messageConn) Read(ctx context.Context, p []byte) (int, error) {
	for len(m.rest) == 0 {
		if err := m.await(ctx); err != nil {
			return 0, err
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// await gets the next message. The reader's memory is read out before it is
// asked again.
func (m *messageConn) await(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read %s: %w", m.address, err)
	}
	if m.closed.Load() {
		return fmt.Errorf("read %s: %w", m.address, ErrClosed)
	}
	if !m.reading {
		m.reading = true
		m.reads <- struct{}{}
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("read %s: %w", m.address, ctx.Err())
	case <-m.done:
		return fmt.Errorf("read %s: %w", m.address, ErrClosed)
	case r := <-m.got:
		m.reading = false
		if r.err != nil && !timedOut(r.err) {
			return m.fail("read", r.err)
		}
		m.rest = r.p
		return nil
	}
}

func (m *messageConn) Write(ctx context.Context, p []byte) (int, error) {
	if m.closed.Load() {
		return 0, fmt.Errorf("write %s: %w", m.address, ErrClosed)
	}
	if m.writing {
		return 0, disconnected("write", m.address, errors.New("an earlier write never ended"))
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("write %s: %w", m.address, err)
	}
	m.writes <- append([]byte(nil), p...)
	select {
	case err := <-m.written:
		if err != nil {
			return 0, m.fail("write", err)
		}
		return len(p), nil
	case <-ctx.Done():
		m.writing = true
		return 0, fmt.Errorf("write %s: the device takes no message: %w", m.address, ctx.Err())
	}
}

// Drain drops what was read already, and a reply that is still owed. It never
// asks the device for more: what was not asked for does not come.
func (m *messageConn) Drain(ctx context.Context, _ time.Duration) (int, error) {
	n := len(m.rest)
	m.rest = nil
	if !m.reading {
		return n, nil
	}
	select {
	case r := <-m.got:
		m.reading = false
		if r.err != nil && !timedOut(r.err) {
			return n, m.fail("drain", r.err)
		}
		return n + len(r.p), nil
	case <-ctx.Done():
		return n, fmt.Errorf("drain %s: %w", m.address, ctx.Err())
	}
}

func (m *messageConn) fail(op string, err error) error {
	if m.closed.Load() {
		return fmt.Errorf("%s %s: %w", op, m.address, ErrClosed)
	}
	return disconnected(op, m.address, err)
}

func (m *messageConn) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	close(m.done)
	err := m.f.Close()
	if m.lock != nil {
		m.lock.release()
	}
	return err
}
