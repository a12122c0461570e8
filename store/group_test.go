package store

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func beginGroup(t *testing.T, d *DB) (GroupID, []GroupMember) {
	t.Helper()
	members := []GroupMember{
		{GPU: "H200", GPUUUID: "GPU-1", Monitor: "a:1"}, {GPU: "H200", GPUUUID: "GPU-2", Monitor: "b:1"}, {GPU: "A100", GPUUUID: "GPU-3", Reason: "no monitor answers"},
	}
	return must(d.BeginGroup(t.Context(), NewGroup{Name: "train", User: "lab", Launched: epoch, Members: members}))(t), members
}

func TestGroupTiesTasks(t *testing.T) {
	d, ctx := open(t), t.Context()
	id, members := beginGroup(t, d)
	for i := range 2 {
		n := newTask("train", "lab")
		n.Group = GroupRef{id, i}
		members[i].Task = must(d.BeginTask(ctx, n))(t)
	}
	alone := must(d.BeginTask(ctx, newTask("alone", "lab")))(t)
	g := must(d.Group(ctx, id))(t)
	if diff := cmp.Diff(Group{id, NewGroup{"train", "lab", epoch, members}}, g); diff != "" {
		t.Error(diff)
	}
	for task, want := range map[TaskID]GroupRef{members[0].Task: {id, 0}, members[1].Task: {id, 1}, alone: {}} {
		if got := must(d.Task(ctx, task))(t).Group; got != want {
			t.Errorf("task %d: %+v, want %+v", task, got, want)
		}
	}
	if list := must(d.Tasks(ctx, Query{}))(t); len(list) != 3 || list[2].Group != id || list[0].Group != 0 {
		t.Errorf("list %+v", list)
	}
	// A member is measured once, and a task may not claim what is not there.
	for _, r := range []GroupRef{{id, 0}, {id, 7}, {id + 1, 0}} {
		n := newTask("again", "lab")
		n.Group = r
		if got, err := d.BeginTask(ctx, n); !errors.Is(err, ErrNotFound) {
			t.Errorf("%+v: task %d, %v", r, got, err)
		}
	}
	ok(t, d.FailMember(ctx, GroupRef{id, 0}, "late news")) // it has a task that tells more
	ok(t, d.FailMember(ctx, GroupRef{id, 2}, "monitor\x1b[31m is away"))
	g = must(d.Group(ctx, id))(t)
	if g.Members[0].Reason != "" || g.Members[2].Reason == "no monitor answers" || g.Members[2].Reason == "monitor\x1b[31m is away" {
		t.Errorf("members %+v", g.Members)
	}
}

// A group remembers a deleted task, and goes with its last one.
func TestDeletedTasksOfAGroup(t *testing.T) {
	d, ctx := open(t), t.Context()
	id, _ := beginGroup(t, d)
	var tasks []TaskID
	for i := range 2 {
		n := newTask("train", "lab")
		n.Group = GroupRef{id, i}
		tasks = append(tasks, must(d.BeginTask(ctx, n))(t))
	}
	ok(t, d.DeleteTask(ctx, tasks[0]))
	g := must(d.Group(ctx, id))(t)
	if m := g.Members[0]; m.Task != 0 || m.Reason != "task 1 was deleted" || g.Members[1].Task != tasks[1] {
		t.Errorf("members %+v", g.Members)
	}
	ok(t, d.DropGroup(ctx, id)) // it has a task
	must(d.Group(ctx, id))(t)
	must(d.DeleteByUser(ctx, "lab", DeleteOptions{}))(t)
	if _, err := d.Group(ctx, id); !errors.Is(err, ErrNotFound) {
		t.Errorf("a group without tasks: %v", err)
	}
	// A group that has no task yet is nobody's business but its host's.
	fresh, _ := beginGroup(t, d)
	other := must(d.BeginTask(ctx, newTask("x", "lab")))(t)
	ok(t, d.DeleteTask(ctx, other))
	must(d.Group(ctx, fresh))(t)
	if fresh == id {
		t.Error("a group's number was used again")
	}
	ok(t, d.DropGroup(ctx, fresh))
	if _, err := d.Group(ctx, fresh); !errors.Is(err, ErrNotFound) {
		t.Errorf("a dropped group: %v", err)
	}
}

func TestBeginGroupRefuses(t *testing.T) {
	d := open(t)
	for name, g := range map[string]NewGroup{
		"no name": {User: "u", Members: make([]GroupMember, 1)}, "no user": {Name: "n", Members: make([]GroupMember, 1)},
		"no GPUs": {Name: "n", User: "u"}, "no text": {Name: "\x1b", User: "u", Members: make([]GroupMember, 1)},
	} {
		if id, err := d.BeginGroup(t.Context(), g); err == nil {
			t.Errorf("%s: group %d", name, id)
		}
	}
}

func TestBenchGPUIsKept(t *testing.T) {
	d, ctx := open(t), t.Context()
	id := must(d.BeginTask(ctx, newTask("x", "lab")))(t)
	h := header(threeRails(evenly))
	h.BenchGPU = "GPU-1"
	ok(t, d.PutHeader(ctx, id, h))
	if got := must(d.Task(ctx, id))(t).BenchGPU; got != "GPU-1" {
		t.Errorf("got %q", got)
	}
	h.BenchGPU = ""
	ok(t, d.PutHeader(ctx, id, h))
	if got := must(d.Task(ctx, id))(t).BenchGPU; got != "" {
		t.Errorf("got %q", got)
	}
}
