package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/measure"
)

// Object decodes the one JSON object on standard output, and fails where there
// is anything else.
func object(t *testing.T, out string, to any) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatalf("not an object of ours: %v\n%s", err, out)
	}
	if d.More() {
		t.Errorf("more than one object on standard output:\n%s", out)
	}
	var raw map[string]any
	if err := json.Unmarshal([]byte(out), &raw); err != nil {
		t.Fatal(err)
	}
	return raw
}

// Relative is a's relative deviation from b.
func relative(a, b float64) float64 { return math.Abs(a/b - 1) }

func TestDemoJSON(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "power.db")
	var r report.Report
	raw := object(t, wattmark(t, "demo", "--json", "--db", db).ok(t).out, &r)
	for _, field := range []string{
		"task_id", "database", "energy_j", "energy_u_j", "truth_j", "error_pct", "duration_s", "mean_w", "peak_w",
		"nvml_j", "samples", "gaps", "rails", "markers",
	} {
		if _, ok := raw[field]; !ok {
			t.Fatalf("%s is missing", field)
		}
	}
	e, u, truth := *r.EnergyJ, *r.EnergyUJ, *r.TruthJ
	switch {
	case r.TaskID != 1 || r.Database != db || r.State != "complete" || r.Reason != "":
		t.Errorf("task %d in %s, %s: %s", r.TaskID, r.Database, r.State, r.Reason)
	case math.Abs(*r.ErrorPct) > 0.5 || math.Abs(*r.ErrorPct-100*(e/truth-1)) > 1e-9:
		t.Errorf("error %v %% of %v J and %v J", *r.ErrorPct, e, truth)
	case !(u > 0 && u < 0.1*e) || math.Abs(e-truth) > u:
		t.Errorf("%v ± %v J, truth %v J", e, u, truth)
	case math.Abs(*r.DurationS-1) > 2e-3 || math.Abs(*r.MeanW**r.DurationS-e) > 1e-6*e:
		t.Errorf("%v W for %v s are not %v J", *r.MeanW, *r.DurationS, e)
	case *r.PeakW < *r.MeanW || *r.PeakW > 400:
		t.Errorf("peak %v W, mean %v W", *r.PeakW, *r.MeanW)
	case *r.NVMLJ < 0.5*truth || *r.NVMLJ > 1.5*truth:
		t.Errorf("NVML: %v J, truth %v J", *r.NVMLJ, truth)
	case r.Gaps != 0 || r.Lost != 0 || math.Abs(float64(r.Samples)-*r.DurationS*float64(r.Rate)) > 2 || r.Stored < r.Samples:
		t.Errorf("%d samples of %v s at %v, %d gaps; %d stored", r.Samples, *r.DurationS, r.Rate, r.Gaps, r.Stored)
	}
	checkRails(t, &r)
	checkMarkers(t, &r)
	if n := stockSQL(t, db, "select count(*) from data where taskID = 1"); n != strconv.FormatUint(r.Samples, 10) {
		t.Errorf("the view data has %s rows, the demo says %d samples", n, r.Samples)
	}
	mean, err := strconv.ParseFloat(stockSQL(t, db, "select avg(power) from data where taskID = 1"), 64)
	if err != nil || relative(mean, *r.MeanW) > 1e-3 {
		t.Errorf("the view's mean power is %v W, the demo's %v W (%v)", mean, *r.MeanW, err)
	}
}

func checkRails(t *testing.T, r *report.Report) {
	t.Helper()
	sum := 0.0
	for _, x := range r.Rails {
		if x.Name == "" || x.EnergyJ <= 0 || x.EnergyUJ <= 0 || x.PeakW < x.MeanW {
			t.Errorf("rail %+v", x)
		}
		sum += x.EnergyJ
	}
	if len(r.Rails) < 3 || relative(sum, *r.EnergyJ) > 1e-9 {
		t.Errorf("%d rails of %v J in all, total %v J", len(r.Rails), sum, *r.EnergyJ)
	}
}

func checkMarkers(t *testing.T, r *report.Report) {
	t.Helper()
	start, stop := r.Markers.Start, r.Markers.Stop
	if start == nil || stop == nil || r.Window == nil || r.Clock == nil {
		t.Fatalf("markers %+v, window %+v, clock %+v", r.Markers, r.Window, r.Clock)
	}
	for _, m := range []*report.MarkerReport{start, stop} {
		if !m.TagOK || m.Fallback || m.PSLRdB < 3 || m.Correlation < 0.9 || m.US <= 0 || m.US > 1e-4 || m.StepW < 50 {
			t.Errorf("marker %+v", m)
		}
	}
	if !(measure.Seconds(start.TS) < r.Window.From && r.Window.From < r.Window.To && r.Window.To < measure.Seconds(stop.TS)) {
		t.Errorf("markers at %v s and %v s, window %+v", start.TS, stop.TS, r.Window)
	}
	if r.Clock.RMS > 1e-4 || math.Abs(r.Clock.B-1) > 1e-3 {
		t.Errorf("clock %+v", r.Clock)
	}
}

// A meter with errors that fit its stated uncertainty stays within it.
func TestDemoImperfect(t *testing.T) {
	t.Parallel()
	var r report.Report
	object(t, inside(t, "demo", "--json", "--imperfect", "--duration", "200ms", "--db", filepath.Join(t.TempDir(), "power.db")).ok(t).out, &r)
	if d := math.Abs(*r.EnergyJ - *r.TruthJ); d > 2**r.EnergyUJ || d == 0 {
		t.Errorf("%v ± %v J, truth %v J", *r.EnergyJ, *r.EnergyUJ, *r.TruthJ)
	}
}

// What the GPU's own sensor gets wrong, and the meter does not.
func TestDemoPulse(t *testing.T) {
	t.Parallel()
	var r report.Report
	object(t, inside(t, "demo", "--json", "--pulse", "50ms", "--db", filepath.Join(t.TempDir(), "power.db")).ok(t).out, &r)
	if relative(*r.EnergyJ, *r.TruthJ) > 0.005 || math.Abs(*r.EnergyJ-*r.TruthJ) > *r.EnergyUJ {
		t.Errorf("the meter: %v ± %v J, truth %v J", *r.EnergyJ, *r.EnergyUJ, *r.TruthJ)
	}
	// By how much depends on where the pulses fall, which a busy machine launches late.
	if off := math.Abs(*r.NVMLJ - *r.TruthJ); off < 5**r.EnergyUJ {
		t.Errorf("NVML: %v J, truth %v J: it should not see what happens between its looks", *r.NVMLJ, *r.TruthJ)
	}
	if *r.DurationS < 0.8 { // of 0.95 s; on a busy machine the last pulse does not begin in time
		t.Errorf("a window of %v s", *r.DurationS)
	}
}

func TestDemoForAPerson(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "power.db")
	r := wattmark(t, "demo", "--user", "ada", "--name", "first light", "--db", db).ok(t)
	for _, line := range []string{
		`(?m)^Task 1  first light, by ada: complete$`,
		`(?m)^  GPU      simulated GPU, driver simulated$`,
		`(?m)^  meter    powersensor3 \(PowerSensor3 F411\), 20 kS/s, bench powersensor3$`,
		`(?m)^  window   (1 s|999\.\d+ ms|1\.00\d* s), (19999|2000[01]) samples, no gap$`,
		`(?m)^ rail +energy \(k = 2\) +mean +peak *$`,
		`(?m)^ pcie_12v +[\d.]+ J ± [\d.]+ J +[\d.]+ W +[\d.]+ W *$`,
		`(?m)^ total +1\d\d\.\d J ± \d\.\d J +[\d.]+ W +[\d.]+ W *$`,
		`(?m)^  truth    [\d.]+ J injected by the emulated board: error [+-][\d.e-]+ %, inside of ± U$`,
		`(?m)^           tests the markers, the window and the arithmetic;\n           not ± U: this meter's gains and zeros are exact \(--imperfect draws wrong ones\)$`,
		`(?m)^  NVML     [\d.]+ J by nvml\.instant: [+-][\d.e-]+ % against the meter$`,
		`(?m)^  marker   start at [\d.]+ s ± [\d.]+ [µn]s \(k = 1\), correlation 0\.99\d, PSLR [\d.]+ dB, step [\d.]+ W$`,
		`(?m)^  clock    residual [\d.]+ [µn]s rms over \d+ edges`,
		`(?m)^ +MM+ *═{30,} *MM+ +M marker, ═ window$`,
		`(?m)^  wattmark --db ` + regexp.QuoteMeta(db) + ` show 1 `,
	} {
		if !regexp.MustCompile(line).MatchString(r.out) {
			t.Errorf("no line %s in\n%s", line, r.out)
		}
	}
	if strings.ContainsRune(r.out+r.err, '\x1b') {
		t.Errorf("escape codes where there is no terminal:\n%q", r.out+r.err)
	}
	for _, phase := range []string{"playing a marker", "running the work", "stopping the capture"} {
		if !strings.Contains(r.err, phase) {
			t.Errorf("the phase %q is not told:\n%s", phase, r.err)
		}
	}
	checkNext(t, r.out)
}

// checkNext does what the demo suggests.
func checkNext(t *testing.T, out string) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^  sqlite3 (\S+) '([^']+)'`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no sqlite3 line in\n%s", out)
	}
	if rows := stockSQL(t, m[1], m[2]); len(strings.Split(rows, "\n")) != 5 || strings.Count(rows, "|") != 5*11 {
		t.Errorf("%s: want 5 rows of 12 columns, got\n%s", m[2], rows)
	}
	for _, l := range regexp.MustCompile(`(?m)^  wattmark (--db \S+ (?:show \d+|tasks))  `).FindAllStringSubmatch(out, -1) {
		wattmark(t, strings.Fields(l[1])...).ok(t)
	}
}
