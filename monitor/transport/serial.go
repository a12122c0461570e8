package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"go.bug.st/serial"
)

// slice bounds one wait inside the serial library, which knows deadlines but no
// contexts: a cancelled read returns within this time.
const slice = 20 * time.Millisecond

// serialConn is a Conn over a serial port.
type serialConn struct {
	writer
	port    serial.Port
	lock    *portLock
	timeout time.Duration // the library's read time-out as it is set now
}

// openSerial locks and opens a port: eight bits, no parity, one stop bit.
func openSerial(path string, baud int) (Conn, error) {
	address := "serial:" + path
	lock, err := lockPort(path)
	if err != nil {
		return nil, openError(path, address, "is the device plugged in?", err)
	}
	// No modem lines: pseudo-terminals have none and the devices ignore them.
	port, err := serial.Open(path, &serial.Mode{BaudRate: baud})
	if err != nil {
		lock.release()
		return nil, openError(path, address, "is the device plugged in?", err)
	}
	s := &serialConn{writer: newWriter(address, "bytes"), port: port, lock: lock, timeout: -1}
	go s.run(func(p []byte) (n int, err error) {
		for n < len(p) && err == nil {
			var k int
			k, err = port.Write(p[n:])
			n += k
		}
		return n, err
	})
	return s, nil
}

// openError adds the remedy to the error of a device that does not open; absent is the one for
// a device that is not there.
func openError(path, address, absent string, err error) error {
	code := serial.PortErrorCode(-1)
	if pe, ok := errors.AsType[*serial.PortError](err); ok {
		code = pe.Code()
	}
	switch {
	case code == serial.PortBusy:
		return fmt.Errorf("open %s: %w: %w (close the other program)", address, ErrBusy, err)
	case code == serial.PermissionDenied:
		return fmt.Errorf("open %s: %w: %w (%s)", address, fs.ErrPermission, err, AccessHint(path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("open %s: %w (%s)", address, err, AccessHint(path))
	case code == serial.PortNotFound || gone(err):
		return fmt.Errorf("%w (%s)", disconnected("open", address, err), absent)
	}
	return fmt.Errorf("open %s: %w", address, err)
}

// Read implements Conn; a cancelled one returns within a slice of 20 ms.
func (s *serialConn) Read(ctx context.Context, p []byte) (int, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("read %s: %w", s.address, err)
		}
		if err := s.setTimeout(ctx); err != nil {
			return 0, err
		}
		n, err := s.port.Read(p)
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, s.fail("read", err)
		}
		// 0, nil is the library's time-out.
	}
}

// setTimeout lets the next wait end with the context, and at the latest after
// one slice.
func (s *serialConn) setTimeout(ctx context.Context) error {
	d := slice
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, max(0, time.Until(deadline)))
	}
	if d == s.timeout {
		return nil
	}
	if err := s.port.SetReadTimeout(d); err != nil {
		return s.fail("set the read time-out of", err)
	}
	s.timeout = d
	return nil
}

// Drain implements Conn.
func (s *serialConn) Drain(ctx context.Context, quiet time.Duration) (int, error) {
	return drain(ctx, s, quiet)
}

// SetBaud changes the line's speed; eight bits, no parity, one stop bit stay.
func (s *serialConn) SetBaud(baud int) error {
	if err := s.port.SetMode(&serial.Mode{BaudRate: baud}); err != nil {
		return s.fail(fmt.Sprintf("set %d baud on", baud), err)
	}
	return nil
}

// Close implements Conn, and releases the port's lock.
func (s *serialConn) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.done)
	err := s.port.Close()
	s.lock.release()
	if err != nil && !gone(err) {
		return fmt.Errorf("close %s: %w", s.address, err)
	}
	return nil
}

// result is the outcome of one call of the system.
type result struct {
	n   int
	err error
}

// writer is the sending half of a link whose writes block and cannot be ended: they are made on
// a goroutine of their own. One that is given up leaves that goroutine behind until the kernel
// lets go, and breaks the link.
type writer struct {
	address string
	takes   string // what the device takes, for errors
	writes  chan []byte
	written chan result
	done    chan struct{} // closed by Close
	broken  bool          // a write was given up
	closed  *atomic.Bool
}

func newWriter(address, takes string) writer {
	return writer{
		address: address, takes: takes, writes: make(chan []byte), written: make(chan result, 1),
		done: make(chan struct{}), closed: new(atomic.Bool),
	}
}

// run makes the writes until Close.
func (w *writer) run(write func([]byte) (int, error)) {
	for {
		select {
		case <-w.done:
			return
		case p := <-w.writes:
			n, err := write(p)
			w.written <- result{n, err}
		}
	}
}

// Write implements Conn. One that was given up breaks the link.
func (w *writer) Write(ctx context.Context, p []byte) (int, error) {
	if w.closed.Load() {
		return 0, fmt.Errorf("write %s: %w", w.address, ErrClosed)
	}
	if w.broken {
		return 0, disconnected("write", w.address, errors.New("an earlier write never ended"))
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("write %s: %w", w.address, err)
	}
	select {
	case w.writes <- bytes.Clone(p): // the caller's memory must not outlive the call
	case <-w.done:
		return 0, fmt.Errorf("write %s: %w", w.address, ErrClosed)
	}
	select {
	case r := <-w.written:
		if r.err != nil {
			return r.n, w.fail("write", r.err)
		}
		return r.n, nil
	case <-ctx.Done():
		w.broken = true
		return 0, fmt.Errorf("write %s: the device takes no %s: %w", w.address, w.takes, ctx.Err())
	}
}

// fail maps an error of the link: after this side's Close it is ErrClosed, else the device has gone.
func (w *writer) fail(op string, err error) error {
	if w.closed.Load() {
		return fmt.Errorf("%s %s: %w", op, w.address, ErrClosed)
	}
	return disconnected(op, w.address, err)
}
