package monitorclient

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
)

// GetBench asks what is measured. It is not repeated: a monitor that is not
// there is best told of at once.
func (c *Client) GetBench(ctx context.Context) (Bench, error) { return c.bench(ctx, false) }

// AskBench is GetBench after the monitor has asked its instrument, where the bench is
// free: Trouble is as of now. It takes as long as the instrument does, within 5 s. A
// monitor of an earlier version answers from memory.
func (c *Client) AskBench(ctx context.Context) (Bench, error) { return c.bench(ctx, true) }

func (c *Client) bench(ctx context.Context, ask bool) (Bench, error) {
	a, err := once(ctx, c.o.Call, c.rpc.GetBench, &wattmarkv1.GetBenchRequest{Ask: ask})
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
	for _, s := range a.SetAside {
		b.SetAside = append(b.SetAside, measure.Printable(s))
	}
	for _, w := range a.Waiting {
		// A time that cannot be is none: who waits is worth telling all the same.
		since, _ := wire.ParseTime("since", w.Since)
		b.Waiting = append(b.Waiting, Waiting{Holder: measure.Printable(w.Holder), Since: since})
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
		return Started{}, fmt.Errorf("start capture: %w: %s", ErrBusy, strings.TrimPrefix(status.Convert(err).Message(), ErrBusy.Error()+": "))
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

// End takes the bench from whoever has it, or ends a capture by name: it is
// INCOMPLETE then, with who did it and why. It returns the capture, its holder and
// the reason as it is now.
func (c *Client) End(ctx context.Context, captureID, by, why string) (id, holder, reason string, err error) {
	a, err := once(ctx, c.o.Call, c.rpc.EndCapture, &wattmarkv1.EndCaptureRequest{CaptureId: captureID, By: by, Reason: why})
	return a.GetCaptureId(), a.GetHolder(), a.GetReason(), c.fail("end capture", err)
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
