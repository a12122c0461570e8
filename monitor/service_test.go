package monitor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
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

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure/marker"
	"wattmark/monitor/capture"
	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
)

func TestMeasurementOverGRPC(t *testing.T) {
	m, client, _, stop := run(t, rampConfig(t.TempDir()))
	ctx := t.Context()
	bench, err := client.GetBench(ctx, &wattmarkv1.GetBenchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if bench.Name != "ramp bench" || bench.Version != "test" || bench.Instrument.Kind != "ramp" || bench.Trouble != "" ||
		len(bench.Setup.GetChannels()) != 2 || len(bench.CalibrationId) != 16 || bench.Holder != "" {
		t.Errorf("bench %v", bench)
	}
	started, err := client.StartCapture(ctx, &wattmarkv1.StartCaptureRequest{
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
	if bench, _ = client.GetBench(ctx, &wattmarkv1.GetBenchRequest{}); bench.Holder != "ada@lab" || bench.CaptureId != id {
		t.Errorf("bench held by %q, capture %q", bench.Holder, bench.CaptureId)
	}
	if r, err := client.RenewLease(ctx, &wattmarkv1.RenewLeaseRequest{CaptureId: id}); err != nil ||
		r.State != wattmarkv1.CaptureState_CAPTURE_STATE_RUNNING || !r.LeaseUntil.AsTime().After(started.LeaseUntil.AsTime()) {
		t.Errorf("renewed %v, %v", r, err)
	}
	watch(t, client)
	if s := m.Stats(); s.Captures != 1 || s.Held[capture.Running] != 1 || !s.Busy {
		t.Errorf("counted %+v while it runs", s)
	}
	stopped, err := client.StopCapture(ctx, &wattmarkv1.StopCaptureRequest{CaptureId: id})
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(t, client, &wattmarkv1.ReadCaptureRequest{CaptureId: id}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if scans := got.check(t, 0); scans != stopped.Summary.Scans || scans == 0 {
		t.Errorf("%d scans came, the summary says %d", scans, stopped.Summary.Scans)
	}
	if h := got.header; h.Holder != "ada@lab" || h.TaskName != "gemm" || h.Marker.GetCode() != wattmarkv1.MarkerCode_MARKER_CODE_M31 ||
		h.CalibrationId != bench.CalibrationId || !h.Started.AsTime().Equal(started.Started.AsTime()) {
		t.Errorf("header %v", h)
	}
	if _, err := client.ReleaseCapture(ctx, &wattmarkv1.ReleaseCaptureRequest{CaptureId: id}); err != nil {
		t.Error(err)
	}
	if s := m.Stats(); s.Captures != 1 || s.Scans != stopped.Summary.Scans || s.Busy || s.Held[capture.Complete] != 0 || s.SpoolBytes != 0 {
		t.Errorf("counted %+v after the release", s)
	}
	if _, err := read(t, client, &wattmarkv1.ReadCaptureRequest{CaptureId: id}, 0); status.Code(err) != codes.NotFound {
		t.Errorf("read after release: %v", err)
	}
	stop()
}

// watch takes a live message from a running capture.
func watch(t *testing.T, client wattmarkv1.MonitorServiceClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := client.WatchRails(ctx, &wattmarkv1.WatchRailsRequest{Every: durationpb.New(20 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	var m *wattmarkv1.WatchRailsResponse
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
	started, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "bob@lab"})
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
		_, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "bob@lab", Wait: durationpb.New(10 * time.Second)})
		got <- err
	}()
	if _, err := client.StopCapture(t.Context(), &wattmarkv1.StopCaptureRequest{CaptureId: started.CaptureId}); err != nil {
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
	b, err := client.GetBench(t.Context(), &wattmarkv1.GetBenchRequest{})
	if err != nil || b.Setup != nil || !strings.Contains(b.Trouble, "check the cable") || b.Instrument.Kind != "ramp" {
		t.Errorf("bench %v, %v", b, err)
	}
	_, err = client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "ada@lab"})
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
		"no holder": {func() error { _, err := client.StartCapture(ctx, &wattmarkv1.StartCaptureRequest{}); return err }, codes.InvalidArgument},
		"bad marker": {func() error {
			_, err := client.StartCapture(ctx, &wattmarkv1.StartCaptureRequest{Holder: "a", Marker: badChip})
			return err
		}, codes.InvalidArgument},
		"bad lease": {func() error {
			_, err := client.StartCapture(ctx, &wattmarkv1.StartCaptureRequest{Holder: "a", Lease: badLease})
			return err
		}, codes.InvalidArgument},
		"stop of nothing": {func() error {
			_, err := client.StopCapture(ctx, &wattmarkv1.StopCaptureRequest{CaptureId: "x"})
			return err
		}, codes.NotFound},
		"renewal of nothing": {func() error {
			_, err := client.RenewLease(ctx, &wattmarkv1.RenewLeaseRequest{CaptureId: "x"})
			return err
		}, codes.NotFound},
		"release of nothing": {func() error {
			_, err := client.ReleaseCapture(ctx, &wattmarkv1.ReleaseCaptureRequest{CaptureId: "../x"})
			return err
		}, codes.OK},
		"watch every never": {func() error {
			s, err := client.WatchRails(ctx, &wattmarkv1.WatchRailsRequest{Every: durationpb.New(-1)})
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
	s, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.WatchRails(t.Context(), &wattmarkv1.WatchRailsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := live.Recv(); err != nil {
		t.Fatal(err)
	}
	got := make(chan received)
	go func() {
		r, err := read(t, client, &wattmarkv1.ReadCaptureRequest{CaptureId: s.CaptureId, Follow: true, Untrimmed: true}, 0)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	if _, err := read(t, client, &wattmarkv1.ReadCaptureRequest{CaptureId: s.CaptureId, Follow: true, Untrimmed: true}, 1); err != nil {
		t.Fatal(err)
	}
	stop()
	r := <-got
	if r.trailer.GetSummary().GetState() != wattmarkv1.CaptureState_CAPTURE_STATE_INCOMPLETE ||
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
