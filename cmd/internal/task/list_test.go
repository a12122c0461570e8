package task

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// The list fits every terminal, keeps the task's number and energy as long as
// it can, and counts wide characters as two columns.
func TestTaskTableFits(t *testing.T) {
	launched := time.Date(2026, 11, 21, 19, 41, 0, 0, time.Local)
	result := func(e, u measure.Joule) *measure.Result {
		return &measure.Result{To: 3, Total: measure.Estimate{Energy: e, U: u}, Mean: measure.Watt(e / 3)}
	}
	rows := []store.Row{
		{Brief: store.Brief{
			ID: 1, Launched: launched, User: "ada", Name: "gemm", State: store.Complete, Result: result(771.2, 3.1),
		}},
		{Brief: store.Brief{
			ID: 123456, Launched: launched, User: "an-operator-of-the-lab", Name: strings.Repeat("行列の積", 12),
			State: store.Incomplete, Group: 7, Result: result(12345.678, 0.012),
		}},
		{Brief: store.Brief{
			ID: 3, Launched: launched, User: "b", Name: "naïve e\u0301tude 👩‍🔬" + strings.Repeat("x", 60), State: store.Untrimmed,
		}},
	}
	for _, width := range []int{200, 120, 100, 80, 60, 40, 20, 5, 1} {
		text := taskTable(rows, width)
		if got := out.Widest(text); got > width {
			t.Errorf("%d columns in %d:\n%s", got, width, text)
		}
		if !utf8.ValidString(text) {
			t.Errorf("width %d: a character was cut", width)
		}
		if lines := strings.Count(text, "\n"); lines != len(rows)+1 {
			t.Errorf("width %d: %d lines:\n%s", width, lines, text)
		}
		if width >= 60 && (!strings.Contains(text, "123456") || !strings.Contains(text, "± 0.012 J") ||
			!strings.Contains(text, "…")) {
			t.Errorf("width %d lacks what matters:\n%s", width, text)
		}
	}
	full := taskTable(rows, 0)
	if strings.Contains(full, "…") || !strings.Contains(full, rows[1].Name) || !strings.Contains(full, "19:41:00") {
		t.Errorf("a file has room:\n%s", full)
	}
	if strings.Contains(taskTable(rows[:1], 0), "group") {
		t.Error("a column of groups without a group")
	}
}
