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
	"io"
	"slices"
	"strings"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
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
	// Target is the name that gRPC resolves in place of the address, which then appears in messages
	// alone; empty for the address.
	Target string
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

// Dial prepares a client for a monitor at host or host:port. It does not wait for the connection:
// the first call does.
func Dial(address string, o Options) (*Client, error) {
	o.Patience = cmp.Or(o.Patience, 2*time.Minute)
	o.Pause = cmp.Or(o.Pause, 100*time.Millisecond)
	o.Call = cmp.Or(o.Call, 15*time.Second)
	reconnect := grpcbackoff.Config{BaseDelay: o.Pause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}
	opts := append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}))
	address = wire.WithPort(address, wire.MonitorPort)
	conn, err := grpc.NewClient(cmp.Or(o.Target, address), append(opts, o.Dial...)...)
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
	// The monitor's errors begin with the operation, gRPC's do not.
	text, own := strings.CutPrefix(status.Convert(err).Message(), operation+": ")
	switch status.Code(err) {
	case codes.Unavailable:
		// UNAVAILABLE is gRPC's own, for a lost connection, or the monitor's, about its instrument
		// or its end.
		lost := []string{"connection", "transport", "name resolver", "produced zero addresses"}
		if !own && slices.ContainsFunc(lost, func(s string) bool { return strings.Contains(text, s) }) {
			plain, advice := wire.Lost(text, "wattmark monitor")
			here := strings.HasPrefix(c.address, "127.") || strings.HasPrefix(c.address, "localhost:")
			if strings.Contains(text, "connection refused") && !here {
				advice += " It listens on its own machine alone unless it has --listen and --auth"
			}
			return fmt.Errorf("%s: %w: %s at %s; %s", operation, ErrUnreachable, plain, c.address, advice)
		}
	case codes.NotFound:
		return fmt.Errorf("%s: %w: %s", operation, ErrGone, text)
	case codes.OutOfRange:
		return fmt.Errorf("%s: %w: %s", operation, ErrPastEnd, text)
	case codes.DataLoss:
		return fmt.Errorf("%s: %w: %s", operation, ErrDamaged, text)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: monitor %s gave no answer in time (its log has the cause): %w", operation, c.address,
			context.DeadlineExceeded)
	case codes.Canceled:
		return fmt.Errorf("%s: %w", operation, context.Canceled)
	case codes.Unimplemented:
		if strings.Contains(text, "unknown service") || strings.Contains(text, "HTTP status") {
			return fmt.Errorf("%s: %s is no wattmark monitor, which has port 7551: %s", operation, c.address, text)
		}
	}
	if c.o.Target != "" {
		return fmt.Errorf("%s: %s", operation, text) // of a monitor within this process
	}
	return fmt.Errorf("%s: monitor %s: %s", operation, c.address, text)
}

// bad names the monitor in an error about its answer.
func (c *Client) bad(operation string, err error) error {
	return fmt.Errorf("%s: monitor %s: %w", operation, c.address, err)
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

// versionText formats a peer's version, which may be missing or hostile.
func versionText(version string) string {
	return cmp.Or(measure.Printable(version), "of an unknown version")
}

const (
	// opening bounds the opening of an instrument, beside the wait for the bench.
	opening = 45 * time.Second
	// stopping bounds one stop, the monitor's wait for the last samples included.
	stopping = 2 * time.Minute
	// defaultLease is the monitor's.
	defaultLease = 30 * time.Second
)

// GetBench returns the bench as the monitor knows it. It is not repeated: a missing
// monitor is an error at once.
func (c *Client) GetBench(ctx context.Context) (session.Bench, error) { return c.bench(ctx, false) }

// AskBench is GetBench after the monitor has probed its instrument, where the bench is
// free: Trouble is as of now. It takes as long as the probe, 5 s at most. A monitor of an
// earlier version answers from memory.
func (c *Client) AskBench(ctx context.Context) (session.Bench, error) { return c.bench(ctx, true) }

// bench asks for the bench and checks the protocol first: an answer of another major version
// is refused, for it cannot be parsed. Bridged words the difference between two versions that
// understand each other.
func (c *Client) bench(ctx context.Context, ask bool) (session.Bench, error) {
	a, err := once(ctx, c.o.Call, c.rpc.GetBench, &pb.GetBenchRequest{Ask: ask})
	if err != nil {
		return session.Bench{}, c.fail("get bench", err)
	}
	ours, theirs := wire.Speaks, wire.ParseProtocol(a.Protocol)
	if !ours.Fits(theirs) {
		older := "this host"
		if theirs.Major < ours.Major {
			older = "the monitor"
		}
		b := session.Bench{Name: measure.Printable(a.Name), Version: measure.Printable(a.Version), Protocol: theirs}
		return b, fmt.Errorf("get bench: %w: the monitor at %s is wattmark %s and speaks protocol %v, "+
			"this host is wattmark %s and speaks %v: update %s",
			ErrVersion, c.address, versionText(a.Version), theirs, versionText(c.o.Version), ours, older)
	}
	b, err := wire.ParseBench(a)
	if err != nil {
		return session.Bench{}, c.bad("get bench", err)
	}
	relation, effect := "newer", "what it adds was not used"
	if theirs.Minor < ours.Minor {
		relation, effect = "older", "what came later was done without"
	}
	if theirs.Major == ours.Major && theirs.Minor != ours.Minor {
		b.Bridged = fmt.Sprintf("the monitor (wattmark %s, protocol %v) is %s than this host (wattmark %s, protocol %v): "+
			"%s", versionText(a.Version), theirs, relation, versionText(c.o.Version), ours, effect)
	}
	return b, nil
}

// Start waits for the bench, takes it and starts sampling. It is not repeated. Errors:
// ErrBusy with the holder's name, ErrVersion.
func (c *Client) Start(ctx context.Context, r session.Request) (session.Started, error) {
	a, err := once(ctx, r.Wait+opening, c.rpc.StartCapture, wire.StartRequest(r, c.o.Version))
	switch text := status.Convert(err).Message(); status.Code(err) {
	case codes.FailedPrecondition:
		text = strings.TrimPrefix(text, ErrBusy.Error()+": ")
		return session.Started{}, fmt.Errorf("start capture: %w: %s", ErrBusy, text)
	case codes.Unimplemented:
		return session.Started{}, c.bad("start capture", fmt.Errorf("%w: %s", ErrVersion, text))
	}
	return parsed(c, "start capture", a, err, wire.ParseStarted)
}

// Stop ends sampling and returns the capture's result. It is repeated.
func (c *Client) Stop(ctx context.Context, captureID string) (session.Summary, error) {
	a, err := again(ctx, c, stopping, c.rpc.StopCapture, &pb.StopCaptureRequest{CaptureId: captureID})
	return parsed(c, "stop capture", a.GetSummary(), err, wire.ParseSummary)
}

// Release lets the monitor drop a capture: its samples are safe here. It is repeated.
func (c *Client) Release(ctx context.Context, captureID string) error {
	_, err := again(ctx, c, c.o.Call, c.rpc.ReleaseCapture, &pb.ReleaseCaptureRequest{CaptureId: captureID})
	return c.fail("release capture", err)
}

// Forget lets the monitor drop the samples of the chunks before a number while their capture runs: they are safe here.
// It is repeated. A monitor of an early version has no such call.
func (c *Client) Forget(ctx context.Context, captureID string, before uint64) error {
	_, err := again(ctx, c, c.o.Call, c.rpc.ForgetChunks, &pb.ForgetChunksRequest{CaptureId: captureID, BeforeChunk: before})
	return c.fail("release samples", err)
}

// End takes the bench from its holder, or ends a capture by id: it is Incomplete then,
// with by and why in its reason. It returns the capture, its holder and the reason.
func (c *Client) End(ctx context.Context, captureID, by, why string) (id, holder, reason string, err error) {
	q := &pb.EndCaptureRequest{CaptureId: captureID, By: by, Reason: why}
	a, err := once(ctx, c.o.Call, c.rpc.EndCapture, q)
	return a.GetCaptureId(), a.GetHolder(), a.GetReason(), c.fail("end capture", err)
}

// KeepLease renews a capture's lease three times a lease, until ctx ends or the capture
// has ended (nil), or the monitor no longer has it (ErrGone). A silent monitor is tried
// again without end.
func (c *Client) KeepLease(ctx context.Context, captureID string, lease time.Duration) error {
	if lease <= 0 {
		lease = defaultLease
	}
	pause := lease / 3
	for backoff.Sleep(ctx, pause) == nil {
		q := &pb.RenewLeaseRequest{CaptureId: captureID}
		a, err := once(ctx, min(c.o.Call, lease/3), c.rpc.RenewLease, q)
		switch {
		case ctx.Err() != nil || err == nil && session.State(a.State).Ended():
			return nil
		case err == nil:
			pause = lease / 3
		case retriable(err):
			pause = min(c.o.Pause, lease/3)
		default:
			return c.fail("renew lease", err)
		}
	}
	return nil
}

// Captures lists the captures that the monitor holds.
func (c *Client) Captures(ctx context.Context) ([]session.Capture, error) {
	a, err := once(ctx, c.o.Call, c.rpc.ListCaptures, &pb.ListCapturesRequest{})
	return parsed(c, "list captures", a, err, func(a *pb.ListCapturesResponse) ([]session.Capture, error) {
		return wire.ParseEach(a.Captures, wire.ParseCapture)
	})
}

// Watch hands live moments to see until ctx ends (nil), see fails (its error), or the
// connection breaks. It is not repeated.
func (c *Client) Watch(ctx context.Context, o session.WatchOptions, see func(session.Moment) error) error {
	q := &pb.WatchRailsRequest{Idle: o.Idle, Wave: o.Wave}
	if o.Every > 0 {
		q.Every = durationpb.New(o.Every)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.rpc.WatchRails(ctx, q)
	for err == nil {
		var a *pb.WatchRailsResponse
		if a, err = s.Recv(); err != nil {
			break
		}
		m, merr := wire.ParseMoment(a)
		if merr != nil {
			return c.bad("watch rails", merr)
		}
		if serr := see(m); serr != nil {
			return serr
		}
	}
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return c.fail("watch rails", err)
}

// parsed reads the answer to a call, or words the call's error.
func parsed[A, B any](c *Client, operation string, a A, err error, parse func(A) (B, error)) (b B, _ error) {
	if err != nil {
		return b, c.fail(operation, err)
	}
	if b, err = parse(a); err != nil {
		return b, c.bad(operation, err)
	}
	return b, nil
}
