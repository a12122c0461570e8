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
	"google.golang.org/protobuf/types/known/durationpb"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
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
		return fmt.Errorf("%s: %w: %s at %s; is wattmark monitor running there?", what, ErrUnreachable, text, c.address)
	case codes.NotFound:
		return fmt.Errorf("%s: %w: %s", what, ErrGone, text)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: monitor %s: %w", what, c.address, context.DeadlineExceeded)
	case codes.Canceled:
		return fmt.Errorf("%s: %w", what, context.Canceled)
	}
	return fmt.Errorf("%s: monitor %s: %s", what, c.address, text)
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

// GetBench asks what is measured. It is not repeated: a monitor that is not
// there is best told of at once.
func (c *Client) GetBench(ctx context.Context) (Bench, error) {
	a, err := once(ctx, c.o.Call, c.rpc.GetBench, &wattmarkv1.GetBenchRequest{})
	if err != nil {
		return Bench{}, c.fail("get bench", err)
	}
	// What is not understood is not read either.
	speaks := wire.ParseProtocol(a.Protocol)
	if err := c.refuse(speaks, a.Version); err != nil {
		return Bench{Name: measure.Printable(a.Name), Version: measure.Printable(a.Version), Protocol: speaks}, fmt.Errorf("get bench: %w", err)
	}
	b := Bench{
		Name: a.Name, CalibrationID: a.CalibrationId, Holder: a.Holder, CaptureID: a.CaptureId, Version: a.Version, Trouble: a.Trouble,
		Protocol: speaks, Bridged: c.bridge(speaks, a.Version), Draining: a.Draining,
	}
	if b.GPU, err = gpuUUID(a.GpuUuid); err == nil {
		b.Instrument, err = instrument(a.Instrument)
	}
	if err == nil && a.Setup != nil {
		b.Setup, err = wire.ParseSetup(a.Setup)
	}
	if err == nil && a.Nominal != nil {
		b.Nominal, err = wire.ParseSetup(a.Nominal)
	}
	for _, n := range a.Notes {
		b.Notes = append(b.Notes, measure.Printable(n))
	}
	if err == nil {
		b.HeldSince, err = wire.ParseTime("held_since", a.HeldSince)
	}
	if err != nil {
		return Bench{}, fmt.Errorf("get bench: monitor %s: %w", c.address, err)
	}
	return b, nil
}

// opening is how long an instrument may take to open, beside the wait for the bench.
const opening = 45 * time.Second

// Start takes the bench and starts sampling. It fails with ErrBusy, and the
// holder's name, when somebody else has it.
func (c *Client) Start(ctx context.Context, r StartRequest) (Started, error) {
	q := &wattmarkv1.StartCaptureRequest{
		Holder: r.Holder, TaskName: r.TaskName, Marker: wire.MarkerSpec(r.Marker), Wait: durationpb.New(r.Wait),
		Protocol: wire.ProtocolMessage(wire.Speaks), Version: wire.Text(c.o.Version),
	}
	if r.Lease > 0 {
		q.Lease = durationpb.New(r.Lease)
	}
	a, err := once(ctx, r.Wait+opening, c.rpc.StartCapture, q)
	if status.Code(err) == codes.FailedPrecondition {
		return Started{}, fmt.Errorf("start capture: %w: %s; wait with --wait, or ask the holder", ErrBusy, status.Convert(err).Message())
	}
	if status.Code(err) == codes.Unimplemented {
		return Started{}, fmt.Errorf("start capture: monitor %s: %w: %s", c.address, ErrVersion, status.Convert(err).Message())
	}
	if err != nil {
		return Started{}, c.fail("start capture", err)
	}
	s, err := started(a)
	if err != nil {
		return s, fmt.Errorf("start capture: monitor %s: %w", c.address, err)
	}
	return s, nil
}

// Stop ends sampling and returns what the capture came to. It may be repeated.
func (c *Client) Stop(ctx context.Context, captureID string) (Summary, error) {
	a, err := again(ctx, c, 2*time.Minute, c.rpc.StopCapture, &wattmarkv1.StopCaptureRequest{CaptureId: captureID})
	if err != nil {
		return Summary{}, c.fail("stop capture", err)
	}
	s, err := summary(a.Summary)
	if err != nil {
		return Summary{}, fmt.Errorf("stop capture: monitor %s: %w", c.address, err)
	}
	return s, nil
}

// Release says that the samples are safe here. It may be repeated.
func (c *Client) Release(ctx context.Context, captureID string) error {
	_, err := again(ctx, c, c.o.Call, c.rpc.ReleaseCapture, &wattmarkv1.ReleaseCaptureRequest{CaptureId: captureID})
	return c.fail("release capture", err)
}

// KeepLease renews a capture's lease three times a lease, until ctx ends or
// the capture has ended. It returns nil then, and ErrGone when the monitor no
// longer has the capture. A monitor that is silent is tried again and again.
func (c *Client) KeepLease(ctx context.Context, captureID string, lease time.Duration) error {
	if lease <= 0 {
		lease = 30 * time.Second
	}
	pause := lease / 3
	for {
		if sleep(ctx, pause) != nil {
			return nil
		}
		a, err := once(ctx, min(c.o.Call, lease/3), c.rpc.RenewLease, &wattmarkv1.RenewLeaseRequest{CaptureId: captureID})
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && State(a.State).Ended():
			return nil
		case err == nil:
			pause = lease / 3
		case retriable(err):
			pause = min(c.o.Pause, lease/3)
		default:
			return c.fail("renew lease", err)
		}
	}
}

// Captures lists what the monitor holds.
func (c *Client) Captures(ctx context.Context) ([]Capture, error) {
	a, err := once(ctx, c.o.Call, c.rpc.ListCaptures, &wattmarkv1.ListCapturesRequest{})
	if err != nil {
		return nil, c.fail("list captures", err)
	}
	var out []Capture
	for _, i := range a.Captures {
		at, err := wire.ParseTime("started", i.Started)
		if err != nil {
			return nil, fmt.Errorf("list captures: monitor %s: %w", c.address, err)
		}
		out = append(out, Capture{
			ID: i.CaptureId, Holder: i.Holder, TaskName: i.TaskName, Started: at,
			State: State(i.State), Reason: i.Reason, SpoolBytes: i.SpoolBytes,
		})
	}
	return out, nil
}
