package compare

import (
	"slices"
	"testing"

	"github.com/wattmark/wattmark/store"
)

// Tasks with the same fault share a caution, which names the first of them.
func TestFaultyTasksShareACaution(t *testing.T) {
	task := func(id store.TaskID, s store.State) *store.Task {
		var t store.Task
		t.ID, t.State = id, s
		return &t
	}
	got := faulty([]*store.Task{task(7, store.Running), task(3, store.Running), task(4, store.Failed), task(5, store.Running)})
	want := []string{
		"task 3 and 2 more are running: wattmark show 3 says why",
		"task 4 is failed: wattmark show 4 says why",
	}
	for _, caution := range want {
		if !slices.Contains(got, caution) {
			t.Errorf("%q is not among %q", caution, got)
		}
	}
}
