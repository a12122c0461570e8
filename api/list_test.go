package api_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"wattmark/api/internal/testdb"
	"wattmark/api/wattmarkv1"
)

func (l *lab) ids(req *wattmarkv1.ListTasksRequest) string {
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
		req  *wattmarkv1.ListTasksRequest
		want string
	}{
		{&wattmarkv1.ListTasksRequest{}, "4 3 2 1"},
		{&wattmarkv1.ListTasksRequest{Ascending: true}, "1 2 3 4"},
		{&wattmarkv1.ListTasksRequest{Name: "*m*"}, "3 1"},
		{&wattmarkv1.ListTasksRequest{Name: "??р?"}, "4"},
		{&wattmarkv1.ListTasksRequest{User: "ада"}, "4"},
		{&wattmarkv1.ListTasksRequest{User: "x' OR '1'='1"}, ""},
		{&wattmarkv1.ListTasksRequest{Name: "gemm'); DROP TABLE task;--"}, ""},
		{&wattmarkv1.ListTasksRequest{Gpu: "h200"}, "3 2 1"},
		{&wattmarkv1.ListTasksRequest{States: []wattmarkv1.TaskState{running}}, "4"},
		{&wattmarkv1.ListTasksRequest{Verdicts: []wattmarkv1.Verdict{wattmarkv1.Verdict_VERDICT_VOID}}, ""},
		{&wattmarkv1.ListTasksRequest{Verdicts: []wattmarkv1.Verdict{wattmarkv1.Verdict_VERDICT_DOUBTFUL}, PageSize: 1}, "3 2 1"},
		{&wattmarkv1.ListTasksRequest{MinEnergyJ: 1}, "3 2 1"},
		{&wattmarkv1.ListTasksRequest{MaxEnergyJ: 1}, ""},
		{&wattmarkv1.ListTasksRequest{MinDurationS: 0.7, MaxDurationS: 0.9, User: "bob"}, "3"},
		{&wattmarkv1.ListTasksRequest{Order: wattmarkv1.TaskOrder_TASK_ORDER_NAME, Ascending: true}, "2 1 3 4"},
		{&wattmarkv1.ListTasksRequest{Order: wattmarkv1.TaskOrder_TASK_ORDER_LAUNCHED, Ascending: true}, "1 2 3 4"},
		{&wattmarkv1.ListTasksRequest{Order: wattmarkv1.TaskOrder_TASK_ORDER_ENERGY}, "3 2 1 4"},
		{&wattmarkv1.ListTasksRequest{Order: wattmarkv1.TaskOrder_TASK_ORDER_DURATION, Ascending: true, User: "ada"}, "1 2"},
		{&wattmarkv1.ListTasksRequest{GroupId: 1}, ""},
		{&wattmarkv1.ListTasksRequest{PageSize: math.MaxInt32}, "4 3 2 1"},
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
	res, err := l.stub.ListTasks(l.Context(), &wattmarkv1.ListTasksRequest{
		PageSize: 1, WithTotals: true, ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"task_id", "energy.energy_j", "verdict"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := res.Tasks[0]
	if x.TaskId != 3 || x.Energy.EnergyJ == 0 || x.Energy.EnergyUJ != 0 || x.Name != "" || x.Launched != nil || x.Nvml != nil ||
		x.Verdict == wattmarkv1.Verdict_VERDICT_UNSPECIFIED {
		t.Errorf("masked: %v", x)
	}
	// The three tasks are alike, on one bench: its gain's error is one error.
	one := taskOf(t, l, 3)
	if s := res.Totals; s.Tasks != 3 || s.Measured != 3 || math.Abs(s.Energy.EnergyJ-3*one.Energy.EnergyJ) > 1e-9 ||
		s.Energy.EnergyUJ <= math.Sqrt(3)*one.Energy.EnergyUJ || s.Energy.EnergyUJ > 3*one.Energy.EnergyUJ*(1+1e-12) {
		t.Errorf("totals %v of three times %v", s, one.Energy)
	}
	for _, path := range []string{"", "bogus", "energy.bogus", "name.x", "taskId", "energy.", "task_id,name", "energy.energy_j.x"} {
		_, err := l.stub.ListTasks(l.Context(), &wattmarkv1.ListTasksRequest{ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"task_id", path}}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), fmt.Sprintf("%q", path)) {
			t.Errorf("path %q: %v", path, err)
		}
	}
}

func taskOf(t *testing.T, l *lab, id int64) *wattmarkv1.Task {
	t.Helper()
	res, err := l.stub.GetTask(t.Context(), &wattmarkv1.GetTaskRequest{TaskId: id})
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
	base := func() *wattmarkv1.ListTasksRequest {
		return &wattmarkv1.ListTasksRequest{PageSize: 1, Order: wattmarkv1.TaskOrder_TASK_ORDER_NAME}
	}
	first, err := l.stub.ListTasks(l.Context(), base())
	if err != nil || first.NextPageToken == "" {
		t.Fatal(err)
	}
	token := first.NextPageToken
	for name, change := range map[string]func(*wattmarkv1.ListTasksRequest){
		"user": func(r *wattmarkv1.ListTasksRequest) { r.User = "ada" }, "name": func(r *wattmarkv1.ListTasksRequest) { r.Name = "g*" },
		"gpu": func(r *wattmarkv1.ListTasksRequest) { r.Gpu = "h" }, "states": func(r *wattmarkv1.ListTasksRequest) { r.States = append(r.States, running) },
		"energy": func(r *wattmarkv1.ListTasksRequest) { r.MinEnergyJ = 1 }, "duration": func(r *wattmarkv1.ListTasksRequest) { r.MaxDurationS = 1 },
		"order": func(r *wattmarkv1.ListTasksRequest) { r.Order = 2 }, "ascending": func(r *wattmarkv1.ListTasksRequest) { r.Ascending = true },
		"group": func(r *wattmarkv1.ListTasksRequest) { r.GroupId = 2 }, "since": func(r *wattmarkv1.ListTasksRequest) { r.Since = timestamppb.New(testdb.Launched) },
		"cut":     func(r *wattmarkv1.ListTasksRequest) { r.PageToken = token[:len(token)-2] },
		"garbage": func(r *wattmarkv1.ListTasksRequest) { r.PageToken = "% %" },
		"version": func(r *wattmarkv1.ListTasksRequest) { r.PageToken = "B" + token[1:] },
		"changed": func(r *wattmarkv1.ListTasksRequest) { r.PageToken = token[:16] + "zzzz" + token[20:] },
		"short":   func(r *wattmarkv1.ListTasksRequest) { r.PageToken = "Ag" },
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
	for field, req := range map[string]*wattmarkv1.ListTasksRequest{
		"page_size": {PageSize: -1}, "name": {Name: strings.Repeat("*x", 40)}, "user": {User: strings.Repeat("я", 5000)}, "gpu": {Gpu: strings.Repeat("g", 9000)},
		"states[1]": {States: []wattmarkv1.TaskState{running, 77}}, "verdicts[0]": {Verdicts: []wattmarkv1.Verdict{0}}, "order": {Order: -4},
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
