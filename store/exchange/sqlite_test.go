package exchange_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/sqlitefile"
)

// stock asks the stock sqlite3 program.
func stock(t *testing.T, path, query string) []string {
	t.Helper()
	program, err := exec.LookPath("sqlite3")
	if err != nil {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatal(err)
		}
		t.Skipf("there is no sqlite3 program here: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), program, "-readonly", "-batch", path, query).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", query, err, out)
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n")
}

func sqliteTable(t *testing.T, s *madeSource, id int64, c exchange.Choice) *exchange.Table {
	t.Helper()
	task := s.Task()
	tab, err := exchange.NewTable(t.Context(), s, task, "test", c)
	if err != nil {
		t.Fatal(err)
	}
	tab.Meta.Task.ID = id
	return tab
}

// The stock program finds the paper's columns, and in them what was measured.
func TestStockProgramReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd name?#%.db")
	two := madeSetup(false)
	two.Rails[1].Role = measure.RolePSU // two rails of a role, and one without
	first, second := &madeSource{Setup: madeSetup(false), Scans: 70_001, Gap: 3}, &madeSource{Setup: two, Scans: 100}
	f, err := sqlitefile.Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Add(t.Context(), sqliteTable(t, first, 1, exchange.Choice{})), f.Add(t.Context(), sqliteTable(t, second, 2, exchange.Choice{})), f.Close()); err != nil {
		t.Fatal(err)
	}
	info := stock(t, path, "SELECT group_concat(name), group_concat(pk) FROM (SELECT name, pk FROM pragma_table_info('data') ORDER BY cid)")
	want := "taskID,taskName,user,power,current1,current2,current3,voltage1,voltage2,voltage3,taskTime,seqNum|1,0,0,0,0,0,0,0,0,0,0,2"
	if info[0] != want {
		t.Errorf("columns and key\n%s, want\n%s", info[0], want)
	}
	if ok := stock(t, path, "PRAGMA integrity_check; SELECT type FROM sqlite_master WHERE name='data'; SELECT unit FROM unit WHERE \"column\"='current2'; SELECT json_extract(meta,'$.calibration.calibration_id') FROM wattmark WHERE taskID=1"); strings.Join(ok, " ") != "ok table A "+first.Setup.CalibrationID() {
		t.Errorf("%q", ok)
	}
	compareSQLite(t, first, stock(t, path, "SELECT seqNum,power,current1,current2,current3,voltage1,voltage2,voltage3 FROM data WHERE taskID=1 ORDER BY seqNum"))
	for _, line := range stock(t, path, "SELECT count(*), count(current2), max(abs(current1*voltage1+current3*voltage3-power)), min(seqNum), max(seqNum) FROM data WHERE taskID=2") {
		v := strings.Split(line, "|")
		if e, err := strconv.ParseFloat(v[2], 64); v[0] != "100" || v[1] != "0" || err != nil || e > 1e-9 || v[3] != "0" || v[4] != "99" {
			t.Errorf("rails of one role together: %s", line)
		}
	}
}

func compareSQLite(t *testing.T, s *madeSource, lines []string) {
	t.Helper()
	row := 0
	for b, err := range sqliteTable(t, s, 1, exchange.Choice{}).Batches {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows {
			v := func(c int) float64 { return b.Columns[c].F64[i] }
			want := []float64{float64(b.Columns[0].I64[i]), v(2), v(3), v(6), v(9), v(4), v(7), v(10)}
			for k, text := range strings.Split(lines[row], "|") {
				if got, err := strconv.ParseFloat(text, 64); err != nil || math.Abs(got-want[k]) > 1e-12*math.Abs(want[k]) {
					t.Fatalf("row %d: %s, want %v", row, lines[row], want)
				}
			}
			row++
		}
	}
	if row != len(lines) {
		t.Errorf("%d rows, want %d", len(lines), row)
	}
}

func TestSQLiteRefuses(t *testing.T) {
	s := &madeSource{Setup: madeSetup(false), Scans: 100}
	f, err := sqlitefile.Create(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Add(t.Context(), sqliteTable(t, s, 1, exchange.Choice{Raw: true})); err == nil || !strings.Contains(err.Error(), "leave --raw out") {
		t.Errorf("raw counts: %v", err)
	}
	if err := f.Add(t.Context(), sqliteTable(t, s, 1, exchange.Choice{Rails: []string{"aux_12v"}})); err == nil || !strings.Contains(err.Error(), "--rail") {
		t.Errorf("one rail: %v", err)
	}
	broken := sqliteTable(t, s, 2, exchange.Choice{})
	broken.Batches = func(yield func(*exchange.Batch, error) bool) { yield(nil, io.ErrUnexpectedEOF) }
	if err := f.Add(t.Context(), broken); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken source: %v", err)
	}
	if err := errors.Join(f.Add(t.Context(), sqliteTable(t, s, 3, exchange.Choice{})), f.Add(t.Context(), sqliteTable(t, s, 3, exchange.Choice{}))); err == nil {
		t.Error("a task twice is taken")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := sqlitefile.Create(t.Context(), filepath.Join(t.TempDir(), "no", "such", "folder")); err == nil {
		t.Error("a folder that is not there is taken")
	}
}

func BenchmarkSQLiteAdd(b *testing.B) {
	s := &madeSource{Setup: madeSetup(false), Scans: 1 << 17}
	if err := s.Keep(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		f, err := sqlitefile.Create(b.Context(), filepath.Join(b.TempDir(), fmt.Sprint(n)))
		if err != nil {
			b.Fatal(err)
		}
		tab, err := exchange.NewTable(b.Context(), s, s.Task(), "test", exchange.Choice{})
		if err := errors.Join(err, f.Add(b.Context(), tab), f.Close()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(s.Scans)/b.Elapsed().Seconds(), "rows/s")
}
