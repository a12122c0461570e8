package scpi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

// Config says how to reach an instrument. Zero values mean the defaults.
type Config struct {
	Address string
	// Baud of a serial line whose address states none: transport's default.
	Baud int
	// Timeout bounds one exchange: 2 s. A block has as long again for each
	// megabyte.
	Timeout time.Duration
	// Quiet is how long the line must be silent to count as drained: 50 ms.
	Quiet time.Duration
	// Stale is how long to look, before a query, for bytes that nobody asked for:
	// 200 µs; negative for not at all.
	Stale time.Duration
	// ErrorQuery asks for the oldest entry of the error queue: SYST:ERR?.
	ErrorQuery string
	// Accept refuses an instrument that is not wanted; nil accepts any. Its error
	// should wrap instrument.ErrIdentity.
	Accept func(Identity) error
	// Backoff says how a lost link is tried again.
	Backoff transport.Backoff
	// Reconnect bounds the attempts to get a lost link back: 10 s.
	Reconnect time.Duration
	// Dial opens the link; nil dials Address and locks it.
	Dial func(context.Context) (transport.Conn, error)
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Timeout, 2*time.Second)
	def(&c.Quiet, 50*time.Millisecond)
	def(&c.Reconnect, 10*time.Second)
	if c.Stale == 0 {
		c.Stale = 200 * time.Microsecond
	}
	if c.ErrorQuery == "" {
		c.ErrorQuery = "SYST:ERR?"
	}
	if c.Dial == nil {
		address, o := c.Address, transport.Options{Baud: c.Baud, Exclusive: true}
		c.Dial = transport.Dialer(address, o)
	}
	return c
}

// Stats counts what a client had to do to keep its link in step.
type Stats struct {
	Timeouts, Resyncs, Reconnects uint64
	Discarded                     uint64 // bytes that belonged to no reply
}

// Client speaks with one instrument. One goroutine owns it.
type Client struct {
	cfg      Config
	conn     transport.Conn
	messages bool // the device speaks only when read from
	identity Identity
	known    bool   // identity is the one to insist on
	desync   bool   // what comes next on the line belongs to nobody
	buf      []byte // read and not yet used
	mem      []byte // the memory behind buf
	stats    Stats
}

// readSize is how much one read takes at most.
const readSize = 64 << 10

// New makes a client; nothing is opened yet.
func New(cfg Config) *Client {
	return &Client{cfg: cfg.withDefaults(), mem: make([]byte, readSize)}
}

// Open connects, clears what an earlier user left in the error queue, and asks
// who is there. A client that was opened before insists on the same instrument.
func (c *Client) Open(ctx context.Context) error {
	if c.conn != nil {
		return fmt.Errorf("scpi: open %s: already open", c.cfg.Address)
	}
	if err := c.connect(ctx); err != nil {
		return fmt.Errorf("scpi: %w", err)
	}
	return nil
}

// Identity is what the instrument said of itself at the first Open.
func (c *Client) Identity() Identity { return c.identity }

// Stats counts what went wrong so far.
func (c *Client) Stats() Stats { return c.stats }

// Close releases the link. The identity stays remembered. It is safe to call twice.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn, c.buf = nil, nil
	return err
}

// Forget lets the next Open accept another instrument.
func (c *Client) Forget() { c.known = false }

// Command sends a program message that has no reply.
func (c *Client) Command(ctx context.Context, message string) error {
	if err := c.ready(ctx); err != nil {
		return fmt.Errorf("scpi: %s: %w", message, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.send(ctx, message); err != nil {
		return c.failed(ctx, message, err)
	}
	return nil
}

// Query asks and returns the line that answers, without its end. Errors: one
// that wraps instrument.ErrSilent when nothing came in time (also for a query
// that the instrument does not know); the link's; ctx's.
func (c *Client) Query(ctx context.Context, query string) (string, error) {
	if err := c.ready(ctx); err != nil {
		return "", fmt.Errorf("scpi: %s: %w", query, err)
	}
	s, err := c.exchange(ctx, query)
	if err != nil {
		return "", c.failed(ctx, query, err)
	}
	return s, nil
}

func (c *Client) exchange(ctx context.Context, query string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.clear(ctx); err != nil {
		return "", err
	}
	if err := c.send(ctx, query); err != nil {
		return "", err
	}
	return c.line(ctx)
}

// QueryNumber asks for one number. A reply that is none desynchronises the
// link: it is likely to belong to something else.
func (c *Client) QueryNumber(ctx context.Context, query string) (float64, error) {
	return Ask(ctx, c, query, ParseNumber)
}

// Ask asks and reads the reply with parse. A reply that parse refuses may
// belong to something else: the link is brought in step and it is asked once more.
func Ask[T any](ctx context.Context, c *Client, query string, parse func(string) (T, error)) (T, error) {
	var zero T
	for again := false; ; again = true {
		s, err := c.Query(ctx, query)
		if err != nil {
			return zero, err
		}
		v, err := parse(s)
		if err == nil {
			return v, nil
		}
		c.desync = true
		if again {
			return zero, fmt.Errorf("scpi: %s: %w", query, err)
		}
	}
}

// failed marks what an exchange that did not end well leaves behind.
func (c *Client) failed(ctx context.Context, message string, err error) error {
	c.desync = true
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		c.stats.Timeouts++
		return fmt.Errorf("scpi: %s: %w: no reply from %s within %v: is it in remote mode, is %s right, does it know this query? (%w)",
			message, instrument.ErrSilent, c.cfg.Address, c.cfg.Timeout, place(c.cfg.Address), err)
	}
	return fmt.Errorf("scpi: %s: %w", message, err)
}
