package api

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/api/auth"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/store"
)

// Who deletes what: one's own is enough for a measurer, others' needs an admin.
func TestDeletingOthersTasks(t *testing.T) {
	byID := func(id int64) *pb.DeleteTasksRequest {
		return &pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_TaskId{TaskId: id}}
	}
	byName := func(n string) *pb.DeleteTasksRequest {
		return &pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_Name{Name: n}}
	}
	byUser := func(u string) *pb.DeleteTasksRequest {
		return &pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_User{User: u}}
	}
	all := []store.Task{
		{ID: 1, NewTask: store.NewTask{Name: "gemm", User: "ada"}}, {ID: 2, NewTask: store.NewTask{Name: "gemm", User: "bob"}}, {ID: 3, NewTask: store.NewTask{Name: "fft", User: "bob"}}, {ID: 4, NewTask: store.NewTask{Name: "gemm*", User: "ada"}},
	}
	for _, c := range []struct {
		who  string
		role auth.Role
		req  *pb.DeleteTasksRequest
		code codes.Code
		left int
	}{
		{"ada", auth.Measurer, byID(1), codes.OK, 3},
		{"ada", auth.Measurer, byID(2), codes.PermissionDenied, 4},
		{"ada", auth.Operator, byID(2), codes.PermissionDenied, 4},
		{"ada", auth.Admin, byID(2), codes.OK, 3},
		{"ada", auth.Viewer, byID(1), codes.PermissionDenied, 4},
		{"", auth.Nobody, byID(1), codes.Unauthenticated, 4},
		{"ada", auth.Measurer, byID(9), codes.NotFound, 4},
		{"ada", auth.Measurer, byName("gemm"), codes.OK, 3}, // of two, one's own
		{"ada", auth.Measurer, byName("gemm*"), codes.OK, 3},
		{"ada", auth.Measurer, byName("fft"), codes.PermissionDenied, 4},
		{"ada", auth.Measurer, byName("x' OR '1'='1"), codes.PermissionDenied, 4},
		{"ada", auth.Viewer, byName("gemm"), codes.PermissionDenied, 4},
		{"ada", auth.Admin, byName("gemm"), codes.OK, 2},
		{"ada", auth.Measurer, byUser("ada"), codes.OK, 2},
		{"ada", auth.Measurer, byUser("bob"), codes.PermissionDenied, 4},
		{"ada", auth.Measurer, byUser("x' OR '1'='1"), codes.PermissionDenied, 4},
		{"ada", auth.Admin, byUser("bob"), codes.OK, 2},
	} {
		m := &memory{tasks: append([]store.Task(nil), all...)}
		ctx := auth.With(t.Context(), auth.Identity{Name: c.who, Role: c.role})
		_, err := New(t.Context(), m, Options{}).DeleteTasks(ctx, c.req)
		if status.Code(err) != c.code || len(m.tasks) != c.left {
			t.Errorf("%s, %v, %v: %v, %d are left, want %v and %d", c.who, c.role, c.req, err, len(m.tasks), c.code, c.left)
		}
	}
	m := &memory{tasks: append([]store.Task(nil), all...)}
	if _, err := New(t.Context(), m, Options{}).DeleteTasks(context.Background(), byUser("bob")); err != nil || len(m.tasks) != 2 {
		t.Errorf("where nobody is asked who they are: %v", err)
	}
}
