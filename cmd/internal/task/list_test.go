package task

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/wattmark/wattmark/cmd/internal/out"
)

// The list fits every terminal, keeps the task's number and energy as long as
// it can, and counts wide characters as two columns.
func TestTaskTableFits(t *testing.T) {
	rows := []taskRow{
		{
			"task": "1", "launched": "2026-11-21 19:40:00", "user": "ada", "name": "gemm", "state": "complete", "duration": "3.000 s",
			"energy": "771.2 J ± 3.1 J", "mean": "257.1 W",
		},
		{
			"task": "123456", "launched": "2026-11-21 19:41:00", "user": "an-operator-of-the-lab", "name": strings.Repeat("行列の積", 12),
			"state": "incomplete", "group": "7", "energy": "12345.678 J ± 0.012 J",
		},
		{
			"task": "3", "launched": "2026-11-21 19:42:00", "user": "b", "name": "naïve e\u0301tude 👩‍🔬" + strings.Repeat("x", 60),
			"state": "untrimmed",
		},
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
	if strings.Contains(full, "…") || !strings.Contains(full, rows[1]["name"]) || !strings.Contains(full, "19:41:00") {
		t.Errorf("a file has room:\n%s", full)
	}
	if rows[1]["launched"] != "2026-11-21 19:41:00" {
		t.Error("the rows were changed")
	}
	if strings.Contains(taskTable(rows[:1], 0), "group") {
		t.Error("a column of groups without a group")
	}
}
