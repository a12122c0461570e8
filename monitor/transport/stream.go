package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
)

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

// askTries is how often AskFor asks.
const askTries = 3

// AskFor asks until an answer fits: the answer to an earlier question, which comes
// late from a slow line or a busy machine, must not be taken for this one's. What is on
// the line is discarded first. After an answer that does not fit, or none within d, the
// line must be quiet for longer and longer before the question is asked again, and its
// answer may take longer. It returns false where reply holds the last of the answers that
// did not fit, and an error that wraps ErrSilent where none came, or the line
// never falls quiet.
func AskFor(ctx context.Context, c Conn, command, reply []byte, d time.Duration, fits func(reply []byte) bool) (bool,
	error,
) {
	if err := Stale(ctx, c, staleBytes); err != nil {
		return false, err
	}
	quiet := askQuiet
	for try := range askTries {
		if try > 0 {
			if err := Quiet(ctx, c, quiet, d+quiet); err != nil {
				return false, err
			}
		}
		err := Ask(ctx, c, command, reply, d<<try)
		if err != nil && (try == askTries-1 || !errors.Is(err, ErrSilent)) {
			return false, err
		}
		if err == nil && fits(reply) {
			if try > 0 { // a question that was given up may be answered yet
				err = Quiet(ctx, c, quiet, d+quiet)
			}
			return err == nil, err
		}
		quiet *= 4
	}
	return false, nil
}

const (
	askQuiet   = 40 * time.Millisecond // before a question is asked again at first
	staleBytes = 1 << 16               // that may wait on a line
)

// Quiet discards the bytes that come until nothing has come for a while. A line that does not
// fall quiet within the limit is an error that wraps ErrSilent: it does not
// answer, it talks.
func Quiet(ctx context.Context, c Conn, quiet, limit time.Duration) error {
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := c.Drain(short, quiet)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: it keeps sending without being asked", ErrSilent)
	}
	return err
}

// Pump reads a stream that never ends by itself.
type Pump struct {
	// Size of the buffer; a read that fills it means that more is waiting.
	Size int
	// Quiet is how long the line may be quiet before Rest is called, again and
	// again; default 100 ms. After Silence the device counts as lost.
	Quiet, Silence time.Duration
	// Take gets the bytes of one read; it must not keep them.
	Take func(b []byte, full bool) error
	// Rest delivers the samples held back, while the line is quiet.
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
	if p.Quiet == 0 {
		p.Quiet = 100 * time.Millisecond
	}
	for {
		n, err := ReadWithin(ctx, c, buf, p.Quiet)
		switch {
		case err != nil && Ended(err):
			return err
		case err != nil:
			if ferr := p.Finish(); ferr != nil {
				return ferr
			}
			return err
		case n == 0:
			if silent += p.Quiet; silent >= p.Silence {
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
type Backoff struct {
	First, Max time.Duration
}

// Redial calls open until it succeeds, ctx ends, or it fails in a way that trying again does not
// cure: a wrong device and an impossible address do not change. A device that is gone or silent may
// come back, and the system may let go of a port. What it returns wraps the last error that was not
// the end of ctx itself.
func (b Backoff) Redial(ctx context.Context, open func(context.Context) error) error {
	pause := backoff.Backoff{First: b.First, Max: b.Max}
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
