package compare

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/analysis/compare"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// Tasks with the same fault share a caution, which names the first of them.
func TestFaultyTasksShareACaution(t *testing.T) {
	task := func(id store.TaskID, s store.State) *store.Task {
		var t store.Task
		t.ID, t.State = id, s
		return &t
	}
	got := faulty([]*store.Task{task(7, store.Running), task(3, store.Running), task(4, store.Failed), task(5, store.Running)})
	want := []string{
		"task 3 and 2 more are running: wattmark show 3 says why",
		"task 4 is failed: wattmark show 4 says why",
	}
	for _, caution := range want {
		if !slices.Contains(got, caution) {
			t.Errorf("%q is not among %q", caution, got)
		}
	}
}

// A single run has no scatter; one too small to matter is no row of zeros. An origin is named without its spool.
func TestScatterAndOrigins(t *testing.T) {
	var b strings.Builder
	one := &RepeatsReport{Tasks: []store.TaskID{1}, Quantities: []repeated{{compare.Energy, compare.Mean{Value: 1, Spread: measure.Ratio(math.NaN())}}}}
	one.Render(&b)
	two := &RepeatsReport{Tasks: []store.TaskID{1, 2}, Quantities: []repeated{
		{compare.Time, compare.Mean{Value: 1, Spread: 4.4e-8}}, {compare.Energy, compare.Mean{Value: 1, Spread: 0.012}},
	}}
	two.Render(&b)
	renderCommon(&b, []compare.Cancelled{{Behind: "gain, by the pmd ./meter at spool://vm/root/x y/pmd, bench, power.db"}})
	for _, want := range []string{"(task 1)", "(tasks 1,2)", " – ", "a single run shows no scatter", " < 0.001 % ", " 1.2 % ", "± U is the runs' scatter", "by the pmd ./meter, bench, power.db\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if strings.Count(b.String(), "the runs' scatter") != 1 {
		t.Errorf("one run scatters:\n%s", &b)
	}
}

// Kernels that one side lacks are a caution, also where no kernel is left to compare.
func TestKernelsOfOneSideAreACaution(t *testing.T) {
	for _, c := range []struct {
		compared, onlyA, onlyB int
		want                   string
	}{
		{3, 1, 0, "1 kernel ran in A only, 0 in B only"}, {0, 1, 2, "no kernel is compared"}, {3, 0, 0, ""}, {0, 2, 0, ""},
	} {
		if got := leftOut(c.compared, c.onlyA, c.onlyB); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// A side of tasks whose command lines or meters differ is a caution.
func TestMixedSidesAreACaution(t *testing.T) {
	task := func(serial string, command ...string) *store.Task {
		var t store.Task
		t.State, t.Instrument = store.Complete, store.Instrument{Kind: "pmd", Serial: serial}
		t.Provenance = &store.Provenance{Command: command}
		return &t
	}
	for _, c := range []struct {
		tasks []*store.Task
		want  string
	}{
		{[]*store.Task{task("1", "run", "./v1"), task("1", "run", "./v1"), task("1")}, ""},
		{[]*store.Task{task("1", "run", "1s"), task("1", "run", "2s")}, "2 command lines, as \"run 1s\" and \"run 2s\""},
		{[]*store.Task{task("1"), task("2")}, "several meters: pmd 1, pmd 2"},
	} {
		var sides [2]comparedSide
		for _, t := range c.tasks {
			sides[1].add(t)
		}
		r := CompareReport{A: sides[0].sideReport, B: sides[1].sideReport}
		r.A.GPUs = r.B.GPUs
		r.caution(&sides, &compare.Effect{})
		said := strings.Join(r.Cautions, "\n")
		if !strings.Contains(said, c.want) || (c.want == "") == strings.Contains(said, "the tasks of B") {
			t.Errorf("%q is not among %q", c.want, said)
		}
	}
}
