package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

func TestListTasksFiltersAndPages(t *testing.T) {
	client := serve(t, fakeDB(t))
	for _, c := range []struct {
		name string
		req  *pb.ListTasksRequest
		want []int64 // newest first, over all pages
	}{
		{"all", &pb.ListTasksRequest{}, []int64{5, 4, 3, 2, 1}},
		{"by user", &pb.ListTasksRequest{User: "ada"}, []int64{5, 3, 1}},
		{"by name", &pb.ListTasksRequest{Name: "gemm-4"}, []int64{4}},
		{"by prefix", &pb.ListTasksRequest{Name: "gemm*"}, []int64{5, 4, 3, 2, 1}},
		{"by name and user", &pb.ListTasksRequest{Name: "gemm-4", User: "ada"}, nil},
		{"since", &pb.ListTasksRequest{Since: timestamppb.New(launched.Add(4 * time.Hour))}, []int64{5, 4}},
		{"until", &pb.ListTasksRequest{Until: timestamppb.New(launched.Add(4 * time.Hour))}, []int64{3, 2, 1}},
	} {
		for _, size := range []int32{0, 1, 2, 5, 1 << 30} {
			t.Run(fmt.Sprintf("%s by %d", c.name, size), func(t *testing.T) {
				c.req.PageSize, c.req.PageToken = size, ""
				var got []int64
				for {
					res, err := client.ListTasks(t.Context(), c.req)
					if err != nil {
						t.Fatal(err)
					}
					if size > 0 && len(res.Tasks) > int(size) {
						t.Fatalf("a page of %d tasks, want at most %d", len(res.Tasks), size)
					}
					for _, task := range res.Tasks {
						got = append(got, task.TaskId)
					}
					if res.NextPageToken == "" {
						break
					}
					if len(res.Tasks) == 0 {
						t.Fatal("an empty page that is not the last")
					}
					c.req.PageToken = res.NextPageToken
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		}
	}
}

func TestRequestsAreRefusedByField(t *testing.T) {
	client := serve(t, fakeDB(t))
	first, err := client.ListTasks(t.Context(), &pb.ListTasksRequest{User: "ada", PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	list := func(r *pb.ListTasksRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := client.ListTasks(ctx, r); return err }
	}
	del := func(r *pb.DeleteTasksRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := client.DeleteTasks(ctx, r); return err }
	}
	long := strings.Repeat("x", wire.MaxText+1)
	for _, c := range []struct {
		name, field string
		call        func(context.Context) error
	}{
		{"negative page", "page_size", list(&pb.ListTasksRequest{PageSize: -1})},
		{"rubbish token", "page_token", list(&pb.ListTasksRequest{PageToken: "rubbish"})},
		{"token of another question", "page_token", list(&pb.ListTasksRequest{User: "bob", PageToken: first.NextPageToken})},
		{"token cut short", "page_token", list(&pb.ListTasksRequest{User: "ada", PageToken: first.NextPageToken[:20]})},
		{"token of the right length", "page_token", list(&pb.ListTasksRequest{User: "ada", PageToken: strings.Repeat("A", 22)})},
		{"until before since", "until", list(&pb.ListTasksRequest{Since: timestamppb.New(launched), Until: timestamppb.New(launched)})},
		{"since that is no time", "since", list(&pb.ListTasksRequest{Since: &timestamppb.Timestamp{Nanos: -1}})},
		{"endless user", "user", list(&pb.ListTasksRequest{User: long})},
		{"endless name", "name", list(&pb.ListTasksRequest{Name: long})},
		{"get 0", "task_id", func(ctx context.Context) error {
			_, err := client.GetTask(ctx, &pb.GetTaskRequest{})
			return err
		}},
		{"samples of −1", "task_id", func(ctx context.Context) error {
			stream, err := client.ReadSamples(ctx, &pb.ReadSamplesRequest{TaskId: -1})
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		}},
		{"delete nothing", "by", del(&pb.DeleteTasksRequest{})},
		{"delete id 0", "task_id", del(&pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_TaskId{}})},
		{"delete no name", "name", del(&pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_Name{}})},
		{"delete no user", "user", del(&pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_User{}})},
		{"delete endless user", "user", del(&pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_User{User: long}})},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := status.Convert(c.call(t.Context()))
			if s.Code() != codes.InvalidArgument {
				t.Fatalf("got %v: %s", s.Code(), s.Message())
			}
			if !strings.HasPrefix(s.Message(), c.field+": ") {
				t.Errorf("message %q does not begin with the field %s", s.Message(), c.field)
			}
			bad, ok := s.Details()[0].(*errdetails.BadRequest)
			if !ok || bad.FieldViolations[0].Field != c.field {
				t.Errorf("details %v do not name the field %s", s.Details(), c.field)
			}
		})
	}
}

func TestGetTask(t *testing.T) {
	client := serve(t, fakeDB(t))
	got, err := client.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: 1})
	if err != nil {
		t.Fatal(err)
	}
	task := got.Task
	if task.Name != "gemm-1" || task.User != "ada" || task.Gpu != "H200" || task.State != pb.TaskState_TASK_STATE_COMPLETE ||
		!task.Launched.AsTime().Equal(launched.Add(time.Hour)) {
		t.Errorf("task: %v", task)
	}
	if task.Samples != 9500 || task.Gaps != 1 || task.Lost != 500 || task.Stored != 10600 || task.Nvml == nil || task.GetNvmlJ() != 99 ||
		task.Energy.EnergyJ != 100 || task.Energy.EnergyUJ != 2 || task.MeanW != 100 || task.PeakW != 300 {
		t.Errorf("figures: %v", task)
	}
	if got.Window.FromS != 0.1 || got.Window.ToS != 1.0999 || got.FirstScan != 1000 || len(got.Rails) != 2 || len(got.Markers) != 2 ||
		len(got.Events) != 4 || got.Instrument.Model != "PMD-USB" || got.Clock.US != 1e-6 {
		t.Errorf("details: %v", got)
	}
	if _, err := wire.ParseSetup(got.Setup); err != nil {
		t.Errorf("setup: %v", err)
	}

	// Without a window, and without anything.
	untrimmed, err := client.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: 2})
	if err != nil {
		t.Fatal(err)
	}
	if untrimmed.Window != nil || untrimmed.FirstScan != 900 || untrimmed.Task.Energy != nil || untrimmed.Task.Nvml != nil ||
		untrimmed.Task.Reason != "no stop marker" || untrimmed.Clock != nil {
		t.Errorf("untrimmed: %v", untrimmed)
	}
	empty, err := client.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: 3})
	if err != nil {
		t.Fatal(err)
	}
	if empty.Setup != nil || empty.FirstScan != 0 {
		t.Errorf("empty: %v", empty)
	}
	_, err = client.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: 42})
	if s := status.Convert(err); s.Code() != codes.NotFound || !strings.Contains(s.Message(), "42") || !strings.Contains(s.Message(), "ListTasks") {
		t.Errorf("task 42: %v, want NOT_FOUND with a hint", err)
	}
}

// What a total over many hosts needs: the job, the GPU, what U is made of, and when
// device time began.
func TestTasksForATotal(t *testing.T) {
	db := fakeDB(t)
	db.tasks[0].Job, db.tasks[3].Job, db.tasks[0].GPUUUID, db.tasks[0].Started = "train 7", "train 7", "GPU-1", launched
	db.tasks[0].Result.Budget = []measure.Contribution{{Source: "gain a", U: 0.8, Systematic: true}, {Source: "noise a", U: 0.6}}
	client := serve(t, db)
	res, err := client.ListTasks(t.Context(), &pb.ListTasksRequest{Job: "train 7", PageSize: 1})
	if err != nil || len(res.Tasks) != 1 || res.Tasks[0].TaskId != 4 || res.Tasks[0].Job != "train 7" {
		t.Fatalf("got %v, %v", res, err)
	}
	next := &pb.ListTasksRequest{Job: "train 7", PageSize: 1, PageToken: res.NextPageToken}
	if res, err := client.ListTasks(t.Context(), next); err != nil || len(res.Tasks) != 1 || res.Tasks[0].TaskId != 1 || res.Tasks[0].GpuUuid != "GPU-1" {
		t.Errorf("second page: %v, %v", res, err)
	}
	next.Job = "another"
	if _, err := client.ListTasks(t.Context(), next); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a token of another job: %v", err)
	}
	if _, err := client.ListTasks(t.Context(), &pb.ListTasksRequest{Job: strings.Repeat("x", wire.MaxText+1)}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an endless job: %v", err)
	}
	got, err := client.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: 1})
	if err != nil || !got.Started.AsTime().Equal(launched) {
		t.Fatalf("got %v, %v", got, err)
	}
	budget, err := wire.ParseBudget(got.Budget)
	if err != nil || !slices.Equal(budget, db.tasks[0].Result.Budget) {
		t.Errorf("budget %v, %v", budget, err)
	}
}

// A name in another encoding must not hide all the other tasks.
func TestNamesThatAreNotUTF8(t *testing.T) {
	db := fakeDB(t)
	db.tasks[0].Name, db.tasks[0].Reason = "gr\xf6\xdfe", "\xff"
	db.tasks[0].Setup.Channels = slices.Clone(db.tasks[0].Setup.Channels)
	db.tasks[0].Setup.Channels[0].Name = "\xfe"
	db.tasks[0].Instrument.Serial = "\xff\xff"
	db.tasks[0].Events = []measure.Event{{Kind: measure.EventNote, Detail: "\xff"}}
	client := serve(t, db)
	res, err := client.ListTasks(t.Context(), &pb.ListTasksRequest{})
	if err != nil || len(res.Tasks) != 5 {
		t.Fatalf("got %v, %v; want five tasks", res, err)
	}
	if _, err := client.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: 1}); err != nil {
		t.Error(err)
	}
	if _, err := read(t, client, &pb.ReadSamplesRequest{TaskId: 1}); err != nil {
		t.Error(err)
	}
}

func TestUsersAndDelete(t *testing.T) {
	db := fakeDB(t)
	client := serve(t, db)
	users, err := client.ListUsers(t.Context(), &pb.ListUsersRequest{})
	if err != nil || len(users.Users) != 2 || users.Users[0].User != "ada" || users.Users[0].Tasks != 3 {
		t.Errorf("users: %v, %v", users, err)
	}
	for _, c := range []struct {
		req  *pb.DeleteTasksRequest
		want uint64
		left int
	}{
		{&pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_TaskId{TaskId: 2}}, 1, 4},
		{&pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_Name{Name: "gemm-5"}}, 1, 3},
		{&pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_Name{Name: "gemm*"}}, 0, 3},
		{&pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_User{User: "ada"}}, 2, 1},
	} {
		res, err := client.DeleteTasks(t.Context(), c.req)
		if err != nil || res.Deleted != c.want || len(db.tasks) != c.left {
			t.Errorf("%v: deleted %v (%v), %d left; want %d, %d", c.req, res, err, len(db.tasks), c.want, c.left)
		}
	}
	_, err = client.DeleteTasks(t.Context(), &pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_TaskId{TaskId: 2}})
	if status.Code(err) != codes.NotFound {
		t.Errorf("deleted twice: %v, want NOT_FOUND", err)
	}
}

// A pinned task goes by force alone, whoever asks and however.
func TestDeleteLeavesPinned(t *testing.T) {
	db := fakeDB(t)
	client := serve(t, db)
	db.tasks[0].Pinned = true
	id, user := int64(db.tasks[0].ID), db.tasks[0].User
	byID := &pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_TaskId{TaskId: id}}
	if _, err := client.DeleteTasks(t.Context(), byID); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "pinned") {
		t.Errorf("by id: %v, want FAILED_PRECONDITION", err)
	}
	byUser := &pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_User{User: user}}
	res, err := client.DeleteTasks(t.Context(), byUser)
	if err != nil || res.Deleted == 0 || !slices.Equal(res.PinnedTaskIds, []int64{id}) || int64(db.tasks[0].ID) != id {
		t.Errorf("by user: %v, %v", res, err)
	}
	byID.Force = true
	if res, err := client.DeleteTasks(t.Context(), byID); err != nil || res.Deleted != 1 {
		t.Errorf("by force: %v, %v", res, err)
	}
	if got := taskIDs(db); slices.Contains(got, id) {
		t.Errorf("left: %v", got)
	}
}

// taskIDs are the numbers of a fake's tasks.
func taskIDs(m *memory) (out []int64) {
	for _, t := range m.tasks {
		out = append(out, int64(t.ID))
	}
	return out
}

func TestErrorCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{store.ErrNotFound, codes.NotFound},
		{store.ErrNoHeader, codes.FailedPrecondition},
		{store.ErrConflict, codes.FailedPrecondition},
		{store.ErrCorrupt, codes.DataLoss},
		{store.ErrFull, codes.ResourceExhausted},
		{store.ErrIO, codes.Internal},
		{store.ErrBusy, codes.Unavailable},
		{store.ErrReadOnly, codes.FailedPrecondition},
		{wire.ErrMessage, codes.InvalidArgument},
		{errors.New("anything else"), codes.Internal},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			db := fakeDB(t)
			db.err = fmt.Errorf("while testing: %w", c.err)
			_, err := New(t.Context(), db, Options{}).ListTasks(t.Context(), &pb.ListTasksRequest{})
			s := status.Convert(err)
			if s.Code() != c.want {
				t.Errorf("got %v, want %v", s.Code(), c.want)
			}
			if !strings.HasPrefix(s.Message(), "list tasks: while testing") {
				t.Errorf("message %q does not say what was done", s.Message())
			}
			for name, call := range map[string]func() error{
				"users": func() error { _, err := New(t.Context(), db, Options{}).ListUsers(t.Context(), nil); return err },
				"get": func() error {
					_, err := New(t.Context(), db, Options{}).GetTask(t.Context(), &pb.GetTaskRequest{TaskId: 1})
					return err
				},
				"delete": func() error {
					_, err := New(t.Context(), db, Options{}).DeleteTasks(t.Context(), &pb.DeleteTasksRequest{By: &pb.DeleteTasksRequest_User{User: "x"}})
					return err
				},
			} {
				if got := status.Code(call()); got != c.want {
					t.Errorf("%s: got %v, want %v", name, got, c.want)
				}
			}
		})
	}
	if toStatus("x", nil) != nil {
		t.Error("no error became one")
	}
}

func TestHealthAndReflection(t *testing.T) {
	conn := dial(t, fakeDB(t))
	for _, name := range []string{"", "wattmark.v1.TaskService"} {
		res, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil || res.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", name, res, err)
		}
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "wattmark.v1.TaskService.ReadSamples"},
	}); err != nil {
		t.Fatal(err)
	}
	res, err := stream.Recv()
	if err != nil || len(res.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection: %v, %v", res, err)
	}
}
