package api_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/api/internal/testdb"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/store"
)

func (l *lab) ids(req *pb.ListTasksRequest) string {
	l.Helper()
	var out []string
	for {
		res, err := l.stub.ListTasks(l.Context(), req)
		if err != nil {
			l.Fatalf("%v: %v", req, err)
		}
		for _, x := range res.Tasks {
			out = append(out, fmt.Sprint(x.TaskId))
		}
		if req.PageToken = res.NextPageToken; req.PageToken == "" {
			return strings.Join(out, " ")
		}
	}
}

// Tasks 1 to 3 are gemm of ada, axpy of ada, gemm of bob; 4 has no window.
func TestListTasksSelectsAndOrders(t *testing.T) {
	l := newLab(t)
	l.begin("ядро", "ада")
	for _, c := range []struct {
		req  *pb.ListTasksRequest
		want string
	}{
		{&pb.ListTasksRequest{}, "4 3 2 1"},
		{&pb.ListTasksRequest{Ascending: true}, "1 2 3 4"},
		{&pb.ListTasksRequest{Name: "*m*"}, "3 1"},
		{&pb.ListTasksRequest{Name: "??р?"}, "4"},
		{&pb.ListTasksRequest{User: "ада"}, "4"},
		{&pb.ListTasksRequest{User: "x' OR '1'='1"}, ""},
		{&pb.ListTasksRequest{Name: "gemm'); DROP TABLE task;--"}, ""},
		{&pb.ListTasksRequest{Gpu: "h200"}, "3 2 1"},
		{&pb.ListTasksRequest{States: []pb.TaskState{running}}, "4"},
		{&pb.ListTasksRequest{Verdicts: []pb.Verdict{pb.Verdict_VERDICT_VOID}}, ""},
		{&pb.ListTasksRequest{Verdicts: []pb.Verdict{pb.Verdict_VERDICT_DOUBTFUL}, PageSize: 1}, "3 2 1"},
		{&pb.ListTasksRequest{MinEnergyJ: 1}, "3 2 1"},
		{&pb.ListTasksRequest{MaxEnergyJ: 1}, ""},
		{&pb.ListTasksRequest{MinDurationS: 0.7, MaxDurationS: 0.9, User: "bob"}, "3"},
		{&pb.ListTasksRequest{Order: pb.TaskOrder_TASK_ORDER_NAME, Ascending: true}, "2 1 3 4"},
		{&pb.ListTasksRequest{Order: pb.TaskOrder_TASK_ORDER_LAUNCHED, Ascending: true}, "1 2 3 4"},
		{&pb.ListTasksRequest{Order: pb.TaskOrder_TASK_ORDER_ENERGY}, "3 2 1 4"},
		{&pb.ListTasksRequest{Order: pb.TaskOrder_TASK_ORDER_DURATION, Ascending: true, User: "ada"}, "1 2"},
		{&pb.ListTasksRequest{GroupId: 1}, ""},
		{&pb.ListTasksRequest{PageSize: math.MaxInt32}, "4 3 2 1"},
	} {
		for _, size := range []int32{c.req.PageSize, 1} {
			c.req.PageSize, c.req.PageToken = size, ""
			if got := l.ids(c.req); got != c.want {
				t.Errorf("%v: got %q, want %q", c.req, got, c.want)
			}
		}
	}
}

func TestListTasksMasksAndTotals(t *testing.T) {
	l := newLab(t)
	res, err := l.stub.ListTasks(l.Context(), &pb.ListTasksRequest{
		PageSize: 1, WithTotals: true, ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"task_id", "energy.energy_j", "verdict"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := res.Tasks[0]
	if x.TaskId != 3 || x.Energy.EnergyJ == 0 || x.Energy.EnergyUJ != 0 || x.Name != "" || x.Launched != nil || x.Nvml != nil ||
		x.Verdict == pb.Verdict_VERDICT_UNSPECIFIED {
		t.Errorf("masked: %v", x)
	}
	// The three tasks are alike, on one bench: its gain's error is one error.
	one := taskOf(t, l, 3)
	if s := res.Totals; s.Tasks != 3 || s.Measured != 3 || math.Abs(s.Energy.EnergyJ-3*one.Energy.EnergyJ) > 1e-9 ||
		s.Energy.EnergyUJ <= math.Sqrt(3)*one.Energy.EnergyUJ || s.Energy.EnergyUJ > 3*one.Energy.EnergyUJ*(1+1e-12) {
		t.Errorf("totals %v of three times %v", s, one.Energy)
	}
	for _, path := range []string{"", "bogus", "energy.bogus", "name.x", "taskId", "energy.", "task_id,name", "energy.energy_j.x"} {
		_, err := l.stub.ListTasks(l.Context(), &pb.ListTasksRequest{ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"task_id", path}}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), fmt.Sprintf("%q", path)) {
			t.Errorf("path %q: %v", path, err)
		}
	}
}

func taskOf(t *testing.T, l *lab, id int64) *pb.Task {
	t.Helper()
	res, err := l.stub.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: id})
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Task.Verdict; v == 0 || v > 1 && len(res.Reasons) == 0 {
		t.Errorf("verdict %v for %v", v, res.Reasons)
	}
	return res.Task
}

// A token answers its own question, and no other.
func TestPageTokensBelongToTheirQuestion(t *testing.T) {
	l := newLab(t)
	base := func() *pb.ListTasksRequest {
		return &pb.ListTasksRequest{PageSize: 1, Order: pb.TaskOrder_TASK_ORDER_NAME}
	}
	first, err := l.stub.ListTasks(l.Context(), base())
	if err != nil || first.NextPageToken == "" {
		t.Fatal(err)
	}
	token := first.NextPageToken
	for name, change := range map[string]func(*pb.ListTasksRequest){
		"user": func(r *pb.ListTasksRequest) { r.User = "ada" }, "name": func(r *pb.ListTasksRequest) { r.Name = "g*" },
		"gpu": func(r *pb.ListTasksRequest) { r.Gpu = "h" }, "states": func(r *pb.ListTasksRequest) { r.States = append(r.States, running) },
		"energy": func(r *pb.ListTasksRequest) { r.MinEnergyJ = 1 }, "duration": func(r *pb.ListTasksRequest) { r.MaxDurationS = 1 },
		"order": func(r *pb.ListTasksRequest) { r.Order = 2 }, "ascending": func(r *pb.ListTasksRequest) { r.Ascending = true },
		"group": func(r *pb.ListTasksRequest) { r.GroupId = 2 }, "since": func(r *pb.ListTasksRequest) { r.Since = timestamppb.New(testdb.Launched) },
		"cut":     func(r *pb.ListTasksRequest) { r.PageToken = token[:len(token)-2] },
		"garbage": func(r *pb.ListTasksRequest) { r.PageToken = "% %" },
		"version": func(r *pb.ListTasksRequest) { r.PageToken = "B" + token[1:] },
		"changed": func(r *pb.ListTasksRequest) { r.PageToken = token[:16] + "zzzz" + token[20:] },
		"short":   func(r *pb.ListTasksRequest) { r.PageToken = "Ag" },
	} {
		req := base()
		req.PageToken = token
		change(req)
		if _, err := l.stub.ListTasks(l.Context(), req); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "page_token") {
			t.Errorf("%s: %v", name, err)
		}
	}
	again := base()
	again.PageToken, again.PageSize, again.WithTotals = token, 5, true
	if res, err := l.stub.ListTasks(l.Context(), again); err != nil || len(res.Tasks) != 2 {
		t.Errorf("the next page, of another size: %v", err)
	}
}

func TestListTasksRefuses(t *testing.T) {
	l := newLab(t)
	nan := math.NaN()
	for field, req := range map[string]*pb.ListTasksRequest{
		"page_size": {PageSize: -1}, "name": {Name: strings.Repeat("*x", 40)}, "user": {User: strings.Repeat("я", 5000)}, "gpu": {Gpu: strings.Repeat("g", 9000)},
		"states[1]": {States: []pb.TaskState{running, 77}}, "verdicts[0]": {Verdicts: []pb.Verdict{0}}, "order": {Order: -4},
		"min_energy_j": {MinEnergyJ: nan}, "max_energy_j": {MinEnergyJ: 2, MaxEnergyJ: 1}, "min_duration_s": {MinDurationS: -1}, "max_duration_s": {MaxDurationS: math.Inf(1)},
		"group_id": {GroupId: -1}, "since": {Since: &timestamppb.Timestamp{Nanos: -5}}, "until": {Since: timestamppb.New(testdb.Launched), Until: timestamppb.New(testdb.Launched)},
		"read_mask": {ReadMask: &fieldmaskpb.FieldMask{Paths: slices.Repeat([]string{"name"}, 300)}},
	} {
		_, err := l.stub.ListTasks(l.Context(), req)
		if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A task tells which measurement of several GPUs it is one of.
func TestTaskTellsItsGroup(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	address, stop, err := testdb.Serve(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	db, err := store.Open(ctx, filepath.Join(dir, "power.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	group, err := db.BeginGroup(ctx, store.NewGroup{Name: "train", User: "ada", Members: make([]store.GroupMember, 1)})
	if err != nil {
		t.Fatal(err)
	}
	id, err := db.BeginTask(ctx, store.NewTask{Name: "train", User: "ada", Launched: testdb.Launched, Group: store.GroupRef{Group: group}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := 0
	for task, err := range c.Tasks(ctx, client.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if want := map[bool]int64{true: int64(group)}[task.ID == int64(id)]; task.Group != want {
			t.Errorf("task %d in group %d, want %d", task.ID, task.Group, want)
		}
	}
	if d, err := c.Task(ctx, int64(id)); err != nil || d.Group != int64(group) || n != 4 {
		t.Errorf("task %+v of %d tasks, %v", d.Task, n, err)
	}
}
