package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	wt300face "github.com/wattmark/wattmark/monitor/emulator/wt300"
)

// plugWall puts a WT310 at the wall of the rig's machine, and returns the bench file of both meters.
func (r *rig) plugWall(t *testing.T) (file string) {
	t.Helper()
	face, err := wt300face.New(r.live.Board, wt300face.Config{
		Now: func() time.Duration { return r.live.Since(time.Now()) },
		Wall: func(card measure.Watt, _, _ time.Duration) measure.Watt {
			return (bench.RestOfMachine + card) / bench.Supply
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	port, err := pty.OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = face.Run(t.Context(), port)
	}()
	t.Cleanup(func() { _ = port.Close(); <-ran })
	file = filepath.Join(t.TempDir(), "bench.yaml")
	text := `instruments:
  - {name: card, kind: powersensor3, port: ` + r.link + `}
  - name: wall
    kind: yokogawa-wt300
    port: ` + port.Path() + `
    options: {elements: [{element: 1, name: mains}], volt_range: 300, ampere_range: 5, mode: rms}
rails:
  - {name: mains, role: wall, power: {channel: mains.power}}
`
	for _, rail := range []string{"pcie_3v3", "pcie_12v", "aux_12v_1", "aux_12v_2"} {
		text += "  - {name: " + rail + ", clamp: {current: card/" + rail + ".current, voltage: card/" + rail + ".voltage}}\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A meter at the wall beside the card's: the energy of the whole machine and of its rest hold what the board drew, and
// no figure of the card's has any of it. An emulated meter that gets no processor answers late, and its readings are
// dated by their arrival: of three benches one has to be in time.
func TestTheWholeMachine(t *testing.T) {
	coverage.Long(t)
	var r *rig
	var x report.Report
	var drawn measure.Joule
	for range 3 {
		var misses []string
		r = newMeter(t)
		if x, drawn, misses = r.atTheWall(t); len(misses) == 0 {
			break
		}
		t.Log(misses)
		x = report.Report{}
	}
	if x.Whole == nil {
		t.Fatal("no energy at the wall holds what was drawn")
	}
	r.cardAlone(t, x, drawn)

	out := inside(t, "show", "1", "--db", r.db, "--no-plot").ok(t).out
	if !strings.Contains(out, "Whole machine, at the wall") || !strings.Contains(out, "rest of the machine") {
		t.Errorf("show:\n%s", out)
	}
	inside(t, "trim", "1", "--db", r.db, "--from", "900ms", "--to", "1.05s").ok(t)
	if out := inside(t, "show", "1", "--db", r.db, "--no-plot").ok(t).out; !strings.Contains(out, "too short for the meter at the wall") {
		t.Errorf("a window of an update and a half:\n%s", out)
	}
}

// atTheWall measures with a meter at the wall too, and returns the report, what the card drew, and the energies that do
// not hold.
func (r *rig) atTheWall(t *testing.T) (x report.Report, drawn measure.Joule, misses []string) {
	t.Helper()
	r.monitor = start(t, "monitor", "--bench", r.plugWall(t), "--spool", r.spool, "--listen", freeAddress(t))
	r.address = r.monitor.await(t, `msg="serving the bench".* address=(\S+)`)[1]
	p := r.run("--benchmark", "memory", "--duration", "1500ms")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, &p.out, &p.err)
	}
	object(t, p.out.String(), &x)
	if x.Whole == nil || x.EnergyJ == nil {
		t.Fatalf("no energy at the wall: %q\n%s", x.WallTrouble, &p.out)
	}
	db := r.stored()
	defer db.Close()
	work, err := db.Kernels(t.Context(), 1)
	if err != nil || len(work) == 0 {
		t.Fatal(work, err)
	}
	truth, err := r.live.Energy(work[0].Start, work[len(work)-1].End)
	if err != nil {
		t.Fatal(err)
	}
	length := measure.Joule(work[len(work)-1].End.Sub(work[0].Start).Seconds())
	whole := (length*measure.Joule(bench.RestOfMachine) + truth.Total) / bench.Supply
	for what, c := range map[string]struct {
		got  measure.Estimate
		want measure.Joule
	}{
		"wall": {x.Whole.Wall, whole}, "rest": {x.Whole.Rest, whole - truth.Total},
		"card": {measure.Estimate{Energy: measure.Joule(*x.EnergyJ), U: measure.Joule(*x.EnergyUJ)}, truth.Total},
	} {
		if miss := math.Abs(float64(c.got.Energy - c.want)); !(miss <= float64(c.got.U)) || c.got.U > 0.15*c.want {
			misses = append(misses, fmt.Sprintf("%s: %v ± %v, drawn were %v", what, c.got.Energy, c.got.U, c.want))
		}
	}
	return x, truth.Total, misses
}

// cardAlone checks that totals, exports, comparisons and live watts are those of the card's rails.
func (r *rig) cardAlone(t *testing.T, x report.Report, truth measure.Joule) {
	t.Helper()
	near := func(what string, got, want float64) {
		if !(math.Abs(got-want) <= 0.02*want) {
			t.Errorf("%s: %v, the card's is %v", what, got, want)
		}
	}
	sum := 0.0
	for _, rail := range x.Rails {
		sum += rail.EnergyJ
		if rail.Name == "mains" {
			t.Errorf("the wall is a rail of the card: %+v", x.Rails)
		}
	}
	near("rails", sum, float64(truth))
	near("validate", r.figure(t, "meter_j", "validate", "1", "--db", r.db, "--json"), float64(truth))
	if w := r.figure(t, "total_w", "top", "--json", "--monitor", r.address); w > 60 { // it rests at 22 W, the machine at 113 W
		t.Errorf("live: %v W", w)
	}
	file := filepath.Join(t.TempDir(), "x.csv")
	inside(t, "export", "1", "--db", r.db, "-o", file).ok(t)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") { // of the names of the columns
			if strings.Contains(line, "mains") {
				t.Errorf("export has %s", line)
			}
			break
		}
	}
	db := r.stored()
	defer db.Close()
	task, err := db.Task(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	span, err := db.SpanEnergy(t.Context(), 1, task.Result.From, task.Result.To)
	if err != nil {
		t.Fatal(err)
	}
	near("span", float64(span.Total.Energy), float64(truth))
	if slices.ContainsFunc(task.Setup.Rails, func(r measure.Rail) bool { return r.X == task.Setup.Wall() || r.Y == task.Setup.Wall() }) {
		t.Error("a rail of the card has the wall's channel")
	}
}

// figure is the first number of a name in the JSON that a command prints.
func (r *rig) figure(t *testing.T, name string, args ...string) float64 {
	t.Helper()
	out := inside(t, args...).ok(t).out
	m := regexp.MustCompile(`"` + name + `": ([-+.0-9e]+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no %s in\n%s", name, out)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
