package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"wattmark/monitor/instrument"
)

// Conn is a link to a device. One goroutine uses it; Close alone may be called
// from another, and ends a blocked Read.
type Conn interface {
	// Read waits for at least one byte and returns what is there. It returns
	// n > 0 and a nil error, or n = 0 and an error that wraps ctx's, ErrClosed or
	// instrument.ErrDisconnected.
	Read(ctx context.Context, p []byte) (int, error)
	// Write sends all of p. When ctx ends first the link is unusable: what the
	// device got is not known.
	Write(ctx context.Context, p []byte) (int, error)
	// Drain discards what arrives until nothing came for quiet, and returns how
	// many bytes that were. A device that never falls quiet is an error when ctx
	// ends.
	Drain(ctx context.Context, quiet time.Duration) (int, error)
	// Close releases the link. It is safe to call twice.
	Close() error
}

// BaudSetter is a Conn whose speed can be changed while it is open.
type BaudSetter interface {
	SetBaud(baud int) error
}

var (
	// ErrClosed: this side has closed the link.
	ErrClosed = errors.New("link closed")
	// ErrBusy: another program holds the port; the text names its process.
	ErrBusy = errors.New("port is in use")
	// ErrAddress: the address cannot be understood.
	ErrAddress = errors.New("bad address")
)

// disconnected wraps what the system said of a link that is gone.
func disconnected(op, address string, err error) error {
	return fmt.Errorf("%s %s: %w: %w", op, address, instrument.ErrDisconnected, err)
}

// ReadWithin reads like Conn.Read for at most d. It returns 0 and a nil error
// when nothing came in that time and ctx has not ended.
func ReadWithin(ctx context.Context, c Conn, p []byte, d time.Duration) (int, error) {
	short, cancel := context.WithTimeout(ctx, d)
	n, err := c.Read(short, p)
	cancel()
	if end := ctx.Err(); n == 0 && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, end) {
		return 0, end // d was over, even where ctx was cancelled just behind that
	}
	return n, err
}

// ReadFull fills p or returns an error; n says how far it came.
func ReadFull(ctx context.Context, c Conn, p []byte) (n int, err error) {
	for n < len(p) {
		k, err := c.Read(ctx, p[n:])
		n += k
		if err != nil {
			return n, err
		}
		if k == 0 {
			return n, io.ErrNoProgress
		}
	}
	return n, nil
}

// drain is Drain for any Conn.
func drain(ctx context.Context, c Conn, quiet time.Duration) (int, error) {
	var buf [512]byte
	total := 0
	for {
		n, err := ReadWithin(ctx, c, buf[:], quiet)
		total += n
		if err != nil {
			return total, fmt.Errorf("drain: %w", err)
		}
		if n == 0 {
			return total, nil
		}
	}
}

// Ended tells an error that a context caused, not the link.
func Ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
