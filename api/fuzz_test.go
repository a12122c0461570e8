package api

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// FuzzRequests throws whatever proto accepts at every handler: none may panic,
// and every error is a status.
func FuzzRequests(f *testing.F) {
	f.Add(byte(0), []byte{})
	f.Add(byte(1), []byte{0x08, 0x01})
	f.Add(byte(2), []byte{0x08, 0x01, 0x18, 0x05, 0x20, 0x07})
	f.Add(byte(2), []byte{0x08, 0x02, 0x10, 0x01})
	f.Add(byte(3), []byte{0x12, 0x01, 0x61})
	db := fakeDB(f)
	service := New(f.Context(), db, Options{})
	f.Add(byte(4), []byte(pageToken(&store.Position{ID: 1}, &store.ListQuery{})))
	f.Add(byte(5), []byte((&waypoint{Last: 1}).token()))
	f.Add(byte(6), []byte("energy.energy_j"))
	f.Add(byte(7), []byte("\x08\x01\x12\x08\x92\x03\x05\x0a\x01a\x12\x00\x1a\x08\x0a\x06tags.a"))
	f.Fuzz(func(t *testing.T, method byte, b []byte) {
		err := callAny(t, service, method%8, b)
		if _, ok := status.FromError(err); !ok {
			t.Fatalf("an error without a code: %v", err)
		}
		if code := status.Code(err); code == codes.Internal || code == codes.Unknown {
			t.Fatalf("a request alone caused %v", err)
		}
		if len(db.tasks) < 5 { // the request deleted some
			db.tasks = fakeDB(t).tasks
		}
	})
}

// callAny calls a handler with a request read from b. Bytes that are no such
// request are nobody's error.
func callAny(t *testing.T, s *Service, method byte, b []byte) error {
	ctx := t.Context()
	switch method {
	case 0:
		var r pb.ListTasksRequest
		if proto.Unmarshal(b, &r) != nil {
			return nil
		}
		_, err := s.ListTasks(ctx, &r)
		return err
	case 1:
		var r pb.GetTaskRequest
		if proto.Unmarshal(b, &r) != nil {
			return nil
		}
		_, err := s.GetTask(ctx, &r)
		return err
	case 2:
		var r pb.ReadSamplesRequest
		if proto.Unmarshal(b, &r) != nil {
			return nil
		}
		return s.ReadSamples(&r, &sink{ctx: ctx})
	case 4:
		_, err := s.ListTasks(ctx, &pb.ListTasksRequest{PageToken: string(b), Order: pb.TaskOrder(len(b) % 6)})
		return err
	case 5:
		p, err := parseResume(string(b))
		if err == nil && p != nil && p.token() != string(b) {
			t.Errorf("token %q comes back as %q", b, p.token())
		}
		return err
	case 6:
		m, err := parseMask(&fieldmaskpb.FieldMask{Paths: strings.Split(string(b), ",")})
		prune(taskMessage(&store.Brief{ID: 1, Result: &measure.Result{}}).ProtoReflect(), "", m)
		return err
	case 7:
		var r pb.UpdateTaskRequest
		if proto.Unmarshal(b, &r) != nil {
			return nil
		}
		_, err := s.UpdateTask(ctx, &r)
		return err
	default:
		var r pb.DeleteTasksRequest
		if proto.Unmarshal(b, &r) != nil {
			return nil
		}
		_, err := s.DeleteTasks(ctx, &r)
		return err
	}
}

// sink is a stream that takes everything.
type sink struct {
	grpc.ServerStream
	ctx context.Context
	n   int
}

func (s *sink) Context() context.Context { return s.ctx }

func (s *sink) Send(m *pb.ReadSamplesResponse) error { return s.SendMsg(m) }

func (s *sink) SendMsg(any) error { s.n++; return nil }
