package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure/quality"
)

// What cannot be measured as asked is refused before the bench is asked for: there is
// no monitor at all here, and no GPU.
func TestRefusedBeforeTheBench(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	taken := filepath.Join(dir, "taken.svg")
	takenCSV := filepath.Join(dir, "taken.csv")
	for _, f := range []string{plain, taken, takenCSV} {
		if err := os.WriteFile(f, []byte("no program"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	const nowhere = "127.0.0.1:1"
	sim := "sim:" + filepath.Join(dir, "no-gpu")
	for _, tc := range []struct {
		code int
		text string
		args []string
	}{
		{127, "no such program", []string{"run", "--", "./gemm", "4096"}},
		{127, "no such program", []string{"run", "--", "no-such-program-here"}},
		{126, "permission denied", []string{"run", "--", plain}},
		{126, "is a directory", []string{"run", "--", dir}},
		{127, "no such program", []string{"run", "no-such-program-here", "-la", "--gpu"}},
		{127, "no such program", []string{"sensor", "run", "--length", "1s", "./gemm", "-n", "4096"}},
		{127, "no such program", []string{"run", "--gpus", sim, "--", "./gemm"}},
		{127, "no such program", []string{"sensor", "run", "--length", "1s", "--", "./gemm"}},
		{2, "--duration -1s", []string{"run", "--benchmark", "memory", "--duration", "-1s"}},
		{2, "--duration 0s", []string{"run", "--benchmark", "memory", "--duration", "0"}},
		{2, "--warm-up", []string{"run", "--benchmark", "memory", "--warm-up", "-1s"}},
		{2, "--wait", []string{"run", "--benchmark", "memory", "--wait", "-1s"}},
		{2, "--pulse", []string{"run", "--benchmark", "memory", "--pulse", "-1ms"}},
		{2, "--benchmark", []string{"run", "--benchmark", "gemm"}},
		{2, "--benchmark", []string{"pulse", "--benchmark", "gemm"}},
		{2, "exists", []string{"pulse", "--svg", taken}},
		{2, "no folder", []string{"pulse", "--svg", filepath.Join(dir, "absent", "x.svg")}},
		{2, "--benchmark", []string{"sensor", "load", "--benchmark", "gemm"}},
		{2, "exists", []string{"sensor", "load", "--svg", taken}},
		{2, "--carrier", []string{"tiny", "--carrier", "gemm", "--benchmark", "memory", "--length", "1ms"}},
		{2, "--wander NaN", []string{"tiny", "--wander", "NaN", "--benchmark", "memory", "--length", "1ms"}},
		{2, "--until-u", []string{"tiny", "--until-u", "NaN", "--benchmark", "memory", "--length", "1ms"}},
		{2, "--duration", []string{"roofline", "sweep", "--duration", "-3s"}},
		{2, "exists", []string{"roofline", "sweep", "--svg", taken}},
		{2, "round", []string{"predict", "sweep", "--kernel", "matmul", "--round", "-1s"}},
		{2, "exists", []string{"predict", "sweep", "--kernel", "matmul", "--output", takenCSV}},
		{2, "--output", []string{"sensor", "load", "--output", plain}},
		{2, "cannot be written", []string{"instructions", "run", "--output", dir}},
		{2, "--duration", []string{"demo", "--duration", "-1s"}},
		{2, "--benchmark", []string{"demo", "--benchmark", "gemm"}},
		{2, ".version", []string{"run", "--ptx", plain}},
		{2, "--duration goes with --benchmark", []string{"run", "--duration", "100ms", "--", "true"}},
		{2, "--pulse goes with --benchmark", []string{"run", "--pulse", "10ms", "--ptx", plain}},
		{2, "--duration goes with --benchmark", []string{"run", "--times", "2", "--with", "true", "--with", "false", "--duration", "1s"}},
		{2, "--grid goes with --ptx", []string{"run", "--grid", "4", "--block", "8", "--", "true"}},
		{2, "--repeat goes with --ptx", []string{"run", "--repeat", "3", "--benchmark", "memory"}},
		{2, "--cool-down goes with --times", []string{"run", "--cool-down", "1s", "--", "true"}},
		{2, "--one-in goes with --kernel", []string{"run", "--one-in", "3", "--", "true"}},
		{2, "--mark-busy goes with --mark-every", []string{"run", "--mark-busy", "--", "true"}},
		{2, "--port goes with --instrument or --bench", []string{"run", "--port", "x", "--", "true"}},
		{2, "--scalar goes with --ptx", []string{"sensor", "run", "--scalar", "4", "--length", "1s", "--", "true"}},
		{2, "--buffer goes with --ptx", []string{"tiny", "--buffer", "4", "--benchmark", "memory", "--length", "1ms"}},
		{2, "--bins goes with --scheme fold", []string{"tiny", "--bins", "4", "--benchmark", "memory", "--length", "1ms"}},
		{2, "leave it or --monitor out", []string{"pulse", "--no-meter"}},
		{1, "no such file", []string{"run", "--ptx", "absent.ptx"}},
	} {
		args := tc.args
		if args[0] == "run" || args[0] == "tiny" || args[0] == "pulse" {
			args = append([]string{args[0], "--monitor", nowhere}, args[1:]...)
		}
		args = append([]string{"--db", filepath.Join(dir, "power.db")}, args...)
		_, errText, err := inProcess(t, args...)
		if err == nil || cli.ExitCode(err) != tc.code || !strings.Contains(err.Error()+errText, tc.text) {
			t.Errorf("%v: exit code %d, %v; want %d and %q", tc.args, cli.ExitCode(err), err, tc.code, tc.text)
		}
		if _, err := os.Stat(filepath.Join(dir, "power.db")); err == nil {
			t.Fatalf("%v: a database was made", tc.args)
		}
	}
}

// A program that fails makes its task failed, and passes its exit code on.
func TestFailedProgram(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	for _, tc := range []struct {
		script string
		code   int
	}{{"exit 7", 7}, {"kill -9 $$", 137}, {"exit 0", 0}} {
		p := r.run("--name", "work", "--", "sh", "-c", "sleep 0.3; "+tc.script)
		if code := p.wait(t); code != tc.code {
			t.Errorf("%s: exit code %d, want %d\n%s", tc.script, code, tc.code, &p.err)
		}
		var got report.Report
		object(t, p.out.String(), &got)
		want := "failed"
		if tc.code == 0 {
			want = "complete"
		}
		if got.State != want || tc.code != 0 && (got.ExitCode == nil || *got.ExitCode != tc.code || got.Quality.Level == quality.Good || got.EnergyJ == nil) {
			t.Errorf("%s: %s, exit code %v, quality %v, energy %v: %s", tc.script, got.State, got.ExitCode, got.Quality, got.EnergyJ, got.Reason)
		}
		if n := strings.Count(p.err.String(), "ended with"); tc.code != 0 && n != 1 {
			t.Errorf("%s: told %d times:\n%s", tc.script, n, &p.err)
		}
	}
	out, _, err := inProcess(t, "--db", r.db, "tasks", "--json")
	n := strings.Count(out, `"failed"`)
	if err != nil || n != 2 {
		t.Errorf("%d failed, %v\n%s", n, err, out)
	}
	if _, _, err := inProcess(t, "--db", r.db, "compare", "work", "work"); err != nil && strings.Contains(err.Error(), "failed") {
		t.Errorf("compare takes failed tasks by name: %v", err)
	}
}

// inProcess runs a command in this process.
func inProcess(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	var o, e strings.Builder
	err = execute(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return o.String(), e.String(), err
}
