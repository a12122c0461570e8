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
	"github.com/wattmark/wattmark/internal/coverage"
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
	columns, err := parquet.ReadFile[struct {
		Task   int64   `parquet:"task"`
		Column string  `parquet:"rail_column"`
		Behind float64 `parquet:"behind_s"`
	}](filepath.Join(dir, "columns.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	rails, err := parquet.ReadFile[any](filepath.Join(dir, fmt.Sprintf("task-%d", r.Task), "rails.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range columns {
		of := func(i int) (at, watts float64) {
			row := rails[i].(map[string]any)
			return row["t_s"].(float64) + c.Behind, row[c.Column].(float64)
		}
		for i := 0; c.Task == r.Task && i+1 < len(rails); i++ {
			x, p := of(i)
			y, q := of(i + 1)
			if a, b := max(x, r.From), min(y, r.To); a < b {
				energy += (b - a) * (p + (q-p)/(y-x)*((a+b)/2-x))
			}
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

// recomputes compares a dataset's results with what its tables give.
func recomputes(t *testing.T, set string, tasks int) {
	t.Helper()
	results, err := parquet.ReadFile[publishedResult](filepath.Join(set, "results.parquet"))
	if err != nil || len(results) != tasks || tasks < 5 {
		t.Fatalf("%d results of %d tasks: %v", len(results), tasks, err)
	}
	for _, r := range results {
		e, u := recomputed(t, set, r)
		if math.Abs(e/r.Energy-1) > 1e-12 || math.Abs(u/r.U-1) > 1e-12 {
			t.Errorf("task %d: %v ± %v J by the tables, %v ± %v J as measured", r.Task, e, u, r.Energy, r.U)
		}
	}
}

// TestDatasetOfRecordings: the recordings of H200s become tasks, and those a dataset whose tables give their energies
// although the sensor's values lie before their time stamps.
func TestDatasetOfRecordings(t *testing.T) {
	coverage.Long(t)
	noRaces(t)
	t.Parallel()
	dir := t.TempDir()
	db, set := filepath.Join(dir, "power.db"), filepath.Join(dir, "set")
	args := []string{"publish", "--db", db, "-o", set, "--title", "Benchmarks on H200s", "--creator", "Test lab"}
	recordings := recordingsOfH200(t)
	for i, name := range recordings {
		var r struct {
			State  string  `json:"state"`
			Energy float64 `json:"energy_j"`
			Reason string  `json:"reason"`
		}
		out := inside(t, "import", "recording", name, "--user", "lab", "--json", "--db", db).ok(t).out
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.State != "complete" || !strings.Contains(r.Reason, "imported from "+filepath.Base(name)) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		args = append(args, fmt.Sprint(i+1))
	}
	inside(t, args...).ok(t)
	recomputes(t, set, len(recordings))
	// What a task's recording holds is enough to measure it again.
	again := filepath.Join(dir, "again")
	inside(t, "export", "1", "--format", "recording", "-o", again, "--db", db).ok(t)
	inside(t, "import", "recording", again, "--db", db).ok(t)
	type measured struct {
		Energy  float64         `json:"energy_j"`
		U       float64         `json:"energy_u_j"`
		Window  json.RawMessage `json:"window"`
		Markers json.RawMessage `json:"markers"`
	}
	var first, second measured
	for id, into := range map[int]*measured{1: &first, len(recordings) + 1: &second} {
		if err := json.Unmarshal([]byte(inside(t, "show", fmt.Sprint(id), "--json", "--db", db).ok(t).out), into); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Error(diff)
	}
}

// recordingsOfH200 returns the folders of the recordings that play in the replay instrument.
func recordingsOfH200(t *testing.T) (dirs []string) {
	t.Helper()
	for _, pattern := range []string{"*", "markers/*"} {
		found, err := filepath.Glob("../../testdata/h200/" + pattern + "/recording.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			dirs = append(dirs, filepath.Dir(f))
		}
	}
	return dirs
}

// A recording's folder that cannot be a task is refused, by file and field, and nothing is stored.
func TestImportOfBrokenRecordings(t *testing.T) {
	t.Parallel()
	for want, change := range map[string][2]string{
		"host.json: played[0]: kind 9":                {`"kind": 1`, `"kind": 9`},
		"host.json: started: no time":                 {`"started"`, `"begun"`},
		"host.json: kernels: none":                    {`"kernels"`, `"launches"`},
		"host.json: invalid character":                {`"task"`, `task`},
		"host.json: marker: ":                         {`"chip_s": 0.131`, `"chip_s": -1`},
		"host.json: open ":                            {"", ""},
		"host.json: kernels[0]: from 2099-11-21 04:1": {`"start": "2026`, `"start": "2099`},
	} {
		dir := t.TempDir()
		set, db := filepath.Join(dir, "pulse"), filepath.Join(dir, "power.db")
		if err := os.CopyFS(set, os.DirFS("../../testdata/h200/pulse")); err != nil {
			t.Fatal(err)
		}
		host := filepath.Join(set, "host.json")
		text, err := os.ReadFile(host)
		if err == nil {
			err = os.WriteFile(host, []byte(strings.Replace(string(text), change[0], change[1], 1)), 0o600)
		}
		if change[0] == "" {
			err = os.Remove(host)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := inside(t, "import", "recording", set, "--db", db); r.code != cli.ExitFailed || !strings.Contains(strings.Join(strings.Fields(r.err), " "), want) {
			t.Errorf("%s: exit code %d\n%s", want, r.code, r.err)
		}
	}
}

// TestPublishAndBack: a dataset's own tables give its energies, and the tasks that come
// back are equal to those that went.
func TestPublishAndBack(t *testing.T) {
	coverage.Long(t)
	noRaces(t)
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
	recomputes(t, set, len(tasks))
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
