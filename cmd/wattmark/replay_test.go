package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// sharedData finds the public recordings beside the repository.
func sharedData(t *testing.T, parts ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(append([]string{dir, "..", "shared", "data"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skip("the public recordings are not here: ", err)
	}
	return path
}

// What a plain decode of the public recordings comes to, between the first and
// the last kernel event (the data's own README).
var recorded = map[string]struct{ meterJ, nvmlJ, errorPct float64 }{
	"3090-square": {2392.5, 2252.1, -5.87},
	"3090-step":   {3438.9, 3259.2, -5.23},
	"a100-step":   {1579.9, 1491.0, -5.63},
	"k40m-step":   {945.9, 974.7, 3.05},
}

func TestReplay(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	for name, want := range recorded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, db := sharedData(t, "pmd", name), filepath.Join(t.TempDir(), "power.db")
			r := bench.ReplayReport{Report: &report.Report{}}
			raw := object(t, inside(t, "replay", "--json", "--shift", "-50ms", "--utc-offset", "1h",
				"--db", db, dir).ok(t).out, &r)
			for _, field := range []string{"energy_j", "nvml_j", "error_pct"} {
				if _, ok := raw[field]; !ok {
					t.Fatalf("%s is missing", field)
				}
			}
			if relative(*r.EnergyJ, want.meterJ) > 5e-4 || relative(*r.NVMLJ, want.nvmlJ) > 5e-4 || math.Abs(*r.ErrorPct-want.errorPct) > 0.05 {
				t.Errorf("meter %v J, NVML %v J, error %v %%, want %+v", *r.EnergyJ, *r.NVMLJ, *r.ErrorPct, want)
			}
			if math.Abs(*r.ErrorPct-100*(*r.NVMLJ / *r.EnergyJ - 1)) > 1e-9 || *r.EnergyUJ <= 0 {
				t.Errorf("figures that contradict each other: %+v", r)
			}
			i, err := os.Stat(filepath.Join(dir, "PMD_data.bin"))
			if err != nil {
				t.Fatal(err)
			}
			if r.Stored != uint64(i.Size()/18) || r.Gaps != 0 || r.Lost != 0 {
				t.Errorf("%d scans stored of %d, %d gaps", r.Stored, i.Size()/18, r.Gaps)
			}
			if len(r.Missing) != 1 || r.Missing[0] != "pcie_3v3" || r.State != "complete" {
				t.Errorf("missing rails %v, %s", r.Missing, r.State)
			}
			validateReplayed(t, db, name)
		})
	}
}

// Bytes that make no scan cost none of the others: the line is silent behind the last of them until the
// command gives up waiting.
func TestReplayOfABrokenFrame(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "power.db")
	if err := os.CopyFS(dir, os.DirFS(sharedData(t, "pmd", "a100-step"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "PMD_data.bin")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw = slices.Delete(raw, 18*40_000+5, 18*40_000+9)
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	r := bench.ReplayReport{Report: &report.Report{}}
	object(t, inside(t, "replay", "--json", "--shift", "-50ms", "--utc-offset", "1h", "--db", db, dir).ok(t).out, &r)
	if r.State != "complete" || r.Stored < 67048 || r.Stored > 67050 {
		t.Errorf("%d scans of 67050 that are whole, %s", r.Stored, r.State)
	}
}

func TestReplayOfWhatIsNoRecording(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	db := filepath.Join(t.TempDir(), "power.db")
	dir := t.TempDir()
	inside(t, "replay", "--db", db, filepath.Join(dir, "nowhere")).fails(t, cli.ExitFailed, "nowhere")
	inside(t, "replay", "--db", db, dir).fails(t, cli.ExitFailed, "PMD_start_ts.txt", dir)
	inside(t, "replay", "--db", db).fails(t, cli.ExitUsage)
	// Wrong clocks: the sensor's readings and the meter's must cover the events.
	rec := sharedData(t, "pmd", "a100-step")
	inside(t, "replay", "--db", db, rec).fails(t, cli.ExitFailed, "--utc-offset")
	inside(t, "replay", "--db", db, "--utc-offset", "1h", "--shift", "1h", rec).fails(t, cli.ExitFailed, "--shift")
	for id := range store.TaskID(2) {
		if x, ok := onlyTask(t, db, id+1); !ok || x.State != store.Untrimmed || x.Scans != 67051 || x.Reason == "" {
			t.Errorf("task %d, with all its samples: %v, %d scans, %v: %s", id+1, ok, x.Scans, x.State, x.Reason)
		}
	}
}
