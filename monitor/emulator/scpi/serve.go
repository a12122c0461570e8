package scpi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
)

// maxMessage bounds a program message; a longer one is not one.
const maxMessage = 64 << 10

// Run serves one client on a stream until ctx ends or the client goes; it then
// closes the stream. Several may run at a time, as an instrument has several
// sockets; their messages are carried out one at a time.
func (i *Instrument) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	defer context.AfterFunc(ctx, func() { _ = rw.Close() })()
	defer rw.Close()
	lines := bufio.NewReaderSize(rw, maxMessage)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return ended(ctx, err)
		}
		if err := i.answer(ctx, rw, strings.TrimRight(string(line), "\r\n")); err != nil {
			return ended(ctx, err)
		}
	}
}

// ended turns the error that ended a client's session into the result of Run.
func ended(ctx context.Context, err error) error {
	for _, e := range []error{
		io.EOF, os.ErrClosed, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE,
		syscall.EIO, errHangup,
	} {
		if errors.Is(err, e) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("emulated instrument: %w", err)
}

// errHangup: a fault closed the client's line.
var errHangup = errors.New("hung up")

// answer carries out a message and sends the replies, with the fault that concerns it.
func (i *Instrument) answer(ctx context.Context, w io.Writer, message string) error {
	f := i.fault(message)
	if f.Kind == Hangup {
		return errHangup
	}
	reply := i.execute(ctx, message)
	whole, err := spoil(ctx, reply, i.whole(reply), f)
	if err == nil && len(whole) > 0 {
		_, err = w.Write(whole)
	}
	return err
}

// whole appends its end to a reply, if there is one.
func (i *Instrument) whole(reply []byte) []byte {
	if len(reply) == 0 {
		return nil
	}
	return append(reply, cmp.Or(i.End, "\n")...)
}

// spoil applies a fault, if its kind is not zero, to a reply, which is whole with its end.
func spoil(ctx context.Context, reply, whole []byte, f Fault) ([]byte, error) {
	switch f.Kind {
	case Late:
		if err := backoff.Sleep(ctx, f.For); err != nil {
			return nil, err
		}
	case Mute:
		return nil, nil
	case Header:
		return head(reply), nil
	case Truncate:
		return reply[:max(0, len(reply)-f.Bytes)], nil
	case Unsolicited:
		return append([]byte(f.Text), whole...), nil
	case Junk:
		return append(whole, f.Text...), nil
	}
	return whole, nil
}

// head is the header of a block: #, the number of digits, and those.
func head(reply []byte) []byte {
	if len(reply) < 2 || reply[0] != '#' || reply[1] < '0' || reply[1] > '9' {
		return nil
	}
	return reply[:min(len(reply), 2+int(reply[1]-'0'))]
}

// Serve serves all clients of a listener until ctx ends, and closes it. wrap,
// which may be nil, puts something between an instrument and its client.
func (i *Instrument) Serve(ctx context.Context, l net.Listener, wrap func(net.Conn) io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	return line.Accept(ctx, "instrument", l, func(c net.Conn) {
		var rw io.ReadWriteCloser = c
		if wrap != nil {
			rw = wrap(c)
		}
		clients.Go(func() { _ = i.Run(ctx, rw) }) // a client that goes badly concerns no other
	})
}

// Session is a client that sends and reads whole messages, as over USBTMC. Its
// replies wait in an output queue. One goroutine owns it.
type Session struct {
	i   *Instrument
	out []byte
}

// NewSession makes a session.
func (i *Instrument) NewSession() *Session { return &Session{i: i} }

// Send takes a message. One that comes before the reply to the last was read drops that reply: query error -410.
func (s *Session) Send(message string) {
	if s.out != nil {
		s.i.Raise(ErrInterrupted)
	}
	s.out = s.i.whole(s.i.execute(context.Background(), strings.TrimRight(message, "\r\n")))
}

// Receive returns the reply that waits. Where there is none, ok is false: query error -420.
func (s *Session) Receive() (reply []byte, ok bool) {
	if s.out == nil {
		s.i.Raise(ErrUnended)
		return nil, false
	}
	reply, s.out = s.out, nil
	return reply, true
}

// Kind is a way in which an instrument misbehaves.
type Kind uint8

// The faults of the field.
const (
	Late        Kind = iota + 1 // the reply comes after For
	Mute                        // the reply never comes
	Truncate                    // the last Bytes bytes of the reply are missing, with its end
	Unsolicited                 // Text comes before the reply
	Junk                        // Text comes behind the reply
	Hangup                      // the line is closed instead of a reply
	QueueError                  // Err is put into the error queue
	Header                      // of a block comes, and nothing behind it
)

// Fault happens at the next messages that contain Match.
type Fault struct {
	Kind  Kind
	Match string // part of the message, any case; empty for every message
	Skip  int    // so many matching messages pass first
	Times int    // how often; 0 for once
	For   time.Duration
	Bytes int
	Text  string
	Err   *Error
}

// Inject lets a fault happen.
func (i *Instrument) Inject(f Fault) {
	f.Times = max(1, f.Times)
	i.Do(func() { i.faults = append(i.faults, &f) })
}

// fault takes the fault that concerns a message; its kind is zero where there is none.
func (i *Instrument) fault(message string) Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	for n, f := range i.faults {
		if !strings.Contains(strings.ToUpper(message), strings.ToUpper(f.Match)) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times--; f.Times == 0 {
			i.faults = append(i.faults[:n], i.faults[n+1:]...)
		}
		if f.Kind == QueueError {
			i.raise(f.Err)
		}
		return *f
	}
	return Fault{}
}

// Pending is how many faults have not happened to their end.
func (i *Instrument) Pending() (n int) {
	i.Do(func() { n = len(i.faults) })
	return n
}

// pause waits, without the lock, until a command's Pause gives zero.
func (i *Instrument) pause(ctx context.Context, ask func() time.Duration) error {
	for d := ask(); d > 0; d = ask() {
		i.mu.Unlock()
		err := backoff.Sleep(ctx, d)
		if i.mu.Lock(); err != nil {
			return err
		}
	}
	return nil
}
