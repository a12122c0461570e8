//go:build linux

package main

import (
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/study/compare"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
)

// One command reads the meter, measures a program and passes its exit code on; whichever way
// it ends, the samples are in the database and the spool is empty.
func TestOneCommandMeasures(t *testing.T) {
	t.Parallel()
	r := newMeter(t)
	p := start(t, r.alone("--json", "--", "sh", "-c", "sleep 0.3; exit 7")...)
	if code := p.wait(t); code != 7 {
		t.Errorf("exit code %d\n%s", code, &p.err)
	}
	var got report.Report
	if object(t, p.out.String(), &got); got.State != "failed" || got.EnergyJ == nil || strings.Contains(p.err.String(), "caution") {
		t.Errorf("%s: %s, energy %v\n%s", got.State, got.Reason, got.EnergyJ, &p.err)
	}
	p = start(t, r.alone("--json", "--times", "2", "--cool-down", "5s", "--benchmark", "half", "--duration", "100ms")...)
	var m compare.RepeatsReport
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, &p.err)
	} else if object(t, p.out.String(), &m); len(m.Tasks) != 2 || strings.Contains(p.err.String(), "no cool-down") {
		t.Errorf("%+v\n%s", m, &p.err)
	}
	file := filepath.Join(t.TempDir(), "bench.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "name: riser\ninstruments: [{kind: powersensor3, port: %s}]\n", r.link), 0o600); err != nil {
		t.Fatal(err)
	}
	out := wattmark(t, "run", "--bench", file, "--gpu", "sim:"+r.socket, "--db", r.db, "--db-free", "0", "--benchmark", "half",
		"--duration", "100ms").ok(t).out
	if !strings.Contains(out, "bench riser") {
		t.Error(out)
	}
	if left := r.kept(); len(left) != 0 {
		t.Errorf("left in the spool: %v", left)
	}
}

// The other commands that measure read the meter themselves, too, and so does doctor.
func TestOtherCommandsReadTheMeter(t *testing.T) {
	t.Parallel()
	r := newMeter(t)
	meter := []string{"--instrument", "powersensor3", "--port", r.link}
	gpu := []string{"--gpu", "sim:" + r.socket, "--db", r.db}
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"tiny", "--benchmark", "compute", "--length", "10us", "--dry-run"}, "plan: "},
		{[]string{"pulse", "--on", "20ms", "--off", "20ms", "--duration", "200ms", "--svg", filepath.Join(dir, "a.svg")}, "powersensor3"},
		{[]string{"sensor", "load", "--periods", "20ms", "--each", "100ms"}, ""},
		{[]string{"roofline", "sweep", "--rounds", "1,32,128", "--duration", "50ms"}, "flop/byte"},
		{[]string{"predict", "sweep", "--kernel", "matmul", "--sizes", "nonsense"}, ""},
	} {
		wattmark(t, slices.Concat(c.args, meter, gpu, []string{"--monitor", "lab"})...).fails(t, cli.ExitUsage, "keep one of them")
		res := wattmark(t, slices.Concat(c.args, meter, gpu)...)
		if text := res.out + res.err; strings.Contains(text, "unknown flag") || !strings.Contains(text, c.want) {
			t.Errorf("%v: %s", c.args, text)
		}
	}
	for id, name := range map[store.TaskID]string{1: "pulse", 2: "sensor-load"} {
		if x, ok := onlyTask(t, r.db, id); !ok || x.Name != name || x.State != store.Complete {
			t.Errorf("task %d: %s, %v", id, x.Name, x.State)
		}
	}
	out := wattmark(t, slices.Concat([]string{"doctor", "--monitor", "127.0.0.1:1", "--db", r.db}, meter)...).out
	if !strings.Contains(out, "PowerSensor3") {
		t.Error(out)
	}
	wattmark(t, "doctor", "--port", r.link).fails(t, cli.ExitUsage, "--instrument")
	if left := r.kept(); len(left) != 0 {
		t.Errorf("left in the spool: %v", left)
	}
}

// A terminal that is closed, Ctrl-C on it, and SIGTERM end a measurement with its own meter in
// order: one line names the task, and the samples are stored.
func TestSignalsEndOneCommand(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newMeter(t)
	for i, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		id := store.TaskID(i + 1)
		p := onTerminal(t, 200, 24, r.alone("--benchmark", "memory", "--duration", "60s")...)
		p.await(t, "running the work")
		eventually(t, "samples are stored", func() bool {
			x, ok := onlyTask(t, r.db, id)
			return ok && x.Chunks >= 1
		})
		if s == syscall.SIGHUP {
			_ = p.master.Close()
		} else {
			_ = p.cmd.Process.Signal(s)
		}
		if code := p.wait(t); code != 128+int(s) {
			t.Errorf("%v: exit code %d\n%s", s, code, &p.out)
		}
		line := fmt.Sprintf("wattmark: interrupted by %s: kept as task %d (incomplete)", cli.Asked{Signal: s}.Name(), id)
		if s != syscall.SIGHUP && strings.Count(p.out.String(), line) != 1 {
			t.Errorf("%v: it said\n%s", s, &p.out)
		}
		x, _ := onlyTask(t, r.db, id)
		if x.State != store.Incomplete || x.Chunks == 0 || !strings.Contains(x.Reason, "cancelled during work") {
			t.Errorf("%v: state %v, %d chunks: %s", s, x.State, x.Chunks, x.Reason)
		}
		if left := r.kept(); len(left) != 0 {
			t.Errorf("%v: left in the spool: %v", s, left)
		}
	}
}

// What kill -9 leaves of a measurement with its own meter is in its spool: the next command
// that sees the task names and finishes it.
func TestLeftOverOfOneCommand(t *testing.T) {
	t.Parallel()
	r := newMeter(t)
	for i, next := range [][]string{
		{"tasks", "--db", r.db},
		{"show", "2", "--db", r.db, "--no-plot"},
		r.alone("--benchmark", "half", "--duration", "100ms"),
	} {
		id := store.TaskID(i + 1)
		p := start(t, r.alone("--benchmark", "memory", "--duration", "60s")...)
		p.await(t, "running the work")
		// Only a chunk that is written can be left: 0.2 s of eight channels are more than 8 KiB.
		eventually(t, "a chunk is in the spool", func() bool { return len(r.kept()) == 1 && r.spooled() > 8<<10 })
		if i == 0 {
			out := inside(t, "tasks", "--db", r.db)
			if out.ok(t); strings.Contains(out.err, "left by a process") {
				t.Errorf("while it runs: %s", out.err)
			}
		}
		p.kill(t)
		said := wattmark(t, next...).ok(t).err
		if want := fmt.Sprintf("task %d was left by a process that is gone: finished (incomplete)", id); !strings.Contains(said, want) {
			t.Errorf("%v: %s", next, said)
		}
		if x, _ := onlyTask(t, r.db, id); x.State != store.Incomplete || x.Chunks == 0 {
			t.Errorf("state %v, %d chunks: %s", x.State, x.Chunks, x.Reason)
		}
		if left := r.kept(); len(left) != 0 {
			t.Errorf("%v: left in the spool: %v", next, left)
		}
	}
}

// A second command waits for the meter that the first one reads.
func TestOneCommandWaitsForItsMeter(t *testing.T) {
	t.Parallel()
	r := newMeter(t)
	fifo := filepath.Join(t.TempDir(), "end")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	first := start(t, r.alone("--", "cat", fifo)...)
	first.await(t, "running the work")
	second := start(t, r.alone("--benchmark", "half", "--duration", "100ms", "--wait", "5m")...)
	program, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the program reads
	if err != nil {
		t.Fatal(err)
	}
	_ = program.Close()
	for i, p := range []*process{first, second} {
		if code := p.wait(t); code != 0 {
			t.Errorf("command %d: exit code %d\n%s", i+1, code, &p.err)
		}
	}
}

// bySensor measures by the own sensors of simulated GPUs. A machine so busy that this process
// does not see each of their readings, ten a second, loses a marker; then it is measured again.
func bySensor(t *testing.T, args ...string) (p *process) {
	t.Helper()
	for range 4 {
		p = start(t, append([]string{"run", "--db-free", "0", "--json"}, args...)...)
		code := p.wait(t)
		if code == 0 {
			return p
		}
		if code != cli.ExitIncomplete || !strings.Contains(p.out.String(), "marker was found") {
			t.Fatalf("exit code %d\n%s", code, &p.err)
		}
		t.Log("measured again")
	}
	t.Fatal("no measurement is complete")
	return p
}

// Where no monitor is named and none answers, the GPU's own sensor measures, with a caution on
// the terminal and on the task.
func TestOwnSensorByDefault(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	if c, err := net.Dial("tcp", cli.DefaultMonitor); err == nil {
		_ = c.Close()
		t.Skip("a monitor serves at the default address of this machine")
	}
	r := newMeter(t)
	p := bySensor(t, "--gpu", "sim:"+r.socket, "--db", r.db, "--benchmark", "memory", "--duration", "2s")
	if n := strings.Count(p.err.String(), "caution: the GPU's own sensor measures"); n != 1 {
		t.Errorf("cautioned %d times:\n%s", n, &p.err)
	}
	var got report.Report
	object(t, p.out.String(), &got)
	cautioned := slices.ContainsFunc(got.Quality.Reasons, func(r quality.Reason) bool { return r.Cause == quality.OwnSensor })
	if truth := r.truth(store.TaskID(got.TaskID)); !cautioned || math.Abs(*got.EnergyJ-truth) > *got.EnergyUJ {
		t.Errorf("%v ± %v J, truth %v J, %+v", *got.EnergyJ, *got.EnergyUJ, truth, got.Quality)
	}
}

// Several GPUs by their own sensors: a monitor for each, within one command.
func TestOwnSensorsOfTwoGPUs(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	a, b := newMeter(t), newMeter(t)
	p := bySensor(t, "--instrument", "nvml", "--gpus", "sim:"+a.socket+",sim:"+b.socket, "--db", a.db, "--", "sleep", "2")
	var got task.GroupReport
	if object(t, p.out.String(), &got); got.State != "complete" || len(got.GPUs) != 2 || got.Total == nil {
		t.Errorf("%+v", got)
	}
}

// A series is compared over the host that its runs are sent to, each under the host's number,
// and the number of its pairs is set there.
func TestSeriesForAHost(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newMeter(t)
	hosted := filepath.Join(t.TempDir(), "host.db")
	inside(t, "demo", "--db", hosted, "--duration", "50ms").ok(t) // numbers differ from those of the outbox
	h := start(t, "host", "--db", hosted, "--listen", "127.0.0.1:0", "--socket", "none", "--db-free", "0")
	address := h.await(t, `msg="serving the task database" address=(\S+)`)[1]
	args := slices.DeleteFunc(r.alone("--json", "--times", "20", "--until-u", "50%", "--with", "--benchmark half --duration 50ms",
		"--with", "--benchmark memory --duration 50ms", "--cool-down", "0", "--host", address),
		func(s string) bool { return s == "--db" || s == r.db })
	p := start(t, args...)
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &p.err)
	}
	var c compare.CompareReport
	object(t, p.out.String(), &c)
	if e := c.Quantities[0]; e.A.Runs != 8 || slices.Min(slices.Concat(c.A.Tasks, c.B.Tasks)) != 2 {
		t.Errorf("%+v\n%s", e, &p.err)
	}
	if x, ok := onlyTask(t, hosted, 17); !ok || x.Tags[compare.TagPlanned] != "8" {
		t.Errorf("task 17 of the host: tags %v", x.Tags)
	}
	if left := r.kept(); len(left) != 0 {
		t.Errorf("left in the spool: %v", left)
	}
}
