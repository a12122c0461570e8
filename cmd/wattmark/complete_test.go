package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completed returns what the shell is offered behind words.
func completed(t *testing.T, words ...string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(inside(t, append([]string{"__complete"}, words...)...).ok(t).out), "\n")
	return lines[:len(lines)-1] // the last one is a directive
}

func TestValuesAreCompleted(t *testing.T) {
	noRaces(t)
	goldenUser(t)
	db := filepath.Join(t.TempDir(), "power.db")
	goldenDatabase(t, db)
	address := serveTasks(t, db)
	for _, c := range []struct{ words, want string }{
		{"run --benchmark", "half compute memory"},
		{"tiny --scheme", "contrast fold repeat"},
		{"tasks --format", "table csv markdown json"},
		{"export --format", "csv parquet arrow arrow-stream sqlite perfetto kernels recording"},
		{"auth token --role", "viewer measurer operator admin"},
		{"host --log-level", "debug info warn error"},
		{"sensor plan --field", "instant average usage"},
		{"tasks --user --db " + db, "ada lab root"},
		{"tasks --user --host " + address, "ada lab root"},
		{"tasks --user --host 127.0.0.1:1", ""},
		{"show --db " + filepath.Join(t.TempDir(), "none.db"), ""},
		{"show --db postgres://nobody@127.0.0.1:1/none", ""},
	} {
		words := strings.Fields(c.words)
		if i := slices.IndexFunc(words, func(w string) bool { return w == "--db" || w == "--host" }); i >= 0 {
			words = slices.Concat(words[:1], words[i:], words[1:i]) // the flag to complete comes last
		}
		got := completed(t, append(words, "")...)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.words, got, c.want)
		}
	}
}

func TestTasksAreCompleted(t *testing.T) {
	noRaces(t)
	goldenUser(t)
	db := filepath.Join(t.TempDir(), "power.db")
	goldenDatabase(t, db)
	for _, at := range [][]string{{"--db", db}, {"--host", serveTasks(t, db)}} {
		for _, command := range []string{"show", "export", "validate", "compare"} {
			if got := completed(t, append([]string{command, at[0], at[1]}, "")...); len(got) != 13 ||
				got[6] != "7\tcopy, 2026-11-23" {
				t.Errorf("%s %s: %q", command, at[0], got)
			}
		}
		if got := completed(t, "tasks", at[0], at[1], "--name", ""); !slices.Contains(got, "gemm-fp16") {
			t.Errorf("names at %s: %q", at[0], got)
		}
	}
	t.Setenv("WATTMARK_DB", db)
	if got := completed(t, "trim", ""); len(got) != 13 {
		t.Errorf("of WATTMARK_DB: %q", got)
	}
	if got := completed(t, "tasks", "--columns", "task,en"); !slices.Contains(got, "task,energy") {
		t.Errorf("columns: %q", got)
	}
	if got := completed(t, "run", "--duration", "5"); !slices.Equal(got, []string{"5ms", "5s", "5m", "5h"}) {
		t.Errorf("durations: %q", got)
	}
	if got := completed(t, "monitor", "--instrument", ""); !slices.ContainsFunc(got, func(s string) bool {
		return strings.HasPrefix(s, "powersensor3\tPowerSensor3")
	}) {
		t.Errorf("instruments: %q", got)
	}
}
