package benchservice

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/hostagent/benchwatch"
)

// Relay is what the service needs. *benchwatch.Relay is one; errors wrap its sentinels.
type Relay interface {
	States(ctx context.Context) []benchwatch.State
	State(ctx context.Context, name string) (benchwatch.State, error)
	Watch(ctx context.Context, name string, o benchwatch.Options, see func(benchwatch.News) error) error
}

// Service is BenchService.
type Service struct {
	wattmarkv1.UnimplementedBenchServiceServer
	relay Relay
}

// New returns the service over a relay.
func New(r Relay) *Service { return &Service{relay: r} }

// Register adds the service to a server. Its watches end when the relay's Run does.
func (s *Service) Register(server *grpc.Server) { wattmarkv1.RegisterBenchServiceServer(server, s) }

// ListBenches returns all benches.
func (s *Service) ListBenches(ctx context.Context, _ *wattmarkv1.ListBenchesRequest) (*wattmarkv1.ListBenchesResponse, error) {
	r := &wattmarkv1.ListBenchesResponse{}
	for _, b := range s.relay.States(ctx) {
		r.Benches = append(r.Benches, stateMessage(&b))
	}
	return r, toStatus("list benches", ctx.Err())
}

// ReadBench returns one bench.
func (s *Service) ReadBench(ctx context.Context, q *wattmarkv1.ReadBenchRequest) (*wattmarkv1.ReadBenchResponse, error) {
	b, err := s.relay.State(ctx, q.GetBench())
	if err != nil {
		return nil, toStatus("read bench", err)
	}
	return &wattmarkv1.ReadBenchResponse{State: stateMessage(&b)}, nil
}

// WatchBenches streams news of benches.
func (s *Service) WatchBenches(q *wattmarkv1.WatchBenchesRequest, stream grpc.ServerStreamingServer[wattmarkv1.WatchBenchesResponse]) error {
	o := benchwatch.Options{Idle: q.GetIdle()}
	if e := q.GetEvery(); e != nil {
		if err := e.CheckValid(); err != nil || e.AsDuration() < 0 || e.AsDuration() > time.Hour {
			return status.Errorf(codes.InvalidArgument, "every: %v: want 0 to an hour", e.AsDuration())
		}
		o.Every = e.AsDuration()
	}
	return toStatus("watch benches", s.relay.Watch(stream.Context(), q.GetBench(), o, func(n benchwatch.News) error {
		return stream.Send(newsMessage(n))
	}))
}

// toStatus turns an error into a status. A status stays as it is, nil stays nil.
func toStatus(operation string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, c := range []struct {
		sentinel error
		code     codes.Code
		hint     string
	}{
		{context.Canceled, codes.Canceled, ""},
		{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
		{benchwatch.ErrUnknown, codes.NotFound, ""},
		{benchwatch.ErrStopped, codes.Unavailable, ": watch again when it is back"},
	} {
		if errors.Is(err, c.sentinel) {
			return status.Errorf(c.code, "%s: %v%s", operation, err, c.hint)
		}
	}
	return status.Errorf(codes.Internal, "%s: %v", operation, err)
}
