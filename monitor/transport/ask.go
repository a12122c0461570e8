package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
)

// Ask sends a command and fills reply within d. A device that sends nothing, or
// too little, is an error that wraps instrument.ErrSilent.
func Ask(ctx context.Context, c Conn, command, reply []byte, d time.Duration) error {
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if _, err := c.Write(short, command); err != nil {
		return silent(ctx, fmt.Errorf("send % x: %w", command, err), 0, len(reply))
	}
	n, err := ReadFull(short, c, reply)
	if err != nil {
		return silent(ctx, fmt.Errorf("answer to % x: %w", command, err), n, len(reply))
	}
	return nil
}

// askTries is how often AskFor asks.
const askTries = 3

// AskFor asks until an answer fits: the answer to an earlier question, which comes
// late from a slow line or a busy machine, must not be taken for this one's. What is on
// the line is discarded first. After an answer that does not fit, or none within d, the
// line must be quiet for longer and longer before the question is asked again, and its
// answer may take longer. It returns false where reply holds the last of the answers that
// did not fit, and an error that wraps instrument.ErrSilent where none came, or the line
// never falls quiet.
func AskFor(ctx context.Context, c Conn, command, reply []byte, d time.Duration, fits func(reply []byte) bool) (bool, error) {
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
		if err != nil && (try == askTries-1 || !errors.Is(err, instrument.ErrSilent)) {
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

// Quiet discards what comes until nothing has come for a while. A line that does not
// fall quiet within the limit is an error that wraps instrument.ErrSilent: it does not
// answer, it talks.
func Quiet(ctx context.Context, c Conn, quiet, limit time.Duration) error {
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := c.Drain(short, quiet)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: it keeps sending without being asked", instrument.ErrSilent)
	}
	return err
}

// silent marks a time-out of the exchange itself, not of the caller's context.
func silent(ctx context.Context, err error, n, want int) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %d of %d bytes came: %w", instrument.ErrSilent, n, want, err)
	}
	return err
}
