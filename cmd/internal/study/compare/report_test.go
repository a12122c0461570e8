package compare

import (
	"slices"
	"strings"
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

// Kernels that one side lacks are a caution, also where no kernel is left to compare.
func TestKernelsOfOneSideAreACaution(t *testing.T) {
	for _, c := range []struct {
		compared, onlyA, onlyB int
		want                   string
	}{
		{3, 1, 0, "1 kernel ran in A only, 0 in B only"}, {0, 1, 2, "no kernel is compared"}, {3, 0, 0, ""}, {0, 2, 0, ""},
	} {
		if got := leftOut(c.compared, c.onlyA, c.onlyB); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
