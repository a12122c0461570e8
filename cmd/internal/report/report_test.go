package report

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
)

// The answer ends a report on a terminal, whose first lines have scrolled away; a file has it at its place only.
func TestAnswerComesLast(t *testing.T) {
	r := &Report{ListedReport: ListedReport{
		TaskID: 2, Name: "memory", State: "complete", EnergyJ: new(255.81), EnergyUJ: new(5.21), DurationS: new(1.0),
	}}
	failed := &Report{ListedReport: ListedReport{TaskID: 3, Name: "gemm", State: "incomplete"}}
	tiny := &Report{ListedReport: r.ListedReport, Tiny: &tinyReport{Energy: 0.052, EnergyU: 0.0012}}
	r.Quality, failed.Quality = &quality.Verdict{}, &quality.Verdict{Level: quality.Void}
	for want, r := range map[string]*Report{
		"\nTask 2  memory: 255.8 J ± 5.2 J in 1 s, quality good\n": r,
		"\nTask 3  gemm: incomplete, quality void\n":               failed,
		"\nTask 2  memory: 0.0520 J ± 0.0012 J a launch\n":         tiny,
	} {
		var b strings.Builder
		screen := cli.NewScreen(&b, false, false)
		RenderAnswer(screen, r)
		screen.Terminal = true
		RenderAnswer(screen, r)
		if b.String() != want {
			t.Errorf("%q, want %q", b.String(), want)
		}
	}
}

func TestConditionOnOneLine(t *testing.T) {
	db, err := store.Open(t.Context(), t.TempDir()+"/power.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := gpu.Condition{SM: 1.98e9, Memory: 2.619e9, Temperature: 45}
	hot := gpu.Condition{SM: 1.755e9, Memory: 2.619e9, Temperature: 61, Throttle: 0x24}
	for name, c := range map[string]struct {
		points []gpu.Condition
		want   string
	}{
		"throttled": {
			[]gpu.Condition{before, hot},
			"SM 1.98 GHz → 1.755 GHz, memory 2.619 GHz, 45 °C → 61 °C, throttled by its power cap and heat (software)",
		},
		"undisturbed":  {[]gpu.Condition{before, before}, "SM 1.98 GHz, memory 2.619 GHz, 45 °C, not throttled"},
		"cut off":      {[]gpu.Condition{before}, "SM 1.98 GHz, memory 2.619 GHz, 45 °C"},
		"nothing told": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := db.BeginTask(t.Context(), store.NewTask{Name: "gemm", User: "lab", Launched: at})
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range c.points {
				if err := db.PutReadings(t.Context(), id,
					sensor.ConditionReadings(p, at.Add(time.Duration(i)*time.Second))); err != nil {
					t.Fatal(err)
				}
			}
			r := &Report{ListedReport: ListedReport{TaskID: int64(id)}}
			if err := r.addCondition(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			if (r.Condition == nil) != (c.want == "") {
				t.Fatalf("condition %v, want %q", r.Condition, c.want)
			}
			if r.Condition != nil && r.Condition.String() != c.want {
				t.Errorf("got  %s\nwant %s", r.Condition, c.want)
			}
		})
	}
	if got := measure.Hertz(1.755e9).String(); got != "1.755 GHz" {
		t.Errorf("1.755e9 Hz is written %s", got)
	}
}

// The trace's times in UTC have the U of the host's clock and of the meter's against it.
func TestTimesInUTC(t *testing.T) {
	db, err := store.Open(t.Context(), t.TempDir()+"/power.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	id, err := db.BeginTask(t.Context(), store.NewTask{Name: "gemm", User: "lab", Launched: at})
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{ListedReport: ListedReport{TaskID: int64(id)}, task: &store.Task{
		Result: &measure.Result{From: 1, To: 2}, Clock: &clock.Fit{B: 1, VarA: 9e-6},
	}}
	for _, want := range []float64{0, 2 * math.Hypot(6e-3/math.Sqrt(3), 3e-3)} {
		if err := r.addCondition(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if math.Abs(float64(r.UTCU)-want) > 1e-12 {
			t.Errorf("U is %v s, want %v", r.UTCU, want)
		}
		c := machine.ClockState{Synchronised: true, Offset: time.Millisecond, MaxError: 5 * time.Millisecond}
		for i := range 2 {
			if err := db.PutReadings(t.Context(), id, c.Readings(at.Add(time.Duration(i)*time.Second))); err != nil {
				t.Fatal(err)
			}
		}
	}
	var text strings.Builder
	r.Clock = r.task.Clock
	renderMarkers(&text, r)
	if !strings.Contains(text.String(), "in UTC ± 9.165 ms (k = 2)") {
		t.Error(text.String())
	}
}

// A terminal plot repeats a slow meter's value up to the next, and is blank where samples were lost.
func TestPlotOfLostSamples(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		period measure.Seconds
		counts []int
		want   []float64
	}{
		{"every column", 0.1, []int{1, 2, 1, 1}, []float64{1, 1, 1, 1}},
		{"a slow meter", 3, []int{1, 0, 0, 1, 0, 0}, []float64{1, 1, 1, 1, 1, 1}},
		{"lost", 0.1, []int{0, 5, 0, 5, 0, 0, 5, 0, 0}, []float64{nan, 1, 1, 1, nan, nan, 1, nan, nan}},
		{"lost by a slow meter", 2, []int{1, 0, 1, 0, 0, 0, 0, 0, 1}, []float64{1, 1, 1, nan, nan, nan, nan, nan, 1}},
	} {
		tr := newTrace(0, measure.Seconds(len(c.counts)), []string{"rail"}, len(c.counts))
		for i, n := range c.counts {
			tr.counts[i], tr.total[i], tr.rails[0][i] = n, float64(n), float64(n)
		}
		tr.finish(c.period)
		for _, got := range [][]float64{tr.total, tr.rails[0]} {
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	}
}

// TestMembersOfAGroup lists the names that the meter does not tell apart with their own launches.
func TestMembersOfAGroup(t *testing.T) {
	ctx := t.Context()
	db, err := store.Open(ctx, t.TempDir()+"/power.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	id, err := db.BeginTask(ctx, store.NewTask{Name: "train", User: "lab", Launched: time.Unix(1000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	tables := store.LaunchTables{Devices: []store.LaunchDevice{{Measured: true}, {}}}
	var launches []store.Launch
	var group []string
	for n := range mostMembers + 3 {
		name := fmt.Sprintf("k%02d", n)
		tables.Names, group = append(tables.Names, name), append(group, name)
		for k := range n + 1 { // of 1 ms each; one more on a card that was not measured, one behind the window
			at := time.Unix(1001, int64(k)*2e6).UnixNano()
			launches = append(launches, store.Launch{Name: n, Start: at, End: at + 1e6},
				store.Launch{Name: n, Start: at, End: at + 1e6, Device: 1})
		}
		launches = append(launches, store.Launch{Name: n, Start: 1003e9, End: 1004e9})
	}
	if err := db.PutLaunches(ctx, id, 0, launches); err != nil {
		t.Fatal(err)
	}
	task := store.Task{ID: id, Result: &measure.Result{From: 0, To: 2}, Clock: &clock.Fit{A: 0, B: 1, Origin: 1001}}
	r := &Report{task: &task}
	lines := []store.NameEnergy{{
		Name:     strings.Join(append(group, "(between kernels)"), store.Together),
		Launches: uint64(len(launches)), Fitted: true,
	}}
	r.Kernels = api.NewKernels(&tables, lines, measure.Setup{})
	if err := addMembers(ctx, db, r, &tables, lines); err != nil {
		t.Fatal(err)
	}
	m := r.Kernels.Lines[0].Members
	if len(m) != mostMembers+4 || m[0] != (api.KernelMember{Name: "k14", Launches: 15, Busy: m[0].Busy}) ||
		math.Abs(float64(m[0].Busy-15e-3)) > 1e-9 || m[len(m)-1] != (api.KernelMember{Name: "(between kernels)"}) {
		t.Errorf("%+v", m)
	}
	var text strings.Builder
	RenderKernels(&cli.App{Streams: cli.Streams{Out: &text}}, r)
	for _, want := range []string{"16 together, by time:", "  k14 ", "  k04 ", "  5 more ", "14 ms"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "k03") {
		t.Errorf("k03 is among those left out:\n%s", &text)
	}
}
