package main_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/study/compare"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

const (
	python        = "/usr/bin/python3"
	pythonPackage = "PYTHONPATH=../../api/python/src"
)

// needPython skips the test without Debian's Python, or without modules of it.
func needPython(t *testing.T, modules ...string) {
	t.Helper()
	if _, err := exec.LookPath(python); err != nil {
		skipTool(t, "no "+python)
	}
	for _, m := range modules {
		if exec.CommandContext(t.Context(), python, "-c", "import "+m).Run() != nil {
			skipTool(t, python+" has no module "+m)
		}
	}
}

func TestPython(t *testing.T) {
	needPython(t)
	for _, with := range []string{"plain", "torch"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if with == "torch" {
				r.startHost()
			}
			r.more = []string{pythonPackage, "PYTHONDONTWRITEBYTECODE=1"}
			o := finish(t, r.command(python, "-Wall", "-Werror", "testdata/measure.py", with))
			if o.code != 0 {
				t.Fatalf("exit code %d\n%s", o.code, o.err)
			}
			db := r.open()
			k := r.holds(db, parse(t, o)[0])
			if len(k) != 2 || k[0].Name != "step" || k[1].Name != "second" {
				t.Errorf("parts: %+v", k)
			}
			if x := r.task(db, 2); x.Name != "broken" || x.State != store.Incomplete {
				t.Errorf("a block that raised is %v: %s", x.State, x.Reason)
			}
			r.mustBeFree()
		})
	}
}

func TestPythonWithoutTheLibrary(t *testing.T) {
	needPython(t)
	c := exec.CommandContext(t.Context(), python, "-c", "import wattmark; wattmark.measure('x')")
	c.Env = []string{pythonPackage, "PYTHONDONTWRITEBYTECODE=1", "WATTMARK_LIBRARY=/nowhere.so"}
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "make install-lib") {
		t.Errorf("%v: %s", err, out)
	}
}

// simulate serves the rig's board as the simulated GPU of a socket, as wattmark emulate --gpu does.
func (r *rig) simulate() (device string) {
	socket := filepath.Join(r.t.TempDir(), "gpu")
	done := make(chan error, 1)
	go func() { done <- session.ServePlant(r.t.Context(), socket, r.live) }() // ends before Cleanup
	r.t.Cleanup(func() {
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	r.more = append(r.more, pythonPackage, "PYTHONDONTWRITEBYTECODE=1", "LD_PRELOAD=")
	return sim.Prefix + socket
}

// Python, and the paper's C interface through it, measure a simulated GPU, in the program and
// through the daemon: the energy is the board's within U.
func TestSimulatedGPU(t *testing.T) {
	coverage.Long(t)
	needPython(t, "numpy")
	inBothModes(t, func(t *testing.T, r *rig) {
		device := r.simulate()
		args := []string{"-Wall", "-Werror", "testdata/simulated.py"}
		if r.host == "none" {
			r.more = append(r.more, "WATTMARK_GPU="+device, "WATTMARK_PROGRAM="+filepath.Join(library(t), "wattmark"))
		} else {
			args = append(args, device)
		}
		o := finish(t, r.command(python, args...))
		if o.code != 0 {
			t.Fatalf("exit code %d\n%s", o.code, o.err)
		}
		db := r.open()
		k := r.holds(db, parse(t, o)[0])
		if len(k) != 2 || k[0].Name != "step" || k[1].Name != "second" {
			t.Errorf("parts: %+v", k)
		}
		if x := r.task(db, 1); x.GPU != "simulated GPU" || x.GPUUUID != sim.UUID(sim.SocketSeed(strings.TrimPrefix(device, sim.Prefix))) {
			t.Errorf("measured %s, %s", x.GPU, x.GPUUUID)
		}
		r.mustBeFree()
	})
}

func TestSimulatedGPUThatIsNotServed(t *testing.T) {
	needPython(t)
	r := newRig(t)
	r.more = []string{pythonPackage, "PYTHONDONTWRITEBYTECODE=1"}
	o := finish(t, r.command(python, "-c", "import wattmark\nwattmark.measure('x', device='sim:/no/gpu').__enter__()"))
	if o.code == 0 || !strings.Contains(o.err, "is wattmark emulate --gpu sim:/no/gpu running?") {
		t.Errorf("exit code %d: %s", o.code, o.err)
	}
}

// run --auto --times records the kernels of two versions in pairs, and compares them by name.
func TestAutoInPairs(t *testing.T) {
	coverage.Long(t)
	needPython(t)
	r := newRig(t)
	device := r.simulate()
	args := []string{"run", "--auto", "--gpu", device, "--times", "2", "--cool-down", "0s", "--json"}
	for name, length := range map[string]string{"a": "0.1", "b": "0.2"} {
		file := filepath.Join(r.dir, name+".py")
		script := "import wattmark\nwattmark.benchmark('compute', 0.2)\nwattmark.benchmark('memory', " + length + ")\n"
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		args = append(args, "--with", python+" "+filepath.Join(r.dir, name+".py"))
	}
	o := finish(t, r.command(filepath.Join(r.dir, "wattmark"), args...))
	var got compare.CompareReport
	if err := json.Unmarshal([]byte(o.out), &got); o.code != 0 || err != nil || len(got.Kernels) != 2 {
		t.Fatalf("exit code %d, %v: %s\n%s", o.code, err, o.out, o.err)
	}
	for _, k := range got.Kernels {
		want := map[bool]float64{true: 2, false: 1}[strings.Contains(k.Name, "memory")]
		if e := k.Energy; e.A.Runs != 2 || e.B.Runs != 2 || math.Abs(e.B.Value/e.A.Value-want) > 0.1*want {
			t.Errorf("%s: %+v", k.Name, e)
		}
	}
}

// run --auto records the kernels that a program runs on a simulated GPU, and gives each its energy.
func TestAutoOnASimulatedGPU(t *testing.T) {
	needPython(t)
	r := newRig(t)
	device := r.simulate()
	script := "import wattmark\nfor _ in range(3):\n  wattmark.benchmark('compute', 0.15)\n  wattmark.benchmark('memory', 0.1)"
	o := finish(t, r.command(filepath.Join(r.dir, "wattmark"), "run", "--auto", "--gpu", device, "--name", "steps", "--json",
		"--", python, "-c", script))
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.err)
	}
	var got struct {
		Kernels struct {
			Recorded uint64
			Lines    []struct {
				Class, Name string
				Launches    uint64
				EnergyJ     float64 `json:"energy_j"`
				EnergyUJ    float64 `json:"energy_u_j"`
			}
		}
	}
	if err := json.Unmarshal([]byte(o.out), &got); err != nil || got.Kernels.Recorded != 6 {
		t.Fatalf("%v, %d kernels: %s", err, got.Kernels.Recorded, o.out)
	}
	truth := map[string]float64{}
	db := r.open()
	tables, err := db.LaunchTables(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for l, err := range db.Launches(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.live.Energy(time.Unix(0, l.Start), time.Unix(0, l.End))
		if err != nil {
			t.Fatal(err)
		}
		truth[tables.Names[l.Name]] += float64(e.Total)
	}
	for _, l := range got.Kernels.Lines {
		if l.Class != "kernel" {
			continue
		}
		t.Logf("%s: %v ± %v J, the board drew %v J", l.Name, l.EnergyJ, l.EnergyUJ, truth[l.Name])
		if off := math.Abs(l.EnergyJ - truth[l.Name]); l.Launches != 3 || !(off <= l.EnergyUJ) || !(l.EnergyUJ < 0.1*truth[l.Name]) {
			t.Errorf("%s: %d launches, %v J off, U is %v J", l.Name, l.Launches, off, l.EnergyUJ)
		}
		delete(truth, l.Name)
	}
	if len(truth) > 0 {
		t.Errorf("no lines for %v", truth)
	}
}

// The wheel is built and installed without a network, in a venv of its own; there a task is read
// into arrays and data frames, and shown in Jupyter.
func TestPythonPackage(t *testing.T) {
	coverage.Long(t)
	needPython(t, "pip", "setuptools", "wheel", "pandas", "nbclient", "ipykernel", "mypy")
	dir := t.TempDir()
	run := func(env []string, name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Env = append(os.Environ(), append(env, "PYTHONDONTWRITEBYTECODE=1", "WATTMARK_CONFIG=none")...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run([]string{"MYPYPATH=../../api/python/src"}, python, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "-p", "wattmark")
	run(nil, "make", "-C", "../..", "wheel", "WHEELS="+dir, "PYTHON="+python)
	wheels, _ := filepath.Glob(filepath.Join(dir, "wattmark-*-py3-none-any.whl"))
	if len(wheels) != 1 {
		t.Fatalf("wheels: %v", wheels)
	}
	venv := filepath.Join(dir, "venv/bin/python")
	run(nil, python, "-m", "venv", "--without-pip", "--system-site-packages", filepath.Join(dir, "venv"))
	run(nil, python, "-m", "pip", "--python", venv, "install", "--no-index", "--disable-pip-version-check", wheels[0])

	db := filepath.Join(dir, "power.db")
	program := filepath.Join(library(t), "wattmark")
	env := []string{"WATTMARK_PROGRAM=" + program, "WATTMARK_DB=" + db}
	run(env, program, "demo", "--json", "--db", db)
	run(env, venv, "-Wall", "-Werror", "testdata/reading.py", db, "1")

	kernel := filepath.Join(dir, "jupyter/kernels/venv")
	if err := os.MkdirAll(kernel, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := fmt.Sprintf(`{"argv": [%q, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "venv"}`, venv)
	if err := os.WriteFile(filepath.Join(kernel, "kernel.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	run(append(env, "JUPYTER_PATH="+filepath.Join(dir, "jupyter")), venv, "testdata/notebook.py", "venv")
}

// scans of TestPythonReadsFast; 1400000 are 70 s of a meter of 20 kS/s.
var scansToRead = flag.Int("scans", 140_000, "scans that TestPythonReadsFast reads")

// So many samples of four rails become a data frame in less than a second of processor time.
func TestPythonReadsFast(t *testing.T) {
	needPython(t, "pandas")
	dir, scans := t.TempDir(), *scansToRead
	var b strings.Builder
	b.WriteString("t_s,a_current_a,a_voltage_v,b_current_a,b_voltage_v,c_current_a,c_voltage_v,d_current_a,d_voltage_v\n")
	for i := range scans {
		fmt.Fprintf(&b, "%d.%06d,%d.5,12.1,3.%d,12,%d.2,11.9,4.%d,12.2\n", i/20000, i%20000*50, 5+i%7, i%10, i%11, i%9)
	}
	file, db, program := filepath.Join(dir, "made.csv"), filepath.Join(dir, "power.db"), filepath.Join(library(t), "wattmark")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, "import", "csv", file, "--u-gain", "0.01", "--db", db).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := exec.CommandContext(t.Context(), python, "testdata/reading.py", db, "1", fmt.Sprint(scans))
	c.Env = append(os.Environ(), pythonPackage, "PYTHONDONTWRITEBYTECODE=1", "WATTMARK_CONFIG=none", "WATTMARK_PROGRAM="+program)
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
