package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// Where a command takes a task, latest is the newest and a name the newest of that name; a
// number stays a number, whatever tasks are called.
func TestTasksByName(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	db := demoDB(t, demoOf{name: "3", user: "ada", length: demo.length}, demoOf{name: "gemm", user: "ada", length: demo.length},
		demoOf{name: "gemm", user: "bob", length: demo.length}, demoOf{name: "axpy", user: "bob", length: demo.length})
	for word, want := range map[string]int64{"latest": 4, "gemm": 3, "gem*": 3, "axpy": 4, "3": 3, "2": 2} {
		var x struct {
			Task int64 `json:"task_id"`
		}
		out := inside(t, "show", word, "--db", db, "--json").ok(t).out
		if err := json.Unmarshal([]byte(out), &x); err != nil || x.Task != want {
			t.Errorf("%s is task %d, want %d: %v", word, x.Task, want, err)
		}
		file := filepath.Join(t.TempDir(), "x.csv")
		var e struct {
			TaskIDs []int64 `json:"task_ids"`
		}
		out = inside(t, "export", word, "--db", db, "--json", "-o", file).ok(t).out
		if err := json.Unmarshal([]byte(out), &e); err != nil || !slices.Equal(e.TaskIDs, []int64{want}) {
			t.Errorf("%s: %v are exported, want %d: %v", word, e.TaskIDs, want, err)
		}
	}
	for _, command := range []string{"show", "export", "delete", "pin", "trim --to 1s"} {
		args := append(strings.Fields(command), "nobody's", "--db", db)
		inside(t, args...).fails(t, cli.ExitNotFound, `no task "nobody's"`, "wattmark tasks")
	}
	inside(t, "show", "", "--db", db).fails(t, cli.ExitUsage, "not a task number")
	inside(t, "tag", "gemm", "node=a", "--db", db).ok(t)
	inside(t, "pin", "latest", "--db", db).ok(t)
	if got := listed(t, db, "--tag", "node=a"); !slices.Equal(got, []int64{3}) {
		t.Errorf("tagged: %v", got)
	}
	inside(t, "delete", "latest", "--yes", "--db", db).fails(t, cli.ExitFailed, "pinned", "4 axpy")
	inside(t, "delete", "gemm", "3", "1", "--yes", "--db", db).ok(t) // the one task by both
	if got := listed(t, db); !slices.Equal(got, []int64{4, 2}) {
		t.Errorf("left: %v", got)
	}
}

// shape is the form of a JSON value: names, and kinds of values, with one for all of a list.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range maps.All(v) {
			out[k] = shape(x)
		}
		return out
	case []any:
		if len(v) == 0 {
			return []any{}
		}
		return []any{shape(v[0])}
	case string:
		return "text"
	case float64:
		return "number"
	}
	return v
}

// The JSON of a command has one shape for one task and for two: a program that reads it need
// not count.
func TestShapeOfJSON(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	for command, more := range map[string]string{
		"validate": "--resamples 100", "recalculate": "--latest", "db compact": "", "db expand": "", "export": "-o DIR/x.db",
		"db detach DIR/y.db": "--task", "tasks": "--limit", "delete": "--yes",
	} {
		var shapes []any
		for n := 1; n <= 2; n++ {
			db := demoDB(t, pulsesOf("one"), pulsesOf("two"))
			tasks := []string{"1", "2"}[:n]
			switch more {
			case "--task":
				tasks = []string{"--task", strings.Join(tasks, ",")}
			case "--limit":
				tasks = []string{"--limit", strconv.Itoa(n)}
			}
			args := append(strings.Fields(command), tasks...)
			if more != "--task" && more != "--limit" {
				args = append(args, strings.Fields(more)...)
			}
			dir := t.TempDir()
			for i := range args {
				args[i] = strings.Replace(args[i], "DIR", dir, 1)
			}
			var v any
			out := inside(t, append(args, "--json", "--db", db)...).ok(t).out
			if err := json.Unmarshal([]byte(out), &v); err != nil {
				t.Fatalf("%s: %v in %s", command, err, out)
			}
			shapes = append(shapes, shape(v))
		}
		if diff := cmp.Diff(shapes[0], shapes[1]); diff != "" {
			t.Errorf("%s (-one task +two):\n%s", command, diff)
		}
	}
}

// A task that runs has no copy, so it is not deleted unless none is wanted.
func TestRunningTaskIsNotDeletedWithoutACopy(t *testing.T) {
	t.Parallel()
	noRaces(t)
	path := twoTasks(t)
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	id, err := db.BeginTask(t.Context(), store.NewTask{Name: "runs", User: "ada", Launched: noon})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	args := []string{"delete", "1", fmt.Sprint(id), "--yes", "--db", path}
	inside(t, args...).fails(t, cli.ExitFailed, fmt.Sprintf("task %d still runs", id), "nothing was deleted", "--purge")
	if got := listed(t, path); len(got) != 3 {
		t.Errorf("left: %v", got)
	}
	if _, err := os.Stat(path + "-deleted-1"); err == nil {
		t.Error("a copy is left")
	}
	inside(t, append(args, "--purge")...).ok(t)
}

// A deletion is undone by an import of the copy beside the database, until it is vacuumed.
func TestDeletionIsUndone(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := twoTasks(t)
	kept := func() (names []string) {
		t.Helper()
		entries, err := os.ReadDir(filepath.Dir(db))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), "deleted") {
				names = append(names, e.Name())
			}
		}
		return names
	}
	inside(t, "tag", "1", "node=a", "--db", db).ok(t)
	inside(t, "note", "1", "hot", "--db", db).ok(t)
	var before, after report.Report
	object(t, inside(t, "show", "1", "--json", "--db", db).ok(t).out, &before)
	if out := inside(t, "delete", "1", "2", "--yes", "--db", db).ok(t).out; !strings.Contains(out, "wattmark db import "+db+"-deleted-1\n") {
		t.Error(out)
	}
	if got := listed(t, db); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	inside(t, "db", "import", db+"-deleted-1", "--db", db).ok(t)
	object(t, inside(t, "show", "gemm-ada", "--json", "--db", db).ok(t).out, &after)
	if after.TaskID != 3 {
		t.Errorf("it came back as task %d", after.TaskID)
	}
	after.TaskID = before.TaskID
	if diff := cmp.Diff(before, after, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	inside(t, "db", "check", "--db", db).ok(t)

	inside(t, "delete", "latest", "--purge", "--yes", "--db", db).ok(t)
	if got := kept(); !slices.Equal(got, []string{filepath.Base(db) + "-deleted-1"}) {
		t.Errorf("kept: %v", got)
	}
	other := db + "-deleted-notes"
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inside(t, "db", "vacuum", "--db", db).ok(t)
	if got := kept(); !slices.Equal(got, []string{filepath.Base(other)}) {
		t.Errorf("kept after vacuum: %v", got)
	}
}
