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

// silent marks a time-out of the exchange itself, not of the caller's context.
func silent(ctx context.Context, err error, n, want int) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %d of %d bytes came: %w", instrument.ErrSilent, n, want, err)
	}
	return err
}
