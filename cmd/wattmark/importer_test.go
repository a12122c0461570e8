package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/store"
)

// smiLog writes what the simulated sensor said of a task the way nvidia-smi does,
// with its clock ahead of UTC.
func smiLog(t *testing.T, db string, ahead time.Duration, spoil func([]string)) string {
	t.Helper()
	d, err := store.OpenReadOnly(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	readings, err := d.Readings(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{"timestamp, power.draw.instant [W]"}
	for _, r := range readings {
		if r.Method == sensor.InstantPower {
			lines = append(lines, fmt.Sprintf("%s, %.2f W", r.At.UTC().Add(ahead).Format("2006/01/02 15:04:05.000"), r.Value))
		}
	}
	if spoil != nil {
		spoil(lines)
	}
	path := filepath.Join(t.TempDir(), "smi.csv")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// smiReadings counts what the simulated sensor said while a task's work ran.
func smiReadings(t *testing.T, path string) (n uint64) {
	t.Helper()
	db, err := store.OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	from, to, err := exchange.WorkSpan(t.Context(), db, 1)
	if err != nil {
		t.Fatal(err)
	}
	readings, err := db.Readings(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range readings {
		// As the log has it, to the millisecond.
		if at := r.At.Truncate(time.Millisecond); r.Method == sensor.InstantPower && !at.Before(from) && !at.After(to) {
			n++
		}
	}
	return n
}

func TestImportNvidiaSmi(t *testing.T) {
	t.Parallel()
	db := demoDB(t, longDemo)
	var task report.Report
	object(t, inside(t, "show", "1", "--json", "--db", db).ok(t).out, &task)
	smi := func(path string, more ...string) result {
		return inside(t, append([]string{"import", "nvidia-smi", path, "--db", db, "--task", "1", "--json"}, more...)...)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	_, summer := task.Launched.In(berlin).Zone()
	ahead := time.Duration(summer) * time.Second
	far := smiLog(t, db, ahead+12*time.Hour, nil)
	want := smiReadings(t, db)
	if want < 2 {
		t.Fatalf("the sensor was read %d times during the work", want)
	}

	for name, r := range map[string]result{
		"offset": smi(smiLog(t, db, 90*time.Minute, nil), "--utc-offset", "1h30m"),
		"zone":   smi(smiLog(t, db, ahead, nil), "--zone", "Europe/Berlin"),
		"UTC":    smi(smiLog(t, db, 0, nil)),
	} {
		var x exchange.ImportReport
		object(t, r.ok(t).out, &x)
		if len(x.Methods) != 1 || x.Methods[0].Method != "nvidia-smi power.draw.instant" {
			t.Fatalf("%s: %+v", name, x)
		}
		m := x.Methods[0]
		if relative(*m.EnergyJ, *task.NVMLJ) > 0.01 || m.Readings != want || m.ErrorPct == nil || math.Abs(*m.ErrorPct-100*(*m.MeanW / *task.MeanW - 1)) > 1e-6 {
			t.Errorf("%s: %v J, %v W, %v %% of %d readings; NVML read %v J in %d", name, *m.EnergyJ, *m.MeanW, m.ErrorPct, m.Readings, *task.NVMLJ, want)
		}
	}
	var shown report.Report
	object(t, inside(t, "show", "1", "--db", db, "--json").ok(t).out, &shown)
	if n := len(shown.Methods); n != len(task.Methods)+1 { // taken in three times, there once
		t.Errorf("%d methods, before %d", n, len(task.Methods))
	}

	smi(far).fails(t, cli.ExitFailed, "does not cover", "--utc-offset", "--zone", far)
	smi(far, "--zone", "Europe/Berlin").fails(t, cli.ExitFailed, "does not cover")
	smi(far, "--zone", "Berlin").fails(t, cli.ExitUsage, "Europe/Berlin")
	bad := smiLog(t, db, 0, func(l []string) { l[7] = strings.Replace(l[7], " W", " pounds", 1) })
	smi(bad).fails(t, cli.ExitFailed, "line 8", "mend or remove that line", bad)
	smi(filepath.Join(t.TempDir(), "none.csv")).fails(t, cli.ExitFailed, "no such file")
	inside(t, "import", "nvidia-smi", far, "--db", db, "--task", "9").fails(t, cli.ExitNotFound, "no task 9")
}
