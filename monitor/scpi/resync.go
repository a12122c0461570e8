package scpi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// ready makes sure that the next reply can only be the next query's.
func (c *Client) ready(ctx context.Context) error {
	if !c.desync && c.conn != nil {
		return nil
	}
	if !c.known {
		return errors.New("not open")
	}
	return c.Resync(ctx)
}

// Resync brings the link back in step: drain, *CLS, and *IDN? must give the
// remembered identity; else it connects anew, with growing pauses, and insists
// on the same. Errors: instrument.ErrIdentity when another one answers;
// instrument.ErrDisconnected or ErrSilent when none does in time.
func (c *Client) Resync(ctx context.Context) error {
	c.stats.Resyncs++
	if c.conn != nil && c.settle(ctx) == nil {
		c.desync = false
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("bring the link in step: %w", err)
	}
	c.stats.Reconnects++
	own, cancel := context.WithTimeout(ctx, c.cfg.Reconnect)
	defer cancel()
	err := c.cfg.Backoff.Redial(own, func(ctx context.Context) error {
		_ = c.Close()
		return c.connect(ctx)
	})
	if err != nil {
		return fmt.Errorf("connect anew: %w", err)
	}
	return nil
}

// settleTries is how often the identity is asked for: a reply may be so late
// that it comes behind the drain.
const settleTries = 3

// settle drains the line and checks that the instrument answers in step.
func (c *Client) settle(ctx context.Context) error {
	var last error
	for range settleTries {
		id, err := c.hello(ctx)
		if err != nil {
			return err
		}
		if id == c.identity {
			return nil
		}
		last = fmt.Errorf("%w: %s answers where %s is known", instrument.ErrIdentity, quote(strings.TrimRight(id.String(), ",")), c.identity)
	}
	return last
}

// hello drains, clears the error queue and asks for the identity. A reply that
// is no identity is returned as one that no instrument has.
func (c *Client) hello(ctx context.Context) (Identity, error) {
	own, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	c.stats.Discarded += uint64(len(c.buf))
	c.buf = nil
	n, err := c.conn.Drain(own, c.cfg.Quiet)
	c.stats.Discarded += uint64(n)
	if err != nil {
		return Identity{}, c.silent(ctx, err)
	}
	if err := c.send(own, "*CLS"); err != nil {
		return Identity{}, c.silent(ctx, err)
	}
	s, err := c.exchange(own, "*IDN?")
	if err != nil {
		return Identity{}, c.silent(ctx, err)
	}
	id, err := ParseIdentity(s)
	if err != nil {
		return Identity{Maker: s}, nil
	}
	return id, nil
}

// place names what of an address may be wrong.
func place(address string) string {
	if _, port, err := net.SplitHostPort(strings.TrimPrefix(address, "tcp:")); err == nil {
		return "port " + port
	}
	return "the address"
}

// silent tells a time-out of the exchange from the end of the caller's context.
func (c *Client) silent(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: no reply to *IDN? within %v: is it in remote mode, is %s right? (%w)", instrument.ErrSilent, c.cfg.Timeout, place(c.cfg.Address), err)
	}
	return err
}

// connect dials and identifies.
func (c *Client) connect(ctx context.Context) error {
	conn, err := c.cfg.Dial(ctx)
	if err != nil {
		return err
	}
	m, ok := conn.(transport.MessageReader)
	c.conn, c.buf, c.messages = conn, nil, ok && m.ReadsMessages()
	if err := c.identify(ctx); err != nil {
		_ = c.Close()
		return fmt.Errorf("%s: %w", c.cfg.Address, err)
	}
	c.desync = false
	return nil
}

func (c *Client) identify(ctx context.Context) error {
	if c.known {
		return c.settle(ctx)
	}
	var id Identity
	for try := 0; try < settleTries && id.Model == ""; try++ { // the reply to another program's query may come first
		var err error
		if id, err = c.hello(ctx); err != nil {
			return err
		}
	}
	if id.Model == "" {
		return fmt.Errorf("%w: *IDN? gives %s", instrument.ErrIdentity, quote(id.Maker))
	}
	if c.cfg.Accept != nil {
		if err := c.cfg.Accept(id); err != nil {
			return err
		}
	}
	c.identity, c.known = id, true
	return nil
}
