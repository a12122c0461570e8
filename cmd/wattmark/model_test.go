package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/study/model"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// paperCSV writes kernels by the paper's counters: 12 programs, counts of runs of
// two seconds, and a power that is a plane of them, with some noise.
func paperCSV(t *testing.T, n int, local func(k int) float64, power bool) string {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	b.WriteString("app,kernel,time_s,blocks,gld_32b,gld_64b,gld_128b,gst_32b,gst_64b,gst_128b,local_load,local_store,branch,divergent_branch,instructions,warp_serialize,tlb_miss")
	if power {
		b.WriteString(",power_w")
	}
	b.WriteString("\n")
	for k := range n {
		c := make([]float64, 13)
		for j := range c {
			c[j] = math.Floor(2e9 * r.Float64())
		}
		c[6] = math.Floor(2e9 * local(k))
		c[7] = c[6]
		gld, gst := c[0]+2*c[1]+4*c[2], c[3]+2*c[4]+4*c[5]
		p := 70 + (gld*4e-9+gst*3e-9+c[6]*1e-8+c[7]*1e-8-c[8]*3e-9+c[10]*2e-8-c[11]*2e-9-c[12]*2e-9)/2 + 0.5*r.NormFloat64()
		fmt.Fprintf(&b, "prog%d,k%d,2,256", k%12, k)
		for _, v := range c {
			fmt.Fprintf(&b, ",%.0f", v)
		}
		if power {
			fmt.Fprintf(&b, ",%.4f", p)
		}
		b.WriteString("\n")
	}
	return writeTemp(t, "kernels.csv", b.String())
}

func writeTemp(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func uses(int) float64 { return 0.2 }

// Fit, list, show, predict, explain and delete, on the paper's counters.
func TestModelLife(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "new.db")
	csv := paperCSV(t, 60, func(k int) float64 { return float64(k%5) / 10 }, true)
	var m model.ModelReport
	object(t, inside(t, "model", "fit", csv, "--name", "gtx285", "--db", db, "--json").ok(t).out, &m)
	if m.Version != 1 || m.Set != "full" || !m.PerSecond || len(m.Features) != 9 || m.Held == nil || m.Held.MAPE > 1.5 || math.Abs(float64(m.Intercept)-70) > 1.5 || m.IntervalBy != "rows" {
		t.Errorf("%+v, %+v", m, m.Held)
	}
	if s := m.Shares; len(s) != 10 || s[0].Counter != "intercept" || math.Abs(float64(s[1].Coefficient)-4e-9) > 4e-10 {
		t.Errorf("%+v", s)
	}
	object(t, inside(t, "model", "fit", csv, "--name", "gtx285", "--db", db, "--json", "--estimator", "ols", "--interval-by", "applications").ok(t).out, &m)
	if m.Version != 2 || m.IntervalBy != "applications" {
		t.Errorf("%+v", m)
	}
	var list struct{ Models []model.ModelReport }
	object(t, inside(t, "model", "list", "--db", db, "--json").ok(t).out, &list)
	if len(list.Models) != 2 || list.Models[1].Method != "ols" {
		t.Errorf("%+v", list)
	}
	for _, args := range [][]string{{"list"}, {"show", "gtx285@1"}, {"predict", "gtx285@1", csv}, {"explain", "gtx285"}} {
		if out := inside(t, append(append([]string{"model"}, args...), "--db", db)...).ok(t).out; !strings.Contains(out, "gtx285") && !strings.Contains(out, "k59") {
			t.Errorf("%v:\n%s", args, out)
		}
	}
	predictions(t, db)
	inside(t, "model", "delete", "gtx285@1", "--db", db).fails(t, cli.ExitUsage, "version 1 of the model gtx285", "--yes")
	inside(t, "model", "delete", "gtx285@1", "--yes", "--db", db).ok(t)
	inside(t, "model", "show", "gtx285@1", "--db", db).fails(t, cli.ExitNotFound, `no model "gtx285@1"`, "model list")
	inside(t, "model", "delete", "gtx285", "--yes", "--db", db, "--json").ok(t)
	inside(t, "model", "predict", "gtx285", csv, "--db", db).fails(t, cli.ExitNotFound)
}

// predictions holds a stored model against other kernels, without powers.
func predictions(t *testing.T, db string) {
	t.Helper()
	other := paperCSV(t, 8, uses, false)
	var p model.PredictReport
	object(t, inside(t, "model", "predict", "gtx285@1", other, "--db", db, "--json", "--interval", "analytic").ok(t).out, &p)
	if len(p.Kernels) != 8 || p.Score != nil {
		t.Fatalf("%+v", p)
	}
	for _, k := range p.Kernels {
		sum := k.Intercept
		for _, c := range k.Added {
			sum += c.W
		}
		if math.Abs(float64(sum-k.Estimated)) > 1e-9 || !(k.Low < k.Estimated && k.High > k.Estimated) || k.Measured != 0 {
			t.Errorf("%+v", k)
		}
	}
	svg := filepath.Join(t.TempDir(), "parts.svg")
	object(t, inside(t, "model", "explain", "gtx285@1", other, "--db", db, "--json", "--svg", svg).ok(t).out, &p)
	if b, err := os.ReadFile(svg); err != nil || !strings.Contains(string(b), "instructions") || !strings.Contains(string(b), "power / W") || strings.Contains(string(b), "NaN") {
		t.Errorf("plot: %v", err)
	}
	far := writeTemp(t, "far.csv", strings.Replace(readFile(t, other), ",256,", ",12,9", 1))
	object(t, inside(t, "model", "predict", "gtx285@1", far, "--db", db, "--json").ok(t).out, &p)
	if w := p.Kernels[0].Warnings; len(w) == 0 || w[0].Code != "out-of-range" || len(p.Warnings) != 1 || p.Warnings[0].Code != "few-blocks" {
		t.Errorf("%+v %+v", w, p.Warnings)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A counter that one kernel alone uses has no coefficient where that is left out:
// its estimate is low, and it is told.
func TestModelWarnsOfAnUnusedCounter(t *testing.T) {
	t.Parallel()
	noRaces(t)
	csv := paperCSV(t, 43, func(k int) float64 {
		if k == 20 {
			return 1
		}
		return 0
	}, true)
	var r model.EvalReport
	object(t, inside(t, "model", "eval", csv, "--alpha", "0.1", "--json").ok(t).out, &r)
	k := r.Kernels[20]
	if k.Error > -12 || len(k.Warnings) < 2 || k.Warnings[0].Code != "zero-in-training" {
		t.Errorf("%+v", k)
	}
	if out := inside(t, "model", "eval", csv, "--alpha", "0.1").ok(t).out; !strings.Contains(out, "k20: local_load is") || !strings.Contains(out, "missing from the estimate") {
		t.Errorf("not told:\n%s", out)
	}
}

// The seven models of the paper, and a stored one held against a file.
func TestModelEval(t *testing.T) {
	t.Parallel()
	noRaces(t)
	csv := paperCSV(t, 60, uses, true)
	var r struct{ Models []model.EvalReport }
	object(t, inside(t, "model", "eval", csv, "--counters", "paper", "--json", "--fold-by", "group").ok(t).out, &r)
	if len(r.Models) != 7 || r.Models[6].Set != "full" || r.Models[6].Folds != 12 || len(r.Models[6].Alphas) != 12 || r.Models[6].MSE >= r.Models[2].MSE || r.Models[2].MSE >= r.Models[0].MSE {
		t.Errorf("%+v", r)
	}
	inside(t, "model", "eval", csv, "--counters", "paper").ok(t)
	features := writeTemp(t, "f.yaml", "loads: gld + gst\nwork: instructions - branch/2\n")
	svg := filepath.Join(t.TempDir(), "e.svg")
	var one model.EvalReport
	object(t, inside(t, "model", "eval", csv, "--features", features, "--feature", "tlb = tlb_miss", "--alpha", "1", "--json", "--svg", svg).ok(t).out, &one)
	if len(one.Features) != 3 || one.Features[1].Formula != "instructions - branch/2" || len(one.Groups) != 12 || one.R2 == 0 {
		t.Errorf("%+v, %d applications", one.Features, len(one.Groups))
	}
	if b := readFile(t, svg); !strings.Contains(b, "measured power / W") || !strings.Contains(b, "estimated = measured") {
		t.Error("a plot without axes or legend")
	}
	db, out := filepath.Join(t.TempDir(), "m.db"), filepath.Join(t.TempDir(), "m.json")
	inside(t, "model", "fit", csv, "--name", "m", "--db", db, "--alpha", "1", "--output", out).ok(t)
	var a, b model.EvalReport
	object(t, inside(t, "model", "eval", csv, "--model", "m", "--db", db, "--json").ok(t).out, &a)
	object(t, inside(t, "model", "eval", csv, "--model", out, "--json").ok(t).out, &b)
	if a.MSE != b.MSE || a.Rows != 60 || a.MAPE > 2 || a.Model != "m@1" {
		t.Errorf("%v %v", a.MSE, b.MSE)
	}
	broken := writeTemp(t, "b.json", strings.Replace(readFile(t, out), `"gram":[`, `"gram":[1,`, 1))
	inside(t, "model", "eval", csv, "--model", broken).fails(t, cli.ExitFailed, "fit it again")
}

// The public data, by the command that docs/models.md names.
func TestModelOnPublicData(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := filepath.Join("..", "..", "..", "shared", "data", "counters")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("public data is not there: %v", err)
	}
	var r model.EvalReport
	object(t, inside(t, "model", "eval", "--alpha", "1", "--folds", "10", "--fold-by", "row-mod", "--json", filepath.Join(dir, "titanx-micros.csv")).ok(t).out, &r)
	if fmt.Sprintf("%.4f %.4f", r.MSE, r.MAPE) != "178.3779 5.6534" {
		t.Errorf("%v W², %v %%", r.MSE, r.MAPE)
	}
	object(t, inside(t, "model", "eval", "--preset", "accelwattch", "--json", "--powers", filepath.Join(dir, "accelwattch-volta-power.csv"), filepath.Join(dir, "accelwattch-volta-counters.csv")).ok(t).out, &r)
	if fmt.Sprintf("%.1f %.2f %.2f", r.MSE, r.MAPE, r.Constant.MAPEInSample) != "658.5 12.83 18.07" {
		t.Errorf("%v W², %v %%, %v %%", r.MSE, r.MAPE, r.Constant.MAPEInSample)
	}
}

// Counters that ncu read and powers that were measured on an H200: what
// docs/models.md says of them.
func TestModelOnAnH200(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	unpackTar(t, filepath.Join("..", "..", "testdata", "h200", "counters", "ncu.tar.gz"), dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil || len(files) != 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	args := append([]string{"model", "eval", "--by-file", "--rows", "app", "--powers", filepath.Join(dir, "power.txt"), "--fold-by", "loo", "--json"}, files...)
	o := inside(t, args...).ok(t)
	var r model.EvalReport
	object(t, o.out, &r)
	if fmt.Sprintf("%.1f %.2f %.1f", r.MSE, r.MAPE, r.Constant.MAPE) != "697.8 5.83 25.5" {
		t.Errorf("%v W², %v %%, by the mean %v %%", r.MSE, r.MAPE, r.Constant.MAPE)
	}
	if n := strings.Count(o.out+o.err, "left out, for they hold no number"); n != 1 {
		t.Errorf("what all files leave out is told of %d times", n)
	}
}

func unpackTar(t *testing.T, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(h.Name)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Powers of stored tasks, by number, by name, and by kernel where the task tells
// its kernels apart.
func TestModelTakesPowersOfTasks(t *testing.T) {
	t.Parallel()
	noRaces(t)
	path := filepath.Join(t.TempDir(), "power.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	put := func(name string, mean float64) store.TaskID {
		t.Helper()
		id, err := db.BeginTask(t.Context(), store.NewTask{Name: name, User: "lab", Launched: time.Unix(1.7e9, 0)})
		if err != nil {
			t.Fatal(err)
		}
		o := store.Outcome{State: store.Complete, Result: &measure.Result{From: 0, To: 0.5, Samples: 10, Total: measure.Estimate{Energy: measure.Joule(mean / 2), U: 1}, Mean: measure.Watt(mean), Peak: measure.Watt(mean)}}
		setup := measure.Setup{Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 1000}, Channels: []measure.Channel{{Name: "p", Unit: measure.UnitWatt, Gain: 1}}, Rails: []measure.Rail{{Name: "p", Role: measure.RolePSU, Wiring: measure.WiringPower, X: 0, Y: -1}}}
		if err := db.PutHeader(t.Context(), id, store.Header{Setup: setup, CalibrationID: "c"}); err != nil {
			t.Fatal(err)
		}
		if err := db.Finish(t.Context(), id, o); err != nil {
			t.Fatal(err)
		}
		return id
	}
	put("gemm", 200)
	two := put("mixed", 300)
	if err := db.PutNameEnergies(t.Context(), two, 1, []store.NameEnergy{{Class: store.KernelEnergy, Name: "_Z4vaddPf", Launches: 3, Busy: 2, Share: 2, Energy: measure.Estimate{Energy: 800, U: 1}}}); err != nil {
		t.Fatal(err)
	}
	csv := writeTemp(t, "c.csv", "kernel,app,task,x\ngemm,,,1\nvadd(float*),,mixed,2\nwhole,,2,3\nother,gemm,,4\n")
	var p model.PredictReport
	inside(t, "model", "fit", csv, "--tasks", "--db", path, "--name", "m", "--alpha", "1", "--fold-by", "loo", "--min-blocks", "0").ok(t)
	object(t, inside(t, "model", "predict", "m", csv, "--tasks", "--db", path, "--json").ok(t).out, &p)
	for i, want := range []float64{200, 400, 300, 200} {
		if got := float64(p.Kernels[i].Measured); got != want {
			t.Errorf("%s: %v W, want %v", p.Kernels[i].Name, got, want)
		}
	}
	if len(p.Warnings) != 3 || p.Warnings[0].Code != "short-run" {
		t.Errorf("%+v", p.Warnings)
	}
	var m model.ModelReport
	object(t, inside(t, "model", "show", "m", "--db", path, "--json").ok(t).out, &m)
	if fmt.Sprint(m.Tasks) != "[1 2]" {
		t.Errorf("rests on tasks %v", m.Tasks)
	}
	lost := writeTemp(t, "d.csv", "kernel,x\nnone,1\ngemm,2\n")
	inside(t, "model", "fit", lost, "--tasks", "--db", path, "--name", "n").fails(t, cli.ExitNotFound, "line 2 (none)", `no task named "none"`, "wattmark run --name")
}

func TestModelPlan(t *testing.T) {
	t.Parallel()
	noRaces(t)
	var r model.PlanReport
	object(t, inside(t, "model", "plan", "--json").ok(t).out, &r)
	if len(r.Runs) != 4 || len(r.Counters) != 13 || len(r.Sets) != 7 || r.Sets[2].Runs != 3 {
		t.Errorf("%+v", r)
	}
	object(t, inside(t, "model", "plan", "--source", "ncu", "--per-run", "3", "--unit-limit", "l1tex=1", "--json", "--", "./a b", "it's").ok(t).out, &r)
	if len(r.Commands) != len(r.Runs) || !strings.HasSuffix(r.Commands[0], `'./a b' 'it'\''s'`) || !strings.Contains(r.Commands[0], "gpu__time_duration.sum --log-file pass1.csv") {
		t.Errorf("%+v", r)
	}
	have := writeTemp(t, "h.csv", "kernel,power_w,time_s,gld_32b,gld_64b\na,1,1,2,3\n")
	object(t, inside(t, "model", "plan", "--counters", "mem", "--have", have, "--json").ok(t).out, &r)
	if len(r.Counters) != 6 {
		t.Errorf("%+v", r.Counters)
	}
	if out := inside(t, "model", "plan", "--counters", "mem/inst").ok(t).out; !strings.Contains(out, "9 counters in 3 runs") {
		t.Errorf("%s", out)
	}
	inside(t, "model", "plan", "--source", "ncu", "--counters", "full").fails(t, cli.ExitFailed, "tlb_miss", "nsight-full")
	inside(t, "model", "plan", "--unit-limit", "x").fails(t, cli.ExitUsage, "UNIT=N")
	inside(t, "model", "plan", "--source", "x").fails(t, cli.ExitUsage)
}

// Wrong input says what, where and what to do.
func TestModelRefuses(t *testing.T) {
	t.Parallel()
	noRaces(t)
	csv := writeTemp(t, "k.csv", "kernel,power_w,x,y\na,10,1,2\nb,11,2,2\nc,12,3,5\nd,14,4,1\n")
	bad := writeTemp(t, "bad.csv", "kernel,power_w,x\na,10,1\nb,hot,2\n")
	bare := writeTemp(t, "bare.csv", "kernel,x\na,1\nb,2\nc,3\n")
	db := filepath.Join(t.TempDir(), "x.db")
	for _, c := range []struct {
		args  []string
		code  int
		words []string
	}{
		{[]string{"eval", csv, "--alpha", "-1"}, cli.ExitUsage, []string{"α = -1"}},
		{[]string{"eval", csv, "--alpha", "much"}, cli.ExitUsage, []string{`--alpha "much"`}},
		{[]string{"eval", csv}, cli.ExitFailed, []string{"4 rows for 10 folds", "fewer folds"}},
		{[]string{"eval", csv, "--fold-by", "group"}, cli.ExitFailed, []string{"row 1 (a) belongs to no application", "--group-column"}},
		{[]string{"eval", csv, "--fold-by", "magic"}, cli.ExitUsage, []string{"magic"}},
		{[]string{"eval", csv, "--group-column", "suite"}, cli.ExitFailed, []string{`no column "suite"`}},
		{[]string{"eval", csv, "--counters", "x,z"}, cli.ExitFailed, []string{`no counter "z"`, `"x", "y"`}},
		{[]string{"eval", csv, "--counters", "x,x", "--folds", "2"}, cli.ExitFailed, []string{`"x" is there twice`}},
		{[]string{"eval", csv, "--feature", "q"}, cli.ExitUsage, []string{"NAME = FORMULA"}},
		{[]string{"eval", csv, "--feature", "q = x +"}, cli.ExitUsage, []string{"not a formula"}},
		{[]string{"eval", csv, "--estimator", "magic", "--folds", "2"}, cli.ExitUsage, []string{"magic"}},
		{[]string{"eval", csv, "--preset", "magic"}, cli.ExitUsage, []string{"accelwattch"}},
		{[]string{"eval", csv, "--kernel", "("}, cli.ExitUsage, []string{"--kernel"}},
		{[]string{"eval", bad}, cli.ExitFailed, []string{"bad.csv: line 3", `"power_w"`, `"hot" is no number`}},
		{[]string{"eval", bare, "--folds", "2"}, cli.ExitFailed, []string{"line 2 (a): no power", "--powers", "--tasks"}},
		{[]string{"eval", "/none.csv"}, cli.ExitFailed, []string{"no such file"}},
		{[]string{"eval"}, cli.ExitUsage, []string{"--help"}},
		{[]string{"fit", csv}, cli.ExitUsage, []string{"--name"}},
		{[]string{"fit", csv, "--name", "a@b"}, cli.ExitUsage, []string{"--name"}},
		{[]string{"fit", csv, "--name", "a", "--folds", "2", "--interval-by", "x"}, cli.ExitUsage, []string{"--interval-by"}},
		{[]string{"predict", "m", csv, "--level", "95"}, cli.ExitUsage, []string{"--level"}},
		{[]string{"predict", "m", csv, "--interval", "x"}, cli.ExitUsage, []string{"--interval"}},
		{[]string{"show", "m@x"}, cli.ExitUsage, []string{"NAME@2"}},
		{[]string{"show", "m"}, cli.ExitNotFound, []string{"no task database"}},
		{[]string{"magic"}, cli.ExitUsage, []string{"no command"}},
	} {
		inside(t, append(append([]string{"model"}, c.args...), "--db", db)...).fails(t, c.code, c.words...)
	}
	if _, err := os.Stat(db); err == nil {
		t.Error("a refused fit made a database")
	}
}

// What is printed as JSON can be read as JSON, also where a figure is infinite.
func TestModelJSON(t *testing.T) {
	t.Parallel()
	noRaces(t)
	csv := writeTemp(t, "k.csv", "kernel,power_w,x,y\na,10,1,2\nb,10,2,4\nc,10,3,6\nd,10,4,8\ne,10,5,10\n")
	out := inside(t, "model", "eval", csv, "--fold-by", "loo", "--json").ok(t).out
	if !json.Valid([]byte(out)) || !strings.Contains(out, `"r2": null`) || !strings.Contains(out, "collinear") {
		t.Errorf("%s", out)
	}
	inside(t, "model", "eval", csv, "--fold-by", "loo").ok(t)
}
