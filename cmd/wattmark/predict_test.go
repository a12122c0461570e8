package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/analysis/predict"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	predictcmd "github.com/wattmark/wattmark/cmd/internal/study/predict"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// predictCSV writes points of the paper's GPU, with steps and a ripple that is
// known, and returns the file.
func predictCSV(t *testing.T) string {
	t.Helper()
	text := "blocks,time_s,energy_j,u_j,u_s\n"
	for i, n := range []int{7, 14, 28, 40, 112, 130, 224} {
		rounds := float64((n + 13) / 14)
		at := rounds * 4.2 * (1 + 0.003*math.Sin(float64(i)))
		e := (29.4*at + 37.28*float64(n)) * (1 + 0.005*math.Cos(float64(i)))
		text += fmt.Sprintf("%d,%.6f,%.6f,%.6f,%.6f\n", n, at, e, 0.01*e, 0.006*at)
	}
	path := filepath.Join(t.TempDir(), "points.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPredictFromCSV(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir, points := t.TempDir(), predictCSV(t)
	db, svg := filepath.Join(dir, "power.db"), filepath.Join(dir, "p.svg")
	var r predictcmd.Prediction
	object(t, inside(t, "predict", "calibrate", "--points", points, "--use", "14,28,112", "--sms", "14", "--resident", "fit", "--idle-power", "29.4W",
		"--name", "vadd", "--flops-per-block", "1024", "--off-power", "10W", "--svg", svg, "--json", "--db", db).ok(t).out, &r)
	if r.Version != 1 || r.Options.Resident != 1 || !r.Fitted || math.Abs(float64(r.Round.Time)/4.2-1) > 0.01 || math.Abs(r.SpeedFlops/3413-1) > 0.01 {
		t.Errorf("got %+v", r)
	}
	if e := r.Evaluation; e == nil || len(e.Points) != 4 || e.Mixed.Energy.Average > 1 || e.ByRounds.Time.Average > 1 || e.Linear.Time.Worst < 40 {
		t.Errorf("got %+v", e)
	}
	picture, err := os.ReadFile(svg)
	if err != nil || !strings.HasPrefix(string(picture), "<?xml") || !strings.Contains(string(picture), "number of blocks") || !strings.Contains(string(picture), "energy / J") {
		t.Errorf("%v: %.100s", err, picture)
	}
	inside(t, "predict", "calibrate", "--points", points, "--weights", "stated", "--sms", "14", "--idle-power", "29.4W", "--idle-u", "0.2W", "--name", "vadd", "--db", db).ok(t)
	var list struct {
		Predictions []predictcmd.Prediction `json:"predictions"`
	}
	object(t, inside(t, "predict", "list", "--json", "--db", db).ok(t).out, &list)
	if len(list.Predictions) != 2 || list.Predictions[1].Version != 2 || len(list.Predictions[1].Points) != 7 {
		t.Errorf("got %+v", list)
	}
	var again predictcmd.Prediction
	object(t, inside(t, "predict", "show", "vadd@1", "--json", "--db", db).ok(t).out, &again)
	if again.Round != r.Round || again.Parameters != r.Parameters {
		t.Errorf("got %+v, stored %+v", again, r)
	}
	var at struct {
		Name        string               `json:"name"`
		Version     int                  `json:"version"`
		Level       float64              `json:"level"`
		Predictions []predict.Prediction `json:"predictions"`
	}
	object(t, inside(t, "predict", "at", "--blocks", "15,140", "--json", "--db", db).ok(t).out, &at)
	if at.Version != 2 || len(at.Predictions) != 2 || at.Predictions[0].Rounds != 2 || !(at.Predictions[1].Linear.EnergyPrediction > 0) {
		t.Errorf("got %+v", at)
	}
	object(t, inside(t, "predict", "at", "vadd", "--blocks", "140", "--sms", "28", "--json", "--db", db).ok(t).out, &at)
	if at.Predictions[0].Rounds != 5 {
		t.Errorf("got %+v", at)
	}
	text := inside(t, "predict", "show", "vadd@1", "--db", db).ok(t).out
	for _, want := range []string{"rounds   of 14 blocks", "energy, mixed", "measured, not calibrated on (o)", "fitted from the steps"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if out := inside(t, "predict", "check", "--points", points, "--model", "vadd@1", "--db", db).ok(t).out; !strings.Contains(out, "3 of these points") {
		t.Errorf("got\n%s", out)
	}
	if out := inside(t, "predict", "export-platform", "-", "vadd@1", "--db", db).ok(t).out; !strings.Contains(out, `<host id="GPU" speed="34`) || !strings.Contains(out, `"wattage_off" value="10"`) {
		t.Errorf("got\n%s", out)
	}
	inside(t, "predict", "delete", "vadd@1", "--yes", "--db", db).ok(t)
	inside(t, "predict", "delete", "vadd", "-y", "--db", db).ok(t)
	inside(t, "predict", "show", "--db", db).fails(t, cli.ExitNotFound, "predict calibrate")
	inside(t, "predict", "delete", "vadd", "--yes", "--db", db).fails(t, cli.ExitNotFound, `no prediction "vadd"`)
}

// Sweeps of a real H200: the errors in docs/models.md, and what the times tell
// of the blocks that a multiprocessor works on at once.
func TestPredictAnH200(t *testing.T) {
	t.Parallel()
	noRaces(t)
	for _, c := range []struct {
		kernel, resident, idle string
		resides                uint32
		line, mixed            [2]float64 // time, energy, %
	}{
		{"vectoradd", "2", "121.292W", 2, [2]float64{3.75, 5.17}, [2]float64{26.61, 9.77}},
		{"vectoradd", "1", "121.292W", 1, [2]float64{3.75, 5.17}, [2]float64{7.22, 6.52}},
		{"matmul", "2", "121.21W", 2, [2]float64{12.62, 6.79}, [2]float64{29.38, 15.33}},
		{"matmul", "fit", "121.21W", 1, [2]float64{12.62, 6.79}, [2]float64{5.09, 1.49}},
	} {
		var r predictcmd.Prediction
		object(t, inside(t, "predict", "calibrate", "--dry-run", "--points", "../../testdata/h200/predict/"+c.kernel+".csv", "--use", "264,528,1056",
			"--sms", "132", "--resident", c.resident, "--idle-power", c.idle, "--json").ok(t).out, &r)
		e := r.Evaluation
		if e == nil || len(e.Points) != 21 || uint32(r.Options.Resident) != c.resides {
			t.Fatalf("%+v", r)
		}
		for _, x := range []struct{ got, want float64 }{
			{float64(e.Linear.Time.Average), c.line[0]}, {float64(e.Linear.Energy.Average), c.line[1]}, {float64(e.Mixed.Time.Average), c.mixed[0]}, {float64(e.Mixed.Energy.Average), c.mixed[1]},
		} {
			if math.Abs(x.got-x.want) > 0.01 {
				t.Errorf("%s, %s resident: ARE %.3f %%, %.3f %% in the document", c.kernel, c.resident, x.got, x.want)
			}
		}
	}
	inside(t, "predict", "calibrate", "--dry-run", "--points", "../../testdata/h200/predict/vectoradd.csv", "--use", "264,528,1056", "--sms", "132",
		"--resident", "fit", "--idle-power", "121.292W").fails(t, cli.ExitFailed, "a straight line explains the times as well")
}

// Fig. 3 in closed form.
func TestPredictFig3(t *testing.T) {
	t.Parallel()
	noRaces(t)
	var closed struct {
		Platform    string                   `json:"platform"`
		Round       predict.Round            `json:"round"`
		Predictions []predictcmd.RoundReport `json:"predictions"`
	}
	object(t, inside(t, "predict", "at", "--platform", predictcmd.Fig3, "--blocks", "15,140,9765", "--json").ok(t).out, &closed)
	want := [][2]float64{{8.400820392616466, 1290.7860533255201}, {42.004101963082332, 6453.9302666276005}, {2931.8863170231464, 450484.33261060651}}
	for i, p := range closed.Predictions {
		if math.Abs(float64(p.Time)/want[i][0]-1) > 1e-9 || math.Abs(float64(p.Energy)/want[i][1]-1) > 1e-9 {
			t.Errorf("got %+v, want %v", p, want[i])
		}
	}
}

func TestPredictUsage(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir, points := t.TempDir(), predictCSV(t)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	head := "blocks,time_s,energy_j\n"
	ok := []string{"--sms", "14", "--idle-power", "1W", "--db", filepath.Join(dir, "p.db")}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"calibrate"}, cli.ExitUsage, "tasks, --points or --power-trace"},
		{[]string{"calibrate", "--points", points}, cli.ExitUsage, "--sms"},
		{[]string{"calibrate", "--points", points, "--sms", "14"}, cli.ExitUsage, "--idle-power 134W"},
		{append([]string{"calibrate", "--points", points, "--use", "14,28,113"}, ok...), cli.ExitUsage, "no point of 113 blocks among 7, 14"},
		{append([]string{"calibrate", "--points", points, "--use", "14,28"}, ok...), cli.ExitFailed, "three are needed"},
		{append([]string{"calibrate", "--points", points, "--resident", "x"}, ok...), cli.ExitUsage, "--resident"},
		{append([]string{"calibrate", "--points", points, "--weights", "x"}, ok...), cli.ExitFailed, "weights"},
		{append([]string{"calibrate", "--points", points, "--kernel", "x"}, ok...), cli.ExitUsage, "no points of"},
		{append([]string{"calibrate", "--points", file("two", head+"1,1,9\n2,2,18\n")}, ok...), cli.ExitFailed, "three are needed"},
		{append([]string{"calibrate", "--points", file("equal", head+"2,1,9\n2,2,18\n2,3,2\n")}, ok...), cli.ExitFailed, "all have 2 blocks"},
		{append([]string{"calibrate", "--points", file("negative", head+"2,1,9\n3,2,-18\n")}, ok...), cli.ExitFailed, "negative:3"},
		{append([]string{"calibrate", "--points", file("zero", head+"0,1,9\n")}, ok...), cli.ExitFailed, "zero:2"},
		{append([]string{"calibrate", "--points", file("nan", head+"1,nan,9\n")}, ok...), cli.ExitFailed, "nan:2"},
		{append([]string{"calibrate", "--power-trace", "x=y"}, ok...), cli.ExitUsage, "BLOCKS=FILE"},
		{append([]string{"calibrate", "1", "--blocks", "1=0"}, ok...), cli.ExitUsage, "TASK=BLOCKS"},
		{[]string{"at", "--platform", predictcmd.Fig3}, cli.ExitUsage, "--blocks"},
		{[]string{"at", "--platform", predictcmd.Fig3, "--blocks", "0"}, cli.ExitUsage, "from 1 on"},
		{[]string{"at", "--platform", file("p.xml", "<x/>"), "--blocks", "1"}, cli.ExitFailed, "p.xml"},
		{[]string{"at", "x", "--platform", predictcmd.Fig3, "--blocks", "1"}, cli.ExitUsage, "not both"},
		{[]string{"show", "@1", "--db", points}, cli.ExitUsage, "NAME@2"},
		{[]string{"advise"}, cli.ExitUsage, "multiprocessors"},
		{[]string{"sweep"}, cli.ExitUsage, "vectoradd or matmul"},
		{[]string{"sweep", "--kernel", "matmul", "--method", "meter"}, cli.ExitUsage, "--monitor"},
		{[]string{"sweep", "--kernel", "matmul", "--output", points}, cli.ExitUsage, "exists"},
	} {
		inside(t, append([]string{"predict"}, c.args...)...).fails(t, c.code, c.want)
	}
	inside(t, "predict", "advise", "--sms", "132", "--resident", "2").ok(t)
	if out := inside(t, "predict", "reference").ok(t).out; strings.Count(out, "Tesla K20Xm") != 9 || !strings.Contains(out, "8.33") {
		t.Errorf("got\n%s", out)
	}
}

// Traces of nvidia-smi, and a resting GPU's.
func TestPredictFromTraces(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	args := []string{"predict", "calibrate", "--sms", "14", "--json", "--dry-run", "--db", filepath.Join(dir, "p.db")}
	for _, n := range []int{14, 28, 112} {
		text := "timestamp, power.draw [W], pstate\n2026/01/31 15:00:00.000, 30.00 W, P8\n"
		for i := range n {
			at := time.Date(2026, 1, 31, 15, 0, 1, 0, time.UTC).Add(time.Duration(i) * 50 * time.Millisecond)
			text += at.Format("2006/01/02 15:04:05.000") + ", 150.00 W, P0\n"
		}
		path := filepath.Join(dir, fmt.Sprint(n))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--power-trace", fmt.Sprintf("%d=%s", n, path))
	}
	rest := filepath.Join(dir, "rest")
	if err := os.WriteFile(rest, []byte("time_s,power_w\n0,29\n1,31\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var r predictcmd.Prediction
	object(t, inside(t, append(args, "--idle-trace", rest)...).ok(t).out, &r)
	if math.Abs(float64(r.Round.Time)-0.7) > 1e-9 || math.Abs(float64(r.Parameters.Block)-120*0.05) > 1e-9 || math.Abs(float64(r.Round.Power)-150) > 1e-6 {
		t.Errorf("got %+v", r)
	}
	if text := strings.Join(r.Doubts, "\n"); !strings.Contains(text, "20 readings") {
		t.Errorf("doubts %q", text)
	}
}

// A sweep on the simulated GPU, seen by an emulated meter on a real line: what the
// blocks draw comes back.
func TestPredictSweep(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	r := newRig(t)
	csv := filepath.Join(t.TempDir(), "sweep.csv")
	p := start(t, "predict", "sweep", "--kernel", "matmul", "--gpu", "sim:"+r.socket, "--monitor", r.address, "--db", r.db, "--json",
		"--sizes", "7,28,35,56,84,112", "--round", "60ms", "--rest", "30ms", "--idle", "200ms", "--settle", "50ms", "--times", "2", "--output", csv)
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, &p.out, &p.err)
	}
	var x predictcmd.Prediction
	object(t, p.out.String(), &x)
	block := float64(predictcmd.SimBusy-predictcmd.SimRest) * float64(x.Round.Time) / (predictcmd.SimSMs * predictcmd.SimResident)
	if math.Abs(float64(x.Parameters.Block)/block-1) > 0.02 || math.Abs(float64(x.Round.Time)/0.06-1) > 0.01 || math.Abs(float64(x.Options.Idle-predictcmd.SimRest)) > 2 {
		t.Errorf("E_b %v J, want %v; %+v", float64(x.Parameters.Block), block, x.Round)
	}
	if e := x.Evaluation; e == nil || len(e.Points) != 6 || e.Mixed.Energy.Average > 2 || len(x.Points) != 6 || len(x.Tasks) != 1 {
		t.Errorf("got %+v", e)
	}
	text, err := os.ReadFile(csv)
	if err != nil || strings.Count(string(text), "\n") != 14 {
		t.Errorf("%v\n%s", err, text)
	}
	inside(t, "predict", "calibrate", "--points", csv, "--use", "28,56,112", "--sms", "14", "--resident", "fit", "--idle-power", "58W", "--dry-run", "--db", r.db).ok(t)
}

// storedTask is a finished task as a measurement leaves it: rails of whole
// watts, and markers that are known to 1 ms each.
func storedTask(t *testing.T, db *store.DB, name string, length measure.Seconds, power measure.Watt) {
	t.Helper()
	id, err := db.BeginTask(t.Context(), store.NewTask{Name: name, User: "u", Launched: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	e := measure.Estimate{Energy: measure.Joule(float64(power) * float64(length)), U: 2}
	budget := []measure.Contribution{{Source: "gain", U: 1}}
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1000, TicksPerScan: 1},
		Channels: []measure.Channel{{Name: "P", Unit: measure.UnitWatt, Gain: 1}},
		Rails:    []measure.Rail{{Name: "card", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, Y: -1}},
	}
	err = db.PutHeader(t.Context(), id, store.Header{Bench: "b", Instrument: store.Instrument{Kind: "k"}, Setup: setup, CalibrationID: "c", Started: time.Now()})
	if err == nil {
		err = db.Finish(t.Context(), id, store.Outcome{
			State:   store.Complete,
			Markers: []marker.Found{{Kind: marker.Start, U: 1e-3}, {Kind: marker.Stop, U: 1e-3}},
			Result: &measure.Result{
				From: 1, To: 1 + length, Samples: 1, Mean: power, Total: e, Budget: budget,
				Rails: []measure.RailResult{{Name: "card", Energy: e, Mean: power, Budget: budget}},
			},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestPredictFromTasks(t *testing.T) {
	t.Parallel()
	noRaces(t)
	path := filepath.Join(t.TempDir(), "p.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	storedTask(t, db, "rest", 10, 30)
	storedTask(t, db, "add,blocks=14", 1, 150)
	storedTask(t, db, "add,blocks=28", 2, 150)
	storedTask(t, db, "add", 20, 150)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(more ...string) result {
		return inside(t, append([]string{"predict", "calibrate", "--sms", "14", "--json", "--db", path}, more...)...)
	}
	var r predictcmd.Prediction
	object(t, run("2", "3", "4", "--blocks", "4=140x2", "--idle-task", "1", "--weights", "stated").ok(t).out, &r)
	p := r.Points[2]
	if p.Blocks != 140 || math.Abs(float64(p.Time)-10) > 1e-9 || math.Abs(float64(p.Energy)-1500) > 1e-6 || p.From != "task 4" {
		t.Errorf("half of task 4 is %+v", p)
	}
	if p = r.Points[0]; math.Abs(float64(p.UEnergy)-1) > 1e-9 || math.Abs(float64(p.UTime)-1e-3*math.Sqrt2) > 1e-12 {
		t.Errorf("uncertainties of %+v", p)
	}
	if r.Options.Idle != 30 || math.Abs(float64(r.Options.UIdle)-0.1) > 1e-9 || math.Abs(float64(r.Round.Power)-150) > 1e-6 || len(r.Tasks) != 3 {
		t.Errorf("got %+v", r)
	}
	run("2", "3", "4", "--idle-power", "30W").fails(t, cli.ExitUsage, "--blocks 4=N")
	run("2", "3", "9", "--idle-power", "30W").fails(t, cli.ExitNotFound, "no task 9")
	run("2", "3", "--idle-task", "9").fails(t, cli.ExitNotFound, "no task 9")
	run("2", "3", "--blocks", "4=1", "--idle-power", "30W").fails(t, cli.ExitUsage, "names task 4")
	run("2", "3", "--blocks", "3=28", "--idle-power", "30W").fails(t, cli.ExitFailed, "three are needed")
}
