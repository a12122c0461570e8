package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// place is a lab of processes: an emulated meter that is off, a monitor, and a
// host that measures the emulated card.
type place struct {
	t                      *testing.T
	dir, bench, socket, db string
	address                string
	records                string
	monitor                *process
}

func newPlace(t *testing.T, kind, bench string) *place {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector cannot see into other processes")
	}
	p := &place{t: t, dir: t.TempDir()}
	p.bench, p.socket, p.db = filepath.Join(p.dir, "bench.yaml"), filepath.Join(p.dir, "gpu"), filepath.Join(p.dir, "power.db")
	p.records = filepath.Join(p.dir, "calibration")
	link := filepath.Join(p.dir, "meter")
	if err := os.WriteFile(p.bench, []byte(fmt.Sprintf(bench, link)), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, "emulate", kind, "--imperfect", "--seed", "5", "--link", link, "--gpu", p.socket).await(t, kind+" on ")
	p.monitor = start(t, "monitor", "--bench", p.bench, "--spool", filepath.Join(p.dir, "spool"), "--listen", "127.0.0.1:0")
	p.address = p.monitor.await(t, `msg="serving the bench".* address=(\S+)`)[1]
	return p
}

// connect puts something on the meter's inputs.
func (p *place) connect(args ...string) {
	p.t.Helper()
	inside(p.t, append([]string{"emulate", "connect", "--gpu", p.socket}, args...)...).ok(p.t)
}

// measure makes a task and returns it, with the true energy. A machine that is
// too busy to play the markers in time makes an incomplete task: that is not what
// is tested here, and the next one is taken.
func (p *place) measure() (r report.Report, truth float64) {
	p.t.Helper()
	for range 5 {
		c := wattmark(p.t, "run", "--gpu", "sim:"+p.socket, "--monitor", p.address, "--db", p.db, "--json", "--warm-up", "50ms", "--no-nvml",
			"--benchmark", "memory", "--duration", "1s", "--name", "gemm")
		if c.code == cli.ExitIncomplete {
			continue
		}
		object(p.t, c.ok(p.t).out, &r)
		return r, p.truth(r.TaskID)
	}
	p.t.Fatal("no complete task in five")
	return r, 0
}

func (p *place) show(id int64, more ...string) (r report.Report) {
	p.t.Helper()
	object(p.t, inside(p.t, append([]string{"show", strconv.FormatInt(id, 10), "--db", p.db, "--json"}, more...)...).ok(p.t).out, &r)
	return r
}

func (p *place) truth(id int64) float64 {
	p.t.Helper()
	var x struct {
		TruthJ  float64            `json:"truth_j"`
		Results []store.ResultInfo `json:"results"`
	}
	object(p.t, inside(p.t, "emulate", "truth", strconv.FormatInt(id, 10), "--db", p.db, "--gpu", p.socket, "--json").ok(p.t).out, &x)
	return x.TruthJ
}

// holds checks that the truth lies within ± U.
func (p *place) holds(what string, r report.Report, truth float64) {
	p.t.Helper()
	off := *r.EnergyJ - truth
	p.t.Logf("%s: %.4f J ± %.4f J, truth %.4f J, off by %.4f %%", what, *r.EnergyJ, *r.EnergyUJ, truth, 100*off/truth)
	if off > *r.EnergyUJ || -off > *r.EnergyUJ {
		p.t.Errorf("%s: the truth, %v J, lies outside of %v J ± %v J", what, truth, *r.EnergyJ, *r.EnergyUJ)
	}
}

// calibrate runs a subcommand through the running monitor. An emulated meter does not drift.
func (p *place) calibrate(args ...string) []string {
	return append([]string{"calibrate", args[0], "--monitor", p.address, "--bench", p.bench, "--by", "ada", "--yes", "--drift", "none"}, args[1:]...)
}

const ps3Bench = "name: lab-a\ninstruments:\n- kind: powersensor3\n  port: %s\n"

// The whole way, as docs/calibration.md tells it: measured with the nominal
// scale, calibrated, measured again, and the first task recalculated.
func TestCalibrationStoryPowerSensor3(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	p := newPlace(t, "powersensor3", ps3Bench)
	before, truth := p.measure()
	p.holds("nominal", before, truth)
	if len(before.Records) != 0 || len(before.Results) != 1 {
		t.Errorf("%+v, %+v", before.Records, before.Results)
	}

	inside(t, p.calibrate("zero", "--for", "300ms")...).fails(t, cli.ExitFailed, "nothing was written", "unplug it")
	p.connect("nothing")
	inside(t, p.calibrate("zero", "--for", "300ms")...).fails(t, cli.ExitFailed, "nothing was written", "voltage", "end of its range")
	rails := []string{"pcie_3v3", "pcie_12v", "aux_12v_1", "aux_12v_2"}
	var currents []string
	for _, r := range rails {
		currents = append(currents, r+".current")
	}
	if left, _ := os.ReadDir(p.records); len(left) > 0 {
		t.Errorf("%d files of refused calibrations", len(left))
	}
	inside(t, p.calibrate("zero", "--for", "1s", "--channel", strings.Join(currents, ","))...).ok(t)
	p.gain(rails)
	p.connect("card")

	after, truth2 := p.measure()
	p.holds("calibrated", after, truth2)
	if *after.EnergyUJ > *before.EnergyUJ/10 {
		t.Errorf("U is %v J, with the nominal scale it was %v J", *after.EnergyUJ, *before.EnergyUJ)
	}
	if len(after.Records) != 2 || after.Records[1].Done != "gain" || after.Records[1].By != "ada" {
		t.Errorf("%+v", after.Records)
	}
	p.recalculated(before, truth, after)
}

// gain holds all channels against a source at two values, the second of which
// is asked for.
func (p *place) gain(rails []string) {
	p.t.Helper()
	args := p.calibrate("gain", "--for", "1s", "--reference", "emulated source", "--valid", "365d", "--temperature", "23")
	level := func(k float64) {
		for _, r := range rails {
			volt, ampere := 6*k, 2.5*k
			if r == "pcie_3v3" {
				volt, ampere = 1.65*k, 0.5*k
			}
			args = append(args, "--channel", r+".current", "--value", fmt.Sprintf("%gA", ampere), "--u", "0.02%",
				"--channel", r+".voltage", "--value", fmt.Sprintf("%gV", volt), "--u", "0.01%")
		}
	}
	apply := func(k float64) {
		p.connect("source", "--rail", "pcie_12v,aux_12v_1,aux_12v_2", "--current", fmt.Sprint(2.5*k), "--voltage", fmt.Sprint(6*k))
		p.connect("source", "--rail", "pcie_3v3", "--current", fmt.Sprint(0.5*k), "--voltage", fmt.Sprint(1.65*k))
	}
	level(1)
	level(2)
	apply(1)
	in, enter, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	defer in.Close()
	defer enter.Close()
	c := startWith(p.t, in, args...)
	c.await(p.t, `Apply 5A to pcie_12v\.current|Apply 1A to pcie_3v3\.current`)
	apply(2)
	if _, err := enter.WriteString("\n"); err != nil {
		p.t.Fatal(err)
	}
	if code := c.wait(p.t); code != 0 {
		p.t.Fatalf("exit code %d\n%s%s", code, &c.out, &c.err)
	}
}

// recalculated brings the first task under the calibration of the second, and
// looks at it from all sides.
func (p *place) recalculated(before report.Report, truth float64, after report.Report) {
	p.t.Helper()
	t, id := p.t, before.TaskID
	task := strconv.FormatInt(id, 10)
	for _, args := range [][]string{{}, {"--latest"}, {"--calibration", p.records}, {"--stored", after.Records[0].ID}, {"--stored", after.CalibrationID}} {
		r := wattmark(t, append([]string{"recalculate", task, "--db", p.db}, args...)...).ok(t)
		if again := slices.Equal(args, []string{"--latest"}); strings.Contains(r.err, "no newer calibration") != again {
			t.Errorf("recalculate %v: %s", args, r.err)
		}
		if now := p.show(id); len(now.Results) != 2 || now.ResultNumber != 2 || now.CalibrationID != after.CalibrationID {
			t.Fatalf("recalculate %v: %+v", args, now.Results)
		}
	}
	now := p.show(id)
	p.holds("recalculated", now, truth)
	if *now.EnergyUJ > *before.EnergyUJ/10 || float64(now.Results[0].Energy) != *before.EnergyJ || float64(now.Results[1].Energy) != *now.EnergyJ {
		t.Errorf("before %v ± %v; %+v", *before.EnergyJ, *before.EnergyUJ, now.Results)
	}
	if first := p.show(id, "--result", "1"); *first.EnergyJ != *before.EnergyJ || len(first.Budget) != len(before.Budget) || len(first.Records) != 0 {
		t.Errorf("the original is %v J, it was %v J", *first.EnergyJ, *before.EnergyJ)
	}
	text := inside(t, "show", task, "--db", p.db, "--no-plot").ok(t).out
	for _, want := range []string{"by ada, record " + after.Records[0].ID, "2, in use", "1, original", "%)"} {
		if !strings.Contains(text, want) {
			t.Errorf("show does not tell %q:\n%s", want, text)
		}
	}
	out := inside(t, "calibrate", "show", "--task", task, "--db", p.db).ok(t).out
	if !strings.Contains(out, "result 1, calibration "+before.CalibrationID) || !strings.Contains(out, "result 2 (in use)") || !strings.Contains(out, "zero of") {
		t.Error(out)
	}
	inside(t, "calibrate", "show", "--bench", p.bench).ok(t)
	inside(t, "calibrate", "show", "--monitor", p.address).ok(t)

	// The view data follows the result in use, and goes back with it.
	mean := func() float64 {
		v, err := strconv.ParseFloat(stockSQL(t, p.db, "SELECT avg(power) FROM data WHERE taskID="+task), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if _, err := os.Stat("/usr/bin/sqlite3"); err == nil {
		if m := mean(); relative(m, *now.MeanW) > 1e-3 {
			t.Errorf("the view's mean is %v W, the result's %v W", m, *now.MeanW)
		}
	}
	inside(t, "recalculate", task, "--db", p.db, "--stored", before.CalibrationID).ok(t)
	if back := p.show(id); *back.EnergyJ != *before.EnergyJ || back.ResultNumber != 1 || len(back.Results) != 2 {
		t.Errorf("back at the original: %v J, it was %v J; %+v", *back.EnergyJ, *before.EnergyJ, back.Results)
	}

	inside(t, "recalculate", task, "--db", p.db, "--stored", "ffffffff").fails(t, cli.ExitNotFound, "no calibration")
	inside(t, "recalculate", task, "--db", p.db, "--calibration", t.TempDir()).fails(t, cli.ExitFailed, "no record in")
	inside(t, "recalculate", task, "99", "--db", p.db).fails(t, cli.ExitNotFound, "no task 99")
	inside(t, "recalculate", task, "--db", p.db, "--latest", "--calibration", "x").fails(t, cli.ExitUsage, "name one")
	inside(t, "show", task, "--result", "7", "--db", p.db).fails(t, cli.ExitNotFound, "no result 7")
}

const pmdBench = `name: lab-b
instruments:
- kind: pmd
  port: %s
rails:
- {name: pcie_12v, role: pcie_12v, clamp: {current: eps1.current, voltage: eps1.voltage}}
- {name: aux_12v_1, clamp: {current: pcie1.current, voltage: pcie1.voltage}}
- {name: aux_12v_2, clamp: {current: pcie2.current, voltage: pcie2.voltage}}
missing: [pcie_3v3]
`

// A PMD-USB's zeros are within its range: all channels at once, then one value.
func TestCalibrationStoryPMD(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	p := newPlace(t, "pmd", pmdBench)
	before, truth := p.measure()
	p.holds("nominal", before, truth)
	p.connect("nothing")
	inside(t, p.calibrate("zero", "--for", "2s")...).ok(t)
	p.connect("source", "--current", "10A", "--voltage", "12V")
	args := p.calibrate("gain", "--for", "2s", "--reference", "emulated source")
	for _, c := range []string{"eps1", "pcie1", "pcie2"} {
		args = append(args, "--channel", c+".current", "--value", "10A", "--u", "2mA", "--channel", c+".voltage", "--value", "12", "--u", "1mV")
	}
	inside(t, args...).ok(t)
	p.connect("card")
	after, truth2 := p.measure()
	p.holds("calibrated", after, truth2)
	if *after.EnergyUJ > *before.EnergyUJ/5 {
		t.Errorf("U is %v J, with the nominal scale it was %v J", *after.EnergyUJ, *before.EnergyUJ)
	}
	p.recalculated(before, truth, after)

	// A certificate takes the place of the gain; its rows that cannot be are named.
	file := filepath.Join(p.dir, "c.csv")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("value,reading,u\n5,5.01,0.005\n10,x,0.005\n15,15.02,0\n")
	inside(t, p.calibrate("import", file, "--channel", "eps1.current")...).fails(t, cli.ExitFailed, "c.csv:3: reading is \"x\"")
	write("value,reading,u\n5,5.01,0.005\n10,10.02,0.005\n")
	inside(t, p.calibrate("import", file)...).fails(t, cli.ExitUsage, "--channel")
	// What is misspelt shows before anything is measured.
	for _, r := range []result{
		inside(t, p.calibrate("zero", "--channel", "eps1.curent")...).fails(t, cli.ExitUsage, `no channel "eps1.curent"`),
		inside(t, p.calibrate("gain", "--channel", "eps1.current", "--value", "5V", "--u", "1mV")...).fails(t, cli.ExitUsage, "where A are wanted"),
	} {
		if strings.Contains(r.err, "Measuring") {
			t.Errorf("it is measured before:\n%s", r.err)
		}
	}
	inside(t, p.calibrate("import", file, "--channel", "eps1.current", "--reference", "DKD 4711")...).ok(t)
	inside(t, p.calibrate("note", "--remark", "arrow towards the card", "--channel", "eps1.current")...).ok(t)
	out := inside(t, "calibrate", "show", "--monitor", p.address).ok(t).out
	for _, want := range []string{"import of eps1.current, by ada, against DKD 4711", "note of eps1.current, by ada: arrow towards the card"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not told:\n%s", want, out)
		}
	}
	if strings.Contains(out, " ,") {
		t.Errorf("an empty serial number:\n%s", out)
	}
	// An edit of the bench file voids the record, and the monitor says so at its start.
	text, err := os.ReadFile(p.bench)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "rails:", "  channels:\n    eps1.current: {gain: 0.0489}\nrails:", 1))
	if err := os.WriteFile(p.bench, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p.monitor.stop(t)
	m := start(t, "monitor", "--bench", p.bench, "--spool", filepath.Join(p.dir, "spool2"), "--listen", "127.0.0.1:0")
	m.await(t, `level=WARN msg=calibration .*is not applied to eps1\.current.*gain 0\.0489`)
}

func TestCalibrateUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"calibrate zero", "where the records are"},
		{"calibrate zero --calibration /tmp/x", "say what to calibrate"},
		{"calibrate gain --bench b.yaml", "name a channel, its known value"},
		{"calibrate gain --bench b.yaml --channel a --channel b --value 1 --value 2 --value 3 --u 1", "2 of --channel for 3 of --value"},
		{"calibrate show", "whose calibration"},
		{"calibrate note --bench b.yaml", "--remark"},
		{"calibrate zro", "did you mean zero"},
		{"recalculate", "recalculate wants TASK"},
		{"recalculate 0", "not a task number"},
		{"emulate connect source --gpu x", "--current and --voltage"},
		{"emulate connect card --gpu x --current 5V", "is in V, where A are wanted"},
	} {
		inside(t, strings.Fields(c.args)...).fails(t, cli.ExitUsage, c.want)
	}
}
