package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// gpu is the UUID of the rig's simulated GPU.
func (r *rig) gpu() string { return sim.UUID(sim.SocketSeed(r.socket)) }

// say restarts the monitor with a bench file that names the GPU.
func (r *rig) say(gpu string) {
	r.t.Helper()
	r.monitor.stop(r.t)
	file := filepath.Join(filepath.Dir(r.link), "bench.yaml")
	text := fmt.Sprintf("name: riser\ngpu: %s\ninstruments:\n  - kind: powersensor3\n    port: %s\n", gpu, r.link)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.monitor = start(r.t, "monitor", "--bench", file, "--spool", r.spool, "--listen", "127.0.0.1:0")
	r.address = r.monitor.await(r.t, `msg="serving the bench".* address=(\S+)`)[1]
}

// pair is two rigs of one host, each with a monitor that names its GPU.
func pair(t *testing.T) (a, b *rig) {
	t.Helper()
	a, b = newRig(t), newRig(t)
	b.db = a.db
	a.say(a.gpu())
	b.say(b.gpu())
	return a, b
}

// both measures two rigs at once.
func both(a, b *rig, more ...string) *process {
	a.t.Helper()
	return start(a.t, append([]string{
		"run", "--gpus", "sim:" + a.socket + ",sim:" + b.socket, "--monitor", b.address + "," + a.address,
		"--db", a.db, "--warm-up", "50ms", "--user", "lab",
	}, more...)...)
}

func TestRunOnTwoGPUs(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	p := both(a, b, "--benchmark", "memory", "--duration", "300ms", "--name", "pair", "--json")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var got task.GroupReport
	object(t, p.out.String(), &got)
	if got.State != "complete" || got.Name != "pair" || len(got.GPUs) != 2 || got.Total == nil || got.Total.GPUs != 2 || got.Total.Missing != 0 {
		t.Fatalf("got %+v", got)
	}
	var truth float64
	for i, r := range []*rig{a, b} {
		m := got.GPUs[i]
		if m.UUID != r.gpu() || m.Monitor != r.address || m.Task.GroupID != got.GroupID {
			t.Errorf("GPU %d: %+v", i, m)
		}
		drawn := r.truth(store.TaskID(m.Task.TaskID))
		truth += drawn
		if off := math.Abs(*m.Task.EnergyJ - drawn); off > *m.Task.EnergyUJ || off > 0.005*drawn {
			t.Errorf("GPU %d: %v ± %v J, truth %v J", i, *m.Task.EnergyJ, *m.Task.EnergyUJ, drawn)
		}
	}
	if x := got.Total; math.Abs(float64(x.Energy)-truth) > float64(x.U) || x.Shared != 0 || x.AllShared < x.U {
		t.Errorf("total %+v, truth %v", x, truth)
	}
	t.Logf("%v ± %v J, truth %v J", got.Total.Energy, got.Total.U, truth)

	var again task.GroupReport
	object(t, inside(t, "show", "--group", "1", "--json", "--db", a.db).ok(t).out, &again)
	if again.Total.Estimate != got.Total.Estimate || again.Total.Mean != got.Total.Mean {
		t.Errorf("shown again: %+v", again.Total)
	}
	text := inside(t, "show", "--group", "1", "--db", a.db).ok(t).out
	for _, want := range []string{`Group 1  pair, by lab: complete`, `(?m)^ +0  simulated GPU  ` + a.gpu() + ` +\d  complete`, `total +[\d.]+ J ± [\d.]+ J`, `none shared`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if text := inside(t, "tasks", "--db", a.db).ok(t).out; !regexp.MustCompile(`(?s)mean +group.*pair.* 1 *\n.*pair.* 1 *\n`).MatchString(text) {
		t.Errorf("no group in\n%s", text)
	}
	inside(t, "show", "--group", "2", "--db", a.db).fails(t, cli.ExitNotFound, "no group 2")
}

// --no-methods leaves the software methods out of every member's task; without it each has some.
func TestGroupWithoutMethods(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	for _, more := range [][]string{nil, {"--no-methods"}} {
		p := both(a, b, append([]string{"--benchmark", "memory", "--duration", "300ms", "--json"}, more...)...)
		if code := p.wait(t); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		var got task.GroupReport
		object(t, p.out.String(), &got)
		for _, m := range got.GPUs {
			var shown report.Report
			object(t, inside(t, "show", fmt.Sprint(m.Task.TaskID), "--json", "--db", a.db).ok(t).out, &shown)
			if (len(shown.Methods) == 0) != (more != nil) {
				t.Errorf("%v: task %d has %d methods", more, m.Task.TaskID, len(shown.Methods))
			}
		}
	}
}

// A program runs once, between the markers of all GPUs.
func TestProgramOnTwoGPUs(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	const program = `echo once >&2; from=$(date +%s%N); sleep 0.2
echo "{\"id\":\"r1\",\"begin_ns\":$from,\"end_ns\":$(date +%s%N)}" >"$WATTMARK_WINDOWS/x.jsonl"`
	p := both(a, b, "--json", "--", "sh", "-c", program)
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if n := strings.Count(p.err.String(), "once\n"); n != 1 {
		t.Errorf("the program ran %d times", n)
	}
	var got task.GroupReport
	object(t, p.out.String(), &got)
	if got.State != "complete" || got.Name != "sh" {
		t.Fatalf("got %+v", got)
	}
	for i, m := range got.GPUs {
		if d := *m.Task.DurationS; d < 0.2 || d > 2 {
			t.Errorf("GPU %d: a window of %v s", i, d)
		}
		var x report.Report
		object(t, inside(t, "show", fmt.Sprint(m.Task.TaskID), "--windows", "--json", "--db", a.db).ok(t).out, &x)
		if x.Windows == nil || len(x.Windows.Windows) != 1 || !(x.Windows.Windows[0].Energy > 0) {
			t.Errorf("GPU %d: windows %+v", i, x.Windows)
		}
	}
}

// What does not belong together is refused before anything is measured.
func TestWrongBindings(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	refused := func(code int, p *process, want ...string) {
		t.Helper()
		c := p.wait(t)
		result{p.out.String(), p.err.String(), c}.fails(t, code, want...)
	}
	a.address, b.address = b.address, a.address
	refused(cli.ExitFailed, a.run("--benchmark", "half"), "measures "+b.gpu()+", and the work is for "+a.gpu())
	a.address, b.address = b.address, a.address
	work := []string{"--benchmark", "half", "--db", a.db}
	run := func(gpus, monitors string) *process {
		return start(t, append([]string{"run", "--gpus", gpus, "--monitor", monitors}, work...)...)
	}
	refused(cli.ExitFailed, run("sim:"+a.socket, b.address), "which is not among the GPUs to be measured ("+a.gpu()+")")
	refused(cli.ExitFailed, run("sim:"+a.socket+",sim:"+b.socket, a.address), "no bench measures "+b.gpu())
	refused(cli.ExitUsage, run("sim:"+a.socket+",sim:"+a.socket, a.address), "are one GPU")
	refused(cli.ExitUsage, run("sim:"+a.socket+",0", a.address), "simulated and real GPUs")
	refused(cli.ExitUsage, run("sim:"+a.socket, a.address+","), "--monitor has an empty entry")
	refused(cli.ExitUsage, a.run("--benchmark", "half", "--gpus", "all"), "keep one of them")
	refused(cli.ExitUsage, a.run("--benchmark", "half", "--monitor", a.address+","+b.address), "name those with --gpus")
	b.monitor.stop(t)
	b.startMonitor(freeAddress(t)) // now it does not say which GPU it measures
	refused(cli.ExitFailed, both(a, b, "--benchmark", "half"), "does not say which GPU it measures", "nvidia-smi -L")
	if _, err := os.Stat(a.db); err == nil {
		if x, ok := onlyTask(t, a.db, 1); ok {
			t.Errorf("a task was made: %+v", x)
		}
	}
	a.free()
}

// A monitor that is away costs its own GPU alone, and the group says so.
func TestGroupWithASilentMonitor(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	b.monitor.stop(t)
	p := both(a, b, "--benchmark", "memory", "--duration", "100ms")
	code := p.wait(t)
	result{p.out.String(), p.err.String(), code}.fails(t, cli.ExitIncomplete, "GPU 1 is not measured", "is wattmark monitor running there?", "show --group 1")
	if !strings.Contains(p.out.String(), "total of 1 of 2 GPUs") || !strings.Contains(p.out.String(), "not measured: no bench that answers") {
		t.Errorf("got\n%s", &p.out)
	}
	a.free()
}

// kill -9 of the host while the work runs: both tasks are brought to an end, as
// members of their group, and both benches are free.
func TestKilledHostOfAGroup(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	a, b := pair(t)
	p := both(a, b, "--benchmark", "memory", "--duration", "30s", "--name", "hit")
	eventually(t, "samples of both are stored", func() bool {
		x, ok := onlyTask(t, a.db, 1)
		y, ok2 := onlyTask(t, a.db, 2)
		return ok && ok2 && x.Chunks > 1 && y.Chunks > 1
	})
	p.kill(t)
	h := start(t, "host", "--db", a.db, "--listen", "127.0.0.1:0", "--socket", "none")
	h.await(t, `msg="finished a task that was interrupted" task=1`)
	h.await(t, `msg="finished a task that was interrupted" task=2`)
	var got task.GroupReport
	object(t, inside(t, "show", "--group", "1", "--json", "--db", a.db).ok(t).out, &got)
	if got.State != "incomplete" || len(got.GPUs) != 2 {
		t.Fatalf("got %+v", got)
	}
	for i, m := range got.GPUs {
		if m.Task == nil || m.Task.State != "incomplete" || !strings.Contains(m.Task.Reason, "the process that measured was gone before it had stored when the work ran") || m.Task.Stored == 0 {
			t.Errorf("GPU %d: %+v", i, m)
		}
	}
	if code := h.stop(t); code != 0 {
		t.Errorf("the host ended with %d", code)
	}
	for _, r := range []*rig{a, b} {
		if cs := r.captures(); len(cs) != 0 {
			t.Errorf("captures left on %s: %+v", r.address, cs)
		}
		r.free()
	}
}
