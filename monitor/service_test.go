package monitor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
)

func TestMeasurementOverGRPC(t *testing.T) {
	m, client, _, stop := run(t, rampConfig(t.TempDir()))
	ctx := t.Context()
	bench, err := client.GetBench(ctx, &pb.GetBenchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if bench.Name != "ramp bench" || bench.Version != "test" || bench.Instrument.Kind != "ramp" || bench.Trouble != "" ||
		len(bench.Setup.GetChannels()) != 2 || len(bench.CalibrationId) != 16 || bench.Holder != "" {
		t.Errorf("bench %v", bench)
	}
	started, err := client.StartCapture(ctx, &pb.StartCaptureRequest{
		Holder: "ada@lab", TaskName: "gemm", Marker: wire.MarkerSpec(marker.FastProfile(50e3, 1)), Lease: durationpb.New(time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	if started.SampleRateHz != 50e3 || started.CalibrationId != bench.CalibrationId ||
		time.Since(started.Started.AsTime()) > 10*time.Second || time.Until(started.LeaseUntil.AsTime()) < 50*time.Second {
		t.Errorf("started %v", started)
	}
	id := started.CaptureId
	if bench, _ = client.GetBench(ctx, &pb.GetBenchRequest{}); bench.Holder != "ada@lab" || bench.CaptureId != id {
		t.Errorf("bench held by %q, capture %q", bench.Holder, bench.CaptureId)
	}
	if r, err := client.RenewLease(ctx, &pb.RenewLeaseRequest{CaptureId: id}); err != nil ||
		r.State != pb.CaptureState_CAPTURE_STATE_RUNNING || !r.LeaseUntil.AsTime().After(started.LeaseUntil.AsTime()) {
		t.Errorf("renewed %v, %v", r, err)
	}
	watch(t, client)
	if s := m.Stats(); s.Captures != 1 || s.Held[session.Running] != 1 || !s.Busy {
		t.Errorf("counted %+v while it runs", s)
	}
	stopped, err := client.StopCapture(ctx, &pb.StopCaptureRequest{CaptureId: id})
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: id}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if scans := got.check(t, 0); scans != stopped.Summary.Scans || scans == 0 {
		t.Errorf("%d scans came, the summary says %d", scans, stopped.Summary.Scans)
	}
	if h := got.header; h.Holder != "ada@lab" || h.TaskName != "gemm" || h.Marker.GetCode() != pb.MarkerCode_MARKER_CODE_M31 ||
		h.CalibrationId != bench.CalibrationId || !h.Started.AsTime().Equal(started.Started.AsTime()) {
		t.Errorf("header %v", h)
	}
	if _, err := client.ReleaseCapture(ctx, &pb.ReleaseCaptureRequest{CaptureId: id}); err != nil {
		t.Error(err)
	}
	if s := m.Stats(); s.Captures != 1 || s.Scans != stopped.Summary.Scans || s.Busy || s.Held[session.Complete] != 0 || s.SpoolBytes != 0 {
		t.Errorf("counted %+v after the release", s)
	}
	if _, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: id}, 0); status.Code(err) != codes.NotFound {
		t.Errorf("read after release: %v", err)
	}
	stop()
}

// watch takes a live message from a running capture.
func watch(t *testing.T, client pb.MonitorServiceClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := client.WatchRails(ctx, &pb.WatchRailsRequest{Every: durationpb.New(20 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	var m *pb.WatchRailsResponse
	for range 3 {
		if m, err = s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.Rails) != 2 || m.Rails[0].Rail != "gpu" || m.Rails[0].PowerW < 15 || m.Rails[0].PowerW > 26 || m.TS <= 0 {
		t.Errorf("live %v", m)
	}
}

func TestBusyBenchOverGRPC(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	started, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "bob@lab"})
	s := status.Convert(err)
	if s.Code() != codes.FailedPrecondition || !strings.Contains(s.Message(), "held by ada@lab since 20") {
		t.Errorf("second start: %v", err)
	}
	if len(s.Details()) != 1 {
		t.Fatalf("details %v", s.Details())
	}
	v := s.Details()[0].(*errdetails.PreconditionFailure).Violations[0]
	if v.Type != "BENCH_BUSY" || v.Subject != "ada@lab" || !strings.Contains(v.Description, started.CaptureId) {
		t.Errorf("detail %v", v)
	}
	got := make(chan error)
	go func() {
		_, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "bob@lab", Wait: durationpb.New(10 * time.Second)})
		got <- err
	}()
	if _, err := client.StopCapture(t.Context(), &pb.StopCaptureRequest{CaptureId: started.CaptureId}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("start of one who waited: %v", err)
	}
}

func TestBenchThatCannotBeUsed(t *testing.T) {
	cfg := rampConfig(t.TempDir())
	cfg.Bench.Instrument = &ramp{rate: 50e3, fails: fmt.Errorf("ramp: open /dev/ttyX: %w: check the cable", instrument.ErrSilent)}
	client, _, _ := serve(t, cfg)
	b, err := client.GetBench(t.Context(), &pb.GetBenchRequest{})
	if err != nil || b.Setup != nil || !strings.Contains(b.Trouble, "check the cable") || b.Instrument.Kind != "ramp" {
		t.Errorf("bench %v, %v", b, err)
	}
	_, err = client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab"})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "check the cable") {
		t.Errorf("start: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	ctx := t.Context()
	badChip := wire.MarkerSpec(marker.FastProfile(50e3, 1))
	badChip.ChipS = -1
	badLease := &durationpb.Duration{Seconds: 1 << 60}
	for name, tt := range map[string]struct {
		call func() error
		code codes.Code
	}{
		"no holder": {func() error { _, err := client.StartCapture(ctx, &pb.StartCaptureRequest{}); return err }, codes.InvalidArgument},
		"bad marker": {func() error {
			_, err := client.StartCapture(ctx, &pb.StartCaptureRequest{Holder: "a", Marker: badChip})
			return err
		}, codes.InvalidArgument},
		"bad lease": {func() error {
			_, err := client.StartCapture(ctx, &pb.StartCaptureRequest{Holder: "a", Lease: badLease})
			return err
		}, codes.InvalidArgument},
		"stop of nothing": {func() error {
			_, err := client.StopCapture(ctx, &pb.StopCaptureRequest{CaptureId: "x"})
			return err
		}, codes.NotFound},
		"renewal of nothing": {func() error {
			_, err := client.RenewLease(ctx, &pb.RenewLeaseRequest{CaptureId: "x"})
			return err
		}, codes.NotFound},
		"release of nothing": {func() error {
			_, err := client.ReleaseCapture(ctx, &pb.ReleaseCaptureRequest{CaptureId: "../x"})
			return err
		}, codes.OK},
		"watch every never": {func() error {
			s, err := client.WatchRails(ctx, &pb.WatchRailsRequest{Every: durationpb.New(-1)})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		}, codes.InvalidArgument},
	} {
		if err := tt.call(); status.Code(err) != tt.code {
			t.Errorf("%s: %v, want %v", name, err, tt.code)
		}
	}
}

func TestStoppedMonitorEndsItsStreams(t *testing.T) {
	client, _, stop := serve(t, rampConfig(t.TempDir()))
	s, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.WatchRails(t.Context(), &pb.WatchRailsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := live.Recv(); err != nil {
		t.Fatal(err)
	}
	got := make(chan received)
	go func() {
		r, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: s.CaptureId, Follow: true, Untrimmed: true}, 0)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	if _, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: s.CaptureId, Follow: true, Untrimmed: true}, 1); err != nil {
		t.Fatal(err)
	}
	stop()
	r := <-got
	if r.trailer.GetSummary().GetState() != pb.CaptureState_CAPTURE_STATE_INCOMPLETE ||
		!strings.Contains(r.trailer.Summary.Reason, "the monitor was stopped") {
		t.Errorf("trailer %v", r.trailer)
	}
	r.check(t, 0)
}

func TestHealthAndReflection(t *testing.T) {
	_, conn, _ := serve(t, rampConfig(t.TempDir()))
	for _, name := range []string{"", "wattmark.v1.MonitorService"} {
		r, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil || r.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", name, r, err)
		}
	}
	s, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = s.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "wattmark.v1.MonitorService"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Recv(); err != nil || len(r.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection: %v, %v", r, err)
	}
}

func TestTwoMonitorsOnOneSpool(t *testing.T) {
	dir := t.TempDir()
	serve(t, rampConfig(dir))
	if _, err := New(rampConfig(dir)); !errors.Is(err, spool.ErrLocked) {
		t.Errorf("second monitor: %v", err)
	}
	if _, err := New(Config{Dir: filepath.Join(t.TempDir(), "x")}); err == nil {
		t.Error("a monitor without an instrument was made")
	}
}

func TestErrorCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want codes.Code
	}{
		{&capture.BusyError{Holder: "a"}, codes.FailedPrecondition},
		{capture.ErrUnknown, codes.NotFound},
		{capture.ErrRequest, codes.InvalidArgument},
		{wire.ErrMessage, codes.InvalidArgument},
		{capture.ErrTransition, codes.FailedPrecondition},
		{capture.ErrNoStart, codes.FailedPrecondition},
		{capture.ErrPastEnd, codes.OutOfRange},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{syscall.ENOSPC, codes.ResourceExhausted},
		{spool.ErrTorn, codes.DataLoss},
		{capture.ErrStopped, codes.Unavailable},
		{fmt.Errorf("%w: %w", capture.ErrUnavailable, instrument.ErrSilent), codes.Unavailable},
		{fmt.Errorf("%w: no answer: %w", capture.ErrUnavailable, context.DeadlineExceeded), codes.Unavailable},
		{errors.New("?"), codes.Internal},
		{status.Error(codes.Aborted, "x"), codes.Aborted},
	} {
		if got := status.Code(toStatus(fmt.Errorf("op: %w", tt.err))); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
	if toStatus(nil) != nil {
		t.Error("no error became one")
	}
}

// A free bench is sampled for who asks for it, gives way to a capture, and is
// sampled again afterwards, by one stream all the while.
func TestWatchFreeBench(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	s, err := client.WatchRails(t.Context(), &pb.WatchRailsRequest{Every: durationpb.New(10 * time.Millisecond), Idle: true})
	if err != nil {
		t.Fatal(err)
	}
	await := func(capture string) {
		t.Helper()
		for {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.CaptureId != capture || len(m.Rails) == 0 {
				continue
			}
			if m.SampleRateHz != 50e3 || m.Scans == 0 || m.Lost != 0 || m.Rails[0].PowerW < 15 || m.Rails[0].PowerW > 26 {
				t.Errorf("live %v", m)
			}
			return
		}
	}
	await("")
	if b, err := client.GetBench(t.Context(), &pb.GetBenchRequest{}); err != nil || b.Holder != "" {
		t.Errorf("a look holds the bench: %v, %v", b, err)
	}
	started, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	await(started.CaptureId)
	sum, err := client.StopCapture(t.Context(), &pb.StopCaptureRequest{CaptureId: started.CaptureId})
	if err != nil || sum.Summary.ScansLost != 0 {
		t.Fatalf("%v, %v", sum, err)
	}
	await("")
}

// Who does not ask for the free bench sees captures only.
func TestWatchCapturesOnly(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	every := durationpb.New(10 * time.Millisecond)
	only, err := client.WatchRails(t.Context(), &pb.WatchRailsRequest{Every: every})
	if err != nil {
		t.Fatal(err)
	}
	idle, err := client.WatchRails(t.Context(), &pb.WatchRailsRequest{Every: every, Idle: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := idle.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	started, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := only.Recv(); err != nil || m.CaptureId != started.CaptureId {
		t.Errorf("first seen: %v, %v", m, err)
	}
}

func TestWatchTellsOfTrouble(t *testing.T) {
	cfg := rampConfig(t.TempDir())
	cfg.Bench.Instrument = &ramp{rate: 50e3, fails: errors.New("the cable is out")}
	client, _, _ := serve(t, cfg)
	s, err := client.WatchRails(t.Context(), &pb.WatchRailsRequest{Idle: true})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || !strings.Contains(m.Trouble, "the cable is out") || len(m.Rails) != 0 {
		t.Errorf("%v, %v", m, err)
	}
}

const (
	gpuA = "GPU-8f6e1f2a-0b1c-2d3e-4f50-6172839405af"
	gpuB = "GPU-00000000-0000-0000-0000-000000000002"
)

// sensorRamp is a GPU's own sensor.
type sensorRamp struct {
	ramp
	gpu string
}

func (s *sensorRamp) Identity() instrument.Identity {
	return instrument.Identity{Kind: "nvml", Serial: s.gpu}
}

// A bench says which GPU it measures, in GetBench and in the stream's header.
func TestBenchSaysItsGPU(t *testing.T) {
	for _, c := range []struct{ name, said, sensor, want, fail string }{
		{"said", gpuA, "", gpuA, ""},
		{"not said", "", "", "", ""},
		{"its own sensor", "", strings.ToUpper(gpuB), gpuB, ""},
		{"its own sensor, said too", gpuB, gpuB, gpuB, ""},
		{"another's sensor", gpuA, gpuB, gpuA, "wrong instrument: the bench measures " + gpuA + ", and this is the sensor of " + gpuB},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := rampConfig(t.TempDir())
			cfg.Bench.GPU, cfg.Bench.Instrument = c.said, &sensorRamp{ramp{rate: 50e3}, c.sensor}
			client, _, _ := serve(t, cfg)
			bench, err := client.GetBench(t.Context(), &pb.GetBenchRequest{})
			if err != nil || bench.GpuUuid != c.want {
				t.Errorf("bench of %q, %v; want %q", bench.GetGpuUuid(), err, c.want)
			}
			s, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab", TaskName: "gemm"})
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got %v, want %s", err, c.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.StopCapture(t.Context(), &pb.StopCaptureRequest{CaptureId: s.CaptureId}); err != nil {
				t.Fatal(err)
			}
			got, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: s.CaptureId}, 0)
			if err != nil || got.header.GpuUuid != c.want {
				t.Errorf("header of %q, %v; want %q", got.header.GetGpuUuid(), err, c.want)
			}
		})
	}
}

// A host that says nothing, or something compatible, is served; one of another
// major version is refused with both versions, and holds nothing.
func TestHostsOfOtherVersions(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	for _, tc := range []struct {
		name    string
		speaks  *pb.Protocol
		refused []string
	}{
		{"older, says nothing", nil, nil},
		{"a later addition", &pb.Protocol{Major: wire.Speaks.Major, Minor: 99}, nil},
		{"newer", &pb.Protocol{Major: wire.Speaks.Major + 1}, []string{"host is wattmark 7.7.7 and speaks protocol 2.0", "monitor is wattmark test and speaks " + wire.Speaks.String(), "update the monitor"}},
		{"too old", &pb.Protocol{Minor: 3}, []string{"protocol 0.3", "update the host"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab", Protocol: tc.speaks, Version: "7.7.7"})
			if tc.refused == nil {
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range []func() error{
					func() error {
						_, err := client.StopCapture(t.Context(), &pb.StopCaptureRequest{CaptureId: a.CaptureId})
						return err
					},
					func() error {
						_, err := client.ReleaseCapture(t.Context(), &pb.ReleaseCaptureRequest{CaptureId: a.CaptureId})
						return err
					},
				} {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}
				return
			}
			if status.Code(err) != codes.Unimplemented {
				t.Fatalf("got %v", err)
			}
			for _, w := range tc.refused {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not told: %v", w, err)
				}
			}
		})
	}
	b, err := client.GetBench(t.Context(), &pb.GetBenchRequest{})
	if err != nil || b.Holder != "" || wire.ParseProtocol(b.Protocol) != wire.Speaks {
		t.Errorf("bench %v, %v", b, err)
	}
}

// Readers and viewers that take nothing hold up neither the capture nor others, and
// cost no memory.
func TestReadersThatDoNotRead(t *testing.T) {
	coverage.Long(t)
	cfg := rampConfig(t.TempDir())
	const fill, more = 18 << 20, 4 << 20 // 32 MB if each of eight readers kept what is taken
	// Some 2.5 MB a second are kept, which a busy machine stores in time: the rest would wait in memory.
	cfg.Bench.Instrument = &ramp{rate: 5e5}
	client, _, _ := serve(t, cfg)
	start, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab", Lease: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		r, err := client.ReadCapture(t.Context(), &pb.ReadCaptureRequest{CaptureId: start.CaptureId, Follow: true, Untrimmed: true})
		if err == nil {
			_, err = r.Header()
		}
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.WatchRails(t.Context(), &pb.WatchRailsRequest{Every: durationpb.New(time.Microsecond)})
		if err == nil {
			_, err = w.Header()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// By then each reader has had its window's fill, and waits.
	before := taken(t, client, start.CaptureId, fill)
	middle := heap()
	after := taken(t, client, start.CaptureId, before+more)
	// What a busy machine has yet to store goes by itself; what readers keep does not.
	grown := heap() - middle
	for end := time.Now().Add(time.Minute); grown > 12<<20 && time.Now().Before(end); grown = heap() - middle {
		<-time.After(5 * time.Millisecond)
	}
	if grown > 12<<20 {
		t.Errorf("the heap grew by %d bytes while %d were kept", grown, after-before)
	}
	sum, err := client.StopCapture(t.Context(), &pb.StopCaptureRequest{CaptureId: start.CaptureId})
	if err != nil || sum.Summary.State != pb.CaptureState_CAPTURE_STATE_COMPLETE || sum.Summary.ScansLost != 0 {
		t.Fatalf("%v, %v", sum, err)
	}
	// One that reads has all of it.
	got, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: start.CaptureId, Untrimmed: true}, 0)
	if got.trailer == nil || got.trailer.Scans != sum.Summary.Scans {
		t.Errorf("%v of %d scans, %v", got.trailer, sum.Summary.Scans, err)
	}
}

// taken waits until a capture has so many bytes, and returns how many it has.
func taken(t *testing.T, client pb.MonitorServiceClient, id string, size uint64) uint64 {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		l, err := client.ListCaptures(t.Context(), &pb.ListCapturesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range l.Captures {
			if c.CaptureId == id && c.SpoolBytes >= size {
				return c.SpoolBytes
			}
		}
		if time.Now().After(end) {
			t.Fatalf("the capture does not get to %d bytes", size)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
