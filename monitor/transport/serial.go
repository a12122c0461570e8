package transport

import (
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
	port    serial.Port
	address string
	lock    *portLock
	timeout time.Duration // the library's read time-out as it is set now
	writes  chan []byte
	written chan writeResult
	done    chan struct{} // closed by Close
	broken  bool          // a write was given up
	closed  atomic.Bool
}

type writeResult struct {
	n   int
	err error
}

func openSerial(path string, baud int) (Conn, error) {
	address := "serial:" + path
	lock, err := lockPort(path)
	if err != nil {
		return nil, openError(path, address, err)
	}
	// No modem lines: pseudo-terminals have none and the devices ignore them.
	port, err := serial.Open(path, &serial.Mode{BaudRate: baud})
	if err != nil {
		lock.release()
		return nil, openError(path, address, err)
	}
	s := &serialConn{
		port: port, address: address, lock: lock, timeout: -1,
		writes: make(chan []byte), written: make(chan writeResult, 1), done: make(chan struct{}),
	}
	go s.writer()
	return s, nil
}

// openError says what to do about a port that does not open.
func openError(path, address string, err error) error {
	var pe *serial.PortError
	if errors.As(err, &pe) {
		switch pe.Code() {
		case serial.PortBusy:
			return fmt.Errorf("open %s: %w: %w (close the other program)", address, ErrBusy, err)
		case serial.PermissionDenied:
			return fmt.Errorf("open %s: %w: %w (%s)", address, fs.ErrPermission, err, AccessHint(path))
		case serial.PortNotFound:
			return fmt.Errorf("%w (is the device plugged in?)", disconnected("open", address, err))
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("open %s: %w (%s)", address, err, AccessHint(path))
	}
	if gone(err) {
		return fmt.Errorf("%w (is the device plugged in?)", disconnected("open", address, err))
	}
	return fmt.Errorf("open %s: %w", address, err)
}

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

// writer owns the blocking writes. The kernel offers no way to end one, so a
// write that is given up leaves this goroutine behind until the kernel lets go.
func (s *serialConn) writer() {
	for {
		select {
		case <-s.done:
			return
		case p := <-s.writes:
			var r writeResult
			for r.n < len(p) && r.err == nil {
				var n int
				n, r.err = s.port.Write(p[r.n:])
				r.n += n
			}
			s.written <- r
		}
	}
}

func (s *serialConn) Write(ctx context.Context, p []byte) (int, error) {
	if s.closed.Load() {
		return 0, fmt.Errorf("write %s: %w", s.address, ErrClosed)
	}
	if s.broken {
		return 0, disconnected("write", s.address, errors.New("an earlier write never ended"))
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("write %s: %w", s.address, err)
	}
	own := append([]byte(nil), p...) // the caller's memory must not outlive the call
	select {
	case s.writes <- own:
	case <-s.done:
		return 0, fmt.Errorf("write %s: %w", s.address, ErrClosed)
	}
	select {
	case r := <-s.written:
		if r.err != nil {
			return r.n, s.fail("write", r.err)
		}
		return r.n, nil
	case <-ctx.Done():
		s.broken = true
		return 0, fmt.Errorf("write %s: the device takes no bytes: %w", s.address, ctx.Err())
	}
}

// fail maps an error of the library: after our own Close it is ErrClosed, else
// the device has gone.
func (s *serialConn) fail(op string, err error) error {
	if s.closed.Load() {
		return fmt.Errorf("%s %s: %w", op, s.address, ErrClosed)
	}
	return disconnected(op, s.address, err)
}

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
