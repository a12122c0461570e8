package scpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wattmark/wattmark/monitor/transport"
)

const (
	maxLine  = 1 << 20               // bytes of a reply of text
	trailing = 10 * time.Millisecond // for the bytes that an instrument leaves behind a block
)

// send sends one program message.
func (c *Client) send(ctx context.Context, message string) error {
	_, err := c.conn.Write(ctx, append([]byte(message), '\n'))
	return err
}

// clear drops the bytes that came without having been asked for.
func (c *Client) clear(ctx context.Context) error {
	c.stats.Discarded += uint64(len(c.buf))
	c.buf = nil
	if c.messages || c.cfg.Stale < 0 {
		return nil
	}
	for {
		n, err := transport.ReadWithin(ctx, c.conn, c.mem, c.cfg.Stale)
		if err != nil || n == 0 {
			return err
		}
		c.stats.Discarded += uint64(n)
	}
}

// fill reads more where the buffer is empty.
func (c *Client) fill(ctx context.Context) error {
	if len(c.buf) > 0 {
		return nil
	}
	n, err := c.conn.Read(ctx, c.mem)
	c.buf = c.mem[:n]
	return err
}

// line reads a reply of text: up to a line feed, without it and a carriage
// return before it. Empty lines before it are ends of the bytes that came before.
func (c *Client) line(ctx context.Context) (string, error) {
	var line []byte
	for {
		if err := c.fill(ctx); err != nil {
			return "", err
		}
		part, rest, ended := bytes.Cut(c.buf, []byte("\n"))
		line, c.buf = append(line, part...), rest
		if !ended {
			if len(line) > maxLine {
				return "", fmt.Errorf("%w: %d bytes without the end of a line", ErrTooLong, len(line))
			}
			continue
		}
		if line = bytes.TrimRight(line, "\r"); len(line) > 0 {
			return string(line), nil
		}
	}
}

// QueryBlock asks for a definite block and appends its data to dst. A block
// longer than most bytes is refused before memory is spent on it. On an error
// dst is returned as it was.
func (c *Client) QueryBlock(ctx context.Context, query string, most int, dst []byte) ([]byte, error) {
	if err := c.ready(ctx); err != nil {
		return dst, fmt.Errorf("scpi: %s: %w", query, err)
	}
	own, cancel := context.WithTimeout(ctx, c.cfg.Timeout*time.Duration(1+most>>20))
	defer cancel()
	out, err := c.block(own, query, most, dst)
	if err != nil {
		return dst, c.failed(ctx, query, err)
	}
	return out, nil
}

// block appends the data of a definite block to dst. A length beyond most is refused before any
// memory is made for it; a link that breaks off names the bytes that came.
func (c *Client) block(ctx context.Context, query string, most int, dst []byte) ([]byte, error) {
	if err := c.clear(ctx); err != nil {
		return nil, err
	}
	if err := c.send(ctx, query); err != nil {
		return nil, err
	}
	var h header
	for done := false; !done; {
		err := c.fill(ctx)
		if err == nil {
			done, err = h.feed(c.buf[0])
		}
		if err != nil {
			return nil, err
		}
		c.buf = c.buf[1:]
	}
	if h.length > most {
		return nil, fmt.Errorf("%w: a block of %d bytes, expected at most %d", ErrTooLong, h.length, most)
	}
	for left := h.length; left > 0; {
		if err := c.fill(ctx); err != nil {
			return nil, fmt.Errorf("%d of %d bytes of the block came: %w", h.length-left, h.length, err)
		}
		n := min(left, len(c.buf))
		dst = append(dst, c.buf[:n]...)
		c.buf = c.buf[n:]
		left -= n
	}
	return dst, c.trailer(ctx)
}

// trailer drops the bytes behind a block: the end of its line and, at
// some instruments, more. Later ones are dropped before the next query.
func (c *Client) trailer(ctx context.Context) error {
	if len(c.buf) == 0 && !c.messages {
		n, err := transport.ReadWithin(ctx, c.conn, c.mem, trailing)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil // the data are complete
		}
		if err != nil {
			return err
		}
		c.buf = c.mem[:n]
	}
	if left := bytes.Trim(c.buf, "\r\n"); len(left) > 0 {
		c.stats.Discarded += uint64(len(left))
	}
	c.buf = nil
	return nil
}
