// Package wire is what the protocol faces share: bytes in from the driver on a
// channel, so that a face can wait for a command and for its clock at once.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrTimeout is wrapped when the driver does not send what it owes.
var ErrTimeout = errors.New("the driver is silent")

// Wire is a line that a face serves. One goroutine owns it.
type Wire struct {
	rw   io.ReadWriteCloser
	in   chan byte
	err  error // why reading ended; set before in is closed
	ctx  context.Context
	stop func() bool
}

// Attach starts reading. When ctx ends, the line is closed, which also ends a
// blocked write.
func Attach(ctx context.Context, rw io.ReadWriteCloser) *Wire {
	w := &Wire{rw: rw, in: make(chan byte, 4096), ctx: ctx}
	w.stop = context.AfterFunc(ctx, func() { _ = rw.Close() })
	go w.read()
	return w
}

func (w *Wire) read() {
	defer close(w.in)
	buf := make([]byte, 1024)
	for {
		n, err := w.rw.Read(buf)
		for _, b := range buf[:n] {
			select {
			case w.in <- b:
			case <-w.ctx.Done():
				return
			}
		}
		if err != nil {
			w.err = err
			return
		}
	}
}

// In delivers the driver's bytes; it is closed when the line ends.
func (w *Wire) In() <-chan byte { return w.in }

// Detach closes the line and waits for the reader to end.
func (w *Wire) Detach() {
	w.stop()
	_ = w.rw.Close()
	for range w.in { // the reader may be waiting to hand over a byte
	}
}

// Write sends to the driver.
func (w *Wire) Write(p []byte) error {
	if _, err := w.rw.Write(p); err != nil {
		return fmt.Errorf("emulated device: write: %w", err)
	}
	return nil
}

// Recv fills p with the driver's next bytes, waiting at most for d.
func (w *Wire) Recv(p []byte, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	for i := range p {
		select {
		case b, ok := <-w.in:
			if !ok {
				return w.Ended()
			}
			p[i] = b
		case <-t.C:
			return fmt.Errorf("emulated device: %d of %d bytes came: %w", i, len(p), ErrTimeout)
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
	return nil
}

// Sleep waits for d, or until ctx ends.
func (w *Wire) Sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// Ended returns why the line ended; valid once In is closed.
func (w *Wire) Ended() error {
	if w.err == nil {
		return io.EOF
	}
	return w.err
}

// Result turns what ended a face into what its Run returns: nil where the
// context ended or the driver hung up.
func (w *Wire) Result(err error) error {
	if w.ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}
