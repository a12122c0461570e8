package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
)

// method finds what a method said.
func method(t *testing.T, list []report.MethodReport, m sensor.Method) report.MethodReport {
	t.Helper()
	for _, r := range list {
		if r.Method == string(m) {
			return r
		}
	}
	t.Fatalf("no method %s among %+v", m, list)
	return report.MethodReport{}
}

// drawn checks a plot's axes and legend.
func drawn(t *testing.T, path string, words ...string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range append(words, "<svg ", "power / W", "time since the work began / s", "</svg>") {
		if !strings.Contains(string(b), w) {
			t.Errorf("%s does not hold %q", path, w)
		}
	}
	if strings.Contains(string(b), "NaN") {
		t.Errorf("%s holds NaN", path)
	}
}

var legends = []string{"instant field", "average field", "MTSM", "SMA", "PAPI", "counter, between"}

// One command tells what each method says beside the meter, and draws it.
func TestPulse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	svg := filepath.Join(t.TempDir(), "pulse.svg")
	common := []string{"pulse", "--gpu", "sim:" + r.socket, "--db", r.db, "--warm-up", "50ms", "--json"}
	var x report.Report
	object(t, inside(t, append(common, "--monitor", r.address, "--duration", "1500ms", "--svg", svg)...).ok(t).out, &x)
	if x.State != "complete" || len(x.Methods) != len(sensor.Methods()) || x.Picture != svg {
		t.Fatalf("%s: %s, %d methods, picture %q", x.State, x.Reason, len(x.Methods), x.Picture)
	}
	// How far each is off is a test in virtual time, TestValidate's: here the machine may read late.
	for _, m := range x.Methods {
		if m.EnergyJ == nil || m.Readings == 0 || m.Call.N == 0 || !measure.Known(m.Call.P50) {
			t.Errorf("%+v", m)
			continue
		}
		if relative(*m.MeanW**x.DurationS, *m.EnergyJ) > 1e-3 {
			t.Errorf("%s: %v W are not %v J", m.Method, *m.MeanW, *m.EnergyJ)
		}
		if math.Abs(*m.ErrorPct-100*(*m.MeanW / *x.MeanW - 1)) > 1e-9 {
			t.Errorf("%s: error %v %%", m.Method, *m.ErrorPct)
		}
	}
	drawn(t, svg, append(legends, "meter: powersensor3")...)
	inside(t, append(common, "--svg", svg)...).fails(t, cli.ExitUsage, "exists")

	// The stored task shows and draws the same again.
	again := filepath.Join(t.TempDir(), "again.svg")
	var y report.Report
	object(t, inside(t, "show", "1", "--db", r.db, "--json", "--svg", again).ok(t).out, &y)
	if a, b := method(t, x.Methods, sensor.SMA), method(t, y.Methods, sensor.SMA); *a.EnergyJ != *b.EnergyJ {
		t.Errorf("SMA: %v J, shown as %v J", *a.EnergyJ, *b.EnergyJ)
	}
	drawn(t, again, legends...)
	if out := inside(t, "show", "1", "--db", r.db).ok(t).out; !strings.Contains(out, "What software would have said, against the meter") {
		t.Errorf("no table in\n%s", out)
	}
	pulseWithoutMeter(t, r, common)
}

// pulseWithoutMeter takes the counter for the truth and says so.
func pulseWithoutMeter(t *testing.T, r *rig, common []string) {
	t.Helper()
	svg := filepath.Join(t.TempDir(), "alone.svg")
	var x run.PulseReport
	object(t, inside(t, append(common, "--no-meter", "--on", "30ms", "--off", "70ms", "--duration", "1s", "--svg", svg)...).ok(t).out, &x)
	if x.Pulses != 10 || !strings.Contains(x.Truth, "energy counter") || !strings.Contains(x.Truth, "--no-meter") || x.TruthW == nil {
		t.Errorf("%+v", x)
	}
	if len(x.Methods) != len(sensor.Methods()) || method(t, x.Methods, sensor.Counter).ErrorPct != nil || method(t, x.Methods, sensor.MTSM).WithinU != nil {
		t.Errorf("%+v", x.Methods)
	}
	drawn(t, svg, append(legends, "counter&#39;s mean", "no meter")...)
	var none run.PulseReport
	object(t, inside(t, append(common, "--no-meter", "--no-counter", "--duration", "300ms", "--svg", filepath.Join(t.TempDir(), "none.svg"))...).ok(t).out, &none)
	if m := method(t, none.Methods, sensor.MTSM); none.TruthW != nil || !strings.HasPrefix(none.Truth, "none") || m.ErrorPct != nil || m.Beside.N != 0 || m.EnergyJ == nil {
		t.Errorf("%+v, MTSM %+v", none, m)
	}
	inside(t, append(common, "--monitor", "127.0.0.1:1")...).fails(t, cli.ExitFailed, "is wattmark monitor running there")
	var tasks struct {
		Tasks []report.Report `json:"tasks"`
	}
	object(t, inside(t, "tasks", "--db", r.db, "--json").ok(t).out, &tasks)
	if len(tasks.Tasks) != 1 {
		t.Errorf("%d tasks are stored, want the one with a meter", len(tasks.Tasks))
	}
}

func TestRunWithoutMethods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var x report.Report
	object(t, inside(t, "run", "--gpu", "sim:"+r.socket, "--monitor", r.address, "--db", r.db, "--json", "--warm-up", "0", "--benchmark", "half",
		"--duration", "100ms", "--no-methods").ok(t).out, &x)
	if len(x.Methods) != 0 || x.NVMLJ == nil {
		t.Errorf("methods %+v, NVML %v", x.Methods, x.NVMLJ)
	}
}
