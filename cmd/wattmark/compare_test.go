package main

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	analysis "github.com/wattmark/wattmark/analysis/compare"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/study/compare"
	instructionscmd "github.com/wattmark/wattmark/cmd/internal/study/instructions"
	"github.com/wattmark/wattmark/hostagent/experiment/instructions"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// made is a task that nobody measured: for tests of what is said of tasks.
type made struct {
	name, job, gpu, serial string
	at                     time.Duration // since noon
	energy, length         float64
	gain, noise            float64 // relative standard uncertainties
	state                  store.State
	group                  store.GroupRef
	tags                   map[string]string
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// makeTasks puts tasks into a database and returns their numbers.
func makeTasks(t *testing.T, path string, tasks ...made) (ids []store.TaskID) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		emptyDB(t, path)
	}
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, m := range tasks {
		ids = append(ids, m.put(t, db))
	}
	return ids
}

func (m made) put(t *testing.T, db *store.DB) store.TaskID {
	t.Helper()
	at := noon.Add(m.at)
	id, err := db.BeginTask(t.Context(), store.NewTask{
		Name: m.name, User: "lab", Job: m.job, Launched: at, Monitor: "meters:7551", CaptureID: "c", GPU: "H200",
		GPUUUID: m.gpu, Group: m.group, Tags: m.tags,
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.state == store.Running {
		return id
	}
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100},
		Channels: []measure.Channel{{Name: "p", Unit: measure.UnitWatt, Gain: 1e-3, UGain: 0.01}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
	}
	if err := db.PutHeader(t.Context(), id, store.Header{
		Bench: "lab", Setup: setup, CalibrationID: setup.CalibrationID(), Started: at.Add(-time.Second),
		Instrument: store.Instrument{Kind: "daq", Serial: m.serial, Address: "/dev/ttyACM0"},
	}); err != nil {
		t.Fatal(err)
	}
	o := store.Outcome{State: store.Incomplete, Reason: "cable pulled"}
	if m.energy > 0 {
		e, u := measure.Joule(m.energy), 2*m.energy*math.Hypot(m.gain, m.noise)
		budget := []measure.Contribution{
			{Source: "gain p", U: measure.Joule(m.gain * m.energy), Systematic: true}, {Source: "noise p", U: measure.Joule(m.noise * m.energy)},
		}
		total := measure.Estimate{Energy: e, U: measure.Joule(u)}
		mean := measure.Watt(m.energy / m.length)
		o = store.Outcome{State: store.Complete, Result: &measure.Result{
			From: 1, To: measure.Seconds(1 + m.length), Samples: 1000, Total: total, Mean: mean, Peak: mean, Budget: budget,
			Rails: []measure.RailResult{{Name: "gpu", Role: measure.RoleWholeGPU, Energy: total, Mean: mean, Peak: mean, Budget: budget}},
		}}
	}
	if err := db.Finish(t.Context(), id, o); err != nil {
		t.Fatal(err)
	}
	return id
}

// versions makes n runs each of two versions, in turns, of which the second takes
// share of the first's energy.
func versions(n int, share, spread float64) (out []made) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		out = append(out,
			made{name: "v1", gpu: "GPU-1", serial: "7", at: time.Duration(2*i) * time.Minute, energy: 100 * (1 + spread*rng.NormFloat64()), length: 2, gain: 0.03, noise: 0.001},
			made{name: "v2", gpu: "GPU-1", serial: "7", at: time.Duration(2*i+1) * time.Minute, energy: share * 100 * (1 + spread*rng.NormFloat64()), length: 1.8, gain: 0.03, noise: 0.001})
	}
	return out
}

// inSeries tags runs of versions as a series of pairs of random order with so many planned.
func inSeries(runs []made, planned int) []made {
	for i := range runs {
		runs[i].tags = map[string]string{
			compare.TagSeries: "s", compare.TagSide: string("AB"[i%2]), compare.TagTurn: strconv.Itoa(i/2 + 1),
			compare.TagPlanned: strconv.Itoa(planned), compare.TagRest: strconv.FormatFloat(50+float64(i%2), 'f', 3,
				64),
		}
	}
	return runs
}

// Pairs of a series are tested pair by pair; a task without a partner is left out, and a
// series that ended early has no p.
func TestCompareSeries(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "power.db")
	makeTasks(t, db, inSeries(versions(6, 0.97, 0.005), 6)...)
	r := comparison(t, "v1", "v2", "--db", db)
	e := r.Quantities[0]
	if e.Design != analysis.RandomPairs || !e.Shown || e.DoF != 5 || r.Random == nil || r.Random.Ways != 64 ||
		!r.Random.Exact {
		t.Errorf("energy %+v, %+v", e, r.Random)
	}
	if s := r.Start; s == nil || s.Rest != [2]measure.Watt{50, 51} || measure.Known(s.Temperature[0]) ||
		len(r.Cautions) != 0 {
		t.Errorf("start %+v, cautions %q", s, r.Cautions)
	}
	r = comparison(t, "--a", "1,5,7,9,11", "--b", "2,4,6,8,10,12", "--db", db)
	if len(r.B.Tasks) != 5 || len(r.B.Passed) != 1 || !strings.Contains(r.B.Passed[0], "task 4") ||
		len(r.Cautions) != 1 || !strings.Contains(r.Cautions[0], "1 of the 6 planned pairs") {
		t.Errorf("without a partner: %+v, %q", r.B, r.Cautions)
	}
	r = comparison(t, "--a", "1,3,5,7,9", "--b", "2,4,6,8,10", "--db", db)
	if e := r.Quantities[0]; e.Design != analysis.EndedEarly || measure.Known(e.P) ||
		!(e.ChangeHigh > e.ChangeLow) || !strings.Contains(r.Verdict, "ended before its planned pairs") {
		t.Errorf("ended early: %+v, %q", e, r.Verdict)
	}
	if r := comparison(t, "1,3,5", "8,10,12", "--db", db); r.Quantities[0].Design != analysis.Blocks || len(r.A.Tasks) != 3 {
		t.Errorf("no pairs at all: %+v", r)
	}
	warm := inSeries(versions(4, 0.97, 0.005), 4)
	for i := range warm {
		warm[i].tags[compare.TagRest] = []string{"50", "52"}[i%2]
	}
	other := filepath.Join(t.TempDir(), "power.db")
	makeTasks(t, other, warm...)
	if r := comparison(t, "v1", "v2", "--db", other); len(r.Cautions) != 1 ||
		!strings.Contains(r.Cautions[0], "50 W before runs of A, 52 W before runs of B") {
		t.Errorf("cautions %q", r.Cautions)
	}
}

// As compareReport is printed.
func comparison(t *testing.T, args ...string) compare.CompareReport {
	t.Helper()
	var r compare.CompareReport
	object(t, inside(t, append([]string{"compare", "--json"}, args...)...).ok(t).out, &r)
	return r
}

func TestCompareRepeats(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "power.db")
	makeTasks(t, db, versions(5, 0.9, 0.005)...)
	r := comparison(t, "v1", "v2", "--db", db, "--work", "token=512", "--work", "flop=4e12,3.6e12")
	e := r.Quantities[0]
	if e.Name != "energy" || e.ChangeLow > -0.1 || e.ChangeHigh < -0.1 || e.ChangeHigh-e.ChangeLow > 0.03 || !e.Shown || e.P > 1e-4 || e.A.Runs != 5 {
		t.Errorf("energy %+v", e)
	}
	// 3 % of gain are in the energies, and not in their ratio.
	if u := (e.A.High - e.A.Low) / 2 / e.A.Value; u < 0.055 || u > 0.07 {
		t.Errorf("A is known to %v", u)
	}
	if len(r.Shared) != 1 || !strings.Contains(r.Shared[0].Behind, "instrument daq 7") || math.Abs(100*float64(r.Shared[0].A)-3) > 1e-9 || r.Shared[0].Left > 1e-11 {
		t.Errorf("shared %+v", r.Shared)
	}
	if !strings.HasPrefix(r.Verdict, "B uses 1") && !strings.HasPrefix(r.Verdict, "B uses 9.") || !strings.Contains(r.Verdict, "% less energy (p < 0.0001)") {
		t.Errorf("verdict %q", r.Verdict)
	}
	if r.Random != nil {
		t.Errorf("runs in turns of a fixed order have an exact test: %+v", r.Random)
	}
	if w := r.Work; len(w) != 2 || math.Abs(w[0].A.Value-e.A.Value/512) > 1e-9 || math.Abs(float64(w[0].Relative-e.Relative)) > 1e-11 || w[1].Relative-e.Relative < 0.09 {
		t.Errorf("work %+v", r.Work)
	}
	if len(r.Cautions) != 0 {
		t.Errorf("cautions %q", r.Cautions)
	}
	for quantity, want := range map[string]float64{"time": -10, "mean power": 0, "energy-delay product": -19, "energy-delay² product": -27.1} {
		for _, q := range r.Quantities {
			if q.Name == quantity && math.Abs(100*float64(q.Relative)-want) > 1.5 {
				t.Errorf("%s: %v %%", quantity, 100*float64(q.Relative))
			}
		}
	}
	text := inside(t, "compare", "v1", "v2", "--db", db).ok(t).out
	for _, want := range []string{"B against A (95 %)", "ED²P", "3 % of A", "4 of 5 trials"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestCompareSingleRuns(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "power.db")
	list := versions(1, 0.95, 0)
	list = append(list, made{name: "v2", gpu: "GPU-1", serial: "8", at: time.Hour, energy: 95, length: 1.8, gain: 0.03, noise: 0.001})
	// Meters without a serial number: known by where they are, or as is said.
	list = append(list, made{name: "v1", gpu: "GPU-1", at: time.Hour, energy: 100, length: 2, gain: 0.03, noise: 0.001},
		made{name: "v2", gpu: "GPU-1", at: time.Hour, energy: 95, length: 2, gain: 0.03, noise: 0.001},
		made{name: "v2", gpu: "GPU-2", at: time.Hour, energy: 95, length: 2, gain: 0.03, noise: 0.001})
	makeTasks(t, db, list...)
	for _, c := range []struct {
		name, a, b string
		args       []string
		u          float64 // percent
	}{
		{"one meter", "1", "2", nil, 0.263},
		{"two meters", "1", "3", nil, 7.9},
		{"said to be one", "1", "3", []string{"--meters", "same"}, 0.263},
		{"said to be two", "1", "2", []string{"--meters", "different"}, 7.9},
		{"one port", "4", "5", nil, 0.263},
		{"another GPU", "4", "6", nil, 7.9},
	} {
		r := comparison(t, append([]string{c.a, c.b, "--db", db, "--work", "token=5,6"}, c.args...)...)
		e := r.Quantities[0]
		if u := 50 * float64(e.ChangeHigh-e.ChangeLow); math.Abs(u-c.u) > 0.02*c.u || math.Abs(float64(e.Relative)+0.05) > 1e-11 || measure.Known(e.DoF) || e.Holds != "meters" {
			t.Errorf("%s: ± %v %%, %+v", c.name, u, e)
		}
		for _, q := range append(r.Quantities, analysis.Effect{P: r.Work[0].P}) {
			if measure.Known(q.P) || q.Shown {
				t.Errorf("%s: one run of each has a test: %+v", c.name, q)
			}
		}
		if len(r.Cautions) == 0 || !strings.Contains(r.Cautions[0], "one run of each") || !strings.Contains(r.Verdict, "One run cannot tell a difference of the work from its scatter") {
			t.Errorf("%s: %q, cautions %q", c.name, r.Verdict, r.Cautions)
		}
	}
	for _, sides := range [][2]string{{"1", "2"}, {"1", "2,3,5"}, {"1,4", "5"}} {
		text := inside(t, "compare", sides[0], sides[1], "--db", db, "--work", "token=5,6").ok(t).out
		for _, not := range []string{"uses", "takes ", "(p ", "p <", "p =", " p\n", "randomisation"} {
			if strings.Contains(strings.ReplaceAll(text, "± takes ", ""), not) {
				t.Errorf("%v: %q in\n%s", sides, not, text)
			}
		}
	}
	// From two databases a place is not the same place.
	other := filepath.Join(t.TempDir(), "other.db")
	makeTasks(t, other, list[3:5]...)
	r := comparison(t, "4", "2", "--db", db, "--b-db", other)
	if e := r.Quantities[0]; 100*e.ChangeHigh-100*e.ChangeLow < 15 {
		t.Errorf("two databases: %+v", e)
	}
}

func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "power.db")
	makeTasks(t, db, append(versions(2, 0.9, 0.01), made{name: "broken", gpu: "GPU-1", at: time.Hour}, made{name: "v1", state: store.Running, at: time.Hour})...)
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{cli.ExitUsage, []string{"1"}, "name two sides"},
		{cli.ExitUsage, []string{"--a", "1"}, "name two sides"},
		{cli.ExitUsage, []string{"1", "2", "--a", "3"}, "name two sides"},
		{cli.ExitUsage, []string{"1", "2", "--meters", "mine"}, "auto, same or different"},
		{cli.ExitUsage, []string{"1,2", "2"}, "task 2 is in A"},
		{cli.ExitUsage, []string{"1,", "2"}, "empty entry"},
		{cli.ExitUsage, []string{"1", "2", "--work", "flop"}, "flop=4.4e12"},
		{cli.ExitUsage, []string{"1", "2", "--work", "flop=-1"}, "positive amounts"},
		{cli.ExitNotFound, []string{"1", "77"}, "no task 77"},
		{cli.ExitNotFound, []string{"1", "nothing"}, `no complete task is named "nothing"`},
		{cli.ExitNotFound, []string{"1", "broken"}, "no complete task"},
		{cli.ExitIncomplete, []string{"1", "5"}, "cable pulled"},
	} {
		inside(t, append([]string{"compare", "--db", db}, c.args...)...).fails(t, c.code, c.want)
	}
	if r := comparison(t, "v1", "v2", "--db", db); len(r.A.Passed) != 1 || len(r.A.Tasks) != 2 {
		t.Errorf("a task that still runs: %+v", r.A)
	}
}

// Kernels by name: one that got cheaper among some that did not.
func TestCompareKernels(t *testing.T) {
	t.Parallel()
	noRaces(t)
	path := filepath.Join(t.TempDir(), "power.db")
	ids := makeTasks(t, path, versions(4, 0.97, 0.001)...)
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for i, id := range ids {
		if err := db.PutLaunchTables(t.Context(), id, store.LaunchTables{Processes: []store.LaunchProcess{{PID: 1, Whole: true}}, Names: []string{"gemm"}}); err != nil {
			t.Fatal(err)
		}
		var lines []store.NameEnergy
		for k, name := range []string{"gemm", "softmax", "norm", "copy"} {
			e := 20 * (1 + 0.002*rng.NormFloat64())
			if k == 0 && i%2 == 1 {
				e *= 0.85
			}
			lines = append(lines, store.NameEnergy{Class: store.KernelEnergy, Name: name, Launches: 10, Busy: 0.4, Share: 0.4, Energy: measure.Estimate{Energy: measure.Joule(e), U: measure.Joule(2 * 0.03 * e)}})
		}
		if i == 0 {
			lines = append(lines, store.NameEnergy{Class: store.KernelEnergy, Name: "once", Launches: 1, Busy: 0.1, Share: 0.1, Energy: measure.Estimate{Energy: 1, U: 1}})
		}
		if err := db.PutNameEnergies(t.Context(), id, 1, lines); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	r := comparison(t, "v1", "v2", "--db", path)
	if len(r.Kernels) != 4 {
		t.Fatalf("got %+v", r.Kernels)
	}
	for _, k := range r.Kernels {
		if k.Energy.Shown != (k.Name == "gemm") || k.LaunchesA != 10 || k.Holm < k.Energy.P {
			t.Errorf("%s: %+v, p %v after Holm", k.Name, k.Energy, k.Holm)
		}
		if k.Name == "gemm" && math.Abs(float64(k.Energy.Relative)+0.15) > 0.01 {
			t.Errorf("gemm: %+v", k.Energy)
		}
	}
	if said := strings.Join(r.Cautions, " "); !strings.Contains(said, "1 kernel ran in A only") {
		t.Errorf("cautions %q", r.Cautions)
	}
	if text := inside(t, "compare", "v1", "v2", "--db", path).ok(t).out; !strings.Contains(text, "after Holm") || !strings.Contains(text, "softmax") {
		t.Errorf("no kernels in\n%s", text)
	}
	for _, k := range comparison(t, "1", "2", "--db", path).Kernels {
		if measure.Known(k.Holm) || measure.Known(k.Energy.P) || measure.Known(k.Time.P) || k.Energy.Shown || k.Time.Shown || k.Energy.Holds != "meters" {
			t.Errorf("one run of each: %+v", k)
		}
	}
	if text := inside(t, "compare", "1", "2", "--db", path).ok(t).out; !strings.Contains(text, "By kernel, without a test") || strings.Contains(text, "Holm") {
		t.Errorf("one run of each:\n%s", text)
	}
	if r := comparison(t, "v1", "v2", "--db", path, "--kernels=false"); len(r.Kernels) != 0 {
		t.Errorf("kernels that were not wanted: %+v", r.Kernels)
	}
}

func TestInstructionsSideBySide(t *testing.T) {
	t.Parallel()
	noRaces(t)
	var r instructionscmd.BesideReport
	object(t, inside(t, "instructions", "compare", "table1", insnPass, "--json").ok(t).out, &r)
	if len(r.Tables) != 5 || r.Tables[3] != "table1:turing" {
		t.Fatalf("tables %v", r.Tables)
	}
	methods := map[instructions.Method]int{}
	for _, row := range r.Rows {
		methods[row.Method]++
		if row.Layout != instructions.OneThread {
			t.Errorf("%+v: the paper has one thread", row.Beside)
		}
		if row.Instruction == "add.f16" && (row.Cells[0] != nil || len(row.Notes[0]) != 1 || *row.Cells[1].Ratio != 1) {
			t.Errorf("half precision, which Maxwell has not: %+v", row)
		}
		if row.Instruction == "cnot.b32" && row.Level == 3 && row.Method == instructions.PAPI && (row.Cells[2].Energy != 0.0071e-6 || row.Notes[2][0] != "order") {
			t.Errorf("cnot: %+v %v", row.Cells[2], row.Notes)
		}
	}
	if len(methods) != 2 || methods[instructions.PAPI] != methods[instructions.MTSM] || methods[instructions.PAPI] < 64 {
		t.Errorf("rows by method: %v", methods)
	}
	// What is irregular in the paper is not so in another layout.
	text := inside(t, "instructions", "compare", "table1", "--opt-level", "3").ok(t).out
	if !strings.Contains(text, "800 nJ ‡") || !strings.Contains(text, "† PAPI below MTSM") {
		t.Errorf("side by side:\n%s", text)
	}
	text = inside(t, "instructions", "compare", insnPass, insnPass, "table1:volta", "--layout", "whole-gpu").ok(t).out
	if strings.Contains(text, "†") {
		t.Errorf("marks in a layout that the paper has not:\n%s", text)
	}
	inside(t, "instructions", "compare", "table1:volta").fails(t, cli.ExitUsage, "two measurements or more")
}
