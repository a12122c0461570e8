package benchservice

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/hostagent/benchwatch"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/monitor"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument"
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
func serve(t *testing.T, cfg benchwatch.Config, list ...*monitorclient.Client) wattmarkv1.BenchServiceClient {
	t.Helper()
	for _, m := range list {
		cfg.Monitors = append(cfg.Monitors, m)
	}
	relay := benchwatch.New(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	New(relay).Register(server)
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
	return wattmarkv1.NewBenchServiceClient(conn)
}

// watcher reads a watch.
type watcher struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[wattmarkv1.WatchBenchesResponse]
	state  *wattmarkv1.BenchState
	moment *wattmarkv1.LiveMoment
}

func watch(t *testing.T, c wattmarkv1.BenchServiceClient, q *wattmarkv1.WatchBenchesRequest) *watcher {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s, err := c.WatchBenches(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	return &watcher{t: t, stream: s, state: &wattmarkv1.BenchState{}, moment: &wattmarkv1.LiveMoment{}}
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
