package monitorclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

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
// cannot be parsed.
func (c *Client) bench(ctx context.Context, ask bool) (session.Bench, error) {
	a, err := once(ctx, c.o.Call, c.rpc.GetBench, &pb.GetBenchRequest{Ask: ask})
	if err != nil {
		return session.Bench{}, c.fail("get bench", err)
	}
	// An answer of another major version is not parsed.
	speaks := wire.ParseProtocol(a.Protocol)
	if err := c.checkProtocol(speaks, a.Version); err != nil {
		b := session.Bench{Name: measure.Printable(a.Name), Version: measure.Printable(a.Version), Protocol: speaks}
		return b, fmt.Errorf("get bench: %w", err)
	}
	b, err := wire.ParseBench(a)
	if err != nil {
		return session.Bench{}, c.bad("get bench", err)
	}
	b.Bridged = c.bridge(speaks, a.Version)
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
	q := &pb.WatchRailsRequest{Idle: o.Idle}
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
