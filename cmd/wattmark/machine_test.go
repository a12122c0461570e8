package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/internal/coverage"
)

// A machine whose package has counted nothing since it was started, and whose module draws 81.5 W, beside a measured
// kernel: both are in the task, over its window.
func TestMachineBesideTheCard(t *testing.T) {
	coverage.Long(t)
	root := t.TempDir()
	for file, content := range map[string]string{
		"class/powercap/intel-rapl:0/name":                "package-0",
		"class/powercap/intel-rapl:0/energy_uj":           "17",
		"class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
		"class/hwmon/hwmon0/name":                         "power_meter",
		"class/hwmon/hwmon0/power1_average":               "81500000",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(machine.EnvRoot, root)
	r := newRig(t)
	p := start(t, "run", "--benchmark", "memory", "--duration", "500ms", "--gpu", "sim:"+r.socket, "--monitor", r.address, "--db", r.db, "--json")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, &p.out, &p.err)
	}
	var x report.Report
	object(t, p.out.String(), &x)
	if len(x.Machine) != 2 || x.DurationS == nil {
		t.Fatalf("machine %+v", x.Machine)
	}
	pkg, module := x.Machine[0], x.Machine[1]
	if pkg.Name != "package-0" || pkg.Energy != 0 || module.Name != "power_meter power1" || module.Readings < 10 ||
		math.Abs(float64(module.Mean)-81.5) > 1e-6 || math.Abs(float64(module.Energy) / *x.DurationS - 81.5) > 0.01 {
		t.Errorf("machine %+v over %v s", x.Machine, *x.DurationS)
	}
	out := inside(t, "show", "latest", "--db", r.db, "--no-plot").ok(t).out
	if !strings.Contains(out, "Beside the card") || !strings.Contains(out, "81.5 W") {
		t.Errorf("got\n%s", out)
	}
	if out := inside(t, "doctor", "--machine", "host", "--db", r.db).out; !strings.Contains(out, "package-0, power_meter power1") {
		t.Errorf("doctor:\n%s", out)
	}
}
