package processes

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"wattmark/cmd/campaign/play"
)

// Real processes, for as many schedules as there is time for. It is longer by command:
// go run ./cmd/campaign --schedules 0 --real 500 --wattmark bin/wattmark.
func TestProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("other processes are raced by no detector of this one")
	}
	together := false
	if err := Available(); err != nil {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatal(err)
		}
		t.Logf("on one machine, without faults of the network: %v", err)
		together = true
	}
	look(t)
	program := filepath.Join(t.TempDir(), "wattmark")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "wattmark/cmd/wattmark")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const n, limit = 126, 30 * time.Second
	r, err := Run(t.Context(), Options{Options: play.Options{Seed: 1, Schedules: n, Until: time.Now().Add(limit)}, Program: program, Together: together})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d schedules of %d in %v\n%s", r.Played, n, r.Took.Round(time.Millisecond), Table(&r))
	if r.Played < 4 {
		t.Errorf("%d schedules show nothing", r.Played)
	}
	for _, v := range r.Violated {
		t.Error(v)
	}
}

// look makes the go command remember which files the program rests on, so that a cached
// verdict does not outlive a change: what go build reads is not seen by it.
func look(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Seeds that follow each other reach each fault.
func TestDrawReachesEachFault(t *testing.T) {
	for _, together := range []bool{false, true} {
		seen := map[string]bool{}
		want := len(nearby)
		if !together {
			want += len(between)
		}
		for seed := range uint64(want) {
			seen[Draw(seed, together).Faults[0].name] = true
		}
		if len(seen) != want {
			t.Errorf("%d of %d faults", len(seen), want)
		}
	}
}
