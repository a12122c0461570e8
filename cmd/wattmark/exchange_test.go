package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	pq "github.com/parquet-go/parquet-go"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

// Every format comes out of the command line, and what reads it is not ours.
func TestExportFormats(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir, db := t.TempDir(), demoDB(t, demo, demo)
	var r report.Report
	object(t, inside(t, "show", "1", "--json", "--db", db).ok(t).out, &r)
	file := func(name string, args ...string) []byte {
		path := filepath.Join(dir, name)
		var x exchange.ExportReport
		object(t, inside(t, append([]string{"export", "--db", db, "--json", "-o", path}, args...)...).ok(t).out, &x)
		b, err := os.ReadFile(path)
		if err != nil || x.Bytes != int64(len(b)) || x.File != path || len(x.TaskIDs) == 0 {
			t.Fatalf("%+v, %d bytes, %v", x, len(b), err)
		}
		return b
	}
	for _, raw := range []string{"--raw=false", "--raw"} {
		b := file("task"+raw+".parquet", "1", raw)
		f, err := pq.OpenFile(bytes.NewReader(b), int64(len(b)))
		if err != nil || f.NumRows() != int64(r.Samples) {
			t.Fatalf("parquet %s: %v, %d rows, want %d", raw, err, f.NumRows(), r.Samples)
		}
		a, err := ipc.NewFileReader(bytes.NewReader(file("task"+raw+".arrow", "1", raw)))
		if err != nil || a.Schema().NumFields() != len(f.Schema().Columns()) {
			t.Fatalf("arrow %s: %v", raw, err)
		}
	}
	if out := inside(t, "export", "1", "--db", db, "--format", "parquet").ok(t).out; !bytes.Equal([]byte(out), readAll(t, filepath.Join(dir, "task--raw=false.parquet"))) {
		t.Error("parquet on standard output is another than in a file")
	}
	file("all.sqlite", "--all-tasks")
	view := stockSQL(t, db, "SELECT taskID, count(*), printf('%.6g', sum(power)), printf('%.6g', sum(current1)), taskTime FROM data WHERE taskID IN (1, 2) GROUP BY taskID")
	if got := stockSQL(t, filepath.Join(dir, "all.sqlite"), "SELECT taskID, count(*), printf('%.6g', sum(power)), printf('%.6g', sum(current1)), taskTime FROM data GROUP BY taskID"); got != view {
		t.Errorf("the file has\n%s, the view\n%s", got, view)
	}
	if b := file("two.pftrace", "1", "2"); !bytes.Contains(b, []byte("task 2: demo")) || !bytes.Contains(b, []byte("start marker")) {
		t.Error("the trace does not hold both tasks and their markers")
	}
	inside(t, "export", "1", "--db", db, "--rail", "eps").fails(t, cli.ExitUsage, "no such rail", "pcie_12v")
	inside(t, "export", "1", "--db", db, "--from", "1ms", "--to", "2ms").fails(t, cli.ExitUsage, "its window runs from")
	inside(t, "export", "--all-tasks", "--db", db).fails(t, cli.ExitUsage, "holds one task, not 2")
	inside(t, "export", "9", "--db", db, "-o", filepath.Join(dir, "none.parquet")).fails(t, cli.ExitNotFound, "no task 9")
	left, err := filepath.Glob(filepath.Join(dir, "none*"))
	parts, err2 := filepath.Glob(filepath.Join(dir, "*part"))
	if err != nil || err2 != nil || len(left)+len(parts) > 0 {
		t.Errorf("left behind: %v %v", left, parts)
	}
}

func readAll(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The public recordings give the figures that a plain decode gives.
func TestImportPMD(t *testing.T) {
	t.Parallel()
	noRaces(t)
	root := sharedData(t, "pmd")
	db := filepath.Join(t.TempDir(), "power.db")
	for run, want := range recorded {
		r := exchange.ImportedTask{Report: &report.Report{}}
		object(t, inside(t, "import", "pmd", filepath.Join(root, run), "--db", db, "--shift", "-50ms", "--utc-offset", "1h", "--json").ok(t).out, &r)
		if e := *r.EnergyJ; relative(e, want.meterJ) > 5e-4 || relative(*r.NVMLJ, want.nvmlJ) > 5e-4 {
			t.Errorf("%s: meter %v J, NVML %v J; want %+v", run, e, *r.NVMLJ, want)
		}
		if r.State != "complete" || !strings.HasPrefix(r.Reason, "imported from PMD_data.bin") || r.Name != run {
			t.Errorf("%s: %s, %s: %s", run, r.Name, r.State, r.Reason)
		}
	}
	inside(t, "import", "pmd", t.TempDir(), "--db", db).fails(t, cli.ExitFailed, "PMD_start_ts.txt", "import pmd --help")
}

// Clipped readings are judged where they lie: those at rest hide none of the window, and
// count for nothing there, whether a recording is imported, replayed or trimmed.
func TestClippedRecordings(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	source := filepath.Join(sharedData(t, "pmd"), "a100-step")
	const record, eps2 = 18, 8 // bytes of a scan; the word of the last current
	for name, c := range map[string]struct {
		rest, work     int
		level, trimmed string
	}{
		"work":          {0, 3000, "void", "usable"},
		"rest and work": {1500, 3000, "void", "void"},
		"rest":          {1500, 0, "usable", "void"},
	} {
		dir := filepath.Join(t.TempDir(), "recording")
		if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "PMD_data.bin")
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		clip := func(from, n, apart int) {
			for i := range n {
				at := record*(from+apart*i) + 2*eps2
				binary.LittleEndian.PutUint16(raw[at:], 2047<<4|binary.LittleEndian.Uint16(raw[at:])&15)
			}
		}
		clip(100, c.rest, 2)
		clip(6000, c.work, 17)
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		db := filepath.Join(t.TempDir(), "power.db")
		want := func(what, level, out string) {
			t.Helper()
			var r report.Report
			object(t, out, &r)
			clipped := "good"
			var n uint64
			for _, x := range r.Quality.Reasons {
				if x.Cause == "clipped" && (clipped == "good" || x.Level == quality.Void) {
					clipped, n = x.Level.String(), n+x.Count
				}
			}
			if clipped != level || level == "void" && what != "trim" && n != uint64(c.work) {
				t.Errorf("%s, %s: %s by %d clipped readings, want %s: %+v", name, what, clipped, n, level, r.Quality)
			}
		}
		inside(t, "import", "pmd", dir, "--db", db, "--utc-offset", "1h").ok(t)
		want("import", c.level, inside(t, "show", "1", "--db", db, "--json").ok(t).out)
		inside(t, "replay", dir, "--db", db, "--utc-offset", "1h").ok(t)
		want("replay", c.level, inside(t, "show", "2", "--db", db, "--json").ok(t).out)
		inside(t, "trim", "2", "--from", "20ms", "--to", "600ms", "--db", db).ok(t)
		want("trim", c.trimmed, inside(t, "show", "2", "--db", db, "--json").ok(t).out)
	}
}

// A table of currents and voltages becomes a task whose joules can be reckoned by
// hand; what cannot be taken in leaves nothing behind.
func TestImportTables(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	db := filepath.Join(dir, "power.db")
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var csv, dump strings.Builder
	csv.WriteString("time_ms,eps_current_ma,pcie_12v_current_a,pcie_12v_voltage_v\n")
	for i := range 1001 {
		fmt.Fprintf(&csv, "%d,%d,%.2f,12.00\n", 500+i, 1000+i, 2.5)
		fmt.Fprintf(&dump, "S %.3f 1000 2.5 12 30 30\n", 0.5+float64(i)/1000)
	}
	dump.WriteString("M 0.600 A\nM 0.800 B\n")
	table, text := file("table.csv", csv.String()), file("dump.txt", dump.String())
	check := func(want float64, window string, args ...string) {
		t.Helper()
		r := exchange.ImportedTask{Report: &report.Report{}}
		object(t, inside(t, append(append([]string{"import"}, args...), "--db", db, "--json")...).ok(t).out, &r)
		if math.Abs(*r.EnergyJ/want-1) > 1e-9 || r.State != "complete" || !strings.Contains(r.Reason, "imported from") || !strings.HasSuffix(r.Reason, "window: "+window) {
			t.Errorf("%v: %v J, want %v; %s: %s", args, *r.EnergyJ, want, r.State, r.Reason)
		}
		if len(r.Notes) == 0 || len(r.Resolution) == 0 || r.Resolution["pcie_12v.current"]+r.Resolution["pair0.current"] < 1e-3 {
			t.Errorf("%v: resolution %v, notes %q", args, r.Resolution, r.Notes)
		}
	}
	// 30 W, and a ramp of 1 A to 2 A at 12 V.
	check(30+18, "all samples", "csv", table, "--assume", "eps=12", "--start", "2026-01-31T12:00:00Z")
	check(0.1*(30+12*1.15), "set by hand", "csv", table, "--assume", "eps=12", "--from", "100ms", "--to", "200ms")
	check(30, "all samples", "csv", table, "--rail", "pcie_12v")
	events := file("events.csv", "timestamp\n1769860800700000\n1769860800900000\n1769860800900000\n")
	check(0.2*(30+12*1.3), "from the first event to the last of events.csv", "csv", table, "--assume", "eps=12", "--start", "2026-01-31T12:00:00Z", "--events", events)
	check(30, "all samples", "powersensor3", text, "--u-gain", "0.01")
	check(6, "from the first marker to the last", "powersensor3", text, "--markers")
	// A time since 1970 is the time of day of the task.
	since := exchange.ImportedTask{Report: &report.Report{}}
	object(t, inside(t, "import", "csv", file("pmt.csv", "timestamp,gpu_power_w\n1733935203.149,10\n1733935204.149,10\n1733935205.149,10\n"), "--db", db, "--json").ok(t).out, &since)
	if got, _ := onlyTask(t, db, store.TaskID(since.TaskID)); !got.Started.Equal(time.UnixMilli(1733935203149)) || *since.EnergyJ != 20 {
		t.Errorf("%v J from %v", *since.EnergyJ, got.Started)
	}
	// The device's stamps rule, whatever USB makes of the host's times; a marker is the
	// first character of a reading; the last reading has no other sensors of its frame.
	var real strings.Builder
	real.WriteString("marker time dt_micro device_timestamp current0 voltage0 power0 power_total\n")
	for i := range 40_002 {
		first := map[int]string{10_001: "A", 20_001: "M", 30_001: " "}[i]
		if first == "" {
			first = "S"
		}
		fmt.Fprintf(&real, "%s %.6g %d %d 2.5 12 30 30\n", first, 9+float64(i/20)*1e-3, 1000*((20-i%20)/20), 50*i%1024)
	}
	dump3 := file("psrun.dump", real.String())
	check(60, "all samples", "powersensor3", dump3, "--u-gain", "0.01")
	check(30, "from the first marker to the last", "powersensor3", dump3, "--markers")

	tasks := tasksIn(t, db)
	for _, c := range []struct {
		code int
		args string
		want []string
	}{
		{cli.ExitFailed, "csv " + table, []string{"--assume eps=12"}},
		{cli.ExitFailed, "csv " + file("late.csv", "t_s,power_w\n0,1\n1,2\n1,3\n"), []string{"late.csv:4: ", "sort the rows"}},
		{cli.ExitFailed, "csv " + file("word.csv", "t_s,power_w\n0,1\n1,two\n"), []string{"word.csv:3: power_w: ", `"two"`, "remove the row"}},
		{cli.ExitUsage, "csv " + table + " --assume eps=12 --to 5s", []string{"the samples lie from", "Nothing of it was stored"}},
		{cli.ExitFailed, "csv " + table + " --assume eps=12 --rail gpu", []string{"its rails are eps, pcie_12v"}},
		{cli.ExitUsage, "csv " + table + " --assume eps", []string{"as in eps=12"}},
		{cli.ExitUsage, "csv " + dir, []string{"is a folder"}},
		{cli.ExitUsage, "csv " + table + " --u-gain -1", []string{"--u-gain"}},
		{cli.ExitUsage, "csv " + table + " --assume eps=12 --start today", []string{"2026-01-31T12:00:00Z"}},
		{cli.ExitUsage, "csv " + table + " --assume eps=12 --to 1s --events " + events, []string{"--events sets the window"}},
		{cli.ExitUsage, "csv " + table + " --assume eps=12 --events " + events, []string{"the samples lie from"}},
		{cli.ExitFailed, "csv " + table + " --assume eps=12 --events " + table, []string{"microseconds since 1970"}},
		{cli.ExitFailed, "powersensor3 " + table, []string{"no line of it is a reading"}},
		{cli.ExitUsage, "powersensor3 " + file("bare.txt", "S 0 1 1 1 1 1\nS 1 1 1 1 1 1\n") + " --markers", []string{"0 markers"}},
	} {
		inside(t, append(append([]string{"import"}, strings.Fields(c.args)...), "--db", db)...).fails(t, c.code, c.want...)
	}
	if n := tasksIn(t, db); n != tasks || n != 9 {
		t.Errorf("%d tasks, were %d: a refused file left one", n, tasks)
	}
	// A recording of years ago is new to retention, in this database and in a copy.
	copied := filepath.Join(dir, "copied.db")
	inside(t, "db", "import", db, "--db", copied).ok(t)
	for _, file := range []string{db, copied} {
		before := tasksIn(t, file)
		inside(t, "db", "retain", "--older-than", "90d", "--yes", "--db", file).ok(t)
		if n := tasksIn(t, file); n != before || n == 0 {
			t.Errorf("%s: %d of %d tasks are left", file, n, before)
		}
	}
}

func tasksIn(t *testing.T, path string) int {
	t.Helper()
	db, err := store.OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all, err := db.Tasks(t.Context(), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// An exported task comes back with its energy, its name and its uncertainties.
func TestExportIsImported(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir, db := t.TempDir(), demoDB(t, demo)
	table := filepath.Join(dir, "demo.csv")
	inside(t, "export", "1", "--all", "--db", db, "-o", table).ok(t)
	inside(t, "import", "csv", table, "--db", db).ok(t)
	was, _ := onlyTask(t, db, 1)
	is, _ := onlyTask(t, db, 2)
	shift := measure.SecondsOf(is.Started.Sub(was.Started)) // its device time begins with its first row
	if is.Name != was.Name || is.GPU != was.GPU || shift < 0 || shift > was.Result.From || is.Scans != was.Scans {
		t.Errorf("%+v came back of %+v", is.NewTask, was.NewTask)
	}
	inside(t, "trim", "2", "--from", (was.Result.From - shift).Duration().String(), "--to", (was.Result.To - shift).Duration().String(), "--db", db).ok(t)
	is, _ = onlyTask(t, db, 2)
	if a, b := was.Result.Total, is.Result.Total; math.Abs(float64(a.Energy/b.Energy-1)) > 1e-6 || math.Abs(float64(a.U/b.U-1)) > 0.1 {
		t.Errorf("%v ± %v came back as %v ± %v", a.Energy, a.U, b.Energy, b.U)
	}
	raw := filepath.Join(dir, "raw.csv")
	inside(t, "export", "1", "--raw", "--db", db, "-o", raw).ok(t)
	inside(t, "import", "csv", raw, "--db", db).fails(t, cli.ExitFailed, "--format recording")
}

// While a file comes in nobody sees its task; a file that ends in an error takes its task
// along.
func TestImportIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	noRaces(t)
	path := filepath.Join(t.TempDir(), "power.db")
	var out bytes.Buffer
	a := &cli.App{Streams: cli.Streams{Out: &out, Err: &out}, DB: path}
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1000, TicksPerScan: 1},
		Channels: []measure.Channel{{Name: "gpu.power", Unit: measure.UnitWatt, Gain: 1}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, Y: -1}},
	}
	in := &exchange.Incoming{Format: "csv", Path: "half.csv", Task: store.NewTask{Name: "half", User: "lab"}}
	in.Header = store.Header{Bench: "import", Setup: setup, CalibrationID: setup.CalibrationID()}
	broken := errors.New("the stick was pulled out")
	in.Stream = func(sink textin.Sink) error {
		for i := range 3 {
			counts := make([]measure.Count, exchange.ImportChunk)
			b := measure.Block{FirstScan: uint64(i * exchange.ImportChunk), FirstTick: int64(i * exchange.ImportChunk), Counts: [][]measure.Count{counts}}
			if err := sink.Block(&b); err != nil {
				return err
			}
		}
		if n := tasksIn(t, path); n != 0 {
			t.Errorf("half way: %d tasks are listed", n)
		}
		inside(t, "show", "1", "--db", path).fails(t, cli.ExitNotFound, "no task 1")
		return broken
	}
	if err := exchange.ImportTask(t.Context(), a, in); !errors.Is(err, broken) || !strings.Contains(err.Error(), "Nothing of it was stored") {
		t.Errorf("got %v", err)
	}
	if n := tasksIn(t, path); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// Two imports of a file are two tasks, also where they are copied to.
func TestImportsAreToldApart(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	db, all, table := filepath.Join(dir, "power.db"), filepath.Join(dir, "all.db"), filepath.Join(dir, "t.csv")
	if err := os.WriteFile(table, []byte("t_s,gpu_power_w\n0,10\n1,20\n2,30\n3,40\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside(t, "import", "csv", table, "--db", db).ok(t)
	inside(t, "import", "csv", table, "--to", "2s", "--db", db).ok(t)
	for range 2 { // what came is known the second time
		inside(t, "db", "import", db, "--db", all).ok(t)
		if n := tasksIn(t, all); n != 2 {
			t.Fatalf("%d tasks of 2", n)
		}
	}
	one, _ := onlyTask(t, all, 1)
	two, _ := onlyTask(t, all, 2)
	if one.Result.To == two.Result.To {
		t.Errorf("both windows end at %v", one.Result.To)
	}
}
