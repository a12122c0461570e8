package machine

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/store"
)

// tree writes files below a root, as sysfs has them.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// server is a machine of one socket, and a Grace module's sensors.
var server = map[string]string{
	"class/powercap/intel-rapl/enabled":                 "1",
	"class/powercap/intel-rapl:0/name":                  "package-0",
	"class/powercap/intel-rapl:0/energy_uj":             "262143000000",
	"class/powercap/intel-rapl:0/max_energy_range_uj":   "262143328850",
	"class/powercap/intel-rapl:0:0/name":                "dram",
	"class/powercap/intel-rapl:0:0/energy_uj":           "5000000",
	"class/powercap/intel-rapl:0:0/max_energy_range_uj": "65712999613",
	"class/powercap/intel-rapl-mmio:0/name":             "package-0",
	"class/powercap/intel-rapl-mmio:0/energy_uj":        "17",
	"class/hwmon/hwmon3/name":                           "power_meter",
	"class/hwmon/hwmon3/power1_average":                 "81500000",
	"class/hwmon/hwmon3/power1_oem_info":                "Grace Power Socket 0",
	"class/hwmon/hwmon4/name":                           "xgene_hwmon",
	"class/hwmon/hwmon4/energy1_input":                  "9000000",
	"class/hwmon/hwmon4/energy1_label":                  "SoC energy",
	"class/hwmon/hwmon5/name":                           "nvme",
	"class/hwmon/hwmon5/temp1_input":                    "41000",
}

func TestSensorsOfAMachine(t *testing.T) {
	root := tree(t, server)
	list, err := Find(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list {
		names = append(names, s.Method())
	}
	want := []string{
		"machine.energy.package-0", "machine.energy.package-0 dram", "machine.energy.xgene_hwmon SoC energy",
		"machine.power.power_meter Grace Power Socket 0",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	if list, err := Find(t.TempDir()); len(list) != 0 || err != nil {
		t.Errorf("a machine without sensors: %v, %v", list, err)
	}
}

func TestCountersWrap(t *testing.T) {
	root := tree(t, server)
	list, err := Find(root)
	if err != nil {
		t.Fatal(err)
	}
	set := func(v string) {
		if err := os.WriteFile(filepath.Join(root, "class/powercap/intel-rapl:0/energy_uj"), []byte(v), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Find has read 262143.000000 J; the counter ends at 262143.328850 J.
	for _, c := range []struct {
		now  string
		want float64
	}{{"262143328850", 0.328850}, {"0", 0.328851}, {"2000000", 2.328851}} {
		set(c.now)
		if got, err := list[0].Read(); err != nil || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("at %s µJ: %v J, %v, want %v", c.now, got, err, c.want)
		}
	}
	for _, wrong := range []string{"", "x", "-1", "1e6"} {
		set(wrong)
		if v, err := list[0].Read(); err == nil || !strings.Contains(err.Error(), "energy_uj") {
			t.Errorf("%q: %v, %v", wrong, v, err)
		}
	}
}

// A sensor that goes away ends alone.
func TestRunReadsToTheEnd(t *testing.T) {
	root := tree(t, server)
	list, err := Find(root)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := os.Remove(filepath.Join(root, "class/hwmon/hwmon4/energy1_input")); err != nil {
		t.Fatal(err)
	}
	cancel()
	var got []store.Reading
	err = Run(ctx, list, time.Millisecond, func(_ context.Context, r []store.Reading) error {
		got = append(got, r...)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "hwmon4") {
		t.Errorf("error %v", err)
	}
	count := map[string]int{}
	for _, r := range got {
		count[r.Method]++
	}
	if len(count) != 3 || count["machine.energy.package-0"] < 2 {
		t.Errorf("readings %v", count)
	}
}

// A counter and a power of a known course: the energy of a span is within U, whatever the phase of the readings.
func TestUsesHoldTheTruth(t *testing.T) {
	t0 := time.Unix(1_700_000_000, 0)
	power := func(s float64) float64 { return 100 + 40*math.Sin(2*math.Pi*s/0.9) }
	energy := func(s float64) float64 {
		return 100*s + 40*0.9/(2*math.Pi)*(1-math.Cos(2*math.Pi*s/0.9))
	}
	in, all := 0, 0
	for phase := range 200 {
		var r []store.Reading
		for i := -5; i < 400; i++ {
			s := float64(i)*0.01 + float64(phase)*0.01/200
			at := t0.Add(time.Duration(s * 1e9))
			r = append(r, store.Reading{Method: EnergyPrefix + "package-0", At: at, Value: energy(s)},
				store.Reading{Method: PowerPrefix + "psu", At: at, Value: power(s)},
				store.Reading{Method: "nvml.instant", At: at, Value: 1})
		}
		slices.SortStableFunc(r, func(a, b store.Reading) int { return strings.Compare(a.Method, b.Method) })
		uses := Uses(r, t0.Add(500*time.Millisecond), t0.Add(2500*time.Millisecond))
		if len(uses) != 2 {
			t.Fatalf("uses %+v", uses)
		}
		for _, u := range uses {
			truth := energy(2.5) - energy(0.5)
			if all++; math.Abs(float64(u.Energy)-truth) <= float64(u.U) {
				in++
			}
			if float64(u.U) > 0.02*truth || math.Abs(float64(u.Mean)*2-float64(u.Energy)) > 1e-9 {
				t.Fatalf("%+v, truth %g J", u, truth)
			}
		}
		if phase == 0 {
			if u := Uses(r, t0.Add(-time.Hour), t0); len(u) != 0 {
				t.Errorf("of a span without readings: %+v", u)
			}
		}
	}
	if in != all {
		t.Errorf("truth within U in %d of %d", in, all)
	}
}

func ExampleFind() {
	list, err := Find("")
	for _, s := range list {
		fmt.Println(s.Name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
