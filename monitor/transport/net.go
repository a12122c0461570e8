package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
)

// messageConn is a Conn over a file whose reads and writes are whole messages:
// /dev/usbtmcN, or a SOCK_SEQPACKET socket.
type messageConn struct {
	writer
	f    io.ReadWriteCloser
	lock *os.File

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
			return NewMessages(f, address, lock), nil
		}
		release(lock)
	}
	return nil, openError(path, address, "is the instrument plugged in, and is the usbtmc module loaded?", err)
}

// NewMessages makes a Conn of a file whose reads and writes are whole messages, with the lock of its
// address, nil for none. The Conn owns both. A read that the system ends with a time-out is repeated
// while the caller still waits.
func NewMessages(f io.ReadWriteCloser, address string, lock *os.File) Conn {
	m := &messageConn{
		writer: newWriter(address, "message"), f: f, lock: lock, got: make(chan result, 1),
		buf: make([]byte, 4<<20), // the largest message: bytes beyond it would be lost
	}
	go m.run(func(p []byte) (int, error) {
		n, err := f.Write(p)
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		return n, err
	})
	return m
}

// ReadsMessages reports whether the device of a Conn speaks only when it is read from, and in
// whole messages, as USBTMC does: reading without having asked is an error on the device.
func ReadsMessages(c Conn) bool {
	_, ok := c.(*messageConn)
	return ok
}

// fetch makes one blocking read. The kernel ends it only after its own
// time-out, so that one that was given up is answered later.
func (m *messageConn) fetch() {
	n, err := m.f.Read(m.buf)
	if n == 0 && err == nil {
		err = io.EOF
	}
	m.got <- result{n, err}
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
			go m.fetch()
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

// drain drops the bytes read already, and a reply that is still owed. It never
// asks the device for more: a reply that was not asked for does not come.
func (m *messageConn) drain(ctx context.Context) (n int, err error) {
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
	defer release(m.lock)
	return m.f.Close()
}

// netConn is a Conn over any net.Conn.
type netConn struct {
	c       net.Conn
	address string
	lock    *os.File // of the address; nil for none
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
	release(n.lock)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("open %s: %w", n.address, ctx.Err())
	}
	return nil, fmt.Errorf("%w (is the device switched on and its address right?)",
		disconnected("open", n.address, err))
}

// during runs one I/O call that ends when ctx does.
func (n *netConn) during(ctx context.Context, op string, clear func(time.Time) error, call func() (int, error)) (int,
	error,
) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%s %s: %w", op, n.address, err)
	}
	if ctx.Done() != nil {
		fired := make(chan struct{})
		// A deadline that has gone by ends a blocked call at once.
		stop := context.AfterFunc(ctx, func() { defer close(fired); _ = clear(time.Unix(1, 0)) })
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

// Close implements Conn, and releases the address's lock.
func (n *netConn) Close() error {
	if n.closed.Swap(true) {
		return nil
	}
	defer release(n.lock)
	return n.c.Close()
}

// Ask sends a command and fills reply within d. A device that sends nothing, or
// too little, is an error that wraps ErrSilent.
func Ask(ctx context.Context, c Conn, command, reply []byte, d time.Duration) error {
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	n := 0
	_, err := c.Write(short, command)
	if err != nil {
		err = fmt.Errorf("send % x: %w", command, err)
	} else if n, err = ReadFull(short, c, reply); err != nil {
		err = fmt.Errorf("answer to % x: %w", command, err)
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) { // the exchange's own time-out
		return fmt.Errorf("%w: %d of %d bytes came: %w", ErrSilent, n, len(reply), err)
	}
	return err
}

// askTries is how often AskAgain asks.
const askTries = 3

// AskFor asks until an answer fits; see AskAgain. What is on the line is discarded first.
// It returns false where reply holds the last of the answers that did not fit, and an error that
// wraps ErrSilent where none came, or the line never falls quiet.
func AskFor(ctx context.Context, c Conn, command, reply []byte, d time.Duration, fits func(reply []byte) bool) (bool,
	error,
) {
	err := Stale(ctx, c, staleBytes)
	if err == nil {
		err = AskAgain(ctx, c, d, func(within time.Duration) error {
			if err := Ask(ctx, c, command, reply, within); err != nil || fits(reply) {
				return err
			}
			return ErrIdentity
		})
	}
	if errors.Is(err, ErrIdentity) {
		return false, nil
	}
	return err == nil, err
}

// AskAgain calls ask until it succeeds, up to askTries times: the answer to an earlier question, which comes
// late from a slow line or a busy machine, must not be taken for this one's. After an error that wraps
// ErrIdentity or ErrSilent, of an answer that does not fit or of none within d, the line must be quiet for
// longer and longer before the question is asked again, and its answer may take longer.
func AskAgain(ctx context.Context, c Conn, d time.Duration, ask func(within time.Duration) error) error {
	quiet := askQuiet
	for try := 0; ; try++ {
		err := ask(d << try)
		switch {
		case err == nil && try > 0: // a question that was given up may be answered yet
			return Quiet(ctx, c, quiet, d+quiet)
		case try == askTries-1 || !errors.Is(err, ErrIdentity) && !errors.Is(err, ErrSilent):
			return err
		}
		quiet *= 4
		if err := Quiet(ctx, c, quiet, d+quiet); err != nil {
			return err
		}
	}
}

const (
	quietLine  = 100 * time.Millisecond
	askQuiet   = 40 * time.Millisecond // before a question is asked again at first
	staleBytes = 1 << 16               // that may wait on a line
)

// Quiet discards the bytes that come until nothing has come for a while. A line that does not
// fall quiet within the limit is an error that wraps ErrSilent: it does not
// answer, it talks.
func Quiet(ctx context.Context, c Conn, quiet, limit time.Duration) error {
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := Drain(short, c, quiet)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: it keeps sending without being asked", ErrSilent)
	}
	return err
}

// Pump reads a stream that never ends by itself.
type Pump struct {
	// Size of the buffer; a read that fills it means that more is waiting.
	Size int
	// After Silence the device counts as lost.
	Silence time.Duration
	// Take gets the bytes of one read; it must not keep them.
	Take func(b []byte, full bool) error
	// Rest delivers the samples held back, each time that the line has been quiet for quietLine.
	Rest func() error
	// Finish delivers the remaining samples when the line fails. It is not called when ctx
	// ends: the caller then has a device to stop.
	Finish func() error
}

// Run reads until ctx ends, the line fails or falls silent (ErrSilent), or one
// of the functions returns an error.
func (p Pump) Run(ctx context.Context, c Conn) error {
	buf := make([]byte, p.Size)
	silent := time.Duration(0)
	for {
		n, err := ReadWithin(ctx, c, buf, quietLine)
		switch {
		case err != nil && Ended(err):
			return err
		case err != nil:
			if ferr := p.Finish(); ferr != nil {
				return ferr
			}
			return err
		case n == 0:
			if silent += quietLine; silent >= p.Silence {
				return fmt.Errorf("%w: the stream fell silent for %v (unplugged? power?)", ErrSilent, silent)
			}
			err = p.Rest()
		default:
			silent = 0
			err = p.Take(buf[:n], n == len(buf))
		}
		if err != nil {
			return err
		}
	}
}

// Stale discards the bytes that piled up on a line that was not read, so that a stream
// begins with the present; at most limit bytes, for a line that never rests.
func Stale(ctx context.Context, c Conn, limit int) error {
	buf := make([]byte, 4096)
	for total := 0; total < limit; {
		n, err := ReadWithin(ctx, c, buf, time.Millisecond)
		if err != nil {
			return err
		}
		if total += n; n < len(buf) {
			return nil
		}
	}
	return nil
}

// Backoff describes how a lost device is tried again. The zero value waits 100 ms,
// then twice as long each time, up to 5 s.
type Backoff backoff.Backoff

// Redial calls open until it succeeds, ctx ends, or it fails in a way that trying again does not
// cure: a wrong device and an impossible address do not change. A device that is gone or silent may
// come back, and the system may let go of a port. What it returns wraps the last error that was not
// the end of ctx itself.
func (b Backoff) Redial(ctx context.Context, open func(context.Context) error) error {
	pause := backoff.Backoff(b)
	var last error
	for attempt := 1; ; attempt++ {
		err := open(ctx)
		if err == nil || errors.Is(err, ErrIdentity) || errors.Is(err, ErrAddress) {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if err := pause.Wait(ctx); err != nil {
			return fmt.Errorf("given up after %d attempts: %w: %w", attempt, err, last)
		}
	}
}

// Records yields each record that a parser's next, which Feed describes, finds in b; all of b is taken.
func Records(b []byte, next func([]byte) (n int, ok bool)) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; ; i++ {
			n, ok := next(b)
			if b = b[n:]; !ok || !yield(i) {
				return
			}
		}
	}
}

// Feed moves bytes of b into a parser's buffer, of which buf[start:end] is not parsed yet, until
// step releases a record. It returns how many bytes it took and whether a record was released;
// without one all of b is taken. A step that releases nothing must leave room in a full buffer.
func Feed(buf []byte, start, end *int, b []byte, step func() bool) (n int, ok bool) {
	for {
		if step() {
			return n, true
		}
		if n == len(b) {
			return n, false
		}
		if *end == len(buf) {
			*start, *end = 0, copy(buf, buf[*start:*end])
		}
		k := copy(buf[*end:], b[n:])
		*end += k
		n += k
	}
}
