// Package scpi is a client for instruments that speak SCPI (IEEE 488.2) over
// TCP, a serial line or USBTMC.
//
//	Client.Query / QueryBlock / Command ─▶ transport.Conn
//	   └─ after any time-out: desynchronised ─▶ drain ─▶ *CLS ─▶ *IDN? as remembered, else reconnect
//
// A reply is never believed because it is the next thing on the line: after an
// exchange that failed the link is brought back to a known state first. Blocks
// are read by their stated length, never up to a terminator.
package scpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Config describes how to reach an instrument. Zero values mean the defaults.
type Config struct {
	Address string
	// Timeout bounds one exchange: 2 s. A block has as long again for each
	// megabyte.
	Timeout time.Duration
	// Quiet is how long the line must be silent to count as drained: 50 ms.
	Quiet time.Duration
	// Stale is how long to look, before a query, for bytes that were not asked for:
	// 200 µs; negative for not at all.
	Stale time.Duration
	// ErrorQuery asks for the oldest entry of the error queue: SYST:ERR?.
	ErrorQuery string
	// Accept refuses an instrument that is not wanted; nil accepts any. Its error
	// should wrap instrument.ErrIdentity.
	Accept func(Identity) error
	// Backoff describes how a lost link is tried again.
	Backoff transport.Backoff
	// Reconnect bounds the attempts to get a lost link back: 10 s.
	Reconnect time.Duration
	// Dial opens the link; nil dials Address and locks it.
	Dial func(context.Context) (transport.Conn, error)
}

// withDefaults fills in the times of a quick instrument on a good link.
func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(max(c.Timeout, 0), 2*time.Second)
	c.Quiet = cmp.Or(max(c.Quiet, 0), 50*time.Millisecond)
	c.Reconnect = cmp.Or(max(c.Reconnect, 0), 10*time.Second)
	c.Stale = cmp.Or(c.Stale, 200*time.Microsecond)
	c.ErrorQuery = cmp.Or(c.ErrorQuery, "SYST:ERR?")
	if c.Dial == nil {
		c.Dial = transport.Dialer(c.Address, transport.Options{Exclusive: true})
	}
	return c
}

// Stats counts a client's actions to keep its link in step.
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
	desync   bool   // the next bytes on the line belong to no query
	buf      []byte // read and not yet used
	mem      []byte // the memory behind buf: how much one read takes at most
	stats    Stats
}

// New makes a client; nothing is opened yet.
func New(cfg Config) *Client { return &Client{cfg: cfg.withDefaults(), mem: make([]byte, 64<<10)} }

// Open connects, clears an earlier user's errors, and identifies the instrument.
// A client that was opened before insists on the same instrument.
func (c *Client) Open(ctx context.Context) error {
	if c.conn != nil {
		return fmt.Errorf("scpi: open %s: already open", c.cfg.Address)
	}
	if err := c.connect(ctx); err != nil {
		return fmt.Errorf("scpi: %w", err)
	}
	return nil
}

// Identity is the instrument's answer at the first Open.
func (c *Client) Identity() Identity { return c.identity }

// Stats returns the counts so far.
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

// OpenAny is Open of whatever instrument is there now.
func (c *Client) OpenAny(ctx context.Context) error {
	c.known = false
	return c.Open(ctx)
}

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

// exchange runs one exchange on a link in step, within the time-out, and marks the link where it fails.
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

// failed marks the state that a failed exchange leaves behind.
func (c *Client) failed(ctx context.Context, message string, err error) error {
	c.desync = true
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		c.stats.Timeouts++
		return fmt.Errorf("scpi: %s: %w: no reply from %s within %v: is it in remote mode, is %s right, does it "+
			"know this query? (%w)",
			message, instrument.ErrSilent, c.cfg.Address, c.cfg.Timeout, place(c.cfg.Address), err)
	}
	return fmt.Errorf("scpi: %s: %w", message, err)
}

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
		last = fmt.Errorf("%w: %s answers where %s is known", instrument.ErrIdentity,
			quote(strings.TrimRight(id.String(), ",")), c.identity)
	}
	return last
}

// hello drains, clears the error queue and asks for the identity. A reply that
// is no identity is returned as one that no instrument has.
func (c *Client) hello(ctx context.Context) (id Identity, err error) {
	own, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	c.stats.Discarded += uint64(len(c.buf))
	c.buf = nil
	n, err := transport.Drain(own, c.conn, c.cfg.Quiet)
	c.stats.Discarded += uint64(n)
	if err == nil {
		err = c.send(own, "*CLS")
	}
	var s string
	if err == nil {
		s, err = c.exchange(own, "*IDN?")
	}
	switch {
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded): // the exchange's own time-out
		return id, fmt.Errorf("%w: no reply to *IDN? within %v: is it in remote mode, is %s right? (%w)",
			instrument.ErrSilent, c.cfg.Timeout, place(c.cfg.Address), err)
	case err != nil:
		return id, err
	}
	if id, err = ParseIdentity(s); err != nil {
		return Identity{Maker: s}, nil
	}
	return id, nil
}

// place names the parts of an address that may be wrong.
func place(address string) string {
	if _, port, err := net.SplitHostPort(strings.TrimPrefix(address, "tcp:")); err == nil {
		return "port " + port
	}
	return "the address"
}

// connect dials, asks *IDN? and compares the answer with that of the first Open.
func (c *Client) connect(ctx context.Context) error {
	conn, err := c.cfg.Dial(ctx)
	if err != nil {
		return err
	}
	c.conn, c.buf, c.messages = conn, nil, transport.ReadsMessages(conn)
	if c.known {
		err = c.settle(ctx)
	} else {
		err = c.identify(ctx)
	}
	if err != nil {
		_ = c.Close()
		return fmt.Errorf("%s: %w", c.cfg.Address, err)
	}
	c.desync = false
	return nil
}

// identify remembers the instrument that answers, if it is wanted.
func (c *Client) identify(ctx context.Context) error {
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

// Check reports the instrument's complaints since the last call, in a line; after is the
// command before. It is meant for configuration, not for every
// sample. The error wraps ErrInstrument, and instrument.ErrIdentity where the instrument
// does not know a command: it is another than its identity states.
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
			return fmt.Errorf("scpi: %w: it answered %d to %s: it is no %s inside (%w)", instrument.ErrIdentity, e.Code,
				asked, c.identity.Model, e)
		}
	}
	return fmt.Errorf("scpi: %s: %w", after, complaints(queue))
}

// complaints are the entries of an error queue, each code once.
type complaints []DeviceError

// Error cites the complaints in a line.
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

// Unwrap returns the entries, each an ErrInstrument.
func (q complaints) Unwrap() []error { return lists.Map(q, func(e DeviceError) error { return e }) }
