package monitorclient

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

var testSetup = measure.Setup{
	Timebase: measure.Timebase{TickHz: 1e9, TicksPerScan: 1e6},
	Channels: []measure.Channel{
		{Name: "i", Unit: measure.UnitAmpere, Gain: 1e-3}, {Name: "v", Unit: measure.UnitVolt, Gain: 1e-3},
	},
	Rails: []measure.Rail{{Name: "aux", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}},
}

// makeChunks codes n chunks of per scans.
func makeChunks(t *testing.T, n, per int) []*chunk.Chunk {
	t.Helper()
	e, err := chunk.NewEncoder(testSetup.Timebase, 2, per)
	if err != nil {
		t.Fatal(err)
	}
	var out []*chunk.Chunk
	for no := range n {
		b := measure.Block{FirstScan: uint64(no * per), FirstTick: int64(no*per) * 1e6, Counts: make([][]measure.Count, 2)}
		for i := range per {
			b.Counts[0] = append(b.Counts[0], measure.Count(1000+no+i%7))
			b.Counts[1] = append(b.Counts[1], measure.Count(12000+i%3))
		}
		for b.Scans() > 0 {
			k, err := e.Append(&b)
			if err != nil {
				t.Fatal(err)
			}
			b = b.Slice(testSetup.Timebase, k, b.Scans())
		}
		out = append(out, e.Flush(uint64(no)).Clone())
	}
	return out
}

// server is a monitor that does what a test tells it.
type server struct {
	pb.UnimplementedMonitorServiceServer
	mu     sync.Mutex
	chunks []*chunk.Chunk
	first  uint64 // of the trimmed stream
	events map[uint64]measure.Event
	// breaks ends the n-th stream (from 0) with an error after so many chunks.
	breaks map[int]int
	// spoil changes a chunk on its way.
	spoil   func(*pb.Chunk)
	noEnd   bool // no trailer: the capture still runs
	asked   []*pb.ReadCaptureRequest
	calls   map[string]int
	answer  func(method string, call int) error
	renewed pb.CaptureState
	bench   *pb.GetBenchResponse
}

func (s *server) enter(method string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[method]++
	if s.answer != nil {
		return s.answer(method, s.calls[method])
	}
	return nil
}

func (s *server) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

func (s *server) GetBench(context.Context, *pb.GetBenchRequest) (*pb.GetBenchResponse, error) {
	return s.bench, s.enter("GetBench")
}

func (s *server) StartCapture(_ context.Context, q *pb.StartCaptureRequest) (*pb.StartCaptureResponse, error) {
	return &pb.StartCaptureResponse{
		CaptureId: "c-" + q.TaskName, SampleRateHz: 1000, Instrument: &pb.Instrument{Kind: "fake"},
		CalibrationId: q.Marker.GetCode().String(), Started: wire.Time(time.Unix(1000, 0)), LeaseUntil: wire.Time(time.Unix(1000, 0).Add(q.Lease.AsDuration())),
	}, s.enter("Start")
}

func (s *server) StopCapture(context.Context, *pb.StopCaptureRequest) (*pb.StopCaptureResponse, error) {
	return &pb.StopCaptureResponse{Summary: s.summary()}, s.enter("Stop")
}

func (s *server) ReleaseCapture(context.Context, *pb.ReleaseCaptureRequest) (*pb.ReleaseCaptureResponse, error) {
	return &pb.ReleaseCaptureResponse{}, s.enter("Release")
}

func (s *server) RenewLease(context.Context, *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	err := s.enter("Renew")
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.RenewLeaseResponse{State: s.renewed}, err
}

func (s *server) ListCaptures(context.Context, *pb.ListCapturesRequest) (*pb.ListCapturesResponse, error) {
	return &pb.ListCapturesResponse{Captures: []*pb.CaptureInfo{{
		CaptureId: "c1", Holder: "lab@host", TaskName: "gemm", Started: wire.Time(time.Unix(5, 0)),
		State: pb.CaptureState_CAPTURE_STATE_INCOMPLETE, Reason: "unplugged", SpoolBytes: 42,
	}}}, s.enter("List")
}

func (s *server) summary() *pb.Summary {
	return &pb.Summary{
		State: pb.CaptureState_CAPTURE_STATE_COMPLETE, Scans: 100, ScansLost: 3, Gaps: 1, OverRange: 2,
		Chunks: uint64(len(s.chunks)), FirstChunk: s.first, EndChunk: uint64(len(s.chunks)), EndS: 0.1,
		Window: wire.Window(&measure.Window{From: 0.25, To: 0.5}), NoWindowReason: "",
	}
}

func (s *server) ReadCapture(q *pb.ReadCaptureRequest, stream grpc.ServerStreamingServer[pb.ReadCaptureResponse]) error {
	if err := s.enter("Read"); err != nil {
		return err
	}
	s.mu.Lock()
	nth := len(s.asked)
	s.asked = append(s.asked, q)
	s.mu.Unlock()
	from := max(q.FromChunk, s.first)
	err := stream.Send(&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Header{Header: &pb.Header{
		CaptureId: q.CaptureId, Setup: wire.Setup(testSetup), Instrument: &pb.Instrument{Kind: "fake", Model: "M"},
		CalibrationId: "cal", Started: wire.Time(time.Unix(7, 0)), FirstChunk: from, Bench: "desk",
	}}})
	if err != nil {
		return err
	}
	limit, breaks := s.breaks[nth]
	for i, c := range s.chunks[from:] {
		if e, ok := s.events[c.No]; ok {
			if err := stream.Send(&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Event{Event: wire.Event(e)}}); err != nil {
				return err
			}
		}
		if breaks && i == limit {
			return status.Error(codes.Unavailable, "connection was cut by the test")
		}
		p := wire.Chunk(c)
		if s.spoil != nil {
			s.spoil(p)
		}
		if err := stream.Send(&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Chunk{Chunk: p}}); err != nil {
			return err
		}
	}
	if s.noEnd {
		return nil
	}
	return stream.Send(&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Trailer{Trailer: s.trailer()}})
}

func (s *server) trailer() *pb.Trailer {
	t := &pb.Trailer{Summary: s.summary()}
	for _, c := range s.chunks[s.first:] {
		t.Chunks++
		t.Scans += uint64(c.Scans)
		t.Crc32C = crc32.Update(t.Crc32C, crc32.MakeTable(crc32.Castagnoli), binary.LittleEndian.AppendUint32(nil, c.CRC))
	}
	return t
}

// serve puts a monitor on a TCP port and dials it.
func serve(t *testing.T, s *server, o Options) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(wire.ServerOptions()...)
	pb.RegisterMonitorServiceServer(g, s)
	go g.Serve(l)
	t.Cleanup(g.Stop)
	return dial(t, l.Addr().String(), o)
}

func dial(t *testing.T, address string, o Options) *Client {
	t.Helper()
	if o.Pause == 0 {
		o.Pause = time.Millisecond
	}
	c, err := Dial(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// keeper is a sink that copies what it gets.
type keeper struct {
	headers []store.Header
	firsts  []uint64
	chunks  []*chunk.Chunk
	events  map[uint64]measure.Event // by the chunk that they precede
	pending []measure.Event
	fail    error
}

func (k *keeper) Header(h store.Header, first uint64) error {
	k.headers, k.firsts = append(k.headers, h), append(k.firsts, first)
	return nil
}

func (k *keeper) Chunk(c *chunk.Chunk) error {
	if k.fail != nil {
		return k.fail
	}
	k.chunks = append(k.chunks, c.Clone())
	for _, e := range k.pending {
		if k.events == nil {
			k.events = map[uint64]measure.Event{}
		}
		k.events[c.No] = e
	}
	k.pending = nil
	return nil
}

func (k *keeper) Event(e measure.Event) error {
	k.pending = append(k.pending, e)
	return nil
}
