package live

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure/session"
)

// Service is wattmark.v1.BenchService over a relay.
type Service struct {
	pb.UnimplementedBenchServiceServer
	relay *Relay
}

// NewService returns the service over a relay.
func NewService(r *Relay) *Service { return &Service{relay: r} }

// Register adds the service to a server. Its watches end when the relay's Run does.
func (s *Service) Register(server *grpc.Server) { pb.RegisterBenchServiceServer(server, s) }

// ListBenches returns all benches.
func (s *Service) ListBenches(ctx context.Context, _ *pb.ListBenchesRequest) (*pb.ListBenchesResponse, error) {
	r := &pb.ListBenchesResponse{}
	for _, b := range s.relay.States(ctx) {
		r.Benches = append(r.Benches, stateMessage(&b))
	}
	return r, toStatus("list benches", ctx.Err())
}

// ReadBench returns one bench.
func (s *Service) ReadBench(ctx context.Context, q *pb.ReadBenchRequest) (*pb.ReadBenchResponse, error) {
	b, err := s.relay.State(ctx, q.GetBench())
	if err != nil {
		return nil, toStatus("read bench", err)
	}
	return &pb.ReadBenchResponse{State: stateMessage(&b)}, nil
}

// WatchBenches streams news of benches until the caller or the relay ends it.
func (s *Service) WatchBenches(
	q *pb.WatchBenchesRequest, stream grpc.ServerStreamingServer[pb.WatchBenchesResponse],
) error {
	o := Options{Idle: q.GetIdle()}
	if e := q.GetEvery(); e != nil {
		if o.Every = e.AsDuration(); e.CheckValid() != nil || o.Every < 0 || o.Every > time.Hour {
			return status.Errorf(codes.InvalidArgument, "every: %v: want 0 to an hour", o.Every)
		}
	}
	return toStatus("watch benches", s.relay.Watch(stream.Context(), q.GetBench(), o, func(n News) error {
		return stream.Send(newsMessage(n))
	}))
}

// toStatus turns an error of an operation into a status by outcomes.
func toStatus(operation string, err error) error { return wire.Status(operation, err, outcomes) }

// stateMessage converts a bench to its message.
func stateMessage(s *State) *pb.BenchState {
	b := &s.Bench
	m := &pb.BenchState{
		Bench: wire.Text(s.Address), Reach: pb.BenchReach(s.Reach), Since: wire.Time(s.Since),
		Away: wire.Text(s.Why), Trouble: wire.Text(b.Trouble),
		Name: wire.Text(b.Name), Instrument: wire.Instrument(b.Instrument), GpuUuid: wire.Text(b.GPU),
		Version: wire.Text(b.Version), Bridged: wire.Text(b.Bridged), Draining: b.Draining,
		CalibrationId: wire.Text(b.CalibrationID), Notes: wire.Each(b.Notes, wire.Text), Waiting: wire.Waiting(b.Waiting),
		Holder: wire.Text(b.Holder), HeldSince: wire.Time(b.HeldSince), CaptureId: wire.Text(b.CaptureID),
	}
	if b.Protocol != (session.Protocol{}) {
		m.Protocol = b.Protocol.String()
	}
	if m.Trouble == "" && s.Reach != Away { // Away includes it
		m.Trouble = wire.Text(s.Unwatched)
	}
	if b.Known() {
		p := wire.Setup(b.Setup)
		m.Records, m.SampleRateHz = p.Records, float64(b.Setup.Timebase.SampleRate())
		for _, r := range p.Rails {
			m.Rails = append(m.Rails, wire.Text(r.Name))
		}
		m.Missing = wire.Each(p.Missing, wire.Text)
	}
	for _, c := range s.Captures {
		m.Captures = append(m.Captures, captureMessage(c))
	}
	if c, ok := s.Holding(); ok {
		m.TaskName, m.TaskId = wire.Text(c.TaskName), int64(c.Task)
	}
	if s.Last.ID != "" {
		m.Last = captureMessage(s.Last)
	}
	return m
}

// captureMessage converts a capture with its task.
func captureMessage(c Capture) *pb.BenchCapture {
	return &pb.BenchCapture{TaskId: int64(c.Task), Capture: wire.Capture(c.Capture)}
}

// newsMessage converts news to their message.
func newsMessage(n News) *pb.WatchBenchesResponse {
	p := &pb.WatchBenchesResponse{Bench: wire.Text(n.Address)}
	if n.State != nil {
		p.State = stateMessage(n.State)
	}
	if m := n.Moment; m != nil {
		p.Moment = &pb.LiveMoment{
			At: wire.Time(m.At), CaptureId: wire.Text(m.CaptureID), TS: float64(m.T),
			Rails: wire.RailValues(m.Rails), TotalW: float64(m.Total), PeakW: float64(m.Peak), Merged: uint32(m.Merged),
			Dropped: m.Dropped, SampleRateHz: float64(m.Rate),
			Scans: m.Scans, Lost: m.Lost, Gaps: m.Gaps, OverRange: m.OverRange,
		}
	}
	if n.History != nil {
		p.History = historyMessage(n.History)
	}
	return p
}

// historyMessage converts moments to columns, in seconds since 1970 and watts. The rails
// are those of the newest moment; older ones of other rails, of another bench file, are
// left out.
func historyMessage(list []Moment) *pb.LiveHistory {
	h := &pb.LiveHistory{}
	if len(list) == 0 {
		return h
	}
	rails := list[len(list)-1].Rails
	for _, r := range rails {
		h.Rails = append(h.Rails, &pb.RailHistory{Rail: wire.Text(r.Rail)})
	}
	for i := range list {
		m := &list[i]
		if !sameRails(m.Rails, rails) {
			continue
		}
		h.AtS = append(h.AtS, float64(m.At.UnixNano())/1e9)
		h.TotalW = append(h.TotalW, float64(m.Total))
		for j, r := range m.Rails {
			h.Rails[j].PowerW = append(h.Rails[j].PowerW, float64(r.Power))
		}
	}
	return h
}

// outcomes are the codes of the errors of calls.
var outcomes = []wire.Outcome{
	{context.Canceled, codes.Canceled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
	{ErrUnknown, codes.NotFound, ""},
	{ErrStopped, codes.Unavailable, "watch again when it is back"},
}
