package monitor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mostSetAside bounds the entries of the spool that GetBench lists.
const mostSetAside = 20

// service is wattmark.v1.MonitorService over an owner. Errors become statuses by the
// table in errors.go.
type service struct {
	pb.UnimplementedMonitorServiceServer
	monitor *Monitor
}

// own returns a capture that the caller may end: the caller's own, or any for an operator.
func (s *service) own(ctx context.Context, id string) (*capture.Capture, error) {
	c, err := s.monitor.Get(id)
	if err != nil {
		return nil, err
	}
	return c, auth.Own(ctx, "capture "+c.ID(), c.Header().Owner, auth.Operator)
}

// signed returns a request whose owner is the authenticated caller. The holder stays as the
// caller wrote it where its user is the caller, and gets the caller's name otherwise.
func signed(ctx context.Context, r session.Request) session.Request {
	caller, known := auth.From(ctx)
	if !known {
		return r
	}
	r.Owner = caller.Name
	switch user, _, _ := strings.Cut(r.Holder, "@"); {
	case user == caller.Name:
	case caller.Role >= auth.Operator && r.Holder != "": // a host measures for its users
		r.Holder += " by " + caller.Name
	default:
		r.Holder = caller.Name
	}
	return r
}

// GetBench describes the bench, with at most mostSetAside entries of the spool.
func (s *service) GetBench(ctx context.Context, q *pb.GetBenchRequest) (*pb.GetBenchResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	about := s.monitor.Bench
	if q.Ask {
		about = s.monitor.Ask
	}
	b := about(ctx)
	b.Version, b.Protocol = s.monitor.cfg.Version, wire.Speaks
	if n := len(b.SetAside); n > mostSetAside {
		more := fmt.Sprintf("and %d more: the log names them", n-mostSetAside+1)
		b.SetAside = append(b.SetAside[:mostSetAside-1:mostSetAside-1], more)
	}
	return wire.Bench(&b), nil
}

// StartCapture waits for the bench and returns once the first scan has arrived.
func (s *service) StartCapture(ctx context.Context, q *pb.StartCaptureRequest) (*pb.StartCaptureResponse, error) {
	req, err := wire.ParseStartRequest(q)
	if err == nil {
		err = s.checkProtocol(q)
	}
	if err != nil {
		return nil, toStatus(err)
	}
	c, err := s.monitor.Start(ctx, signed(ctx, req))
	if err != nil {
		return nil, toStatus(err)
	}
	auth.Note(ctx, "capture_id", c.ID())
	s.monitor.cfg.Log.InfoContext(ctx, "capture started",
		"capture", c.ID(), "holder", wire.Text(q.Holder), "task", wire.Text(q.TaskName))
	h := c.Header()
	return wire.Started(session.Started{
		CaptureID: c.ID(), SampleRate: h.Setup.Timebase.SampleRate(), Instrument: h.Instrument,
		CalibrationID: h.CalibrationID, Started: c.Started(), LeaseUntil: c.LeaseUntil(),
	}), nil
}

// checkProtocol refuses a host of another major protocol version.
func (s *service) checkProtocol(q *pb.StartCaptureRequest) error {
	theirs := wire.ParseProtocol(q.Protocol)
	if wire.Speaks.Fits(theirs) {
		return nil
	}
	older := "the host"
	if theirs.Major > wire.Speaks.Major {
		older = "the monitor"
	}
	version := cmp.Or(q.Version, "of an unknown version")
	return status.Errorf(codes.Unimplemented,
		"the host is wattmark %s and speaks protocol %v, this monitor is wattmark %s and speaks %v: update %s",
		measure.Printable(version), theirs, s.monitor.cfg.Version, wire.Speaks, older)
}

// RenewLease extends the lease of a capture of the caller's.
func (s *service) RenewLease(ctx context.Context, q *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	c, err := s.own(ctx, q.CaptureId)
	if err != nil {
		return nil, toStatus(err)
	}
	until, state := c.Renew()
	return &pb.RenewLeaseResponse{LeaseUntil: wire.Time(until), State: pb.CaptureState(state)}, nil
}

// StopCapture ends a capture of the caller's, and returns when its end is durable.
func (s *service) StopCapture(ctx context.Context, q *pb.StopCaptureRequest) (*pb.StopCaptureResponse, error) {
	c, err := s.own(ctx, q.CaptureId)
	if err != nil {
		return nil, toStatus(err)
	}
	sum, err := c.Stop(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	s.monitor.cfg.Log.InfoContext(ctx, "capture stopped", "capture", c.ID())
	return &pb.StopCaptureResponse{Summary: wire.Summary(sum)}, nil
}

// EndCapture takes the bench from its holder, in the authenticated caller's name where there
// is one.
func (s *service) EndCapture(ctx context.Context, q *pb.EndCaptureRequest) (*pb.EndCaptureResponse, error) {
	by := q.By
	if caller, known := auth.From(ctx); known { // and an operator: auth.Rows
		by = caller.Name
	}
	c, err := s.monitor.End(ctx, q.CaptureId, by, q.Reason)
	if err != nil {
		return nil, toStatus(err)
	}
	sum := c.Summary()
	return &pb.EndCaptureResponse{
		CaptureId: c.ID(), Holder: c.Header().Holder, State: pb.CaptureState(sum.State), Reason: sum.Reason,
	}, nil
}

// ReleaseCapture succeeds for a capture that is gone: hosts repeat it.
func (s *service) ReleaseCapture(
	ctx context.Context, q *pb.ReleaseCaptureRequest,
) (*pb.ReleaseCaptureResponse, error) {
	_, err := s.own(ctx, q.CaptureId)
	if err == nil || errors.Is(err, capture.ErrUnknown) {
		err = s.monitor.Release(q.CaptureId)
	}
	return &pb.ReleaseCaptureResponse{}, toStatus(err)
}

// ForgetChunks succeeds for a capture that is gone.
func (s *service) ForgetChunks(ctx context.Context, q *pb.ForgetChunksRequest) (*pb.ForgetChunksResponse, error) {
	_, err := s.own(ctx, q.CaptureId)
	if err == nil {
		err = s.monitor.Stored(q.CaptureId, q.BeforeChunk)
	}
	if err != nil && !errors.Is(err, capture.ErrUnknown) {
		return nil, toStatus(err)
	}
	return &pb.ForgetChunksResponse{}, nil
}

// ListCaptures lists the captures held, newest first.
func (s *service) ListCaptures(context.Context, *pb.ListCapturesRequest) (*pb.ListCapturesResponse, error) {
	r := &pb.ListCapturesResponse{}
	for _, c := range s.monitor.List() {
		if c.Released { // the reason why it is still there
			c.Reason = strings.TrimPrefix(c.Reason+"; released; it waits until the cluster has it", "; ")
		}
		r.Captures = append(r.Captures, wire.Capture(c))
	}
	return r, nil
}

// ReadCapture streams a capture; see capture.Capture.Read.
func (s *service) ReadCapture(q *pb.ReadCaptureRequest, stream pb.MonitorService_ReadCaptureServer) error {
	c, err := s.monitor.Get(q.CaptureId)
	if err != nil {
		return toStatus(err)
	}
	o := capture.ReadOptions{From: q.FromChunk, Follow: q.Follow, Untrimmed: q.Untrimmed}
	return toStatus(c.Read(stream.Context(), o, receiver{stream}))
}

// receiver sends a capture's stream over gRPC.
type receiver struct {
	stream pb.MonitorService_ReadCaptureServer
}

// Chunk sends a chunk. Its payload is copied: gRPC may look at a message after it was sent.
func (r receiver) Chunk(head chunk.Chunk, payload []byte) error {
	return r.stream.Send(&pb.ReadCaptureResponse{
		Item: &pb.ReadCaptureResponse_Chunk{Chunk: wire.ChunkOf(&head, bytes.Clone(payload))},
	})
}

func (r receiver) Header(h session.Opening) error {
	return r.stream.Send(&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Header{Header: wire.Opening(h)}})
}

func (r receiver) Event(e measure.Event) error {
	return r.stream.Send(&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Event{Event: wire.Event(e)}})
}

func (r receiver) Trailer(t session.Trailer) error {
	return r.stream.Send(&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Trailer{Trailer: wire.Trailer(t)}})
}

// WatchRails streams until the caller or the monitor ends it.
func (s *service) WatchRails(q *pb.WatchRailsRequest, stream pb.MonitorService_WatchRailsServer) error {
	o := session.WatchOptions{Every: 100 * time.Millisecond, Idle: q.Idle, Wave: q.Wave}
	if q.Every != nil {
		if o.Every = q.Every.AsDuration(); q.Every.CheckValid() != nil || o.Every <= 0 {
			return toStatus(fmt.Errorf("%w: every %v: want a positive duration", capture.ErrRequest, o.Every))
		}
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.monitor.stopping, func() { cancel(capture.ErrStopped) })()
	return toStatus(s.monitor.Watch(ctx, o, func(m session.Moment) error { return stream.Send(wire.Moment(m)) }))
}

// statuses maps errors to gRPC codes; the first that fits counts. docs/protocol.md has the
// same table with remedies.
var statuses = []struct {
	err  error
	code codes.Code
}{
	{auth.ErrDenied, codes.PermissionDenied},
	{auth.ErrUnknown, codes.Unauthenticated},
	{capture.ErrBusy, codes.FailedPrecondition},
	{capture.ErrUnknown, codes.NotFound},
	{capture.ErrRequest, codes.InvalidArgument},
	{wire.ErrMessage, codes.InvalidArgument},
	{capture.ErrTransition, codes.FailedPrecondition},
	{capture.ErrNoStart, codes.FailedPrecondition},
	{capture.ErrPastEnd, codes.OutOfRange},
	{spool.ErrForgotten, codes.FailedPrecondition},
	{capture.ErrQuota, codes.ResourceExhausted},
	{syscall.ENOSPC, codes.ResourceExhausted},
	{capture.ErrMended, codes.Unavailable},
	{spool.ErrTorn, codes.DataLoss},
	{chunk.ErrCorrupt, codes.DataLoss},
	{capture.ErrStopped, codes.Unavailable},
	{capture.ErrUnavailable, codes.Unavailable},
	{instrument.ErrDisconnected, codes.Unavailable},
	{instrument.ErrSilent, codes.Unavailable},
	{instrument.ErrIdentity, codes.Unavailable},
	// Last: an instrument that gives no answer in time wraps them, too.
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// toStatus converts an error to a gRPC status; a busy bench adds its holder as a detail.
// A status, and nil, stay as they are.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Internal
	for _, s := range slices.Backward(statuses) { // the first row that fits remains
		if errors.Is(err, s.err) {
			code = s.code
		}
	}
	s := status.New(code, strings.ToValidUTF8(err.Error(), "\uFFFD"))
	if busy, ok := errors.AsType[*capture.BusyError](err); ok {
		detailed, derr := s.WithDetails(&errdetails.PreconditionFailure{
			Violations: []*errdetails.PreconditionFailure_Violation{{
				Type: "BENCH_BUSY", Subject: busy.Holder,
				Description: fmt.Sprintf("capture %s since %s", busy.CaptureID, busy.Since.UTC().Format(time.RFC3339)),
			}},
		})
		if derr == nil {
			s = detailed
		}
	}
	return s.Err()
}
