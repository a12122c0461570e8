package validate

import (
	"math"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// A task that cannot be a subject is refused with a remedy.
func TestTaskSubjectRefuses(t *testing.T) {
	for _, c := range []struct {
		task store.Task
		want string
	}{
		{store.Task{ID: 4, State: store.Running}, "still runs"},
		{store.Task{ID: 4, State: store.Complete}, "no samples"},
		{store.Task{ID: 4, State: store.Untrimmed, Scans: 5}, "wattmark trim 4"},
	} {
		if _, err := taskSubject(t.Context(), nil, &c.task); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// The relative and the offset part add up to the budget without the window's edges, which
// the uncertainty of the clock covers.
func TestBudgetOf(t *testing.T) {
	r := measure.Result{From: 1, To: 5, Total: measure.Estimate{Energy: 400, U: 2 * 13}, Budget: []measure.Contribution{
		{Source: "gain x", U: 4}, {Source: "offset x", U: 3}, {Source: "window edges", U: 12},
	}}
	relative, offset := budgetOf(&r)
	if math.Abs(relative-0.01) > 1e-12 || math.Abs(float64(offset)-0.75) > 1e-12 {
		t.Errorf("%v relative and %v", relative, offset)
	}
	r.Budget = nil
	if relative, offset = budgetOf(&r); math.Abs(relative-13.0/400) > 1e-12 || offset != 0 {
		t.Errorf("%v relative and %v", relative, offset)
	}
}
