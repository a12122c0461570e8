package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/gpu/cupti/cuptitest"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure/load"
)

// injected is a program that is recorded on the rig's board.
type injected struct {
	*rig
	library, program, plan string
	own                    bool // run reads the meter itself
}

// compiled builds the injection library and the program that stands for one that
// uses CUDA.
func compiled(t *testing.T) *injected {
	t.Helper()
	return compiledFrom(t, "testdata/program.c.txt", func(string) []string { return nil })
}

// compiledFrom takes the program's source, and what else its compiler is to be told.
func compiledFrom(t *testing.T, from string, more func(dir string) []string) *injected {
	t.Helper()
	dir := t.TempDir()
	in := &injected{program: filepath.Join(dir, "program"), plan: filepath.Join(dir, "plan")}
	cupti := cuptitest.Build(t, 10, 130001) // skips without a compiler
	in.rig = newRig(t)
	in.env = []string{"WATTMARK_CUPTI=" + cupti, "PROGRAM_PLAN=" + in.plan}
	source, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "program.c")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "gcc", append([]string{"-Wall", "-Werror", "-o", in.program, file}, more(dir)...)...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
	if in.library, err = library(); err != nil {
		t.Fatal(err)
	}
	return in
}

// within makes a subtest the rig's own, with a variable more, until the function returned is called.
func (in *injected) within(t *testing.T, variable string) (end func()) {
	whole, env := in.t, in.env
	in.t, in.env = t, append(slices.Clone(env), variable)
	return func() { in.t, in.env = whole, env }
}

// planned is a kernel of the plan, with the load that it is.
type planned struct {
	name          string
	start, end    time.Time
	stream, graph int
}

// lay puts a load on the board from a time on and returns when it really begins.
func (in *injected) lay(at time.Time, l load.State) time.Time {
	in.t.Helper()
	begin, err := in.live.SetLoad(at, l)
	if err != nil {
		in.t.Fatal(err)
	}
	return begin
}

// timeline lays kernels down on the board: long ones with rest between, two at
// once, and a train of tiny ones.
func (in *injected) timeline() (out []planned) {
	at := time.Now().Add(100 * time.Millisecond)
	one := func(name string, l load.State, length time.Duration) {
		k := planned{name: name, start: in.lay(at, l)}
		k.end = in.lay(k.start.Add(length), load.ActiveIdle)
		out, at = append(out, k), k.end.Add(4*time.Millisecond)
	}
	for range 10 {
		one("_Z4gemmPfS_i", load.Compute, 17*time.Millisecond)
		one("copy", load.Memory, 11*time.Millisecond)
	}
	begin := in.lay(at, load.Half)
	end := in.lay(begin.Add(60*time.Millisecond), load.ActiveIdle)
	out = append(out,
		planned{"left", begin, begin.Add(40 * time.Millisecond), 7, 0}, planned{"right", begin.Add(20 * time.Millisecond), end, 8, 3})
	begin = in.lay(end.Add(5*time.Millisecond), load.Half)
	end = in.lay(begin.Add(20*time.Millisecond), load.ActiveIdle)
	for a := begin; a.Before(end); a = a.Add(20 * time.Microsecond) {
		out = append(out, planned{"tiny", a, a.Add(20 * time.Microsecond), 1, 0})
	}
	return out
}

// write hands the plan over as a whole.
func (in *injected) write(plan []planned) {
	in.t.Helper()
	var b strings.Builder
	for _, k := range plan {
		fmt.Fprintf(&b, "%d %d %d %d %s\n", k.start.UnixNano(), k.end.UnixNano(), k.stream, k.graph, k.name)
	}
	if err := os.WriteFile(in.plan+".part", []byte(b.String()), 0o600); err != nil {
		in.t.Fatal(err)
	}
	if err := os.Rename(in.plan+".part", in.plan); err != nil {
		in.t.Fatal(err)
	}
}

// energies is what the board drew in the kernels of each name, in equal shares
// where two ran.
func (in *injected) energies(plan []planned) map[string]float64 {
	in.t.Helper()
	out := map[string]float64{}
	between := func(a, b time.Time) float64 {
		e, err := in.live.Energy(a, b)
		if err != nil {
			in.t.Fatal(err)
		}
		return float64(e.Total)
	}
	for _, k := range plan {
		out[k.name] += between(k.start, k.end)
		for _, o := range plan {
			if from, to := maxTime(k.start, o.start), minTime(k.end, o.end); o.name != k.name && from.Before(to) {
				out[k.name] -= between(from, to) / 2
			}
		}
	}
	return out
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (in *injected) run(more ...string) *process {
	in.t.Helper()
	args := append([]string{"--auto", "--library", in.library, "--name", "recorded", "--"}, append(more, in.program)...)
	if in.own {
		return startEnv(in.t, in.env, in.alone(append([]string{"--json"}, args...)...)...)
	}
	return in.rig.run(args...)
}

// measured records the program on a timeline. A machine so busy that the meter in
// this process misses its time loses a marker; then it is measured again.
func (in *injected) measured() (got report.Report, plan []planned) {
	t := in.t
	t.Helper()
	for range 4 {
		_ = os.Remove(in.plan)
		p := in.run()
		p.await(t, "ready for the plan")
		plan = in.timeline()
		in.write(plan)
		code := p.wait(t)
		got = report.Report{}
		object(t, p.out.String(), &got)
		if code == 0 {
			return got, plan
		}
		if code != cli.ExitIncomplete || !strings.Contains(got.Reason, "marker") {
			t.Fatalf("exit code %d: %s\n%s", code, got.Reason, &p.err)
		}
		t.Log("measured again: ", got.Reason)
	}
	t.Fatal("no measurement is complete")
	return got, plan
}

// The whole way in one command: libcuda's call into the library, CUPTI's buffers, the log, the
// database, the clock fit, the shares. Each name's energy is the board's within U.
func TestEnergyByKernelOfAProgram(t *testing.T) {
	t.Parallel()
	in := compiled(t)
	in.monitor.stop(t)
	in.own = true
	got, plan := in.measured()
	if got.Kernels == nil {
		t.Fatal("no kernels in the report")
	}
	k := got.Kernels
	if k.Recorded != uint64(len(plan)) || k.Reported != k.Recorded || k.Dropped != 0 {
		t.Errorf("%d recorded, %d by CUPTI, %d dropped of %d", k.Recorded, k.Reported, k.Dropped, len(plan))
	}
	truth, sum, share := in.energies(plan), 0.0, 0.0
	for _, l := range k.Lines {
		sum, share = sum+float64(l.Energy), share+float64(l.Share)
		name := cmp.Or(l.Symbol, l.Name)
		if l.Class != "kernel" {
			continue
		}
		t.Logf("%s: %v ± %v J, the board drew %v J", name, float64(l.Energy), float64(l.U), truth[name])
		if d := math.Abs(float64(l.Energy) - truth[name]); !(d <= float64(l.U)) {
			t.Errorf("%s: %v J off, U is %v J", name, d, float64(l.U))
		}
		// The fit of kernels of microseconds assumes no response of the card, which costs U.
		most := map[bool]float64{true: 0.2, false: 0.1}[name == "tiny"]
		if float64(l.U) > most*truth[name] {
			t.Errorf("%s: U is %v J of %v J", name, float64(l.U), truth[name])
		}
		delete(truth, name)
	}
	if len(truth) > 0 {
		t.Errorf("no lines for %v", truth)
	}
	if d := math.Abs(sum / *got.EnergyJ - 1); d > 1e-9 {
		t.Errorf("the lines come to %v J, the window has %v J", sum, *got.EnergyJ)
	}
	if d := math.Abs(share / *got.DurationS - 1); d > 1e-9 {
		t.Errorf("the lines come to %v s, the window has %v s", share, *got.DurationS)
	}
	if i := slices.IndexFunc(k.Lines, func(l api.KernelLine) bool { return l.Name == "gemm" && l.Symbol == "_Z4gemmPfS_i" }); i < 0 {
		t.Error("the name was not demangled")
	}
	if len(k.Warnings) != 1 || !strings.Contains(k.Warnings[0], "1000 of 1022 kernels are shorter than the 50 µs") {
		t.Errorf("warnings: %q", k.Warnings)
	}
	in.looksBack(got.TaskID, plan)
}

// looksBack asks for the stored task again, as a user does.
func (in *injected) looksBack(id int64, plan []planned) {
	t := in.t
	t.Helper()
	show := start(t, "show", fmt.Sprint(id), "--kernels", "--no-plot", "--db", in.db)
	if code := show.wait(t); code != 0 || !strings.Contains(show.out.String(), "(between kernels)") || !strings.Contains(show.out.String(), "caution: 1000 of") {
		t.Errorf("show --kernels: %d\n%s", code, &show.out)
	}
	export := start(t, "export", fmt.Sprint(id), "--format", "kernels", "--db", in.db)
	export.wait(t)
	rows, err := csv.NewReader(strings.NewReader(export.out.String())).ReadAll()
	if err != nil || len(rows) != len(plan)+1 {
		t.Fatalf("export --format kernels: %d rows, %v", len(rows), err)
	}
	i := slices.IndexFunc(rows, func(r []string) bool { return r[3] == "right" })
	want := plan[slices.IndexFunc(plan, func(p planned) bool { return p.name == "right" })]
	if i < 0 || rows[i][0] != fmt.Sprint(want.start.UnixNano()) || rows[i][1] != fmt.Sprint(want.end.UnixNano()) ||
		rows[i][7] != "8" || rows[i][9] != "3" || strings.Join(rows[i][10:], ",") != "128,2,1,256,1,1" {
		t.Errorf("the kernel right is %v", rows[max(i, 0)])
	}
}

// Without CUPTI the program runs all the same, and the task says why there is
// nothing. So does one that is killed.
func TestAutoSaysWhatIsMissing(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	in := compiled(t)
	for name, c := range map[string]struct {
		env, warning string
	}{
		"no CUPTI": {"WATTMARK_CUPTI=/nowhere/libcupti.so", "CUPTI was not found"},
		"killed":   {"PROGRAM_DIES=1", "ended without its count"},
	} {
		t.Run(name, func(t *testing.T) {
			defer in.within(t, c.env)()
			got, _ := in.measured()
			if got.Kernels == nil || !strings.Contains(strings.Join(got.Kernels.Warnings, "\n"), c.warning) {
				t.Errorf("%+v", got.Kernels)
			}
		})
	}
	p := in.rig.run("--auto", "--library", in.library, "--", "true")
	if code := p.wait(t); code != cli.ExitFailed || !strings.Contains(p.err.String(), "no process of the program loaded") {
		t.Errorf("a program without CUDA: %d\n%s", code, &p.err)
	}
}

// CUPTI serves one profiler a process. The program's own gets all of its kernels whenever
// it begins, and so does the task: one that has CUPTI before wattmark has its first session alone, and
// the task reports that.
func TestProgramsOwnProfiler(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	in := compiled(t)
	for name, c := range map[string]struct {
		mode     string
		marks    map[int]string // names of kernels, counted from the end
		recorded uint64
		profiled int
		warning  string
	}{
		"first, to the end":         {"early", nil, 0, 1022, "the program's own profiler has CUPTI already"},
		"first, then it stops":      {"early", map[int]string{9: "unprofiled"}, 9, 1013, "when its own profiler had stopped"},
		"later":                     {"late", map[int]string{1: "profiled"}, 1022, 1, ""},
		"later, twice":              {"late", map[int]string{9: "profiled", 7: "unprofiled", 5: "profiled", 4: "unprofiled"}, 1022, 3, ""},
		"later, with its own clock": {"clock", map[int]string{9: "profiled", 7: "unprofiled"}, 1022, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			defer in.within(t, "PROGRAM_PROFILES="+c.mode)()
			_ = os.Remove(in.plan)
			p := in.run()
			p.await(t, "ready for the plan")
			plan := in.timeline()
			for n, name := range c.marks {
				plan[len(plan)-n].name = name
			}
			in.write(plan)
			_ = p.wait(t)
			var got report.Report
			object(t, p.out.String(), &got)
			if want := fmt.Sprintf("profiler got %d kernels", c.profiled); !strings.Contains(p.err.String(), want) {
				t.Errorf("not %q in\n%s", want, &p.err)
			}
			if got.Kernels == nil {
				t.Fatal("no kernels in the report")
			}
			if k := got.Kernels; k.Recorded != c.recorded || k.Reported != c.recorded || !strings.Contains(strings.Join(k.Warnings, "\n"), c.warning) {
				t.Errorf("%d recorded of %d: %q", k.Recorded, k.Reported, k.Warnings)
			}
		})
	}
}

// The program's ranges have the kernels launched within them: nested, of a domain, of the process, never closed.
func TestEnergyByRange(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	in := compiled(t)
	in.env = append(in.env, "PROGRAM_RANGES=1")
	p := in.run()
	p.await(t, "ready for the plan")
	plan := in.timeline()
	in.write(plan)
	if code := p.wait(t); code != 0 {
		t.Fatalf("%d\n%s", code, &p.err)
	}
	shown := inside(t, "show", "1", "--db", in.db, "--ranges", "--json").ok(t).out
	var got report.Report
	object(t, shown, &got)
	if got.Ranges == nil {
		t.Fatalf("no ranges\n%s\n%s", shown, &p.err)
	}
	truth := make([]float64, 2)
	for i := range truth {
		e, err := in.live.Energy(plan[i].start, plan[i].end)
		if err != nil {
			t.Fatal(err)
		}
		truth[i] = float64(e.Total)
	}
	want := map[string]struct {
		launches int
		energy   float64
	}{
		"whole (start to end)": {2, truth[0] + truth[1]}, "outer": {2, truth[0] + truth[1]},
		"model: inner": {1021, math.NaN()}, "model: inner/left open": {1020, math.NaN()},
	}
	for _, r := range got.Ranges.Ranges {
		w, ok := want[r.Path]
		delete(want, r.Path)
		if !ok || r.Ranges != 1 || int(r.Launches) != w.launches || math.Abs(float64(r.Energy)-w.energy) > float64(r.U) {
			t.Errorf("%+v, want %+v", r, w)
		}
	}
	if len(want) > 0 || len(got.Ranges.Notes) != 1 || !strings.Contains(got.Ranges.Notes[0], "2 ranges never ended") {
		t.Errorf("lacks %v, notes %q: %+v", want, got.Ranges.Notes, got.Ranges.Ranges)
	}
}

func TestAutoRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no program":         {[]string{"--auto", "--benchmark", "half"}, "name it after --"},
		"no library":         {[]string{"--auto", "--library", "/nowhere.so", "--", "true"}, "libwattmark.so is not beside this program"},
		"a library for what": {[]string{"--library", "x.so", "--", "true"}, "--library goes with --auto"},
	} {
		p := start(t, append([]string{"run", "--gpu", "sim:/nowhere", "--db", filepath.Join(t.TempDir(), "x.db")}, c.args...)...)
		if code := p.wait(t); code != cli.ExitUsage || !strings.Contains(p.err.String(), c.want) {
			t.Errorf("%s: %d\n%s", name, code, &p.err)
		}
	}
}
