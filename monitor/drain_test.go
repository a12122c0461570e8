package monitor

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// stopping is a monitor that a test stops.
type stopping struct {
	pb.MonitorServiceClient
	m    *Monitor
	end  context.CancelFunc
	done chan error
}

func serveDrained(t *testing.T, cfg Config) *stopping {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listeners = []net.Listener{l}
	s := &stopping{done: make(chan error, 1)}
	if s.m, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.end = cancel
	t.Cleanup(cancel)
	go func() { s.done <- s.m.Run(ctx) }()
	s.MonitorServiceClient, _ = dial(t, l.Addr().String())
	return s
}

func (s *stopping) start(t *testing.T) string {
	t.Helper()
	a, err := s.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab", Lease: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return a.CaptureId
}

// awaitDraining returns once the monitor takes no more captures.
func (s *stopping) awaitDraining(t *testing.T) {
	t.Helper()
	for {
		b, err := s.GetBench(t.Context(), &pb.GetBenchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if b.Draining {
			return
		}
	}
}

func TestDrainLetsACaptureEnd(t *testing.T) {
	cfg := rampConfig(t.TempDir())
	cfg.Drain = time.Hour
	s := serveDrained(t, cfg)
	id := s.start(t)
	waited := make(chan error, 1)
	go func() {
		_, err := s.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "bob@lab", Wait: durationpb.New(time.Hour)})
		waited <- err
	}()
	s.end()
	s.awaitDraining(t)
	if err := <-waited; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no new captures") {
		t.Errorf("who waited was told %v", err)
	}
	if _, err := s.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "eve@lab"}); status.Code(err) != codes.Unavailable {
		t.Errorf("who came was told %v", err)
	}
	a, err := s.StopCapture(t.Context(), &pb.StopCaptureRequest{CaptureId: id})
	if err != nil || a.Summary.State != pb.CaptureState_CAPTURE_STATE_COMPLETE {
		t.Fatalf("%v, %v", a, err)
	}
	// It is still there to be fetched, and the monitor goes once it was.
	got, err := read(t, s, &pb.ReadCaptureRequest{CaptureId: id}, 0)
	if err != nil || got.check(t, 0) != a.Summary.Scans {
		t.Errorf("%v", err)
	}
	if _, err := s.ReleaseCapture(t.Context(), &pb.ReleaseCaptureRequest{CaptureId: id}); err != nil {
		t.Error(err)
	}
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

func TestDrainEndsWithAReason(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit time.Duration
		hurry bool
		want  string
	}{
		{"the limit passed", 20 * time.Millisecond, false, "had not ended 20ms after it was asked to"},
		{"hurried", time.Hour, true, "stopped at once"},
		{"no limit", 0, false, "the monitor was stopped;"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := rampConfig(dir)
			cfg.Drain = tc.limit
			s := serveDrained(t, cfg)
			id := s.start(t)
			s.end()
			if tc.hurry {
				s.m.Hurry()
			}
			if err := <-s.done; err != nil {
				t.Fatal(err)
			}
			// What was sampled is there when the monitor is back, with the reason.
			again, _, _ := serve(t, rampConfig(dir))
			l, err := again.ListCaptures(t.Context(), &pb.ListCapturesRequest{})
			if err != nil || len(l.Captures) != 1 || l.Captures[0].CaptureId != id || !strings.Contains(l.Captures[0].Reason, tc.want) {
				t.Errorf("%v, %v", l, err)
			}
		})
	}
}

func TestExpireDropsWhatNobodyFetched(t *testing.T) {
	s := serveDrained(t, rampConfig(t.TempDir()))
	old := s.start(t)
	if _, err := s.StopCapture(t.Context(), &pb.StopCaptureRequest{CaptureId: old}); err != nil {
		t.Fatal(err)
	}
	running := s.start(t)
	_, _ = s.m.Expire(time.Hour)
	held := func() (ids []string) {
		for _, i := range s.m.Owner.List() {
			ids = append(ids, i.ID)
		}
		return ids
	}
	if len(held()) != 2 {
		t.Errorf("young captures were dropped: %v", held())
	}
	_, _ = s.m.Expire(0)
	if h := held(); len(h) != 1 || h[0] != running {
		t.Errorf("held %v, want only %s, which runs", h, running)
	}
}

// A capture that runs keeps its rails; the next one has the new ones.
func TestRebind(t *testing.T) {
	s := serveDrained(t, rampConfig(t.TempDir()))
	first := s.start(t)
	err := s.m.Rebind(Bench{Setup: func(in instrument.Inputs) (measure.Setup, error) {
		u, err := rails(in)
		u.Rails[0].Name = "renamed"
		return u, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	names := func(id string) string {
		if _, err := s.StopCapture(t.Context(), &pb.StopCaptureRequest{CaptureId: id}); err != nil {
			t.Fatal(err)
		}
		got, err := read(t, s, &pb.ReadCaptureRequest{CaptureId: id}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return got.header.Setup.Rails[0].Name
	}
	if n := names(first); n != "gpu" {
		t.Errorf("the capture that ran has rail %q", n)
	}
	if n := names(s.start(t)); n != "renamed" {
		t.Errorf("the next capture has rail %q", n)
	}
	// What does not fit the instrument is refused, and the bench stays as it is.
	err = s.m.Rebind(Bench{Setup: func(instrument.Inputs) (measure.Setup, error) {
		return measure.Setup{}, errors.New("no such channel")
	}})
	if !errors.Is(err, capture.ErrMisfit) || !strings.Contains(err.Error(), "no such channel") {
		t.Errorf("%v", err)
	}
	b, err := s.GetBench(t.Context(), &pb.GetBenchRequest{Ask: true})
	if err != nil || b.Trouble != "" || b.Setup.Rails[0].Name != "renamed" {
		t.Errorf("%v, %v", b, err)
	}
}
