package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/wattmark/wattmark/cmd/internal/cli"
)

// publishedResult is a row of results.parquet.
type publishedResult struct {
	Task     int64   `parquet:"task"`
	From     float64 `parquet:"from_s"`
	To       float64 `parquet:"to_s"`
	Energy   float64 `parquet:"energy_j"`
	U        float64 `parquet:"energy_u_j"`
	Coverage float64 `parquet:"coverage_factor"`
}

// recomputed follows recompute.sql without DuckDB.
func recomputed(t *testing.T, dir string, r publishedResult) (energy, u float64) {
	t.Helper()
	rails, err := parquet.ReadFile[struct {
		At    float64 `parquet:"t_s"`
		Power float64 `parquet:"power_w"`
	}](filepath.Join(dir, fmt.Sprintf("task-%d", r.Task), "rails.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(rails); i++ {
		x, y := rails[i], rails[i+1]
		if a, b := max(x.At, r.From), min(y.At, r.To); a < b {
			energy += (b - a) * (x.Power + (y.Power-x.Power)/(y.At-x.At)*((a+b)/2-x.At))
		}
	}
	budget, err := parquet.ReadFile[struct {
		Task int64   `parquet:"task"`
		U    float64 `parquet:"u_j"`
	}](filepath.Join(dir, "budget.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range budget {
		if x.Task == r.Task {
			u += x.U * x.U
		}
	}
	return energy, r.Coverage * math.Sqrt(u)
}

// TestPublishAndBack: a dataset's own tables give its energies, and the tasks that come
// back are equal to those that went.
func TestPublishAndBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if keep := os.Getenv("WATTMARK_DATASET"); keep != "" { // for trying recompute.sql by hand
		dir = keep
	}
	from, to, set := filepath.Join(dir, "power.db"), filepath.Join(dir, "back.db"), filepath.Join(dir, "set")
	goldenDatabase(t, from)
	var tasks []string
	var list struct {
		Tasks []struct {
			TaskID int64 `json:"task_id"`
		}
	}
	if err := json.Unmarshal([]byte(inside(t, "tasks", "--json", "--db", from).ok(t).out), &list); err != nil {
		t.Fatal(err)
	}
	args := []string{"publish", "--db", from, "-o", set, "--title", "Golden tasks", "--creator", "Test lab"}
	for _, x := range list.Tasks {
		var r struct {
			Energy *float64 `json:"energy_j"`
		}
		id := fmt.Sprint(x.TaskID)
		if err := json.Unmarshal([]byte(inside(t, "show", id, "--json", "--db", from).ok(t).out), &r); err != nil {
			t.Fatal(err)
		}
		if r.Energy != nil {
			tasks = append(tasks, id)
		}
	}
	// A certificate that would replace a table, or another certificate, is refused, and nothing is there.
	named := filepath.Join(dir, "results.parquet")
	if err := os.WriteFile(named, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside(t, append(slices.Concat(args, []string{"--certificate", named}), tasks...)...).fails(t, cli.ExitFailed, named, "exists")
	if _, err := os.Stat(set); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	inside(t, append(args, tasks...)...).ok(t)
	results, err := parquet.ReadFile[publishedResult](filepath.Join(set, "results.parquet"))
	if err != nil || len(results) != len(tasks) || len(tasks) < 5 {
		t.Fatalf("%d results of %d tasks: %v", len(results), len(tasks), err)
	}
	for _, r := range results {
		e, u := recomputed(t, set, r)
		t.Logf("task %d: %v J (%.2g), U %v J (%.2g)", r.Task, e, e/r.Energy-1, u, u/r.U-1)
		if math.Abs(e/r.Energy-1) > 1e-12 || math.Abs(u/r.U-1) > 1e-12 {
			t.Errorf("task %d: %v ± %v J by the tables, %v ± %v J as measured", r.Task, e, u, r.Energy, r.U)
		}
	}
	var back struct {
		Tasks []struct {
			From int64 `json:"task_id"`
			To   int64 `json:"copy_id"`
		}
	}
	if err := json.Unmarshal([]byte(inside(t, "import", "dataset", set, "--json", "--db", to).ok(t).out), &back); err != nil || len(back.Tasks) != len(tasks) {
		t.Fatalf("%d of %d tasks came back: %v", len(back.Tasks), len(tasks), err)
	}
	inside(t, "db", "check", "--db", to).ok(t)
	for _, x := range back.Tasks {
		show := func(db string, id int64) string {
			out := inside(t, "show", fmt.Sprint(id), "--json", "--db", db).ok(t).out
			return strings.NewReplacer(db, "DB", fmt.Sprintf("\"task_id\": %d,", id), "", fmt.Sprintf("task %d", id), "").Replace(out)
		}
		if diff := cmp.Diff(show(from, x.From), show(to, x.To)); diff != "" {
			t.Errorf("task %d: %s", x.From, diff)
		}
	}
	if err := os.WriteFile(filepath.Join(set, "budget.parquet"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := inside(t, "import", "dataset", set, "--db", to); r.code != cli.ExitFailed || !strings.Contains(r.err, "budget.parquet has SHA-256") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	if r := inside(t, "import", "dataset", dir, "--db", to); r.code != cli.ExitFailed || !strings.Contains(r.err, "not a dataset") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
}
