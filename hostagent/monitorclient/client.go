package monitorclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
)

// Options tune a client. Zero values are good ones.
type Options struct {
	// Patience is how long a silent monitor is waited for where a call can be
	// repeated without harm, and how long a stream may stand still while it is
	// being resumed; 2 minutes when zero.
	Patience time.Duration
	// Pause is the first pause before a call is repeated; it doubles up to 5 s.
	// 100 ms when zero.
	Pause time.Duration
	// Call is the deadline of a single short call; 15 s when zero.
	Call time.Duration
	// Version of this host, told to the monitor.
	Version string
	// Dial adds options to the connection: credentials, a dialer.
	Dial []grpc.DialOption
}

const longestPause = 5 * time.Second

// Client talks to one monitor. It is safe for concurrent use.
type Client struct {
	address string
	o       Options
	conn    *grpc.ClientConn
	rpc     wattmarkv1.MonitorServiceClient
}

// Dial prepares a client for a monitor at host:port. It does not wait for the
// connection: the first call tells whether the monitor answers.
func Dial(address string, o Options) (*Client, error) {
	if o.Patience == 0 {
		o.Patience = 2 * time.Minute
	}
	if o.Pause == 0 {
		o.Pause = 100 * time.Millisecond
	}
	if o.Call == 0 {
		o.Call = 15 * time.Second
	}
	reconnect := backoff.Config{BaseDelay: o.Pause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}
	opts := append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}))
	conn, err := grpc.NewClient(address, append(opts, o.Dial...)...)
	if err != nil {
		return nil, fmt.Errorf("monitor %s: %w", address, err)
	}
	return &Client{address: address, o: o, conn: conn, rpc: wattmarkv1.NewMonitorServiceClient(conn)}, nil
}

// Address is where the monitor was dialled.
func (c *Client) Address() string { return c.address }

// Close ends the connection and all calls on it.
func (c *Client) Close() error { return c.conn.Close() }

// fail gives an RPC's error its operation, its sentinel and a hint.
func (c *Client) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	switch status.Code(err) {
	case codes.Unavailable:
		if !lineBroke(text) {
			break // the monitor answers; its instrument does not
		}
		return fmt.Errorf("%s: %w: %s at %s; %s", what, ErrUnreachable, dialling(text), c.address, hint(text))
	case codes.NotFound:
		return fmt.Errorf("%s: %w: %s", what, ErrGone, text)
	case codes.OutOfRange:
		return fmt.Errorf("%s: %w: %s", what, ErrPastEnd, text)
	case codes.DataLoss:
		return fmt.Errorf("%s: %w: %s", what, ErrDamaged, text)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: monitor %s: %w", what, c.address, context.DeadlineExceeded)
	case codes.Canceled:
		return fmt.Errorf("%s: %w", what, context.Canceled)
	}
	return fmt.Errorf("%s: monitor %s: %s", what, c.address, text)
}

// dialling is what a dialler said, out of gRPC's words around it.
func dialling(text string) string {
	const around = "Error while dialing: "
	if i := strings.LastIndex(text, around); i >= 0 {
		return strings.TrimSuffix(text[i+len(around):], `"`)
	}
	return text
}

// lineBroke tells gRPC's own words for a lost connection from a monitor that
// says UNAVAILABLE itself: of its instrument, or because it is stopping.
func lineBroke(text string) bool {
	for _, s := range []string{"connection", "transport", "name resolver", "produced zero addresses"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// once makes one call under a deadline.
func once[Q, A any](ctx context.Context, limit time.Duration, call func(context.Context, Q, ...grpc.CallOption) (A, error), q Q) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx, q)
}

// again makes a call that may be repeated, until the monitor answers or
// patience ends.
func again[Q, A any](ctx context.Context, c *Client, limit time.Duration, call func(context.Context, Q, ...grpc.CallOption) (A, error), q Q) (A, error) {
	until, pause := time.Now().Add(c.o.Patience), c.o.Pause
	for {
		a, err := once(ctx, limit, call, q)
		if err == nil || !retriable(err) || ctx.Err() != nil || time.Now().Add(pause).After(until) {
			return a, err
		}
		if e := sleep(ctx, pause); e != nil {
			return a, errors.Join(e, err)
		}
		pause = min(2*pause, longestPause)
	}
}

// retriable reports whether another try can help: the line broke or the
// monitor was slow to answer.
func retriable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
