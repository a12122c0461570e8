package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vreport "github.com/wattmark/wattmark/analysis/validate"

	"github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/service"
	"github.com/wattmark/wattmark/cmd/internal/study/validate"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// verdictOf finds a method of a validation.
func verdictOf(t *testing.T, r *vreport.Report, m sensor.Method) *vreport.MethodReport {
	t.Helper()
	for i := range r.Methods {
		if r.Methods[i].Name == string(m) {
			return &r.Methods[i]
		}
	}
	t.Fatalf("no method %s among %+v", m, r.Methods)
	return nil
}

// oneValidation is the object of one subject, which is a list of one.
type oneValidation struct {
	vreport.Report
	validate.FilesReport
}

func (v *oneValidation) UnmarshalJSON(text []byte) error {
	var all manyValidations
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return err
	}
	if len(all.Subjects) != 1 {
		return fmt.Errorf("%d subjects, want one", len(all.Subjects))
	}
	v.Report, v.FilesReport = all.Subjects[0], all.FilesReport
	return nil
}

// manyValidations is the object of several.
type manyValidations struct {
	Subjects []vreport.Report      `json:"subjects"`
	Summary  []vreport.SummaryLine `json:"summary"`
	Refused  []struct {
		Name   string `json:"name"`
		Reason string `json:"reason"`
	} `json:"refused"`
	validate.FilesReport
}

// One command holds what software said of a stored task against its meter, in
// numbers, in a figure and in a page; several tasks get a summary.
func TestValidate(t *testing.T) {
	t.Parallel()
	noRaces(t)
	r := &rig{t: t, db: demoDB(t, pulsesOf("one"), pulsesOf(`<script>alert(1)</script>`))}
	dir := t.TempDir()
	svg, html := filepath.Join(dir, "v.svg"), filepath.Join(dir, "v.html")

	var v oneValidation
	object(t, inside(t, "validate", "1", "--db", r.db, "--json", "--svg", svg, "--html", html, "--save-as", "card").ok(t).out, &v)
	var x report.Report
	object(t, inside(t, "show", "1", "--db", r.db, "--json").ok(t).out, &x)
	// The same window and calibration as show.
	if relative(float64(v.Truth.Energy), *x.EnergyJ) > 1e-4 || relative(float64(v.Duration), *x.DurationS) > 1e-3 || relative(float64(v.Truth.U), *x.EnergyUJ) > 0.2 {
		t.Errorf("%v ± %v J over %v s, shown as %v ± %v J over %v s", float64(v.Truth.Energy), float64(v.Truth.U), float64(v.Duration), *x.EnergyJ, *x.EnergyUJ, *x.DurationS)
	}
	for _, m := range x.Methods {
		got := verdictOf(t, &v.Report, sensor.Method(m.Method))
		if inside := got.ErrorPct - got.EndsPct; math.Abs(float64(got.ErrorPct)-*m.ErrorPct) > 0.01 || got.Interval.Lo > inside || got.Interval.Hi < inside {
			t.Errorf("%s: error %v in %v … %v, shown as %v", m.Method, float64(got.ErrorPct), float64(got.Interval.Lo), float64(got.Interval.Hi), *m.ErrorPct)
		}
	}
	if e := verdictOf(t, &v.Report, sensor.InstantField); float64(e.ErrorPct) > -40 || e.Agreement != "differs" || e.Bias > -20 {
		t.Errorf("instant: %+v", e)
	}
	// The simulated sensor updates at whole periods of the clock, where the pulses begin:
	// the instant field sees 25 ms of every rest.
	if w := method(t, x.Methods, sensor.InstantField).WithinU; w == nil || *w {
		t.Error("instant is said to be within ± U")
	}
	if e := verdictOf(t, &v.Report, sensor.Counter); e.Interval.Lo > 0 || e.Interval.Hi < 0 || math.Abs(float64(e.ErrorPct)) > 5 {
		t.Errorf("counter: %+v", e)
	}
	if !strings.Contains(v.Verdict, "instant reads") || !strings.Contains(v.Verdict, "kernels that alternate") || v.Clock.How != "markers" || v.Clock.OffsetU > 1e-3 {
		t.Errorf("%q, clock by %s ± %v s", v.Verdict, v.Clock.How, v.OffsetU)
	}
	if len(v.Kernels) != 1 || v.Kernels[0].Launches != 15 || v.SVG != svg || v.HTML != html || v.Saved != "card" || v.Unmeasured == nil {
		t.Errorf("%+v", v)
	}
	drawn(t, svg, "energy / J", "instant", "meter: powersensor3")
	page := readText(t, html)
	if !strings.Contains(page, "</html>") || strings.Count(page, "<svg ") != 2 || strings.Contains(page, "NaN") {
		t.Error("the page is not whole")
	}
	inside(t, "validate", "1", "--db", r.db, "--html", html).fails(t, cli.ExitFailed, "exists")
	r.validateSeveral(t, dir)
	r.validateSaved(t)
	r.validateText(t)
}

// pulsesOf is a task of 15 pulses.
func pulsesOf(name string) demoOf {
	return demoOf{name: name, user: "lab", length: 1500 * time.Millisecond, pulse: 50 * time.Millisecond, kernel: gpu.BenchMemory}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (r *rig) validateSeveral(t *testing.T, dir string) {
	t.Helper()
	html := filepath.Join(dir, "all.html")
	var v manyValidations
	object(t, inside(t, "validate", "--user", "lab", "--db", r.db, "--json", "--html", html).ok(t).out, &v)
	if len(v.Subjects) != 2 || len(v.Refused) != 0 || len(v.Summary) != len(v.Subjects[0].Methods) || v.Subjects[0].Name != "task 1 (one)" {
		t.Fatalf("%d subjects, %d lines, %d refused", len(v.Subjects), len(v.Summary), len(v.Refused))
	}
	for _, l := range v.Summary {
		a, b := verdictOf(t, &v.Subjects[0], sensor.Method(l.Method)), verdictOf(t, &v.Subjects[1], sensor.Method(l.Method))
		if want := (float64(a.ErrorPct) + float64(b.ErrorPct)) / 2; l.N != 2 || math.Abs(float64(l.MeanErrorPct)-want) > 1e-9 {
			t.Errorf("%s: mean error %v of %d, want %v", l.Method, float64(l.MeanErrorPct), l.N, want)
		}
		if want := (math.Abs(float64(a.ErrorPct)) + math.Abs(float64(b.ErrorPct))) / 2; math.Abs(float64(l.MAPEPct)-want) > 1e-9 {
			t.Errorf("%s: MAPE %v, want %v", l.Method, float64(l.MAPEPct), want)
		}
	}
	if page := readText(t, html); strings.Contains(page, "<script") || !strings.Contains(page, "&lt;script&gt;") || !strings.Contains(page, `id="summary"`) {
		t.Error("a name got into the page as it is, or the summary is missing")
	}
	// A task that cannot be judged does not keep the others from it; it is said.
	execSQL(t, r.db, "INSERT INTO task(user_id, name, launched_ns, launched, state, monitor, capture_id, gpu, gpu_uuid, driver, marker_code, marker_chip_s, marker_guard, marker_tag_bits, marker_tag) "+
		"SELECT user_id, 'empty', launched_ns, launched, 3, '', '', '', '', '', marker_code, marker_chip_s, marker_guard, marker_tag_bits, marker_tag FROM task WHERE task_id=1")
	var w manyValidations
	object(t, inside(t, "validate", "--name", "*", "--db", r.db, "--json", "--resamples", "200").ok(t).out, &w)
	if len(w.Subjects) != 2 || len(w.Refused) != 1 || !strings.Contains(w.Refused[0].Reason, "no samples") {
		t.Errorf("%d subjects, refused %+v", len(w.Subjects), w.Refused)
	}
	inside(t, "validate", "3", "--db", r.db).fails(t, cli.ExitFailed, "task 3 (empty) has no samples", "wattmark run")
}

func (r *rig) validateSaved(t *testing.T) {
	t.Helper()
	inside(t, "validate", "1", "2", "--db", r.db, "--save-as", "card", "--json", "--resamples", "200").ok(t)
	db := r.stored()
	defer db.Close()
	list, err := db.Analyses(t.Context(), validate.ValidationKind)
	if err != nil || len(list) != 2 || list[1].Version != 2 || len(list[0].Tasks) != 1 || len(list[1].Tasks) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	var kept oneValidation
	if err := json.Unmarshal(list[0].Content, &kept); err != nil || kept.Truth.Energy == 0 || kept.Saved != "" && kept.Saved != "card" {
		t.Errorf("%+v, %v", kept, err)
	}
}

func (r *rig) validateText(t *testing.T) {
	t.Helper()
	out := inside(t, "validate", "1", "2", "--db", r.db, "--resamples", "200").ok(t).out
	for _, want := range []string{"task 1 (one): instant reads", "95 % interval", "By kernel", "All 2 together", "MAPE %", "lag (k = 2)", "outside", "■ meter"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(out, "NaN") || strings.Contains(out, "\x1b") {
		t.Errorf("NaN or an escape in\n%s", out)
	}
}

// validateReplayed holds the validation of a public recording against its figures.
func validateReplayed(t *testing.T, db, name string) {
	t.Helper()
	var v oneValidation
	object(t, inside(t, "validate", "1", "--db", db, "--json", "--resamples", "200").ok(t).out, &v)
	want, field := recorded[name], sensor.Method("nvidia-smi power.draw.instant")
	if name == "k40m-step" {
		field = "nvidia-smi power.draw"
	}
	m := verdictOf(t, &v.Report, field)
	if relative(float64(v.Truth.Energy), want.meterJ) > 5e-4 || relative(float64(m.Energy), want.nvmlJ) > 5e-4 || math.Abs(float64(m.ErrorPct)-want.errorPct) > 0.05 {
		t.Errorf("meter %v J, %s %v J, error %v %%, want %+v", float64(v.Truth.Energy), m.Name, float64(m.Energy), float64(m.ErrorPct), want)
	}
	if len(v.Missing) != 1 || v.MissingPower != 10.8 || !strings.Contains(v.Verdict, "the meter does not see pcie_3v3") || v.Offset != 0 {
		t.Errorf("%+v", v)
	}
}

func TestValidateUsage(t *testing.T) {
	t.Parallel()
	noRaces(t)
	missing := filepath.Join(t.TempDir(), "none.db")
	inside(t, "validate").fails(t, cli.ExitUsage, "name the tasks", "--user")
	inside(t, "validate", "1", "--user", "lab").fails(t, cli.ExitUsage, "not both")
	inside(t, "validate", "0").fails(t, cli.ExitUsage, "not a task number")
	inside(t, "validate", "1", "--resamples", "10").fails(t, cli.ExitUsage, "fewer than 100")
	inside(t, "validate", "--user", "lab", "--limit", "0").fails(t, cli.ExitUsage, "--limit")
	inside(t, "validate", "1", "--db", missing).fails(t, cli.ExitNotFound, "no task database")
	empty := filepath.Join(t.TempDir(), "power.db")
	db, err := store.Open(t.Context(), empty)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	inside(t, "validate", "9", "--db", empty).fails(t, cli.ExitNotFound, "no task 9")
	inside(t, "validate", "--name", "gemm", "--db", empty).fails(t, cli.ExitNotFound, "no such tasks")
}

// overlap puts launches on two streams that overlap, and on another GPU, into a task,
// within its window.
func overlap(t *testing.T, path string, id store.TaskID) {
	t.Helper()
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	x, err := db.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	from := report.NewTaskTimes(&x).Origin.UnixNano()
	const ms = 1_000_000
	var launches []store.Launch
	for i := range int64(14) {
		at := from + (20+100*i)*ms
		launches = append(launches, store.Launch{Start: at, End: at + 60*ms, Stream: 7},
			store.Launch{Start: at + 10*ms, End: at + 55*ms, Name: 1, Stream: 20},
			store.Launch{Start: at + 20*ms, End: at + 30*ms, Name: 2, Stream: 21},
			store.Launch{Start: at + 20*ms, End: at + 90*ms, Name: 2, Device: 1})
	}
	if err := errors.Join(db.PutLaunchTables(t.Context(), id, store.LaunchTables{
		Processes: []store.LaunchProcess{{PID: 1, Kernels: 56, Reported: 56, Whole: true}}, Names: []string{"_Z4gemmPfS_i", "softmax", "copy"},
		Devices: []store.LaunchDevice{{Measured: true}, {Ordinal: 1}},
	}), db.PutLaunches(t.Context(), id, 0, launches)); err != nil {
		t.Fatal(err)
	}
	if _, err := measurement.Attribute(t.Context(), db, id); err != nil { // as run --auto does
		t.Fatal(err)
	}
}

// Kernels that overlap have one energy on every surface, by equal shares, and the
// lines come to the task's energy, whose sum is shown.
func TestKernelsShareEverywhere(t *testing.T) {
	t.Parallel()
	noRaces(t)
	r := &rig{t: t, db: demoDB(t, pulsesOf("streams"))}
	overlap(t, r.db, 1)

	var x report.Report
	object(t, inside(t, "show", "1", "--db", r.db, "--kernels", "--json").ok(t).out, &x)
	by := map[string]float64{}
	var sum float64
	for _, l := range x.Kernels.Lines {
		by[l.Name] += float64(l.Energy)
		sum += float64(l.Energy)
	}
	if relative(sum, *x.EnergyJ) > 1e-9 || relative(float64(x.Kernels.Sum), *x.EnergyJ) > 1e-9 || by["gemm"] < by["softmax"] {
		t.Errorf("the lines come to %v J, shown as %v, of %v: %v", sum, x.Kernels.Sum, *x.EnergyJ, by)
	}
	text := inside(t, "show", "1", "--db", r.db, "--kernels", "--no-plot").ok(t).out
	if want := "sum"; !strings.Contains(text[strings.Index(text, "Energy by kernel"):], want) {
		t.Errorf("no sum in\n%s", text)
	}

	html := filepath.Join(t.TempDir(), "v.html")
	var v oneValidation
	object(t, inside(t, "validate", "1", "--db", r.db, "--json", "--html", html).ok(t).out, &v)
	sum = 0
	said := map[string]float64{}
	for _, k := range append(v.Kernels, *v.NoKernel) {
		sum += float64(k.Truth.Energy)
		for _, m := range k.Methods {
			if m.Energy != 0 {
				said[m.Name] += float64(m.Energy)
			}
		}
	}
	if relative(sum, float64(v.Truth.Energy)) > 1e-9 || relative(float64(v.KernelSum.Truth.Energy), float64(v.Truth.Energy)) > 1e-9 || len(v.Kernels) != 3 {
		t.Errorf("the lines come to %v J of %v: %+v", sum, float64(v.Truth.Energy), v.Kernels)
	}
	for _, k := range append(v.Kernels, *v.NoKernel) {
		if want := by[strings.TrimPrefix(k.Name, "(no kernel)")]; relative(float64(k.Truth.Energy), want) > 2e-3 {
			t.Errorf("%s: %v J, shown as %v", k.Name, float64(k.Truth.Energy), want)
		}
	}
	for _, m := range v.KernelSum.Methods {
		if m.Energy != 0 && relative(said[m.Name], float64(m.Energy)) > 1e-9 {
			t.Errorf("%s: %v J by kernel, %v in the sum", m.Name, said[m.Name], float64(m.Energy))
		}
	}
	for what, text := range map[string]string{"text": inside(t, "validate", "1", "--db", r.db).ok(t).out, "html": readText(t, html)} {
		for _, want := range []string{"(no kernel)", "sum", "qual share"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", what, want, text)
			}
		}
	}

	db := r.stored()
	defer db.Close()
	service := service.OpenReports(t.Context(), (&cli.App{}), db)
	defer service.Close()
	m, err := service.ReadValidation(t.Context(), &wattmarkv1.ReadValidationRequest{TaskId: 1})
	if err != nil {
		t.Fatal(err)
	}
	sum = m.GetNoKernel().GetEnergy().GetEnergyJ()
	for _, k := range m.Kernels {
		sum += k.GetEnergy().GetEnergyJ()
	}
	if relative(sum, m.Energy.EnergyJ) > 1e-9 || relative(m.KernelSum.Energy.EnergyJ, m.Energy.EnergyJ) > 1e-9 || len(m.KernelSum.Errors) != len(m.Methods) {
		t.Errorf("the report's lines come to %v J of %v: %v", sum, m.Energy.EnergyJ, m.KernelSum)
	}
	rows, err := db.Aggregate(t.Context(), store.AggregateQuery{By: store.ByKernel})
	sum = 0
	for _, row := range rows {
		sum += float64(row.Energy.Energy)
	}
	if err != nil || relative(sum, *x.EnergyJ) > 1e-9 || len(rows) != 4 {
		t.Errorf("the rows come to %v J of %v: %+v, %v", sum, *x.EnergyJ, rows, err)
	}
}

// Within and outside are one word: whatever methods say of a task, with a U of their
// own or without, show, validate, its page and the report hold it against the meter
// alike, and name as many readings.
func TestOneWordEverywhere(t *testing.T) {
	t.Parallel()
	noRaces(t)
	r := &rig{t: t, db: demoDB(t, pulsesOf("words"))}
	db := r.stored()
	defer db.Close()
	x, err := db.Task(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	known, err := db.Methods(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(31, 32))
	var list []store.MethodResult
	for i := range 40 {
		m := store.MethodResult{
			Method: fmt.Sprintf("m%02d", i), From: known[0].From, To: known[0].To, Readings: rng.Uint64N(2000),
			Energy: x.Result.Total.Energy + x.Result.Total.U*measure.Joule(1.5*rng.NormFloat64()), U: x.Result.Total.U * measure.Joule(max(0, rng.NormFloat64())),
		}
		switch i % 8 {
		case 6:
			m.Energy, m.Note = measure.Joule(math.NaN()), "nothing to say"
		case 7:
			m.From = m.From.Add(-time.Second) // of other work
		}
		m.Mean = measure.Watt(float64(m.Energy) / m.To.Sub(m.From).Seconds())
		list = append(list, m)
	}
	if err := db.PutMethods(t.Context(), 1, list); err != nil {
		t.Fatal(err)
	}

	var shown report.Report
	object(t, inside(t, "show", "1", "--db", r.db, "--json").ok(t).out, &shown)
	html := filepath.Join(t.TempDir(), "v.html")
	var v oneValidation
	object(t, inside(t, "validate", "1", "--db", r.db, "--json", "--html", html).ok(t).out, &v)
	service := service.OpenReports(t.Context(), (&cli.App{}), db)
	defer service.Close()
	m, err := service.ReadValidation(t.Context(), &wattmarkv1.ReadValidationRequest{TaskId: 1})
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(readText(t, html), "</tr>", "</tr>\n")
	showText, validateText := inside(t, "show", "1", "--db", r.db, "--no-plot").ok(t).out, inside(t, "validate", "1", "--db", r.db).ok(t).out
	words := map[measure.Agreement]int{}
	for i, s := range shown.Methods {
		e := verdictOf(t, &v.Report, sensor.Method(s.Method))
		a := measure.Agreement(e.Agreement)
		words[a]++
		onPage := map[measure.Agreement]wattmarkv1.Agreement{measure.Agrees: wattmarkv1.Agreement_AGREEMENT_AGREES, measure.Differs: wattmarkv1.Agreement_AGREEMENT_DIFFERS}[a]
		if s.Word() != a.Word() || m.Methods[i].Name != s.Method || m.Methods[i].Agreement != onPage {
			t.Errorf("%s: show says %q, validate %s, the report %v", s.Method, s.Word(), a, m.Methods[i].Agreement)
		}
		if e.Energy != 0 && uint64(e.Readings) != s.Readings {
			t.Errorf("%s: %d readings in show, %d in validate", s.Method, s.Readings, e.Readings)
		}
		if a == measure.Agrees && (float64(e.Interval.Lo) > 0 || float64(e.Interval.Hi) < 0) {
			t.Errorf("%s agrees, and its interval is %v to %v", s.Method, float64(e.Interval.Lo), float64(e.Interval.Hi))
		}
		for where, line := range map[string]string{"show": lineOf(showText, s.Method), "validate": lineOf(validateText, s.Method), "page": lineOf(page, s.Method+"</td>")} {
			for _, w := range []string{"within", "outside"} {
				if strings.Contains(line, w) != (a.Word() == w) {
					t.Errorf("%s of %s: %q, by JSON %s", where, s.Method, line, a)
				}
			}
		}
	}
	if words[measure.Agrees] < 10 || words[measure.Differs] < 10 || words[measure.Unknown] < 5 {
		t.Errorf("the test tests little: %v", words)
	}
}

// lineOf is the first line of a table that holds a name.
func lineOf(text, name string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " "+name+" ") || strings.Contains(line, ">"+name) {
			return line
		}
	}
	return ""
}
