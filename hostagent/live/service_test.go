package live

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/store"
)

// patience bounds waits: only what hangs runs into it.
const patience = time.Minute

// soft is a monitor with an emulated board, on a loopback socket.
type soft struct {
	t       *testing.T
	address string
	spool   string
	stop    func()
}

func newSoft(t *testing.T) *soft {
	t.Helper()
	s := &soft{t: t, address: "127.0.0.1:0", spool: t.TempDir()}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// start begins to serve, again at the address that it had.
func (s *soft) start() {
	s.t.Helper()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	model, err := board.New(board.Config{Seed: 9})
	must(err)
	source, err := meter.NewSampler(model, meter.Config{Seed: 9, Rate: 20e3})
	must(err)
	l, err := net.Listen("tcp", s.address)
	must(err)
	s.address = l.Addr().String()
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{
			Name: "soft", Instrument: meter.NewInstrument("emulated", source, pace.Real(time.Now())),
			Setup: func(instrument.Inputs) (measure.Setup, error) { return source.Setup(), nil },
		},
		Dir: s.spool, Listeners: []net.Listener{l}, Version: "test",
	})
	must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			s.t.Error(err)
		}
		s.stop = func() {}
	}
}

// client talks to the monitor itself.
func (s *soft) client() *monitorclient.Client {
	s.t.Helper()
	c, err := monitorclient.Dial(s.address, monitorclient.Options{Version: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// serve serves BenchService for monitors on a loopback socket.
func serve(t *testing.T, cfg Config, list ...*monitorclient.Client) pb.BenchServiceClient {
	t.Helper()
	for _, m := range list {
		cfg.Monitors = append(cfg.Monitors, m)
	}
	relay := New(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	relay.Register(server)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 2)
	go func() { ran <- relay.Run(ctx) }()
	go func() { ran <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		server.Stop()
		if err := errors.Join(<-ran, <-ran); err != nil {
			t.Error(err)
		}
	})
	return pb.NewBenchServiceClient(conn)
}

// watcher reads a watch.
type watcher struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[pb.WatchBenchesResponse]
	state  *pb.BenchState
	moment *pb.LiveMoment
}

func watchRPC(t *testing.T, c pb.BenchServiceClient, q *pb.WatchBenchesRequest) *watcher {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s, err := c.WatchBenches(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	return &watcher{t: t, stream: s, state: &pb.BenchState{}, moment: &pb.LiveMoment{}}
}

// until reads news until what was told fits.
func (w *watcher) until(what string, fits func() bool) {
	w.t.Helper()
	for !fits() {
		n, err := w.stream.Recv()
		if err != nil {
			w.t.Fatalf("%s: %v; told last: %v", what, err, w.state)
		}
		if n.State != nil {
			w.state = n.State
		}
		if n.Moment != nil {
			w.moment = n.Moment
		}
	}
}

const (
	present = pb.BenchReach_BENCH_REACH_PRESENT
	away    = pb.BenchReach_BENCH_REACH_AWAY
)

// A bench of an emulated board is followed from free over held to free again: its
// watts, who has it, who waits, and for which task.
func TestFollowsABench(t *testing.T) {
	t.Parallel()
	m := newSoft(t)
	host := m.client()
	cfg := Config{Poll: 50 * time.Millisecond, TaskOf: func(context.Context, string) (store.TaskID, error) { return 42, nil }}
	c := serve(t, cfg, m.client())
	w := watchRPC(t, c, &pb.WatchBenchesRequest{Idle: true})
	w.until("a free bench", func() bool { return w.state.Reach == present && w.moment.Scans > 0 })
	if w.state.Bench != m.address || w.state.Name != "soft" || w.state.Holder != "" || len(w.state.Rails) < 3 || w.state.SampleRateHz != 20e3 || w.state.CalibrationId == "" {
		t.Errorf("%v", w.state)
	}
	var sum float64
	for _, r := range w.moment.Rails {
		sum += r.PowerW
	}
	if w.moment.CaptureId != "" || w.moment.TotalW < 5 || math.Abs(sum-w.moment.TotalW) > 1e-9 || w.moment.PeakW < w.moment.TotalW {
		t.Errorf("%v", w.moment)
	}
	s, err := host.Start(t.Context(), session.Request{Holder: "ada@lab", TaskName: "gemm"})
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan session.Started, 1)
	go func() {
		n, err := host.Start(t.Context(), session.Request{Holder: "bob@lab", TaskName: "axpy", Wait: patience})
		if err != nil {
			t.Error(err)
		}
		next <- n
	}()
	w.until("held", func() bool {
		return w.state.CaptureId == s.CaptureID && len(w.state.Waiting) == 1 && w.moment.CaptureId == s.CaptureID
	})
	if x := w.state; x.Holder != "ada@lab" || x.TaskName != "gemm" || x.TaskId != 42 || x.HeldSince == nil || x.Waiting[0].Holder != "bob@lab" || len(x.Captures) != 1 {
		t.Errorf("%v", x)
	}
	end := func(id string) {
		t.Helper()
		if _, err := host.Stop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := host.Release(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	end(s.CaptureID)
	n := <-next
	w.until("the next in line", func() bool { return w.state.Holder == "bob@lab" && len(w.state.Waiting) == 0 })
	end(n.CaptureID)
	// Between the stop and the release the capture is seen complete, by those who look then.
	w.until("free again", func() bool {
		x := w.state.Last.GetCapture()
		return w.state.Holder == "" && x.GetCaptureId() == n.CaptureID && x.GetState() == pb.CaptureState_CAPTURE_STATE_RELEASED
	})
	if x := w.state.Last; x.TaskId != 42 {
		t.Errorf("%v", x)
	}
	w.until("sampled on", func() bool { return w.moment.CaptureId == "" })
}

// A monitor that goes away is told of with the reason, beside those that are there; it
// comes back by itself.
func TestMonitorGoesAndComesBack(t *testing.T) {
	t.Parallel()
	m := newSoft(t)
	c := serve(t, Config{Poll: 50 * time.Millisecond}, m.client())
	w := watchRPC(t, c, &pb.WatchBenchesRequest{Bench: m.address, Idle: true})
	w.until("there", func() bool { return w.state.Reach == present && w.moment.Scans > 0 })
	m.stop()
	w.until("away", func() bool { return w.state.Reach == away })
	if x := w.state; !strings.Contains(x.Away, "is wattmark monitor running there") || x.Name != "soft" || x.Since == nil {
		t.Errorf("%v", x)
	}
	list, err := c.ListBenches(t.Context(), &pb.ListBenchesRequest{})
	if err != nil || len(list.Benches) != 1 || list.Benches[0].Reach != away {
		t.Errorf("%v, %v", list, err)
	}
	m.start()
	w.moment = &pb.LiveMoment{}
	w.until("back", func() bool { return w.state.Reach == present && w.state.Away == "" && w.moment.Scans > 0 })
	one, err := c.ReadBench(t.Context(), &pb.ReadBenchRequest{Bench: "soft"})
	if err != nil || one.State.Bench != m.address {
		t.Errorf("%v, %v", one, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	nobody, err := monitorclient.Dial("127.0.0.1:1", monitorclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	c := serve(t, Config{}, nobody)
	if _, err := c.ReadBench(t.Context(), &pb.ReadBenchRequest{Bench: "rack"}); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
	for q, want := range map[*pb.WatchBenchesRequest]codes.Code{
		{Bench: "rack"}:                                 codes.NotFound,
		{Every: durationpb.New(-time.Second)}:           codes.InvalidArgument,
		{Every: durationpb.New(2 * time.Hour)}:          codes.InvalidArgument,
		{Every: &durationpb.Duration{Nanos: 2e9}}:       codes.InvalidArgument,
		{Every: &durationpb.Duration{Seconds: 1 << 62}}: codes.InvalidArgument,
	} {
		s, err := c.WatchBenches(t.Context(), q)
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("%v: %v, want %v", q, err, want)
		}
	}
}

// Moments of another bench file are no part of the history of this one.
func TestHistoryIsOfTheSameRails(t *testing.T) {
	at := time.Unix(100, 5e8)
	moment := func(rail string, w measure.Watt) Moment {
		return Moment{At: at, Moment: session.Moment{Total: w, Rails: []session.RailValue{{Rail: rail, Power: w}}}}
	}
	h := historyMessage([]Moment{moment("old", 1), moment("aux", 2), moment("aux", 3)})
	if len(h.AtS) != 2 || h.AtS[0] != 100.5 || h.TotalW[1] != 3 || len(h.Rails) != 1 || h.Rails[0].Rail != "aux" || h.Rails[0].PowerW[0] != 2 {
		t.Errorf("%v", h)
	}
}
