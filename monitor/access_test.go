package monitor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure/session"
)

// A capture is its holder's, by the name that they were known by, also after the
// monitor was started anew: others neither end nor keep nor release it.
func TestCapturesOfOthers(t *testing.T) {
	dir := t.TempDir()
	m, _, _, stop := run(t, rampConfig(dir))
	as := func(name string, r auth.Role) context.Context {
		return auth.With(t.Context(), auth.Identity{Name: name, Role: r})
	}
	s := &service{monitor: m}
	started, err := s.StartCapture(as("ada", auth.Measurer), &pb.StartCaptureRequest{Holder: "root@lab", TaskName: "gemm"})
	if err != nil {
		t.Fatal(err)
	}
	id := started.CaptureId
	if c, err := m.Owner.Get(id); err != nil || c.Header().Owner != "ada" || m.Owner.Bench(t.Context()).Holder != "ada" {
		t.Errorf("it is held by %s, %v", m.Owner.Bench(t.Context()).Holder, err)
	}
	refused := func(when string) {
		t.Helper()
		for _, who := range []context.Context{as("eve", auth.Measurer), as("ada", auth.Viewer), as("", auth.Nobody)} {
			_, renew := s.RenewLease(who, &pb.RenewLeaseRequest{CaptureId: id})
			_, end := s.StopCapture(who, &pb.StopCaptureRequest{CaptureId: id})
			_, release := s.ReleaseCapture(who, &pb.ReleaseCaptureRequest{CaptureId: id})
			_, forget := s.ForgetChunks(who, &pb.ForgetChunksRequest{CaptureId: id, BeforeChunk: 1})
			for call, err := range map[string]error{"renew": renew, "stop": end, "release": release, "forget": forget} {
				if c := status.Code(err); c != codes.PermissionDenied && c != codes.Unauthenticated {
					i, _ := auth.From(who)
					t.Errorf("%s: %s by %+v: %v", when, call, i, err)
				}
			}
		}
	}
	refused("while it runs")
	if _, err := s.RenewLease(as("ada", auth.Measurer), &pb.RenewLeaseRequest{CaptureId: id}); err != nil {
		t.Error(err)
	}
	if _, err := s.ReleaseCapture(as("ada", auth.Measurer), &pb.ReleaseCaptureRequest{CaptureId: id}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("one's own, while it runs: %v", err)
	}
	if sum, err := s.StopCapture(as("ada", auth.Measurer), &pb.StopCaptureRequest{CaptureId: id}); err != nil || sum.Summary.State != pb.CaptureState_CAPTURE_STATE_COMPLETE {
		t.Errorf("%v %v", sum, err)
	}
	stop()
	m, client, _, _ := run(t, rampConfig(dir))
	s.monitor = m
	refused("after a new start")
	if l, err := client.ListCaptures(t.Context(), &pb.ListCapturesRequest{}); err != nil || len(l.Captures) != 1 {
		t.Errorf("%v %v", l, err)
	}
	if _, err := s.ReleaseCapture(as("gpu-host", auth.Operator), &pb.ReleaseCaptureRequest{CaptureId: id}); err != nil {
		t.Errorf("an operator: %v", err)
	}
	// What is gone is no error, whoever says so again, and no other capture's end.
	if _, err := s.ReleaseCapture(as("eve", auth.Measurer), &pb.ReleaseCaptureRequest{CaptureId: id}); err != nil {
		t.Errorf("released again: %v", err)
	}
	if _, err := s.ForgetChunks(as("eve", auth.Measurer), &pb.ForgetChunksRequest{CaptureId: id, BeforeChunk: 1}); err != nil {
		t.Errorf("of one that is gone: %v", err)
	}
}

// What a client says of itself is kept as far as it agrees with who it is.
func TestWhoHolds(t *testing.T) {
	for _, c := range []struct {
		who    auth.Identity
		holder string
		want   string
	}{
		{auth.Identity{Name: "ada", Role: auth.Measurer}, "ada@lab", "ada@lab"},
		{auth.Identity{Name: "ada", Role: auth.Measurer}, "bob@lab", "ada"},
		{auth.Identity{Name: "ada", Role: auth.Measurer}, "", "ada"},
		{auth.Identity{Name: "ada", Role: auth.Measurer}, "ada2@lab", "ada"},
		{auth.Identity{Name: "gpu-host", Role: auth.Operator}, "bob@lab", "bob@lab by gpu-host"},
	} {
		q := signed(auth.With(t.Context(), c.who), session.Request{Holder: c.holder})
		if q.Holder != c.want || q.Owner != c.who.Name {
			t.Errorf("%+v says %q: held by %q, owned by %q", c.who, c.holder, q.Holder, q.Owner)
		}
	}
	if q := signed(t.Context(), session.Request{Holder: "bob@lab"}); q.Holder != "bob@lab" || q.Owner != "" {
		t.Errorf("where nobody is asked: %+v", q)
	}
}

// An operator ends a holder's capture: the next in line has the bench, and what was
// sampled can be read, with who did it and why.
func TestTakeOver(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	end := func(q *pb.EndCaptureRequest, want codes.Code) *pb.EndCaptureResponse {
		t.Helper()
		a, err := client.EndCapture(t.Context(), q)
		if status.Code(err) != want {
			t.Fatalf("%v: want %v", err, want)
		}
		return a
	}
	q := &pb.EndCaptureRequest{By: "root@lab", Reason: "fire drill"}
	end(q, codes.NotFound)
	held, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		_, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "bob@lab", Wait: durationpb.New(time.Minute)})
		next <- err
	}()
	end(&pb.EndCaptureRequest{By: "root@lab"}, codes.InvalidArgument)
	a := end(&pb.EndCaptureRequest{CaptureId: held.CaptureId, By: q.By, Reason: q.Reason}, codes.OK)
	if a.CaptureId != held.CaptureId || a.Holder != "ada@lab" || a.State != pb.CaptureState_CAPTURE_STATE_INCOMPLETE ||
		!strings.HasPrefix(a.Reason, "taken over by root@lab: fire drill; no samples after scan") {
		t.Errorf("%v", a)
	}
	if err := <-next; err != nil {
		t.Errorf("the next in line: %v", err)
	}
	got, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: held.CaptureId, Untrimmed: true}, 0)
	if got.trailer == nil || len(got.chunks) == 0 || !strings.Contains(got.trailer.Summary.Reason, "fire drill") {
		t.Errorf("%v, %v", got.trailer, errors.Join(err))
	}
}
