package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/session"
	sensorcmd "github.com/wattmark/wattmark/cmd/internal/study/sensor"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
)

// sharedRecording is a recording beside the repository, which others made.
func sharedRecording(t *testing.T, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "shared", "data"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("recordings are not there: %v", err)
	}
	return path
}

// identified runs sensor identify and returns a field's profile.
func identified(t *testing.T, field string, args ...string) sensorcmd.SensorFieldReport {
	t.Helper()
	var r sensorcmd.SensorReport
	object(t, inside(t, append([]string{"sensor", "identify", "--json", "--field", field}, args...)...).ok(t).out, &r)
	if len(r.Fields) != 1 || r.Fields[0].Field != field {
		t.Fatalf("%+v", r)
	}
	return r.Fields[0]
}

func milliseconds(s measure.Seconds) float64 { return 1e3 * float64(s) }

// TestSensorOfAnH200 holds what is found against what the public study says of
// Hopper, from our own recording.
func TestSensorOfAnH200(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := sharedRecording(t, "h200")
	args := []string{"--readings", filepath.Join(dir, "nvml-power.csv"), "--events", filepath.Join(dir, "kernel-events.csv")}
	average := identified(t, "average", args...)
	if p := milliseconds(average.Period); math.Abs(p-100) > 2 {
		t.Errorf("average: period %v", average.Period)
	}
	if average.Model != sensor.Boxcar || average.Undecided || math.Abs(float64(average.Window)-1) > 0.1 || average.Seen != 1 {
		t.Errorf("average: %s of %v, undecided %v, sees %g", average.Model, average.Window, average.Undecided, average.Seen)
	}
	instant := identified(t, "instant", args...)
	if p := milliseconds(instant.Period); math.Abs(p-100) > 2 {
		t.Errorf("instant: period %v", instant.Period)
	}
	box, lag := instant.Evidence.Boxcar, instant.Evidence.FirstOrder
	if instant.Model != sensor.FirstOrder && !instant.Undecided || milliseconds(box.Constant) < 20 || milliseconds(box.Constant) > 40 || milliseconds(lag.Constant) < 8 || milliseconds(lag.Constant) > 20 {
		t.Errorf("instant: undecided %v, boxcar %v, first order %v", instant.Undecided, box.Constant, lag.Constant)
	}
	if instant.Seen > 0.45 || instant.Calibrated || box.ConstantLow >= box.ConstantHigh || lag.Residual <= 0 {
		t.Errorf("instant: sees %g, calibrated %v, %+v", instant.Seen, instant.Calibrated, box)
	}
	if !slices.ContainsFunc(instant.Notes, func(n string) bool { return strings.Contains(n, "time stamps are those of the calls") }) {
		t.Errorf("nothing is said of time stamps that are not the register's: %q", instant.Notes)
	}
}

// TestSensorByDesignedLoads: what turns of one length leave undecided, loads made
// for the question decide. Our own recording of another H200.
func TestSensorByDesignedLoads(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := filepath.Join("..", "..", "testdata", "h200", "load")
	args := []string{"--readings", filepath.Join(dir, "readings.csv"), "--events", filepath.Join(dir, "events.csv")}
	instant := identified(t, "instant", args...)
	if instant.Undecided || instant.Model != sensor.FirstOrder || math.Abs(milliseconds(instant.Tau)-13) > 1 || math.Abs(milliseconds(instant.Period)-100) > 1 {
		t.Errorf("instant: %s, undecided %v, τ %v, period %v", instant.Model, instant.Undecided, instant.Tau, instant.Period)
	}
	if instant.Seen < 0.2 || instant.Seen > 0.35 {
		t.Errorf("instant sees %g of the time", instant.Seen)
	}
	// The driver's own model is the same.
	d := nvml.ResponseOf(nvml.Hopper, nvml.FieldInstant)
	if d.Window != instant.Window || math.Abs(float64(d.Tau-instant.Tau)) > float64(instant.UTau) || math.Abs(milliseconds(d.Update-instant.Period)) > 0.1 {
		t.Errorf("the driver has %+v, identified is %+v", d, instant)
	}
	if instant.DelayLow > 13.5e-3 || instant.DelayHigh < 15.5e-3 || instant.DelayLow < 0 || instant.DelayHigh > 2*d.Delay {
		t.Errorf("delay %v to %v over the run: want it to go from 12.6 to 16.6 ms", instant.DelayLow, instant.DelayHigh)
	}
	average := identified(t, "average", args...)
	if average.Undecided || average.Model != sensor.Boxcar || math.Abs(float64(average.Window)-1) > 0.05 {
		t.Errorf("average: %s of %v, undecided %v", average.Model, average.Window, average.Undecided)
	}
}

// TestSensorOfWeakRecordings: recordings whose loads hardly tell a window or a time constant, with their U, do not
// contradict the result of designed loads on the same kind of card: 13.2 ms, or 22.4 ms where a window is stated.
func TestSensorOfWeakRecordings(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	names := []string{"memory", "compute", "half", "pulse", "pulse2"}
	for i := 1; i <= 8; i++ {
		names = append(names, fmt.Sprint("markers/", i))
	}
	holds := 0
	for _, name := range names {
		p := identified(t, "instant", "--recording", filepath.Join("..", "..", "testdata", "h200", name))
		z := milliseconds(p.Tau-13.24e-3) / milliseconds(p.UTau)
		if p.Model == sensor.Boxcar {
			z = milliseconds(p.Window-22.41e-3) / milliseconds(p.UWindow)
		}
		t.Logf("%-9s %-11s undecided %-5v τ %v ± %v, window %v ± %v: off by %.2f U", name, p.Model, p.Undecided, p.Tau, p.UTau,
			p.Window, p.UWindow, z)
		if math.Abs(z) <= 1 {
			holds++
		}
		if name == "markers/2" && (!p.Undecided || p.UWindow < 13e-3) {
			t.Errorf("%s: a window of %v ± %v, undecided %v", name, p.Window, p.UWindow, p.Undecided)
		}
	}
	if holds < len(names)-1 {
		t.Errorf("%d of %d hold, want all but one", holds, len(names))
	}
}

// TestSensorsOfRecordings holds what is found against the meter that was recorded
// beside each card.
func TestSensorsOfRecordings(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	for _, c := range []struct {
		run, field       string
		period           float64 // ms
		model            sensor.Model
		constant, within float64 // ms, of the model
		gain             float64
	}{
		{"3090-square", "power.draw.instant", 100, sensor.Boxcar, 100, 3, 0.95},
		{"3090-step", "power.draw.instant", 100, sensor.Boxcar, 100, 10, 0.95},
		{"3090-step", "power.draw.average", 100, sensor.Boxcar, 1050, 60, 0.95},
		{"a100-step", "power.draw.instant", 100, sensor.FirstOrder, 12.5, 4, 0.957},
		{"k40m-step", "power.draw", 15.4, sensor.FirstOrder, 54, 3, 1.02},
	} {
		t.Run(c.run+" "+c.field, func(t *testing.T) {
			p := identified(t, c.field, "--recording", sharedRecording(t, "pmd", c.run), "--utc-offset", "1h")
			if math.Abs(milliseconds(p.Period)-c.period) > 2 {
				t.Errorf("period %v, want %v ms", p.Period, c.period)
			}
			f := p.Evidence.Boxcar
			if c.model == sensor.FirstOrder {
				f = p.Evidence.FirstOrder
			}
			if math.Abs(milliseconds(f.Constant)-c.constant) > c.within || p.Model != c.model && !p.Undecided {
				t.Errorf("%s of %v (%v to %v), preferred %s: want %v ms", f.Model, f.Constant, f.ConstantLow, f.ConstantHigh, p.Model, c.constant)
			}
			if !p.Calibrated || math.Abs(p.Gain-c.gain) > 0.01 || p.UGain <= 0 {
				t.Errorf("gain %.4f ± %.4f, want %v", p.Gain, p.UGain, c.gain)
			}
		})
	}
	// The sensor of the K40m alone: what polled readings lie behind.
	p := identified(t, "power.draw", "--recording", sharedRecording(t, "pmd", "k40m-step"), "--utc-offset", "1h", "--no-meter")
	if p.Model != sensor.FirstOrder || math.Abs(milliseconds(p.Lag)-58) > 3 || math.Abs(milliseconds(p.Tau)-58) > 3 {
		t.Errorf("K40m alone: %s, τ %v, lag %v: want 58 ms", p.Model, p.Tau, p.Lag)
	}
}

// simulated is a GPU on an emulated board, with a sensor that is known.
func simulated(t *testing.T, r sim.Response) (gpu.Device, *sim.Sensor, *board.Live) {
	t.Helper()
	b, err := board.New(board.Config{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	p := board.NewLive(b, time.Now())
	dev, err := sim.Open(sim.Config{Plant: p, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	return dev, sim.NewSensor(p, sim.Wall{}, r), p
}

// A load on a GPU whose sensor is known tells what it is.
func TestSensorLoadFindsASimulatedSensor(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	periods := []time.Duration{3 * time.Second, 530 * time.Millisecond, 230 * time.Millisecond, 130 * time.Millisecond, 87 * time.Millisecond, 53 * time.Millisecond}
	for name, r := range map[string]sim.Response{
		"a Hopper": {},
		"a Volta":  {Update: 20 * time.Millisecond, Instant: 10 * time.Millisecond, Average: 100 * time.Millisecond, Phase: 7 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dev, own, _ := simulated(t, r)
				defer dev.Close()
				s, kernels, err := sensorcmd.ReadDuring(t.Context(), own, 3*time.Millisecond, sensorcmd.WavesWork(dev, gpu.BenchMemory, periods, 3*time.Second, 1))
				if err != nil {
					t.Fatal(err)
				}
				if err := s.LoadedBy(kernels, dev.Info()); err != nil {
					t.Fatal(err)
				}
				want := r
				if want.Update == 0 {
					want = sim.Response{Update: 100 * time.Millisecond, Instant: 25 * time.Millisecond, Average: time.Second}
				}
				for field, window := range map[string]time.Duration{"instant": want.Instant, "average": want.Average} {
					x, err := sensor.Identify(field, s.Polls[field], s.Known, sensor.Options{})
					if err != nil {
						t.Fatal(err)
					}
					p := x.Profile
					if math.Abs(milliseconds(p.Period-measure.SecondsOf(want.Update))) > 0.5 || p.Model != sensor.Boxcar || p.Undecided {
						t.Errorf("%s: period %v, %s, undecided %v", field, p.Period, p.Model, p.Undecided)
					}
					if d := math.Abs(float64(p.Window - measure.SecondsOf(window))); d > float64(p.UWindow) && d > 0.02*window.Seconds() || p.UWindow > p.Window/4 {
						t.Errorf("%s: window %v ± %v, want %v", field, p.Window, p.UWindow, window)
					}
				}
				if p := filepath.Join(t.TempDir(), "x"); (&sensorcmd.SensorLoadFlags{Out: p}).Write(s) != nil {
					t.Error("the files could not be written")
				} else if again, err := sensorcmd.SensorFiles(filepath.Join(p, "readings.csv"), filepath.Join(p, "events.csv"), "", ""); err != nil || len(again.Polls["instant"]) != len(s.Polls["instant"]) || len(again.Phases) != len(s.Phases) {
					t.Errorf("what was written reads back as %+v, %v", again, err)
				}
			})
		})
	}
}

// A plan carried out with the sensor alone tells the energy that the board truly drew.
func TestSensorRunOnASimulatedGPU(t *testing.T) {
	t.Parallel()
	noRaces(t)
	synctest.Test(t, func(t *testing.T) {
		dev, own, live := simulated(t, sim.Response{Update: 100 * time.Millisecond, Instant: 25 * time.Millisecond, Average: time.Second, Gain: 1.02, Offset: -3})
		defer dev.Close()
		p := &sensor.Profile{
			Field: "instant", Model: sensor.Boxcar, Period: 0.1, Window: 0.025, Calibrated: true, Gain: 1.02, UGain: 0.002, Offset: -3, UOffset: 0.3, Noise: 0.5, Seen: 0.25,
		}
		f := sensorcmd.SensorRunFlags{Plan: sensorcmd.SensorPlanFlags{Kernel: 50 * time.Millisecond, U: 0.02, Swing: 1, Mean: 250}}
		x, err := f.Planned(p)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		a := &cli.App{Streams: cli.Streams{Out: &out, Err: &out}, JSON: true}
		s := &sensorcmd.SensorTrials{Plan: x, Once: session.BenchmarkWork(dev, gpu.BenchMemory, f.Plan.Kernel), Seed: 5}
		rep := &sensorcmd.SensorRunReport{GPU: "simulated", Field: "instant", Work: "memory", Plan: x, Profile: p}
		f.Every = 4 * time.Millisecond
		if err := sensorcmd.SensorRunAlone(t.Context(), f, own, s, rep); err != nil {
			t.Fatal(err)
		}
		var joules float64
		n := 0
		for _, segments := range s.Trials {
			for _, g := range segments {
				joules += float64(live.MeanPower(g.Start, g.End)) * g.End.Sub(g.Start).Seconds()
				n += x.PerSegment
			}
		}
		truth := joules / float64(n)
		if d := math.Abs(float64(rep.Result.Energy) - truth); d > float64(rep.Result.U) || float64(rep.Result.U) > 0.03*truth {
			t.Errorf("%v ± %v, the board drew %.3f J", rep.Result.Energy, rep.Result.U, truth)
		}
		if err := a.Print(rep, rep.Render); err != nil {
			t.Fatal(err)
		}
		var back sensorcmd.SensorRunReport
		object(t, out.String(), &back)
	})
}

// Profiles are kept by GPU and field, in versions.
func TestSensorProfilesAreKept(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "power.db")
	readings, events := syntheticFiles(t)
	args := []string{"--readings", readings, "--events", events, "--db", db}
	svg := filepath.Join(t.TempDir(), "sensor.svg")
	inside(t, append([]string{"sensor", "identify", "--save"}, args...)...).fails(t, cli.ExitUsage, "--gpu")
	first := identified(t, "power", append(args, "--save", "--gpu", "GPU-1234", "--gpu-name", "a card", "--svg", svg)...)
	if first.Version != 1 || first.UUID != "GPU-1234" || first.Picture != svg {
		t.Fatalf("%+v", first)
	}
	drawn(t, svg, "boxcar of", "first order of", "register, power", "load: kernel events")
	if second := identified(t, "power", append(args, "--save", "--gpu", "GPU-1234")...); second.Version != 2 {
		t.Errorf("version %d", second.Version)
	}
	var list struct {
		Profiles []sensorcmd.StoredProfile `json:"profiles"`
	}
	object(t, inside(t, "sensor", "list", "--db", db, "--json").ok(t).out, &list)
	if len(list.Profiles) != 2 || list.Profiles[0].Window != first.Window {
		t.Errorf("%+v", list)
	}
	var shown sensorcmd.StoredProfile
	object(t, inside(t, "sensor", "show", "1234", "power", "--db", db, "--version", "1", "--json").ok(t).out, &shown)
	if shown.Version != 1 || shown.GPU != "a card" || shown.Evidence == nil {
		t.Errorf("%+v", shown)
	}
	var planned sensorcmd.SensorPlanReport
	object(t, inside(t, "sensor", "plan", "--db", db, "--gpu", "GPU-12", "--field", "power", "--length", "20ms", "--json").ok(t).out, &planned)
	if planned.Plan.Trials < 4 || planned.Plan.Repetitions < 32 || planned.Plan.U > 0.02 {
		t.Errorf("%+v", planned.Plan)
	}
	for _, words := range [][]string{{"sensor", "list"}, {"sensor", "show", "GPU-1234", "power"}, {"sensor", "plan", "--gpu", "GPU-1234", "--field", "power", "--length", "20ms"}} {
		if out := inside(t, append(words, "--db", db)...).ok(t).out; !strings.Contains(out, "power") || strings.Contains(out, "NaN") {
			t.Errorf("%v:\n%s", words, out)
		}
	}
	inside(t, "sensor", "delete", "GPU-1234", "power", "--db", db).fails(t, cli.ExitUsage, "--all")
	inside(t, "sensor", "delete", "GPU-1234", "power", "--version", "1", "--yes", "--db", db).ok(t)
	inside(t, "sensor", "show", "GPU-1234", "power", "--version", "1", "--db", db).fails(t, cli.ExitNotFound, "version 1")
	inside(t, "sensor", "delete", "GPU-1234", "power", "--all", "--yes", "--db", db).ok(t)
	inside(t, "sensor", "show", "GPU-1234", "power", "--db", db).fails(t, cli.ExitNotFound, "no profile")
}

// syntheticFiles are readings and events of a sensor with a 30 ms window.
func syntheticFiles(t *testing.T) (readings, events string) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		dev, own, _ := simulated(t, sim.Response{Update: 50 * time.Millisecond, Instant: 30 * time.Millisecond, Average: time.Second})
		defer dev.Close()
		periods := []time.Duration{530 * time.Millisecond, 87 * time.Millisecond, 37 * time.Millisecond}
		s, kernels, err := sensorcmd.ReadDuring(t.Context(), own, 3*time.Millisecond, sensorcmd.WavesWork(dev, gpu.BenchMemory, periods, 2*time.Second, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err = s.LoadedBy(kernels, dev.Info()); err == nil {
			s.Polls["power"], s.Fields = s.Polls["instant"], []string{"power"}
			err = (&sensorcmd.SensorLoadFlags{Out: dir}).Write(s)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return filepath.Join(dir, "readings.csv"), filepath.Join(dir, "events.csv")
}

// A stored task is identified against its meter, or its kernels.
func TestSensorOfAStoredTask(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "power.db")
	dir := sharedRecording(t, "pmd", "3090-square")
	inside(t, "replay", "--shift", "-50ms", "--utc-offset", "1h", "--db", db, "--json", dir).ok(t)
	p := identified(t, "power.draw.instant", "--task", "1", "--db", db)
	if !p.Calibrated || p.Model != sensor.Boxcar || math.Abs(milliseconds(p.Window)-100) > 3 {
		t.Errorf("%s of %v, gain %.3f", p.Model, p.Window, p.Gain)
	}
	inside(t, "sensor", "identify", "--task", "9", "--db", db).fails(t, cli.ExitNotFound, "no task 9")
	inside(t, "sensor", "identify", "--task", "1", "--field", "x", "--db", db).fails(t, cli.ExitUsage, "power.draw.average")
}

func TestSensorRefuses(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("events", "time_us,event\n1000,a-begin\n2000,a-end\n")
	for _, c := range []struct {
		readings, events, word string
	}{
		{file("r1", "time,power_w\n1,2\n"), good, "without a unit"},
		{file("r2", "time_s,power_w\n1,x\n"), good, ":2: power_w"},
		{file("r3", "time_s,power_w\n1,2\n0,2\n"), good, "back in time"},
		{file("r4", "time_s,power_w\n1,2\n2,2\n"), good, "changed 0 times"},
		{file("r5", "time_s,power_w\n1,2\n"), file("e1", "time_us,event\n1000,a-begin\n"), "never ended"},
		{file("r6", "time_s,power_w\n1,2\n"), file("e2", "time_us,event\n1000,begin\n"), "NAME-begin"},
		{filepath.Join(dir, "none"), good, "no such file"},
	} {
		inside(t, "sensor", "identify", "--readings", c.readings, "--events", c.events).fails(t, cli.ExitFailed, c.word)
	}
	for _, args := range [][]string{
		{"identify"},
		{"identify", "--readings", "x"},
		{"identify", "--task", "1", "--recording", "x"},
		{"plan", "--length", "1s"},
		{"plan", "--length", "1s", "--period", "100ms"},
		{"run"},
		{"run", "--benchmark", "memory"},
		{"load", "--periods", "1ms"},
		{"show", "x"},
	} {
		inside(t, append([]string{"sensor"}, args...)...).fails(t, cli.ExitUsage, "")
	}
}
