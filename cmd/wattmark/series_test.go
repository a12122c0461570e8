package main

import (
	"strings"
	"syscall"
	"testing"

	analysis "github.com/wattmark/wattmark/analysis/compare"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/study/compare"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

const (
	halfRun   = "--benchmark half --duration 100ms"
	memoryRun = "--benchmark memory --duration 100ms"
)

// seriesTask reads a task with its tags.
func seriesTask(t *testing.T, r *rig, id store.TaskID) store.Task {
	t.Helper()
	x, ok := onlyTask(t, r.db, id)
	if !ok {
		t.Fatalf("no task %d", id)
	}
	return x
}

// Two versions in pairs of random order: tasks are tagged, the card rests before each run,
// and the comparison finds the difference and prints once.
func TestRunInPairs(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	p := r.run("--times", "4", "--with", halfRun, "--with", memoryRun, "--name", "pair", "--tag", "lab=1",
		"--cool-down", "20s")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &p.err)
	}
	var c compare.CompareReport
	object(t, p.out.String(), &c)
	e := c.Quantities[0]
	if e.Design != analysis.RandomPairs || e.A.Runs != 4 || !e.Shown || c.Random == nil || c.Random.Ways != 16 {
		t.Errorf("%+v, %+v\n%s", e, c.Random, &p.err)
	}
	if s := c.Start; s == nil || !(s.Rest[0] > 0 && s.Rest[1] > 0) {
		t.Errorf("start %+v", c.Start)
	}
	series := seriesTask(t, r, 1).Tags[compare.TagSeries]
	if !strings.HasPrefix(series, "pair-") || !strings.Contains(p.err.String(), "--tag series="+series) {
		t.Errorf("series %q\n%s", series, &p.err)
	}
	for i, side := range []*[]store.TaskID{&c.A.Tasks, &c.B.Tasks} {
		for _, id := range *side {
			x := seriesTask(t, r, id)
			if x.Tags[compare.TagSide] != string("AB"[i]) || x.Tags[compare.TagSeries] != series ||
				x.Tags["lab"] != "1" || x.Tags[compare.TagPlanned] != "4" {
				t.Errorf("task %d: tags %v", id, x.Tags)
			}
		}
	}
	r.free()
}

// The scatter of the first pairs sets the number of all, which their tasks then bear; the
// test is there.
func TestRunUntilU(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	p := r.run("--times", "30", "--until-u", "10%", "--with", halfRun, "--with", memoryRun, "--cool-down", "0")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &p.err)
	}
	var c compare.CompareReport
	object(t, p.out.String(), &c)
	if e := c.Quantities[0]; e.Design != analysis.RandomPairs || !measure.Known(e.P) || e.A.Runs != 8 ||
		(e.High-e.Low)/2 > 0.1*e.Ratio {
		t.Errorf("%+v\n%s", e, &p.err)
	}
	if x := seriesTask(t, r, 1); x.Tags[compare.TagPlanned] != "8" ||
		!strings.Contains(p.err.String(), "8 are enough for U of 10 %") {
		t.Errorf("tags %v\n%s", x.Tags, &p.err)
	}
}

// Ctrl-C keeps the finished tasks and prints their comparison, which has no p.
func TestInterruptedSeries(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	p := r.run("--times", "20", "--with", halfRun, "--with", halfRun, "--cool-down", "0")
	p.await(t, "turn 4 of 20: ., task 8")
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	if code := p.wait(t); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d\n%s", code, &p.err)
	}
	var c compare.CompareReport
	object(t, p.out.String(), &c)
	if e := c.Quantities[0]; e.Design != analysis.EndedEarly || measure.Known(e.P) || e.Shown || e.A.Runs < 4 {
		t.Errorf("%+v", e)
	}
	r.free()
}

// Repeats of one program: mean, U and scatter. A program that fails ends the series with its
// exit code, and the runs before it are printed.
func TestRepeats(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	p := r.run("--times", "3", "--cool-down", "0", "--", "sleep", "0.1")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &p.err)
	}
	var m compare.RepeatsReport
	object(t, p.out.String(), &m)
	if q := m.Quantities; len(m.Tasks) != 3 || q[0].Name != "energy" || q[0].Runs != 3 ||
		!(q[0].Low < q[0].Value && q[0].Value < q[0].High) || !(q[1].Value > 0.1) {
		t.Errorf("%+v", m)
	}
	once := r.spool + "-once"
	p = r.run("--times", "3", "--cool-down", "0", "--", "sh", "-c", "test -e "+once+" && exit 7; touch "+once)
	if code := p.wait(t); code != 7 {
		t.Errorf("exit code %d\n%s", code, &p.err)
	}
	m = compare.RepeatsReport{}
	if object(t, p.out.String(), &m); len(m.Tasks) != 1 {
		t.Errorf("after a failure: %+v", m)
	}
}

// Mistakes in the flags of a series are found before a bench is asked.
func TestSeriesRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{cli.ExitNoProgram, []string{"--times", "5", "--with", "sleep 1", "--with", "slep 1"}, "slep: no such program"},
		{cli.ExitUsage, []string{"--times", "5", "--with", "sleep 1"}, "give it twice"},
		{
			cli.ExitUsage,
			[]string{"--times", "5", "--with", "sleep 1", "--with", "sleep 2", "--", "sleep", "1"},
			"no other program",
		},
		{cli.ExitUsage, []string{"--with", "sleep 1", "--with", "sleep 2"}, "--with goes with --times"},
		{cli.ExitUsage, []string{"--times", "1", "--", "sleep", "1"}, "2 or more"},
		{cli.ExitUsage, []string{"--times", "5", "--with", "sleep 1 | cat", "--with", "sleep 2"}, "for a shell"},
		{cli.ExitUsage, []string{"--times", "5", "--with", "sleep '1", "--with", "sleep 2"}, "not closed"},
		{cli.ExitUsage, []string{"--times", "5", "--with", " ", "--with", "sleep 2"}, "empty"},
		{cli.ExitUsage, []string{
			"--times", "5", "--with", "--benchmark hafl", "--with",
			"sleep 2",
		}, "half, compute or memory"},
		{cli.ExitUsage, []string{"--times", "5", "--with", "--duration 1s", "--with", "sleep 2"}, "want --benchmark"},
		{cli.ExitUsage, []string{"--times", "5", "--with", "--benchmark half --duration 2", "--with", "sleep 2"}, "as 500ms"},
		{cli.ExitUsage, []string{"--times", "5", "--until-u", "1%", "--", "sleep", "1"}, "two versions"},
		{
			cli.ExitUsage,
			[]string{"--times", "8", "--until-u", "1%", "--with", "sleep 1", "--with", "sleep 2"},
			"after 8",
		},
		{cli.ExitUsage, []string{"--times", "9", "--until-u", "1", "--with", "sleep 1", "--with", "sleep 2"}, "0.5%"},
		{cli.ExitUsage, []string{"--times", "5", "--gpus", "all", "--", "sleep", "1"}, "on one GPU"},
		{cli.ExitUsage, []string{
			"--times", "5", "--auto", "--gpu", "sim:/no/gpu", "--with", "--benchmark half", "--with", "sleep 2",
		}, "kernels of a program"},
		{cli.ExitUsage, []string{"--times", "5", "--cool-down", "-1s", "--", "sleep", "1"}, "not negative"},
	} {
		inside(t, append([]string{"run", "--monitor", "127.0.0.1:1"}, c.args...)...).fails(t, c.code, c.want)
	}
}
