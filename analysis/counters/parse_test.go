package counters

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/measure"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, text string, o Options) *Table {
	t.Helper()
	tb, err := Parse("x.csv", strings.NewReader(text), o)
	ok(t, err)
	return tb
}

// at returns a value by row and column.
func (t *Table) at(row int, column string) float64 {
	i := t.column(column)
	if i < 0 {
		return math.Inf(-1)
	}
	return t.Runs[row].Values[i]
}

const plainText = `app,kernel,power_w,time_ms,blocks,instructions,gld_32b,util
alpha,k1,120.5,2000,256,"1,000,000",5e3,0.5
alpha,k2,98,500,64,2000000,0,0.25
`

func TestPlain(t *testing.T) {
	tb := read(t, plainText, Options{Rates: []string{"util"}})
	r := tb.Runs[0]
	if tb.Form != Plain || r.Name != "k1" || r.App != "alpha" || r.Power != 120.5 || r.Time != 2 || r.Measured != 2 || r.Blocks != 256 || r.Line != 2 {
		t.Errorf("%+v", r)
	}
	d, err := tb.Data([]Feature{{Name: "instructions"}, {"loads", "2*gld_32b + 1"}, {Name: "util"}}, Auto)
	ok(t, err)
	if got, want := d.Rows[0].X, []float64{5e5, 5001, 0.5}; !slices.Equal(got, want) {
		t.Errorf("per second: %v, want %v", got, want)
	}
	d, err = tb.Data([]Feature{{Name: "instructions"}}, AsIs)
	ok(t, err)
	if d.Rows[0].X[0] != 1e6 || d.Rows[0].Group != "alpha" {
		t.Errorf("%+v", d.Rows[0])
	}
	w := tb.Doubts(120, 1)
	if len(w) != 2 || w[0].Code != model.FewBlocks || w[1].Code != model.ShortRun || w[0].Row != "k2" || !strings.Contains(w[1].Text, "500 ms") {
		t.Errorf("%+v", w)
	}
	if n := tb.Drop(func(r Run) bool { return r.Blocks < 120 }); n != 1 || len(tb.Runs) != 1 {
		t.Errorf("%d dropped", n)
	}
}

// Columns by other names, in other units, and named by hand.
func TestPlainColumns(t *testing.T) {
	tb := read(t, "Kernel Name,Power [W],x\na,10,1\n", Options{})
	if tb.Runs[0].Name != "a" || tb.Runs[0].Power != 10 {
		t.Errorf("%+v", tb.Runs[0])
	}
	tb = read(t, "P,who,t,n,x\n10,a,2,b,1\n", Options{Power: "P", App: "who", Time: "t", Name: "n"})
	if r := tb.Runs[0]; r.Name != "b" || r.App != "a" || r.Power != 10 || r.Time != 2 || len(tb.Columns) != 1 {
		t.Errorf("%+v", r)
	}
	tb = read(t, "power_mw,remark,x\n10500,hot day,1\n", Options{Ignore: []string{"remark"}})
	if tb.Runs[0].Power != 10.5 || tb.Runs[0].Name != "row 1" {
		t.Errorf("%+v", tb.Runs[0])
	}
	tb = read(t, "# made by hand\npower_w,x\n10,3\n\n", Options{AppName: "mine"})
	if tb.Runs[0].App != "mine" || tb.Columns[0].Kind != Rate {
		t.Errorf("%+v %+v", tb.Runs[0], tb.Columns)
	}
}

const utilText = "2\n975,3505\n2,1\nSP ADD,L2,DRAM\n108.6,975,3505,0.5,0.25,0\n110,800,3505,0,0,2.86E-06\n"

func TestUtilisation(t *testing.T) {
	tb := read(t, utilText, Options{})
	if tb.Form != Utilisation || len(tb.Runs) != 2 || tb.Runs[1].Power != 110 || tb.at(1, "DRAM") != 2.86e-6 || tb.at(1, CoreClock) != 800 {
		t.Fatalf("%+v", tb)
	}
	if got := tb.Names(); !slices.Equal(got, []string{"SP ADD", "L2", "DRAM"}) {
		t.Errorf("columns %v", got)
	}
	if len(tb.Notes) != 1 || !strings.Contains(tb.Notes[0], "1 rows ran at other clocks") {
		t.Errorf("%v", tb.Notes)
	}
	d, err := tb.Data([]Feature{{"a", `"SP ADD"*core_mhz`}, {"b", "SP ADD"}}, Auto)
	ok(t, err)
	if !slices.Equal(d.Rows[0].X, []float64{487.5, 0.5}) {
		t.Errorf("%v", d.Rows[0].X)
	}
	tb = read(t, "2\n975,3505\n2,1\nSP ADD,L2,DRAM\nhotspot,0.5,0.25,0\n", Options{})
	if r := tb.Runs[0]; r.Name != "hotspot" || !math.IsNaN(float64(r.Power)) || tb.at(0, MemoryClock) != 3505 {
		t.Errorf("%+v", r)
	}
	tb = read(t, "2\n975,3505\n2,1\nSP ADD,L2,DRAM\nhotspot,120,900,3505,0.5,0.25,0\nbfs,130,0.5,0.25,0\n", Options{})
	if a, b := tb.Runs[0], tb.Runs[1]; a.Name != "hotspot" || a.Power != 120 || tb.at(0, CoreClock) != 900 || b.Name != "bfs" || b.Power != 130 || tb.at(1, CoreClock) != 975 {
		t.Errorf("%+v", tb.Runs)
	}
	one := read(t, "1\n900\n2\na,b\n50,900,1,0\n", Options{})
	if one.Form != Utilisation || one.at(0, "a") != 1 {
		t.Errorf("%+v", one)
	}
}

const ncuWide = `some program printed "this"
==PROF== Connected to process 7 (/tmp/a)
==PROF== Profiling "vadd" - 0: 0%....50%....100% - 3 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes.sum","gpu__time_duration.sum","launch__grid_size","sm__throughput.avg.pct_of_peak_sustained_elapsed","smsp__inst_executed.sum","device__attribute_display_name"
"","","","","","","","","","","","Kbyte","us","","%","inst",""
"0","7","a","h","vadd(float *, int)","1","7","(256, 1, 1)","(64, 2, 1)","0","9.0","1,024.50","10","128","50","1,000","NVIDIA H200"
"1","7","a","h","vadd(float *, int)","1","7","(256, 1, 1)","(64, 2, 1)","0","9.0","1,024.50","30","128","90","1,000","NVIDIA H200"
"2","7","a","h","mul<2>","1","7","(256, 1, 1)","(8, 1, 1)","0","9.0","0","5","8","10","77","NVIDIA H200"
==PROF== Disconnected from process 7
`

func TestNsightWide(t *testing.T) {
	tb := read(t, ncuWide, Options{})
	if tb.Form != NsightWide || len(tb.Runs) != 2 {
		t.Fatalf("%+v", tb)
	}
	r := tb.Runs[0]
	if r.Launches != 2 || r.Blocks != 128 || r.App != "a" || math.Abs(float64(r.Time)-40e-6) > 1e-18 || !math.IsNaN(float64(r.Measured)) {
		t.Errorf("%+v", r)
	}
	if v := tb.at(0, "dram__bytes.sum"); v != 2049000 {
		t.Errorf("bytes %v", v)
	}
	if v := tb.at(0, "sm__throughput.avg.pct_of_peak_sustained_elapsed"); math.Abs(v-80) > 1e-12 {
		t.Errorf("mean by time: %v", v)
	}
	if tb.column("device__attribute_display_name") >= 0 || !strings.Contains(strings.Join(tb.Notes, ""), "display_name") {
		t.Errorf("%+v %v", tb.Columns, tb.Notes)
	}
	if got := tb.Names(); !slices.Equal(got, []string{"dram__bytes.sum", "smsp__inst_executed.sum"}) {
		t.Errorf("columns %v", got)
	}
	d, err := tb.Data([]Feature{{"per s", "dram__bytes.sum"}, {"each", "dram__bytes.sum/smsp__inst_executed.sum"}, {Name: "instructions"}}, PerSecond)
	ok(t, err)
	for j, want := range []float64{2049000 / 40e-6, 1024.5, 2000 / 40e-6} {
		if math.Abs(d.Rows[0].X[j]/want-1) > 1e-12 {
			t.Errorf("%d: %v, want %v", j, d.Rows[0].X[j], want)
		}
	}
	if n := len(read(t, ncuWide, Options{By: ByLaunch}).Runs); n != 3 {
		t.Errorf("%d launches", n)
	}
	app := read(t, ncuWide, Options{By: ByApp})
	if len(app.Runs) != 1 || app.Runs[0].Name != "a" || app.at(0, "smsp__inst_executed.sum") != 2077 || app.Runs[0].Blocks != 8 {
		t.Errorf("%+v", app.Runs)
	}
	if only := read(t, ncuWide, Options{Kernel: regexp.MustCompile("^vadd")}); len(only.Runs) != 1 {
		t.Errorf("%+v", only.Runs)
	}
}

const ncuLong = `==PROF== Connected to process 7
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"
"0","7","a","h","k","1","7","(32, 1, 1)","(16, 1, 1)","0","9.0","s","gpu__time_duration.sum","ns","1,000",""
"0","7","a","h","k","1","7","(32, 1, 1)","(16, 1, 1)","0","9.0","s","lts__t_sectors.sum","sector","400",""
"0","7","a","h","k","1","7","(32, 1, 1)","(16, 1, 1)","0","9.0","s","","","","SOLBottleneck"
"0","7","a","h","k","1","7","(32, 1, 1)","(16, 1, 1)","0","9.0","s","dram__throughput.avg","","n/a",""
"1","7","a","h","k","1","7","(32, 1, 1)","(16, 1, 1)","0","9.0","s","gpu__time_duration.sum","usecond","3",""
"1","7","a","h","k","1","7","(32, 1, 1)","(16, 1, 1)","0","9.0","s","smsp__inst_executed.sum","inst","50",""
"2","7","a","h","k","1","7","(32, 1, 1)","(99, 1, 1)","0","9.0","s","gpu__time_duration.sum","usecond","3",""
`

// Launches that counted other metrics are passes of the same; grids tell rows apart.
func TestNsightLong(t *testing.T) {
	tb := read(t, ncuLong, Options{})
	if tb.Form != NsightLong || len(tb.Runs) != 2 {
		t.Fatalf("%+v", tb)
	}
	if tb.at(0, "lts__t_sectors.sum") != 800 || tb.at(0, "smsp__inst_executed.sum") != 100 || math.Abs(float64(tb.Runs[0].Time)-4e-6) > 1e-18 {
		t.Errorf("%+v", tb.Runs[0])
	}
	if tb.Runs[0].Name == tb.Runs[1].Name || !strings.Contains(tb.Runs[1].Name, "(99, 1, 1)") {
		t.Errorf("%q, %q", tb.Runs[0].Name, tb.Runs[1].Name)
	}
	_, err := tb.Data([]Feature{{Name: "lts__t_sectors.sum"}}, Auto)
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "was not counted for it") || !strings.Contains(err.Error(), "line 9") {
		t.Errorf("%v", err)
	}
}

func TestUnits(t *testing.T) {
	for s, want := range map[string]struct {
		scale float64
		base  string
	}{
		"byte": {1, "byte"}, "Kbyte": {1e3, "byte"}, "Gbyte": {1e9, "byte"}, "ns": {1e-9, "second"}, "nsecond": {1e-9, "second"}, "msecond": {1e-3, "second"},
		"Gbyte/second": {1e9, "byte/second"}, "byte/ns": {1e9, "byte/second"}, "%": {1, "%"}, "": {1, ""}, "Ghz": {1e9, "hz"}, "cycle/nsecond": {1e9, "cycle/second"},
		"register/thread": {1, "register/thread"}, "Kbyte/block": {1e3, "byte/block"},
	} {
		if scale, base := unit(s); math.Abs(scale/want.scale-1) > 1e-12 || base != want.base {
			t.Errorf("%q: %v %q", s, scale, base)
		}
	}
}

// Passes of the same kernels side by side, other kernels below.
func TestMerge(t *testing.T) {
	a := read(t, "app,kernel,power_w,time_s,x,z\nA,k1,100,2,10,7\nA,k2,90,2,20,8\n", Options{})
	b, err := Parse("y.csv", strings.NewReader("app,kernel,time_s,y,z\nA,k1,4,3,7.1\nA,k2,2,4,8\nB,k1,1,5,9\n"), Options{})
	ok(t, err)
	m, err := Merge(a, b)
	ok(t, err)
	if len(m.Runs) != 3 || m.at(0, "y") != 1.5 || m.at(0, "x") != 10 || m.Runs[0].Power != 100 || math.Abs(m.at(0, "z")-7.05) > 1e-12 || !math.IsNaN(m.at(2, "x")) {
		t.Errorf("%+v", m.Runs)
	}
	c, err := Parse("z.csv", strings.NewReader("app,kernel,time_s,x\nA,k1,2,50\n"), Options{})
	ok(t, err)
	if _, err := Merge(a, c); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "z.csv: line 2") || !strings.Contains(err.Error(), "not passes of one run") {
		t.Errorf("%v", err)
	}
	u := read(t, "power_w,x\n10,1\n", Options{})
	v, err := Parse("y.csv", strings.NewReader("power_w,x\n20,2\n"), Options{})
	ok(t, err)
	if m, err := Merge(u, v); err != nil || len(m.Runs) != 2 {
		t.Errorf("%v %v", m, err)
	}
}

func TestPowers(t *testing.T) {
	list, err := ParsePower(strings.NewReader("kernel,power_mw\na,1500\nb,2500\nc,1\n"), "p.csv")
	ok(t, err)
	tb := read(t, "kernel,x\na,1\nb,2\n", Options{})
	ok(t, tb.JoinPower("p.csv", list))
	if tb.Runs[1].Power != 2.5 || !strings.Contains(strings.Join(tb.Notes, ""), "c has a power and no counters") {
		t.Errorf("%+v %v", tb.Runs, tb.Notes)
	}
	tb = read(t, "kernel,x\na,1\nq,2\n", Options{})
	if err := tb.JoinPower("p.csv", list); err == nil || !strings.Contains(err.Error(), `no power for "q"`) {
		t.Errorf("%v", err)
	}
	for text, words := range map[string]string{
		"kernel,power_w\na,1\na,2\n":  "line 3",
		"kernel,power_w\na,-1\n":      "more than 0 W",
		"kernel,power_w\na,hot\n":     `"hot" is no number`,
		"kernel,color\na,1\n":         "call it power_w",
		"kernel,power_w\n":            "rows",
		"kernel,power_w\na,1,2\n":     "3 fields",
		"kernel,power_w\na,\"1,5\"\n": "LC_ALL=C",
	} {
		if _, err := ParsePower(strings.NewReader(text), "p.csv"); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Bad input names its place and what to do.
func TestRefuses(t *testing.T) {
	wide := strings.Replace(ncuWide, `"1,024.50","30"`, `"27.595.520","30"`, 1)
	for _, c := range []struct {
		text  string
		o     Options
		words []string
	}{
		{"", Options{}, []string{"x.csv", "empty"}},
		{"power_w,x\n", Options{}, []string{"no rows"}},
		{"power_w,x,x\n1,2,3\n", Options{}, []string{"line 1", "columns 2 and 3", `"x"`, "rename"}},
		{"power_w,x\n1,2\n3,hot\n", Options{}, []string{"line 3", `"x"`, `"hot" is no number`, "--ignore"}},
		{"power_w,x\n1,NaN\n", Options{}, []string{"line 2", `"x"`, "not finite"}},
		{"power_w,x\n1,\n", Options{}, []string{"line 2", "empty"}},
		{"power_w,x\n1,2,3\n", Options{}, []string{"line 2", "3 fields, the header has 2"}},
		{"power_w,x\n0,2\n", Options{}, []string{"line 2", "more than 0 W"}},
		{"power_w,time_s,x\n5,0,2\n", Options{}, []string{"line 2", "more than 0 s"}},
		{"power_w\n1\n", Options{}, []string{"no column of a counter"}},
		{"power_w,\n1,2\n", Options{}, []string{"column 2 has no name"}},
		{"power_w,x\n1,2\n", Options{App: "suite"}, []string{`no column "suite"`, "--group-column", `"power_w", "x"`}},
		{"power_w,x\n1,2\n", Options{Ignore: []string{"y"}}, []string{`no column "y"`}},
		{"power_w,x\n1,\"2\n", Options{}, []string{"x.csv"}},
		{"kernel,power_w,x\na\x1b[2J,1,2\n", Options{}, []string{"line 2", "printable"}},
		{"power_w,x\n1,\"1,5\"\n", Options{}, []string{"another country", "LC_ALL=C"}},
		{"2\n975,3505\n2,1\nA,B\n1,975,3505,0,0,0\n", Options{}, []string{"line 4", "2 names", "3 utilisations"}},
		{"2\n975,3505\n2,1\nA,B,C\n1,975,3505,0,0\n", Options{}, []string{"line 5", "5 fields", "power, 2 clocks and 3 utilisations"}},
		{"2\n975,3505\n2,1\nA,B,C\n1,975,3505,0,0,x\n", Options{}, []string{"line 5", `"C"`}},
		{wide, Options{}, []string{"line 7", "dram__bytes.sum", "LC_ALL=C"}},
		{strings.Replace(ncuWide, `"1,000","NVIDIA`, `"1.000","NVIDIA`, 1), Options{}, []string{"smsp__inst_executed.sum", "LC_ALL=C"}},
		{ncuWide, Options{By: "magic"}, []string{"magic"}},
		{ncuWide, Options{Form: "magic"}, []string{"no form"}},
	} {
		_, err := Parse("x.csv", strings.NewReader(c.text), c.o)
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %q is not told: %v", c.text, w, err)
			}
		}
	}
}

// shared is a file of public data beside the repository.
func shared(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", "counters", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("public data is not there: %v", err)
	}
	return path
}

func open(t *testing.T, name string) *Table {
	t.Helper()
	f, err := os.Open(shared(t, name))
	ok(t, err)
	defer f.Close()
	tb, err := Parse(name, f, Options{})
	ok(t, err)
	return tb
}

func judge(t *testing.T, tb *Table, alpha float64, by model.FoldBy) *model.Evaluation {
	t.Helper()
	d, err := tb.Data(tb.Usual().Features, Auto)
	ok(t, err)
	folds, err := model.Folds(d, by, 10, 0)
	ok(t, err)
	e, err := model.Evaluate(d, model.Options{Method: model.Ridge, Alpha: alpha}, folds, nil)
	ok(t, err)
	return e
}

func digits4(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 5e-5 {
		t.Errorf("%s: %.4f, want %.4f", what, got, want)
	}
}

// The public micro-benchmarks of a GTX Titan X, to the last printed digit.
func TestTitanX(t *testing.T) {
	tb := open(t, "titanx-micros.csv")
	if len(tb.Runs) != 102 || len(tb.Names()) != 12 {
		t.Fatalf("%d rows, %v", len(tb.Runs), tb.Names())
	}
	for alpha, want := range map[float64][2]float64{1: {178.3779, 5.6534}, 0.1: {174.8676, 5.5297}} {
		e := judge(t, tb, alpha, model.ByRowMod)
		digits4(t, "W²", float64(e.MSE), want[0])
		digits4(t, "%", e.MAPE, want[1])
	}
}

// AccelWattch's Volta kernels: 12.83 %, 658.5 W² with the kernels of
// fastWalshTransform in the order of their names, 18.07 % for the mean of all.
func TestAccelWattch(t *testing.T) {
	tb := open(t, "accelwattch-volta-counters.csv")
	f, err := os.Open(shared(t, "accelwattch-volta-power.csv"))
	ok(t, err)
	defer f.Close()
	list, err := ParsePower(f, "power")
	ok(t, err)
	ok(t, tb.JoinPower("power", list))
	e := judge(t, tb, 10, model.ByOne)
	if math.Abs(float64(e.MSE)-658.5) > 0.05 || math.Abs(e.MAPE-12.83) > 0.005 {
		t.Errorf("%.4f W², %.4f %%", float64(e.MSE), e.MAPE)
	}
	var mean measure.Watt
	for _, r := range tb.Runs {
		mean += r.Power / measure.Watt(len(tb.Runs))
	}
	var p, c []measure.Watt
	for _, r := range tb.Runs {
		p, c = append(p, r.Power), append(c, mean)
	}
	if s := model.NewScore(p, c); math.Abs(s.MAPE-18.07) > 0.005 {
		t.Errorf("the mean: %.4f %%", s.MAPE)
	}
	for _, r := range tb.Runs {
		if r.Name == "fastWalshTransform_k1" && r.Power != 121.5072 {
			t.Errorf("%+v", r)
		}
	}
	if len(tb.Notes) != 1 || !strings.Contains(tb.Notes[0], "pathfinder_k1") {
		t.Errorf("%v", tb.Notes)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{plainText, utilText, ncuWide, ncuLong, "Benchmark,Kernel,Elapsed_Cycles,x\na,b2(int),1,2\na,b1,1,2\n", "power_w,x\n1,2\n"} {
		f.Add(s, "")
	}
	f.Add(ncuWide, "app")
	f.Add(ncuWide, "launch")
	f.Fuzz(func(t *testing.T, text, by string) {
		tb, err := Parse("x.csv", strings.NewReader(text), Options{By: By(by)})
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, r := range tb.Runs {
			if len(r.Values) != len(tb.Columns) || r.Power <= 0 || r.Time <= 0 || r.Launches < 1 {
				t.Fatalf("%+v", r)
			}
		}
		d, err := tb.Data(tb.Usual().Features, Auto)
		if err != nil {
			return
		}
		if len(d.Rows) != len(tb.Runs) {
			t.Fatalf("%d rows of %d", len(d.Rows), len(tb.Runs))
		}
		if m, err := Merge(tb, tb); err == nil && len(m.Runs) < len(tb.Runs) {
			t.Fatalf("%d rows merged to %d", len(tb.Runs), len(m.Runs))
		}
	})
}

func FuzzParsePower(f *testing.F) {
	f.Add("kernel,power_w\na,1500\n")
	f.Add(",mean HW_power,st_dev\nbackprop_k1,219.7978,0.26\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParsePower(strings.NewReader(text), "p")
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Fatalf("%v", err)
		}
		for _, p := range list {
			if !(p.Power > 0) {
				t.Fatalf("%+v", p)
			}
		}
	})
}

func BenchmarkParseNsight(b *testing.B) {
	lines := strings.SplitAfter(ncuWide, "\n")
	text := strings.Join(lines[3:5], "") + strings.Repeat(lines[5], 1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("x", strings.NewReader(text), Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
