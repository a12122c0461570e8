package api_test

import (
	"path/filepath"
	"testing"

	"wattmark/api/client"
	"wattmark/api/internal/testdb"
	"wattmark/store"
)

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
