package scpiface

import (
	"bufio"
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
)

// maxMessage bounds a program message; a longer one is not one.
const maxMessage = 64 << 10

// Run serves one client on a stream until ctx ends or the client goes; it then
// closes the stream. Several may run at a time, as an instrument has several
// sockets; what they send is carried out one message at a time.
func (i *Instrument) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	stop := context.AfterFunc(ctx, func() { _ = rw.Close() })
	defer func() { stop(); _ = rw.Close() }()
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

// ended turns what ended a client's session into what Run returns.
func ended(ctx context.Context, err error) error {
	for _, e := range []error{io.EOF, os.ErrClosed, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, syscall.EIO, errHangup} {
		if errors.Is(err, e) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("emulated instrument: %w", err)
}

var errHangup = errors.New("hung up")

// answer carries out a message and sends what it gives, with the fault that
// concerns it.
func (i *Instrument) answer(ctx context.Context, w io.Writer, message string) error {
	f, faulty := i.fault(message)
	if faulty && f.Kind == Hangup {
		return errHangup
	}
	reply := i.execute(ctx, message)
	if faulty {
		var err error
		if reply, err = i.spoil(ctx, reply, f); err != nil {
			return err
		}
	} else if len(reply) > 0 {
		reply = append(reply, i.end()...)
	}
	if len(reply) == 0 {
		return nil
	}
	_, err := w.Write(reply)
	return err
}

func (i *Instrument) end() string {
	if i.End == "" {
		return "\n"
	}
	return i.End
}

// spoil does to a reply what a fault says and puts its end on.
func (i *Instrument) spoil(ctx context.Context, reply []byte, f Fault) ([]byte, error) {
	whole := reply
	if len(reply) > 0 {
		whole = append(reply, i.end()...)
	}
	switch f.Kind {
	case Late:
		t := time.NewTimer(f.For)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, ctx.Err()
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
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("emulated instrument: %w", err)
		}
		var rw io.ReadWriteCloser = c
		if wrap != nil {
			rw = wrap(c)
		}
		clients.Go(func() { _ = i.Run(ctx, rw) }) // a client that goes badly concerns no other
	}
}

// Session is a client that sends and reads whole messages, as over USBTMC. Its
// replies wait in an output queue. One goroutine owns it.
type Session struct {
	i   *Instrument
	out []byte
}

// NewSession makes a session.
func (i *Instrument) NewSession() *Session { return &Session{i: i} }

// Send takes a message. One that comes before the reply to the last was read
// drops that reply: query error -410.
func (s *Session) Send(message string) {
	if s.out != nil {
		s.out = nil
		s.i.Raise(ErrInterrupted)
	}
	if reply := s.i.execute(context.Background(), strings.TrimRight(message, "\r\n")); len(reply) > 0 {
		s.out = append(reply, s.i.end()...)
	}
}

// Receive returns the reply that waits. Where there is none, ok is false: query
// error -420.
func (s *Session) Receive() (reply []byte, ok bool) {
	if s.out == nil {
		s.i.Raise(ErrUnended)
		return nil, false
	}
	reply, s.out = s.out, nil
	return reply, true
}
