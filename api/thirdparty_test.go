package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/api/internal/testdb"
)

// python is Debian's own, which sees Debian's packages.
const python = "/usr/bin/python3"

// needPython skips the test where Debian's gRPC for Python is absent, unless
// WATTMARK_REQUIRE_TOOLS=1 says that it must be there.
func needPython(t *testing.T) {
	t.Helper()
	out, err := exec.Command(python, "-c", "import grpc, grpc_tools, google.protobuf").CombinedOutput()
	if err == nil {
		return
	}
	reason := fmt.Sprintf("no gRPC for Python (apt-get install python3-grpcio python3-grpc-tools python3-protobuf): %v\n%s", err, out)
	if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// thirdParty is what testdata/third_party.py prints.
type thirdParty struct {
	ByUser   [][]any    `json:"by_user"`
	ByName   [][]any    `json:"by_name"`
	ByPrefix [][]any    `json:"by_prefix"`
	All      [][]any    `json:"all"`
	Users    [][]any    `json:"users"`
	EnergyJ  float64    `json:"energy_j"`
	Window   [2]float64 `json:"window"`
	Samples  struct {
		Seq      []uint64    `json:"seq"`
		TS       []float64   `json:"t_s"`
		PowerW   []float64   `json:"power_w"`
		CurrentA []float64   `json:"current_a"`
		VoltageV []float64   `json:"voltage_v"`
		Gaps     [][2]uint64 `json:"gaps"`
		Rails    []string    `json:"rails"`
	} `json:"samples"`
	Names    [][]any     `json:"names"`
	Total    [2]float64  `json:"total"`
	Envelope [][]any     `json:"envelope"`
	SpanJ    float64     `json:"span_j"`
	Kernels  int         `json:"kernels"`
	Sums     [][]any     `json:"sums"`
	Watch    string      `json:"watch"`
	Chunks   [][4]uint64 `json:"chunks"`
	Missing  [2]string   `json:"missing"`
	Bad      [2]string   `json:"bad"`
	Deleted  int         `json:"deleted"`
	Left     [][]any     `json:"left"`
	Labels   []any       `json:"labels"`
	ByLabel  [][][]any   `json:"by_label"`
	BadLabel [2]string   `json:"bad_label"`
}

// A client that we did not write, in another language, with stubs made from
// the .proto files here and now, against a real server over a real database.
func TestThirdPartyClient(t *testing.T) {
	needPython(t)
	address, stop, err := testdb.Serve(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, python, filepath.Join("testdata", "third_party.py"), filepath.Join("..", "proto"), address)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var got thirdParty
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, stdout.String())
	}
	checkLists(t, &got)
	checkSamples(t, &got)
}

func checkLists(t *testing.T, got *thirdParty) {
	t.Helper()
	type rows = [][]any
	task1, task2, task3 := []any{1.0, "ada", "gemm"}, []any{2.0, "ada", "axpy"}, []any{3.0, "bob", "gemm"}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"by user", got.ByUser, rows{task2, task1}},
		{"by name", got.ByName, rows{task3, task1}},
		{"by prefix", got.ByPrefix, rows{task2}},
		{"all", got.All, rows{task3, task2, task1}},
		{"users", got.Users, rows{{"ada", 2.0}, {"bob", 1.0}}},
		{"masked, by name", got.Names, rows{{"axpy", 0.0}, {"gemm", 0.0}, {"gemm", 0.0}}},
		{"envelope", got.Envelope, rows{{"slot", []any{0.0, 1.0, 2.0, 3.0, 4.0}, []any{10.5, 10.5, 10.5, 10.5, 10.5}}}},
		{"tasks in total", got.Total[0], 3.0},
		{"joules of the window, from its samples", math.Abs(got.SpanJ-got.EnergyJ) < 1e-9, true},
		{"sums", got.Sums, rows{{"ada", 2.0}, {"bob", 1.0}}},
		{"kernels", got.Kernels, 0},
		{"watch", got.Watch, "TASK_EVENT_WATCHING"},
		{"labels", got.Labels, []any{map[string]any{"node": "核-3"}, true, []any{1.0, 2.0}, []any{"fan stands"}, false}},
		{"by tag, by none, by words", got.ByLabel, []rows{{task2}, {task3, task1}, {task2}}},
		{"code of a bad tag", got.BadLabel[0], "INVALID_ARGUMENT"},
		{"deleted", got.Deleted, 1},
		{"left", got.Left, rows{task2, task1}},
		{"window", got.Window, [2]float64{testdb.From, testdb.To}},
		{"code of a missing task", got.Missing[0], "NOT_FOUND"},
		{"code of a bad request", got.Bad[0], "INVALID_ARGUMENT"},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("%s: %s", c.what, d)
		}
	}
}

func checkSamples(t *testing.T, got *thirdParty) {
	t.Helper()
	s := &got.Samples
	first := uint64(testdb.From * testdb.Scans)
	last := uint64(testdb.To * testdb.Scans)
	n := int(last-first) + 1 - testdb.GapScans
	if len(s.Seq) != n || len(s.TS) != n || len(s.PowerW) != n || len(s.CurrentA) != n || len(s.VoltageV) != n {
		t.Fatalf("%d, %d, %d, %d and %d values, want %d of each", len(s.Seq), len(s.TS), len(s.PowerW), len(s.CurrentA), len(s.VoltageV), n)
	}
	if d := cmp.Diff([][2]uint64{{testdb.GapFrom, testdb.GapScans}}, s.Gaps); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"aux_12v", "slot"}, s.Rails); d != "" {
		t.Error(d)
	}
	scan, joules := first, 0.0
	for i := range n {
		if scan == testdb.GapFrom {
			scan += testdb.GapScans
		}
		c := testdb.Counts(scan)
		amps, volts, slot := 0.01*float64(c[0]), 0.005*float64(c[1]), 1+0.5*float64(c[2])
		for _, v := range [][2]float64{
			{float64(s.Seq[i]), float64(scan - first)},
			{s.TS[i], float64(scan)/testdb.Scans - testdb.From},
			{s.CurrentA[i], amps},
			{s.VoltageV[i], volts},
			{s.PowerW[i], amps*volts + slot},
		} {
			if math.Abs(v[0]-v[1]) > 1e-9*math.Max(1, v[1]) {
				t.Fatalf("scan %d: got %v, want %v", scan, v[0], v[1])
			}
		}
		if i > 0 {
			joules += (s.TS[i] - s.TS[i-1]) * (s.PowerW[i] + s.PowerW[i-1]) / 2
		}
		scan++
	}
	if math.Abs(joules-got.EnergyJ) > 1e-9*joules {
		t.Errorf("the samples make %v J, the task says %v J", joules, got.EnergyJ)
	}
	scans := uint64(0)
	for _, c := range got.Chunks {
		scans += c[2]
	}
	if scans < uint64(n) {
		t.Errorf("%d scans in the raw chunks, want at least %d", scans, n)
	}
}
