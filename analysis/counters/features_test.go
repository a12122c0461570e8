package counters

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestFormula(t *testing.T) {
	values := map[string]float64{"a": 3, "b": 4, "SP ADD": 5, "x__y.sum": 6, "zero": 0, "x__y.sum.per_second": 7}
	of := func(n string) (float64, error) {
		v, known := values[n]
		if !known {
			return 0, ErrMissing
		}
		return v, nil
	}
	for text, want := range map[string]float64{
		"a + 2*b - 1":                    10,
		"-(a - b)/2":                     0.5,
		`"SP ADD" * 1e2`:                 500,
		"x__y.sum / 3":                   2,
		"x__y.sum.per_second - x__y.sum": 1,
		"max(a, b) - min(a, b)":          1,
		"zero / zero":                    0,
		"a*b/(a+b)":                      12. / 7,
	} {
		f, err := ParseFormula(text)
		ok(t, err)
		if v, err := f.Value(of); err != nil || math.Abs(v-want) > 1e-12 {
			t.Errorf("%s: %v, %v; want %v", text, v, err, want)
		}
	}
	f, err := ParseFormula(`a + "SP ADD"*a + x__y.sum`)
	ok(t, err)
	if got := f.Counters(); !slices.Equal(got, []string{"a", "SP ADD", "x__y.sum"}) {
		t.Errorf("%q", got)
	}
	for _, text := range []string{"", "a +", "a b", "a % b", "f(a)", "max(a)", "a[0]", "func() {}", "a == b", "'x'", "a.(int)", "!a", "1i", "1e999", strings.Repeat("(", 300) + "a" + strings.Repeat(")", 300), strings.Repeat("a+", 6000) + "a"} {
		if _, err := ParseFormula(text); !errors.Is(err, ErrFormula) {
			t.Errorf("%.30q: %v", text, err)
		}
	}
	f, err = ParseFormula("a/zero")
	ok(t, err)
	if _, err := f.Value(of); !errors.Is(err, ErrFormula) || !strings.Contains(err.Error(), "divide by zero") {
		t.Errorf("%v", err)
	}
}

func FuzzFormula(f *testing.F) {
	for _, s := range []string{"a + 2*b", `"SP ADD"/x__y.sum`, "max(a, -b)", "(((", "a.b.c", "1/0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ParseFormula(text)
		if err != nil {
			return
		}
		asked := map[string]bool{}
		v, err := x.Value(func(n string) (float64, error) { asked[n] = true; return 2, nil })
		if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			t.Fatalf("%q comes to %v", text, v)
		}
		for n := range asked {
			if !slices.Contains(x.Counters(), n) {
				t.Fatalf("%q asks for %q, which it does not name", text, n)
			}
		}
	})
}

// The virtual counters of the paper, section III-C and IV-B.
func TestVirtualCounters(t *testing.T) {
	tb := read(t, `kernel,power_w,time_s,gld_32b,gld_64b,gld_128b,gst_32b,gst_64b,gst_128b,local_load,local_store,branch,divergent_branch,instructions,warp_serialize,tlb_miss
a,100,2,1,10,100,2,20,200,5,7,11,13,17,19,23
`, Options{})
	if s := tb.Usual(); s.Name != "full" || len(s.Features) != 9 {
		t.Fatalf("%+v", s)
	}
	want := map[string]float64{"gld": 421, "gst": 842, "mem": 1275, "instructions": 17, "local_load": 5, "branch": 11, "tlb_miss": 23, "warp_serialize": 19, "divergent_branch": 13, "local_store": 7}
	seen := map[string]bool{}
	for _, s := range PaperSets() {
		d, err := tb.Data(s.Features, PerSecond)
		ok(t, err)
		for j, c := range d.Counters {
			seen[c] = true
			if got := d.Rows[0].X[j]; got != want[c]/2 {
				t.Errorf("%s: %s is %v, want %v", s.Name, c, got, want[c]/2)
			}
		}
	}
	if len(PaperSets()) != 7 || len(seen) != len(want) {
		t.Errorf("%d sets of %v", len(PaperSets()), seen)
	}
}

func TestMissing(t *testing.T) {
	tb := read(t, "kernel,power_w,instructions\na,1,2\n", Options{})
	for _, c := range []struct {
		f     Feature
		want  error
		words string
	}{
		{Feature{Name: "mem"}, ErrMissing, `"gld_32b"`},
		{Feature{Name: "magic"}, ErrMissing, `there are "instructions"`},
		{Feature{"x", "magic*2"}, ErrMissing, "magic"},
		{Feature{"x", "2 *"}, ErrFormula, "x: "},
		{Feature{"x", "instructions/0"}, ErrFormula, "line 2 (a)"},
	} {
		if _, err := tb.Data([]Feature{c.f}, Auto); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%+v: %v", c.f, err)
		}
	}
	if _, err := tb.Data([]Feature{{Name: "instructions"}}, PerSecond); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "time_s") {
		t.Errorf("%v", err)
	}
	if _, err := tb.Data([]Feature{{Name: "instructions"}}, "magic"); err == nil {
		t.Error("a scale of magic")
	}
}

// The paper's needs: nine counters for memory and instructions, at least three runs
// of four; thirteen for Full, four runs.
func TestPlan(t *testing.T) {
	for name, want := range map[string][2]int{"mem": {8, 2}, "inst": {1, 1}, "mem/inst": {9, 3}, "mem/inst/tlb": {10, 3}, "full": {13, 4}} {
		s, _ := Named(name)
		base, err := Base(s.Features, CUDAProfiler, nil)
		ok(t, err)
		runs, err := Plan(base, Limit{Total: 4})
		ok(t, err)
		if len(base) != want[0] || len(runs) != want[1] {
			t.Errorf("%s: %d counters in %d runs, want %v", name, len(base), len(runs), want)
		}
		covers(t, base, runs, Limit{Total: 4})
	}
	s, _ := Named("nsight-full")
	base, err := Base(s.Features, NsightSource, []string{"smsp__inst_executed.sum"})
	ok(t, err)
	if len(base) != 8 || slices.Contains(base, "smsp__inst_executed.sum") || !slices.Contains(base, "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum") {
		t.Errorf("%v", base)
	}
	full, _ := Named("full")
	if _, err := Base(full.Features, NsightSource, nil); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "nsight-full") {
		t.Errorf("%v", err)
	}
	// The number of runs is the largest share, whatever the units.
	for _, c := range []struct {
		counters string
		l        Limit
		runs     int
	}{
		{"a__1 a__2 a__3 b__1", Limit{PerUnit: map[string]int{"a": 1}}, 3},
		{"a__1 b__1 a__2 b__2 a__3 b__3 c__1", Limit{Total: 4, PerUnit: map[string]int{"a": 2, "b": 1}}, 3},
		{"a__1 b__1", Limit{}, 1},
		{"", Limit{Total: 4}, 0},
	} {
		list := strings.Fields(c.counters)
		runs, err := Plan(list, c.l)
		ok(t, err)
		if len(runs) != c.runs {
			t.Errorf("%s: %v", c.counters, runs)
		}
		covers(t, list, runs, c.l)
	}
	if _, err := Plan([]string{"a"}, Limit{Total: -1}); err == nil {
		t.Error("less than no counter in a run")
	}
}

func covers(t *testing.T, counters []string, runs [][]string, l Limit) {
	t.Helper()
	var all []string
	for _, r := range runs {
		units := map[string]int{}
		for _, c := range r {
			units[unitOf(c)]++
		}
		for u, n := range units {
			if k := l.PerUnit[u]; k > 0 && n > k {
				t.Errorf("%d of %s in %v", n, u, r)
			}
		}
		if l.Total > 0 && len(r) > l.Total || len(r) == 0 {
			t.Errorf("a run of %v", r)
		}
		all = append(all, r...)
	}
	slices.Sort(all)
	want := slices.Sorted(slices.Values(counters))
	if !slices.Equal(all, want) {
		t.Errorf("counted %v, want %v", all, want)
	}
}
