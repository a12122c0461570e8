package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	analysis "github.com/wattmark/wattmark/analysis/correct"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/study/correct"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// modelFile writes what a modelled K20 reads into a file.
func modelFile(t *testing.T, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k20.csv")
	out := inside(t, append([]string{"correct", "model"}, args...)...).ok(t).out
	if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func corrected(t *testing.T, args ...string) correct.CorrectionReport {
	t.Helper()
	var r correct.CorrectionReport
	object(t, inside(t, append([]string{"correct", "--json"}, args...)...).ok(t).out, &r)
	return r
}

// Twice the time is 8 % more than twice the energy as read, and twice corrected.
func TestCorrectDoublesWithTheTime(t *testing.T) {
	t.Parallel()
	noRaces(t)
	svg := filepath.Join(t.TempDir(), "k20.svg")
	once := corrected(t, "--readings", modelFile(t), "--preset", "k20", "--svg", svg)
	twice := corrected(t, "--readings", modelFile(t, "--length", "10.692s"), "--preset", "k20")
	if len(once.Work) != 1 || len(twice.Work) != 1 {
		t.Fatalf("%d and %d pieces of work", len(once.Work), len(twice.Work))
	}
	if relative(float64(once.Work[0].Raw), 732) > 0.002 || relative(float64(twice.Work[0].Raw), 1579) > 0.002 {
		t.Errorf("as read %.2f J and %.2f J; the paper has 732 J and 1579 J", float64(once.Work[0].Raw), float64(twice.Work[0].Raw))
	}
	if relative(float64(once.Energy), 158.47*5.346) > 0.005 || relative(float64(twice.Energy)/float64(once.Energy), 2) > 0.005 {
		t.Errorf("corrected %.2f J and %.2f J", float64(once.Energy), float64(twice.Energy))
	}
	if math.Abs(float64(once.Energy)-158.47*5.346) > float64(once.U) || float64(once.U) > 5 {
		t.Errorf("%.2f J ± %.2f J", float64(once.Energy), float64(once.U))
	}
	var kinds []string
	for _, p := range once.Phases {
		kinds = append(kinds, string(p.Kind))
	}
	if got := strings.Join(kinds, ", "); got != "idle, kernel, decay, active idle, steps, idle" {
		t.Errorf("phases %s", got)
	}
	picture, err := os.ReadFile(svg)
	if err != nil || !strings.Contains(string(picture), "power / W") || !strings.Contains(string(picture), "active idle") {
		t.Errorf("picture: %v", err)
	}
	text := inside(t, "correct", "--readings", modelFile(t), "--preset", "k20").ok(t).out
	for _, want := range []string{"active idle", "52.5 W", "731.99 J", "847.18 J"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in what it prints:\n%s", want, text)
		}
	}
}

// nvidia-smi's CSV is taken, the level is found in it, and a short kernel warned of.
func TestCorrectTakesNvidiaSmi(t *testing.T) {
	t.Parallel()
	noRaces(t)
	rows, err := csv.NewReader(strings.NewReader(inside(t, "correct", "model").ok(t).out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{"timestamp, power.draw [W]"}
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	next := 0.0
	for _, r := range rows[1:] {
		at, err := strconv.ParseFloat(r[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		if at < next {
			continue
		}
		next = at + 0.013
		lines = append(lines, fmt.Sprintf("%s, %s", begin.Add(time.Duration(at*1e9)).Format("2006/01/02 15:04:05.000"), r[1]))
	}
	path := filepath.Join(t.TempDir(), "smi.csv")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := corrected(t, "--readings", path, "--tau", "833ms", "--tau-u", "10ms", "--slope", "five-point")
	if r.Field != "power.draw" || len(r.Work) != 1 || relative(float64(r.Energy), 158.47*5.346) > 0.01 {
		t.Errorf("%s: %d pieces of work, %v J", r.Field, len(r.Work), float64(r.Energy))
	}
	if r.Level == nil || math.Abs(float64(r.Level.Active)-52.5) > 1 {
		t.Errorf("level %+v", r.Level)
	}
	short := corrected(t, "--readings", modelFile(t, "--length", "107ms"), "--preset", "k20power")
	if len(short.Work) != 1 || len(short.Work[0].Warnings) == 0 || !strings.Contains(short.Work[0].Warnings[0], "want 10") {
		t.Errorf("a kernel of 107 ms: %+v", short.Work)
	}
	inside(t, "correct", "--readings", path, "--field", "power.draw.instant", "--tau", "1s").fails(t, cli.ExitFailed, "there are power.draw")
}

func TestCorrectFits(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	path := modelFile(t, "--length", "12s")
	for _, more := range [][]string{nil, {"--from", "2s", "--to", "14s"}} {
		var f analysis.Fit
		object(t, inside(t, append([]string{"correct", "fit", "--json", "--readings", path}, more...)...).ok(t).out, &f)
		if math.Abs(float64(f.C)-0.8333) > max(float64(f.U), 0.01) || f.U > 0.05 {
			t.Errorf("%v: %v s ± %v s", more, f.C, f.U)
		}
	}
	two := modelFile(t, "--length", "1.294s", "--runs", "2", "--gap", "1.215s")
	var f analysis.Fit
	object(t, inside(t, "correct", "fit", "--json", "--readings", two, "--run", "2..3.294", "--run", "4.509..5.803").ok(t).out, &f)
	if math.Abs(float64(f.C)-0.8333) > 0.01 {
		t.Errorf("by two runs: %v s", f.C)
	}
	inside(t, "correct", "fit", "--readings", two, "--run", "2-3").fails(t, cli.ExitUsage, "2.0..7.35")
	inside(t, "correct", "fit", "--readings", two, "--run", "2..3").fails(t, cli.ExitFailed, "twice")
}

func TestCorrectRefuses(t *testing.T) {
	t.Parallel()
	noRaces(t)
	path := modelFile(t, "--length", "200ms")
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("time_s,power_w\n0,1\n1,much\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", cli.ExitUsage, "TASK"},
		{"1 --readings x --tau 1s", cli.ExitUsage, "TASK"},
		{"one --tau 1s", cli.ExitUsage, "not a task number"},
		{"--readings " + path, cli.ExitUsage, "one of --preset"},
		{"--readings " + path + " --tau 1s --preset k20", cli.ExitUsage, "one of --preset"},
		{"--readings " + path + " --preset k80", cli.ExitUsage, "k20power"},
		{"--readings " + path + " --window 1s", cli.ExitUsage, "--period"},
		{"--readings " + path + " --tau 1s --slope steep", cli.ExitUsage, "savitzky-golay"},
		{"--readings " + path + " --tau 1s --from 2s", cli.ExitUsage, "--to"},
		{"--readings " + path + " --tau 1s --from 3s --to 2s", cli.ExitUsage, "after it began"},
		{"--readings " + path + " --tau 1s --from 1s --to 99s", cli.ExitFailed, "do not cover"},
		{"--readings " + bad + " --tau 1s", cli.ExitFailed, ":3: power_w"},
		{"--readings none.csv --tau 1s", cli.ExitFailed, "no such file"},
		{"1 --tau 1s --db none.db", cli.ExitNotFound, "no task database"},
	} {
		inside(t, append([]string{"correct"}, strings.Fields(c.args)...)...).fails(t, c.code, c.want)
	}
}

// A task's corrected variants stand beside the other methods, once.
func TestCorrectATask(t *testing.T) {
	t.Parallel()
	noRaces(t)
	path := demoDB(t, longDemo)
	var task report.Report
	object(t, inside(t, "show", "1", "--json", "--db", path).ok(t).out, &task)
	run := func(args ...string) (out correct.TaskCorrection) {
		object(t, inside(t, append([]string{"correct", "1", "--json", "--db", path}, args...)...).ok(t).out, &out)
		return out
	}
	average := run("--field", "average", "--window", "1s", "--period", "100ms")
	if len(average.Methods) != 2 || average.Methods[0].Method != "average deconvolved" || average.Methods[0].EnergyJ == nil {
		t.Fatalf("%+v", average)
	}
	if relative(*average.Methods[0].EnergyJ, *task.EnergyJ) > 0.1 || float64(average.Raw) > 0.95**task.EnergyJ {
		t.Errorf("meter %.1f J, as read %.1f J, deconvolved %.1f J", *task.EnergyJ, float64(average.Raw), *average.Methods[0].EnergyJ)
	}
	putProfile(t, path, "fast", sensor.Profile{Field: "instant", Model: sensor.Boxcar, Period: 0.1, Window: 0.025, Gain: 1})
	instant := run("--profile", "fast")
	if m := instant.Methods[0]; m.EnergyJ != nil || !strings.Contains(m.Note, "a bound: seen 2") {
		t.Errorf("a sensor that looks a quarter of the time: %+v", m)
	}
	run("--field", "average", "--window", "1s", "--period", "100ms")
	run("--field", "usage", "--tau", "50ms", "--no-store")
	var shown report.Report
	object(t, inside(t, "show", "1", "--db", path, "--json").ok(t).out, &shown)
	if n := len(shown.Methods); n != len(task.Methods)+4 {
		t.Errorf("%d methods, before %d: want four more", n, len(task.Methods))
	}
	inside(t, "correct", "1", "--db", path, "--profile", "slow").fails(t, cli.ExitNotFound, "list them with wattmark sensor list")
	inside(t, "correct", "1", "--db", path, "--tau", "1s", "--field", "power.draw").fails(t, cli.ExitFailed, "no readings of power.draw")
	inside(t, "correct", "2", "--db", path, "--tau", "1s").fails(t, cli.ExitNotFound, "no task 2")
}

func putProfile(t *testing.T, path, name string, p sensor.Profile) {
	t.Helper()
	content, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.PutAnalysis(t.Context(), store.Analysis{Kind: sensor.Kind, Name: name, Made: time.Now(), Maker: "test", Content: content}); err != nil {
		t.Fatal(err)
	}
}
