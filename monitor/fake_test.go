package monitor

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// ramp is an instrument on the wall clock whose counts say which scan they are
// of, so that any chunk can be held against what was sampled.
type ramp struct {
	rate  float64
	fails error // of Open
}

func (r *ramp) Open(ctx context.Context) error {
	if r.fails != nil {
		return r.fails
	}
	return ctx.Err()
}
func (r *ramp) Close() error                  { return nil }
func (r *ramp) Identity() instrument.Identity { return instrument.Identity{Kind: "ramp", Serial: "1"} }

func (r *ramp) Inputs() instrument.Inputs {
	if r.fails != nil {
		return instrument.Inputs{}
	}
	return instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e9, TicksPerScan: 1e9 / r.rate},
		Channels: []measure.Channel{{Name: "p", Unit: measure.UnitWatt, Gain: 0.01}, {Name: "q", Unit: measure.UnitWatt, Gain: 0.01}},
	}
}

// countOf is the count of a channel at a scan.
func countOf(channel int, scan uint64) measure.Count {
	return measure.Count((scan*2654435761)>>7%4096) + measure.Count(channel)
}

func (r *ramp) Stream(ctx context.Context, s instrument.Sink) error {
	const every = 5 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	begun := time.Now()
	for next := uint64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		n := int(time.Since(begun).Seconds()*r.rate) - int(next)
		if n <= 0 {
			continue
		}
		b := measure.Block{FirstScan: next, FirstTick: int64(float64(next) * 1e9 / r.rate), Counts: make([][]measure.Count, 2)}
		for c := range b.Counts {
			b.Counts[c] = make([]measure.Count, n)
			for i := range n {
				b.Counts[c][i] = countOf(c, next+uint64(i))
			}
		}
		if err := s.Block(&b); err != nil {
			return fmt.Errorf("ramp: %w", err)
		}
		next += uint64(n)
	}
}

func rails(in instrument.Inputs) (measure.Setup, error) {
	return measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Rails: []measure.Rail{
		{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1},
		{Name: "rest", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 1, Y: -1},
	}}, nil
}

func rampConfig(dir string) Config {
	return Config{Bench: Bench{Name: "ramp bench", Instrument: &ramp{rate: 50e3}, Setup: rails}, Dir: dir, Version: "test"}
}

// serve runs a monitor on a real socket until the test or stop ends it.
func serve(t *testing.T, cfg Config) (client pb.MonitorServiceClient, conn *grpc.ClientConn, stop func()) {
	t.Helper()
	_, client, conn, stop = run(t, cfg)
	return client, conn, stop
}

// run is serve for who wants the monitor too.
func run(t *testing.T, cfg Config) (m *Monitor, client pb.MonitorServiceClient, conn *grpc.ClientConn, stop func()) {
	t.Helper()
	address, m, stop := startUntil(t, cfg)
	client, conn = dial(t, address)
	return m, client, conn, stop
}

// start runs a monitor on a real socket until the test ends.
func start(t testing.TB, cfg Config) (address string, m *Monitor) {
	t.Helper()
	address, m, _ = startUntil(t, cfg)
	return address, m
}

func startUntil(t testing.TB, cfg Config) (address string, m *Monitor, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listeners = []net.Listener{l}
	if m, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), m, stop
}

func dial(t *testing.T, addr string) (pb.MonitorServiceClient, *grpc.ClientConn) {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewMonitorServiceClient(conn), conn
}

// received is what a stream brought.
type received struct {
	header  *pb.Header
	chunks  []*pb.Chunk
	trailer *pb.Trailer
}

// read reads a stream to its end, or until enough chunks came.
func read(t *testing.T, c pb.MonitorServiceClient, q *pb.ReadCaptureRequest, enough int) (r received, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := c.ReadCapture(ctx, q)
	if err != nil {
		return r, err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return r, err
		}
		switch {
		case m.GetHeader() != nil:
			r.header = m.GetHeader()
		case m.GetChunk() != nil:
			r.chunks = append(r.chunks, m.GetChunk())
			if enough > 0 && len(r.chunks) == enough {
				return r, nil
			}
		case m.GetTrailer() != nil:
			r.trailer = m.GetTrailer()
			return r, nil
		}
	}
}

// check decodes chunks and holds every count against what was sampled.
func (r received) check(t *testing.T, firstChunk uint64) (scans uint64) {
	t.Helper()
	setup, err := wire.ParseSetup(r.header.Setup)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range r.chunks {
		if p.ChunkNo != firstChunk+uint64(i) {
			t.Fatalf("chunk %d where %d is due", p.ChunkNo, firstChunk+uint64(i))
		}
		var c chunk.Chunk
		if err := wire.ParseChunk(p, 2, &c); err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(setup.Timebase, 2); err != nil {
			t.Fatal(err)
		}
		var b measure.Block
		if err := chunk.Decode(&c, setup.Timebase, 2, &b); err != nil {
			t.Fatal(err)
		}
		for ch := range b.Counts {
			for i, v := range b.Counts[ch] {
				if want := countOf(ch, c.FirstScan+uint64(i)); v != want {
					t.Fatalf("chunk %d, channel %d, scan %d: %d, want %d", c.No, ch, c.FirstScan+uint64(i), v, want)
				}
			}
		}
		scans += uint64(c.Scans)
	}
	return scans
}

// TestMain runs a monitor instead of the tests when it is asked to: the child
// that the kill tests kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv("WATTMARK_TEST_SPOOL"); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	cfg := rampConfig(dir)
	cfg.Listeners = []net.Listener{l}
	cfg.Tune.FlushEvery = 20 * time.Millisecond
	m, err := New(cfg)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return m.Run(context.Background())
}
