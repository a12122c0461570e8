package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"wattmark/api/auth"
	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/monitor/capture"
)

// probeTime bounds how long GetBench asks an instrument.
const probeTime = 5 * time.Second

// mostAside bounds how many entries of the spool GetBench names.
const mostAside = 20

// service is wattmark.v1.MonitorService over an owner.
type service struct {
	wattmarkv1.UnimplementedMonitorServiceServer
	monitor *Monitor
	owner   *capture.Owner
	version string
}

func (s *service) GetBench(ctx context.Context, q *wattmarkv1.GetBenchRequest) (*wattmarkv1.GetBenchResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	about := s.owner.Bench
	if q.Ask {
		about = s.owner.Ask
	}
	b := about(ctx)
	r := &wattmarkv1.GetBenchResponse{
		Name: b.Name, Instrument: wire.Instrument(b.Instrument), CalibrationId: b.CalibrationID,
		Holder: b.Holder, HeldSince: wire.Time(b.HeldSince), CaptureId: b.CaptureID, Version: s.version,
		GpuUuid: wire.Text(b.GPU), Protocol: wire.ProtocolMessage(wire.Speaks), Draining: b.Draining,
	}
	if b.Setup != nil {
		r.Setup = wire.Setup(*b.Setup)
	}
	if b.Nominal != nil {
		r.Nominal = wire.Setup(*b.Nominal)
	}
	for _, n := range b.Notes {
		r.Notes = append(r.Notes, wire.Text(n))
	}
	for _, w := range b.Waiting {
		r.Waiting = append(r.Waiting, &wattmarkv1.Waiting{Holder: wire.Text(w.Holder), Since: wire.Time(w.Since)})
	}
	for i, a := range b.SetAside {
		if i == mostAside-1 && len(b.SetAside) > mostAside {
			a = fmt.Sprintf("and %d more: the log names them", len(b.SetAside)-i)
		}
		if i < mostAside {
			r.SetAside = append(r.SetAside, wire.Text(a))
		}
	}
	if b.Err != nil {
		r.Trouble = wire.Text(b.Err.Error())
	}
	return r, nil
}

func (s *service) StartCapture(ctx context.Context, q *wattmarkv1.StartCaptureRequest) (*wattmarkv1.StartCaptureResponse, error) {
	req, err := parseStart(q)
	if err == nil {
		err = s.refuse(q)
	}
	if err != nil {
		return nil, toStatus(err)
	}
	c, err := s.owner.Start(ctx, signed(ctx, req))
	if err != nil {
		return nil, toStatus(err)
	}
	auth.Note(ctx, "capture_id", c.ID())
	h := c.Header()
	s.monitor.cfg.Log.InfoContext(ctx, "capture started", "capture", c.ID(), "holder", wire.Text(q.Holder), "task", wire.Text(q.TaskName))
	return &wattmarkv1.StartCaptureResponse{
		CaptureId: c.ID(), SampleRateHz: float64(h.Setup.Timebase.SampleRate()),
		Instrument: wire.Instrument(h.Instrument), CalibrationId: h.CalibrationID,
		Started: wire.Time(c.Started()), LeaseUntil: wire.Time(c.LeaseUntil()),
	}, nil
}

// refuse turns away a host that speaks another language.
func (s *service) refuse(q *wattmarkv1.StartCaptureRequest) error {
	theirs := wire.ParseProtocol(q.Protocol)
	if wire.Speaks.Fits(theirs) {
		return nil
	}
	older := "the host"
	if theirs.Major > wire.Speaks.Major {
		older = "the monitor"
	}
	version := q.Version
	if version == "" {
		version = "of an unknown version"
	}
	return status.Errorf(codes.Unimplemented, "the host is wattmark %s and speaks protocol %v, this monitor is wattmark %s and speaks %v: update %s",
		measure.Printable(version), theirs, s.version, wire.Speaks, older)
}

func parseStart(q *wattmarkv1.StartCaptureRequest) (capture.Request, error) {
	spec, err := wire.ParseMarkerSpec(q.Marker)
	if err != nil {
		return capture.Request{}, err
	}
	req := capture.Request{Holder: q.Holder, TaskName: q.TaskName, Marker: spec}
	for _, d := range []struct {
		name string
		from *durationpb.Duration
		to   *time.Duration
	}{{"lease", q.Lease, &req.Lease}, {"wait", q.Wait, &req.Wait}} {
		if d.from == nil {
			continue
		}
		if err := d.from.CheckValid(); err != nil {
			return req, fmt.Errorf("%w: %s: %w", capture.ErrRequest, d.name, err)
		}
		*d.to = d.from.AsDuration()
	}
	return req, nil
}

func (s *service) RenewLease(ctx context.Context, q *wattmarkv1.RenewLeaseRequest) (*wattmarkv1.RenewLeaseResponse, error) {
	c, err := s.own(ctx, q.CaptureId)
	if err != nil {
		return nil, toStatus(err)
	}
	until, state := c.Renew()
	return &wattmarkv1.RenewLeaseResponse{LeaseUntil: wire.Time(until), State: wattmarkv1.CaptureState(state)}, nil
}

func (s *service) StopCapture(ctx context.Context, q *wattmarkv1.StopCaptureRequest) (*wattmarkv1.StopCaptureResponse, error) {
	c, err := s.own(ctx, q.CaptureId)
	if err != nil {
		return nil, toStatus(err)
	}
	sum, err := c.Stop(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	s.monitor.cfg.Log.InfoContext(ctx, "capture stopped", "capture", c.ID())
	return &wattmarkv1.StopCaptureResponse{Summary: summary(sum)}, nil
}

func (s *service) ReleaseCapture(ctx context.Context, q *wattmarkv1.ReleaseCaptureRequest) (*wattmarkv1.ReleaseCaptureResponse, error) {
	if _, err := s.own(ctx, q.CaptureId); err != nil && !errors.Is(err, capture.ErrUnknown) { // what is gone is no error
		return nil, toStatus(err)
	}
	if err := s.owner.Release(q.CaptureId); err != nil {
		return nil, toStatus(err)
	}
	return &wattmarkv1.ReleaseCaptureResponse{}, nil
}

func (s *service) ListCaptures(context.Context, *wattmarkv1.ListCapturesRequest) (*wattmarkv1.ListCapturesResponse, error) {
	r := &wattmarkv1.ListCapturesResponse{}
	for _, i := range s.owner.List() {
		r.Captures = append(r.Captures, &wattmarkv1.CaptureInfo{
			CaptureId: i.CaptureID, Holder: i.Holder, TaskName: i.TaskName, Started: wire.Time(i.Started),
			State: wattmarkv1.CaptureState(i.State), Reason: wire.Text(told(i)), SpoolBytes: uint64(i.SpoolBytes),
		})
	}
	return r, nil
}

// told is why a capture is incomplete, and why it is still there.
func told(i capture.Info) string {
	if !i.Released {
		return i.Reason
	}
	const waits = "released; it waits until the cluster has it"
	if i.Reason == "" {
		return waits
	}
	return i.Reason + "; " + waits
}

func (s *service) WatchRails(q *wattmarkv1.WatchRailsRequest, stream grpc.ServerStreamingServer[wattmarkv1.WatchRailsResponse]) error {
	every := 100 * time.Millisecond
	if q.Every != nil {
		if err := q.Every.CheckValid(); err != nil || q.Every.AsDuration() <= 0 {
			return toStatus(fmt.Errorf("%w: every %v: want a positive duration", capture.ErrRequest, q.Every.AsDuration()))
		}
		every = q.Every.AsDuration()
	}
	ctx, cancel := s.untilStopping(stream.Context())
	defer cancel()
	return toStatus(s.owner.Watch(ctx, capture.WatchOptions{Every: every, Idle: q.Idle}, func(m capture.Moment) error { return stream.Send(moment(m)) }))
}

// untilStopping ends a context when the monitor stops.
func (s *service) untilStopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.monitor.stopping:
			cancel(capture.ErrStopped)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
