package scpi

import (
	"context"
	"errors"
	"fmt"
)

// maxErrors bounds the reading of an error queue: one that never empties is a
// reply to something else.
const maxErrors = 32

// Errors reads the instrument's error queue until it is empty.
func (c *Client) Errors(ctx context.Context) (queue []DeviceError, err error) {
	for range maxErrors {
		e, err := Ask(ctx, c, c.cfg.ErrorQuery, ParseDeviceError)
		if err != nil {
			return queue, err
		}
		if e.Code == 0 {
			return queue, nil
		}
		queue = append(queue, e)
	}
	return queue, fmt.Errorf("scpi: %s: %w: more than %d errors", c.cfg.ErrorQuery, ErrReply, maxErrors)
}

// Check reports what the instrument has to complain about since the last look;
// after is what was asked of it. It is meant for configuration, not for every
// sample. Each entry wraps ErrInstrument.
func (c *Client) Check(ctx context.Context, after string) error {
	queue, err := c.Errors(ctx)
	all := make([]error, len(queue))
	for i := range queue {
		all[i] = queue[i]
	}
	if err := errors.Join(append(all, err)...); err != nil {
		return fmt.Errorf("scpi: %s: %w", after, err)
	}
	return nil
}
