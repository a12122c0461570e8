package scpi

import (
	"context"
	"fmt"
	"strings"

	"wattmark/monitor/instrument"
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

// The codes of the standard that Check knows.
const (
	undefinedHeader = -113
	queueOverflow   = -350
)

// Check reports what the instrument has to complain about since the last look, in a
// line; after is what was asked of it. It is meant for configuration, not for every
// sample. The error wraps ErrInstrument, and instrument.ErrIdentity where the instrument
// does not know a command: it is not what its identity says.
func (c *Client) Check(ctx context.Context, after string) error {
	queue, err := c.Errors(ctx)
	if len(queue) == 0 {
		if err != nil {
			return fmt.Errorf("scpi: %s: %w", after, err)
		}
		return nil
	}
	for _, e := range queue {
		if e.Code == undefinedHeader {
			asked := after
			if _, header, ok := strings.Cut(e.Text, ";"); ok {
				asked = strings.TrimSpace(header)
			}
			return fmt.Errorf("scpi: %w: it answered %d to %s: it is no %s inside (%w)", instrument.ErrIdentity, e.Code, asked, c.identity.Model, e)
		}
	}
	return fmt.Errorf("scpi: %s: %w", after, complaints(queue))
}

// complaints are the entries of an error queue, each code once.
type complaints []DeviceError

func (q complaints) Error() string {
	var said []string
	times := map[int]int{}
	for _, e := range q {
		if times[e.Code]++; times[e.Code] == 1 && (e.Code != queueOverflow || len(q) == 1) {
			said = append(said, e.Error())
		}
	}
	text := strings.Join(said, "; ")
	if more := len(q) - len(said); more > 0 {
		text += fmt.Sprintf(" (and %d more like it)", more)
	}
	return text
}

func (q complaints) Unwrap() []error {
	all := make([]error, len(q))
	for i := range q {
		all[i] = q[i]
	}
	return all
}
