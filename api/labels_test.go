package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/wattmark/wattmark/api/internal/testdb"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/store"
)

func (l *lab) update(id int64, task *pb.Task, paths ...string) (*pb.Task, error) {
	l.Helper()
	res, err := l.stub.UpdateTask(l.Context(), &pb.UpdateTaskRequest{TaskId: id, Task: task, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	return res.GetTask(), err
}

// What a mask names changes, and nothing else.
func TestUpdateTask(t *testing.T) {
	l := newLab(t)
	type tags = map[string]string
	for i, c := range []struct {
		task   *pb.Task
		paths  []string
		tags   tags
		pinned bool
	}{
		{&pb.Task{Tags: tags{"a": "1", "b.c": "x=y"}}, nil, tags{"a": "1", "b.c": "x=y"}, false},
		{&pb.Task{Pinned: true, Name: "passed over", TaskId: 77}, nil, tags{"a": "1", "b.c": "x=y"}, true},
		{&pb.Task{Tags: tags{"b.c": "2", "z": "not named"}}, []string{"tags.b.c", "tags.a", "task_id"}, tags{"b.c": "2"}, true},
		{nil, []string{"tags.never"}, tags{"b.c": "2"}, true},
		{&pb.Task{Tags: tags{"узел": "核'; DROP TABLE task;--"}}, []string{"tags"}, tags{"узел": "核'; DROP TABLE task;--"}, true},
		{&pb.Task{}, []string{"pinned"}, tags{"узел": "核'; DROP TABLE task;--"}, false},
		{&pb.Task{Tags: tags{"n": ""}, Pinned: true}, []string{"*"}, tags{"n": ""}, true},
		{nil, []string{"tags"}, nil, true},
	} {
		got, err := l.update(2, c.task, c.paths...)
		if err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		if d := cmp.Diff(c.tags, got.Tags); d != "" || got.Pinned != c.pinned || got.Name != "axpy" || got.Verdict == 0 {
			t.Errorf("change %d: %s pinned %v, %v", i, d, got.Pinned, got)
		}
		if whole := taskOf(t, l, 2); !cmp.Equal(whole.Tags, got.Tags) || whole.Pinned != got.Pinned {
			t.Errorf("change %d: GetTask says %v, UpdateTask %v", i, whole, got)
		}
	}
	if other := taskOf(t, l, 1); len(other.Tags) > 0 || other.Pinned {
		t.Errorf("task 1 changed: %v", other)
	}
}

func TestUpdateTaskRefuses(t *testing.T) {
	l := newLab(t)
	many := &pb.Task{Tags: map[string]string{}}
	for i := range 257 {
		many.Tags[fmt.Sprint("k", i)] = "v"
	}
	for _, c := range []struct {
		id    int64
		task  *pb.Task
		paths []string
		code  codes.Code
		says  string
	}{
		{0, many, nil, codes.InvalidArgument, "task_id: "},
		{99, &pb.Task{Pinned: true}, nil, codes.NotFound, "no such task"},
		{1, nil, nil, codes.InvalidArgument, "update_mask: nothing"},
		{1, &pb.Task{Name: "x"}, nil, codes.InvalidArgument, "update_mask: nothing"},
		{1, &pb.Task{Name: "x"}, []string{"name"}, codes.InvalidArgument, `update_mask.paths[0]: "name"`},
		{1, nil, []string{"pinned", "tags."}, codes.InvalidArgument, "update_mask.paths[1]: "},
		{1, nil, []string{"tags.a b"}, codes.InvalidArgument, "update_mask.paths[0]: "},
		{1, nil, []string{""}, codes.InvalidArgument, "update_mask.paths[0]: "},
		{1, nil, strings.Split(strings.Repeat("pinned,", 256)+"tags", ","), codes.InvalidArgument, "update_mask: 257 paths"},
		{1, many, []string{"tags"}, codes.InvalidArgument, "task.tags: 257 tags"},
		{1, &pb.Task{Tags: map[string]string{"a": strings.Repeat("v", 5000)}}, nil, codes.InvalidArgument, "task.tags: "},
		{1, &pb.Task{Tags: map[string]string{"a": "\x1b[2J"}}, nil, codes.InvalidArgument, "task.tags: "},
	} {
		_, err := l.update(c.id, c.task, c.paths...)
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.says) {
			t.Errorf("%v %q: %v, want %v", c.task, c.paths, err, c.says)
		}
	}
}

func TestNotes(t *testing.T) {
	l := newLab(t)
	for i, text := range []string{"fan at 40 %", "Вентилятор 核"} {
		res, err := l.stub.CreateNote(l.Context(), &pb.CreateNoteRequest{TaskId: 1, Note: &pb.Note{Text: text, Number: 42}})
		if err != nil || res.Note.Number != uint32(i+1) || res.Note.Text != text || res.Note.At == nil {
			t.Fatalf("%v %v", res, err)
		}
	}
	if err := l.db.PutProvenance(l.Context(), 1, store.Provenance{Host: "gpu1", Command: []string{"./gemm"}, TraceID: "0af7"}); err != nil {
		t.Fatal(err)
	}
	_, err := l.stub.DeleteNote(l.Context(), &pb.DeleteNoteRequest{TaskId: 1, Number: 1})
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.stub.GetTask(l.Context(), &pb.GetTaskRequest{TaskId: 1})
	if err != nil || len(got.Notes) != 1 || got.Notes[0].Number != 2 || got.Provenance.Host != "gpu1" || got.Provenance.TraceId != "0af7" || got.Provenance.Command[0] != "./gemm" {
		t.Errorf("%v %v", got, err)
	}
	for what, call := range map[string]func() error{
		"note.text: ": func() error {
			_, err := l.stub.CreateNote(l.Context(), &pb.CreateNoteRequest{TaskId: 1, Note: &pb.Note{Text: "\n"}})
			return err
		},
		"number: ": func() error {
			_, err := l.stub.DeleteNote(l.Context(), &pb.DeleteNoteRequest{TaskId: 1})
			return err
		},
		"no such note": func() error {
			_, err := l.stub.DeleteNote(l.Context(), &pb.DeleteNoteRequest{TaskId: 1, Number: 1})
			return err
		},
		"task_id: ": func() error {
			_, err := l.stub.CreateNote(l.Context(), &pb.CreateNoteRequest{TaskId: -1})
			return err
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
}

func TestTasksByLabels(t *testing.T) {
	l := newLab(t)
	for id, tags := range map[int64]map[string]string{1: {"node": "a3", "cooler": "water"}, 2: {"node": "b1"}} {
		if _, err := l.update(id, &pb.Task{Tags: tags}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.stub.CreateNote(l.Context(), &pb.CreateNoteRequest{TaskId: 3, Note: &pb.Note{Text: "Lüfter stand still"}}); err != nil {
		t.Fatal(err)
	}
	type r = pb.ListTasksRequest
	for _, c := range []struct {
		req  *r
		want string
	}{
		{&r{Tags: []string{"node"}}, "2 1"},
		{&r{Tags: []string{"node=a3", "cooler"}}, "1"},
		{&r{Tags: []string{"node=a3", "node=b1"}}, ""},
		{&r{WithoutTags: []string{"node=b1", "cooler=air"}}, "3 1"},
		{&r{Tags: []string{"node"}, WithoutTags: []string{"cooler"}, Order: pb.TaskOrder_TASK_ORDER_ENERGY}, "2"},
		{&r{Search: "lüft STILL"}, "3"},
		{&r{Search: "wat gemm"}, "1"},
		{&r{Search: `" OR task_text MATCH "`}, ""},
		{&r{Tags: []string{"'; DROP TABLE task;--"[:2]}}, ""},
	} {
		for _, size := range []int32{0, 1} {
			c.req.PageSize, c.req.PageToken = size, ""
			if got := l.ids(c.req); got != c.want {
				t.Errorf("%v: got %q, want %q", c.req, got, c.want)
			}
		}
	}
	first, err := l.stub.ListTasks(l.Context(), &r{Tags: []string{"node"}, PageSize: 1})
	if err != nil || first.Tasks[0].Tags["node"] != "b1" {
		t.Fatal(first, err)
	}
	for _, req := range []*r{{Tags: []string{"node=b1"}}, {WithoutTags: []string{"node"}}, {Tags: []string{"node"}, Search: "b1"}, {}} {
		req.PageToken = first.NextPageToken
		if _, err := l.stub.ListTasks(l.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v took the token of another question: %v", req, err)
		}
	}
	sums, err := l.stub.Aggregate(l.Context(), &pb.AggregateRequest{By: pb.AggregateBy_AGGREGATE_BY_TAG, TagKey: "node", WithoutTags: []string{"node=b1"}})
	if err != nil || sums.RowCount != 2 || sums.Totals.Tasks != 2 || sums.Rows[0].Key+sums.Rows[1].Key != "a3" {
		t.Errorf("%v %v", sums, err)
	}
}

// A change of labels is told to those who watch the task.
func TestWatchTellsOfLabels(t *testing.T) {
	l := newLab(t)
	all, _ := l.watch(&pb.WatchTasksRequest{})
	tagged, _ := l.watch(&pb.WatchTasksRequest{Tags: []string{"node=a3"}, WithoutTags: []string{"dull"}})
	all(event{watching, 0, none})
	tagged(event{watching, 0, none})
	complete := pb.TaskState_TASK_STATE_COMPLETE
	for id, tags := range []map[string]string{1: {"node": "b1"}, 2: {"node": "a3", "dull": "1"}, 3: {"node": "a3"}} {
		if id == 0 {
			continue
		}
		if err := l.db.SetTags(l.Context(), store.TaskID(id), tags, nil); err != nil {
			t.Fatal(err)
		}
		all(event{changed, int64(id), complete})
	}
	tagged(event{changed, 3, complete})
	if err := l.db.Pin(l.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	all(event{changed, 1, complete})
	if _, err := l.db.AddNote(l.Context(), 2, testdb.Launched, "x"); err != nil {
		t.Fatal(err)
	}
	all(event{changed, 2, complete})
}
