// Package monitorclient talks to a monitor over gRPC: it takes the bench, keeps the lease
// alive, and reads the samples back over broken connections. Its values are those of
// measure/session; the generated messages stay inside.
//
//	Client  one connection; calls that can be repeated without harm are, see Options
//	Read    resumes a stream where it broke, and checks every chunk
//	Sink    takes the items of a stream
package monitorclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// Sentinel errors, wrapped with the operation and the remedy.
var (
	// ErrBusy: another holder has the bench.
	ErrBusy = errors.New("bench is busy")
	// ErrGone: the monitor does not hold the capture.
	ErrGone = errors.New("capture is not on the monitor")
	// ErrUnreachable: the monitor does not answer.
	ErrUnreachable = errors.New("monitor does not answer")
	// ErrPastEnd: the monitor has less of the capture than it has sent: its disk lost the
	// rest.
	ErrPastEnd = errors.New("past the end of the capture")
	// ErrDamaged: the capture on the monitor's disk does not match its checksum.
	ErrDamaged = errors.New("capture is damaged on the monitor")
	// ErrRunning: the capture still runs, and was not to be followed.
	ErrRunning = errors.New("capture still runs")
	// ErrMismatch: the items that arrived are not those that the monitor sent.
	ErrMismatch = errors.New("stream does not match its trailer")
	// ErrVersion: monitor and host do not understand each other.
	ErrVersion = errors.New("monitor and host are of incompatible versions")
)

// Options tune a client. Zero values are good ones.
type Options struct {
	// Patience bounds the wait for a silent monitor where a call can be repeated without
	// harm, and the time without an item while a stream is being resumed; 2 minutes when
	// zero.
	Patience time.Duration
	// Pause is the first pause before a call is repeated; it doubles up to 5 s. 100 ms
	// when zero.
	Pause time.Duration
	// Call is the deadline of a single short call; 15 s when zero.
	Call time.Duration
	// Version of this host, sent to the monitor.
	Version string
	// Dial adds options to the connection: credentials, a dialer.
	Dial []grpc.DialOption
}

// Client talks to one monitor. It is safe for concurrent use.
type Client struct {
	address string
	o       Options
	conn    *grpc.ClientConn
	rpc     pb.MonitorServiceClient
}

// Dial prepares a client for a monitor at host:port. It does not wait for the connection:
// the first call does.
func Dial(address string, o Options) (*Client, error) {
	o.Patience = cmp.Or(o.Patience, 2*time.Minute)
	o.Pause = cmp.Or(o.Pause, 100*time.Millisecond)
	o.Call = cmp.Or(o.Call, 15*time.Second)
	reconnect := grpcbackoff.Config{BaseDelay: o.Pause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}
	opts := append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}))
	conn, err := grpc.NewClient(address, append(opts, o.Dial...)...)
	if err != nil {
		return nil, fmt.Errorf("monitor %s: %w", address, err)
	}
	return &Client{address: address, o: o, conn: conn, rpc: pb.NewMonitorServiceClient(conn)}, nil
}

// Address returns the address that was dialled.
func (c *Client) Address() string { return c.address }

// Close ends the connection and all calls on it.
func (c *Client) Close() error { return c.conn.Close() }

// fail gives an RPC's error its operation, its sentinel and a remedy; nil stays nil.
func (c *Client) fail(operation string, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	switch status.Code(err) {
	case codes.Unavailable:
		if connectionBroke(text) {
			return fmt.Errorf("%s: %w: %s at %s; %s",
				operation, ErrUnreachable, dialError(text), c.address, remedy(text))
		} // else the monitor answers, and its instrument does not
	case codes.NotFound:
		return fmt.Errorf("%s: %w: %s", operation, ErrGone, text)
	case codes.OutOfRange:
		return fmt.Errorf("%s: %w: %s", operation, ErrPastEnd, text)
	case codes.DataLoss:
		return fmt.Errorf("%s: %w: %s", operation, ErrDamaged, text)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: monitor %s: %w", operation, c.address, context.DeadlineExceeded)
	case codes.Canceled:
		return fmt.Errorf("%s: %w", operation, context.Canceled)
	}
	return fmt.Errorf("%s: monitor %s: %s", operation, c.address, text)
}

// bad names the monitor in an error about its answer.
func (c *Client) bad(operation string, err error) error {
	return fmt.Errorf("%s: monitor %s: %w", operation, c.address, err)
}

// dialError returns a dialler's error without gRPC's text around it.
func dialError(text string) string {
	const around = "Error while dialing: "
	if i := strings.LastIndex(text, around); i >= 0 {
		return strings.TrimSuffix(text[i+len(around):], `"`)
	}
	return text
}

// connectionBroke reports whether UNAVAILABLE is gRPC's own, for a lost connection, and
// not the monitor's, about its instrument or its end.
func connectionBroke(text string) bool {
	for _, s := range []string{"connection", "transport", "name resolver", "produced zero addresses"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// remedy returns the advice on a monitor that does not answer, by gRPC's text.
func remedy(text string) string {
	handshake := strings.Contains(text, "handshake failed")
	switch {
	case handshake && strings.Contains(text, "first record does not look like a TLS handshake"):
		return "it does not speak TLS: leave --tls-ca and --tls-cert out, or start it with --auth"
	case handshake:
		return "it is there, and is not trusted: name the CA that it has its certificate from " +
			"(--tls-ca, WATTMARK_TLS_CA), and dial a name that is in it"
	case strings.Contains(text, "server preface"):
		return "is wattmark monitor running there, and does it speak TLS? then name its CA (--tls-ca, WATTMARK_TLS_CA)"
	}
	return "is wattmark monitor running there?"
}

// rpcOf is a generated call with one answer.
type rpcOf[Q, A any] = func(context.Context, Q, ...grpc.CallOption) (A, error)

// once makes one call under a deadline.
func once[Q, A any](ctx context.Context, limit time.Duration, call rpcOf[Q, A], q Q) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx, q)
}

// again makes a call that may be repeated, until the monitor answers or patience ends.
func again[Q, A any](ctx context.Context, c *Client, limit time.Duration, call rpcOf[Q, A], q Q) (A, error) {
	until, pauses := time.Now().Add(c.o.Patience), backoff.Backoff{First: c.o.Pause}
	for {
		a, err := once(ctx, limit, call, q)
		if err == nil || !retriable(err) || ctx.Err() != nil || time.Now().Add(pauses.Next()).After(until) {
			return a, err
		}
		if e := pauses.Wait(ctx); e != nil {
			return a, errors.Join(e, err)
		}
	}
}

// retriable reports whether another attempt can help: the connection broke or the monitor
// was slow to answer.
func retriable(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// checkProtocol refuses a monitor of another major protocol version.
func (c *Client) checkProtocol(theirs session.Protocol, version string) error {
	if wire.Speaks.Fits(theirs) {
		return nil
	}
	older := "this host"
	if theirs.Major < wire.Speaks.Major {
		older = "the monitor"
	}
	return fmt.Errorf("%w: the monitor at %s is wattmark %s and speaks protocol %v, "+
		"this host is wattmark %s and speaks %v: update %s",
		ErrVersion, c.address, versionText(version), theirs, versionText(c.o.Version), wire.Speaks, older)
}

// bridge returns the difference between two versions that understand each other; empty
// where there is none.
func (c *Client) bridge(theirs session.Protocol, version string) string {
	ours, relation, effect := wire.Speaks, "newer", "what it adds was not used"
	switch {
	case theirs.Major != ours.Major || theirs.Minor == ours.Minor:
		return ""
	case theirs.Minor < ours.Minor:
		relation, effect = "older", "what came later was done without"
	}
	return fmt.Sprintf("the monitor (wattmark %s, protocol %v) is %s than this host (wattmark %s, protocol %v): %s",
		versionText(version), theirs, relation, versionText(c.o.Version), ours, effect)
}

// versionText formats a peer's version, which may be missing or hostile.
func versionText(version string) string {
	if version == "" {
		return "of an unknown version"
	}
	return measure.Printable(version)
}
