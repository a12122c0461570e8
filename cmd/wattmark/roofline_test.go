package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/analysis/roofline"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	rooflinecmd "github.com/wattmark/wattmark/cmd/internal/study/roofline"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// A sweep on the simulated GPU finds what the simulated GPU costs.
func TestRooflineSweep(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	r := newRig(t)
	picture := filepath.Join(t.TempDir(), "roof.svg")
	p := start(t, "roofline", "sweep", "--gpu", "sim:"+r.socket, "--monitor", r.address, "--db", r.db, "--json", "--warm-up", "20ms",
		"--duration", "150ms", "--rounds", "1,16,48,256,1024", "--name", "sweep", "--svg", picture)
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &p.err)
	}
	var got rooflinecmd.RooflineReport
	object(t, p.out.String(), &got)
	want := sim.DefaultRoofline()
	for _, c := range []struct {
		name  string
		f     roofline.Figure
		truth float64
	}{{"a flop", got.Flop, float64(want.Flop)}, {"a byte", got.Byte, float64(want.Byte)}, {"constant power", got.Constant, float64(want.ConstantPower)}} {
		// The card warms: what it draws is not quite what it is told to.
		if off := math.Abs(c.f.Value - c.truth); c.f.U == 0 || off > 2*c.f.U || off > 0.25*c.truth {
			t.Errorf("%s: %v, truth %v", c.name, c.f.Value, c.truth)
		}
	}
	if math.Abs(got.Flops/want.Flops-1) > 1e-3 || math.Abs(got.TimeBalance-20) > 0.02 || math.Abs(got.EnergyBalance.Value-12.5) > 2 || got.DoF != 2 || len(got.Points) != 5 {
		t.Errorf("got %+v", got)
	}
	wellFormed(t, picture)
	// The tasks kept their work: fitted again by number, they give the same.
	var again rooflinecmd.RooflineReport
	object(t, inside(t, "roofline", "1,2,3,4,5", "--json", "--db", r.db).ok(t).out, &again)
	if again.Flop.Value != got.Flop.Value || again.EnergyBalance.Value != got.EnergyBalance.Value {
		t.Errorf("fitted again: %+v", again)
	}
}

// wellFormed reads an SVG to its end.
func wellFormed(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// roofTasks makes tasks of a device of 6 pJ/flop, 90 pJ/byte and 60 W.
func roofTasks(t *testing.T, path string, gpu string) (work []string) {
	t.Helper()
	var list []made
	for i, intensity := range []float64{0.5, 4, 16, 64, 512} {
		flops := math.Min(20e12, 1e12*intensity)
		w, q := 2*flops, 2*flops/intensity
		list = append(list, made{name: "mine", gpu: gpu, serial: "7", at: time.Duration(i) * time.Minute, energy: w*6e-12 + q*90e-12 + 120, length: 2, gain: 0.02, noise: 0.001})
		work = append(work, fmt.Sprintf("%d:flop=%g,byte=%g", i+1, w, q))
	}
	makeTasks(t, path, list...)
	return work
}

// A task whose clocks its power cap held down is shown, and not fitted.
func TestRooflineOfAThrottledTask(t *testing.T) {
	t.Parallel()
	noRaces(t)
	path := filepath.Join(t.TempDir(), "power.db")
	args := []string{"roofline", "mine", "--db", path}
	for _, w := range roofTasks(t, path, "GPU-1") {
		args = append(args, "--work", w)
	}
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	before := gpu.Condition{SM: 1.98e9, Memory: 3.2e9, Temperature: 45}
	after := gpu.Condition{SM: 1.53e9, Memory: 3.2e9, Temperature: 58, Throttle: 4}
	readings := append(sensor.ConditionReadings(before, noon), sensor.ConditionReadings(after, noon.Add(time.Second))...)
	if err := errors.Join(db.PutReadings(t.Context(), 3, readings), db.Close()); err != nil {
		t.Fatal(err)
	}
	var r rooflinecmd.RooflineReport
	object(t, inside(t, append(args, "--json")...).ok(t).out, &r)
	for i, p := range r.Points {
		if p.Fitted != (i != 2) || p.Throttled != (i == 2) {
			t.Errorf("task %d: fitted %v, throttled %v", p.TaskID, p.Fitted, p.Throttled)
		}
	}
	text := inside(t, args...).ok(t).out
	for _, w := range []string{"throttled, not fitted", "1 of 5 points were throttled"} {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not said:\n%s", w, text)
		}
	}
	// One that is only shown, too.
	object(t, inside(t, append(args, "--point", "3:flop=3e13,byte=1e12", "--json")...).ok(t).out, &r)
	if p := r.Points[len(r.Points)-1]; p.TaskID != 3 || !p.Throttled || p.Fitted {
		t.Errorf("shown is %+v", p)
	}
}

func TestRooflineOfTasks(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "power.db")
	args := []string{"roofline", "mine", "--db", db}
	for _, w := range roofTasks(t, db, "GPU-1") {
		args = append(args, "--work", w)
	}
	makeTasks(t, db, made{name: "yours", gpu: "GPU-2", serial: "7", at: time.Hour, energy: 500, length: 3})
	var r rooflinecmd.RooflineReport
	object(t, inside(t, append(args, "--point", "6:flop=3e13,byte=1e12", "--json")...).ok(t).out, &r)
	if math.Abs(r.Flop.Value/6e-12-1) > 1e-6 || math.Abs(r.Byte.Value/90e-12-1) > 1e-6 || math.Abs(r.Constant.Value/60-1) > 1e-6 {
		t.Errorf("got %+v", r)
	}
	// The points fit exactly: what is left is the meter's gain of 2 %.
	if u := r.Flop.U / r.Flop.Value; math.Abs(u-0.0392) > 1e-4 {
		t.Errorf("U of a flop: %v", u)
	}
	if p := r.Points[5]; p.Fitted || p.Intensity != 30 || math.Abs(float64(p.Roof)-0.5) > 1e-8 || math.Abs(float64(p.Residual)-(500/(180+90+180.0)-1)) > 1e-8 {
		t.Errorf("the other point: %+v", p)
	}
	if said := strings.Join(r.Cautions, " "); !strings.Contains(said, "another GPU") {
		t.Errorf("cautions %q", r.Cautions)
	}
	text := inside(t, args...).ok(t).out
	for _, want := range []string{"a flop                 6.00 ± 0.24 pJ", "balance in time        20 flop/byte", "E balance in energy, ", "flop/J, % of the best"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := inside(t, append(args, "--no-plot")...).ok(t).out; strings.Contains(text, "┤") {
		t.Error("a plot that was not wanted")
	}
}

func TestRooflineRefuses(t *testing.T) {
	t.Parallel()
	noRaces(t)
	db := filepath.Join(t.TempDir(), "power.db")
	work := roofTasks(t, db, "GPU-1")
	makeTasks(t, db, made{name: "other", gpu: "GPU-2", energy: 1, length: 1})
	d, err := store.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, w, err := roofline.ParseTaskWork(work[i])
		if err == nil {
			err = rooflinecmd.KeepWork(t.Context(), d, store.TaskID(i+1), w)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{cli.ExitUsage, []string{"1", "2"}, "three or more"},
		{cli.ExitUsage, []string{"1", "2", "3"}, "nobody kept how many flop and bytes task 3 did"},
		{cli.ExitUsage, []string{"1", "2", "6"}, "several GPUs"},
		{cli.ExitUsage, []string{"1", "--work", "1:flop"}, "3:flop=4.4e12,byte=1e11"},
		{cli.ExitUsage, []string{"1", "--work", "1:watt=3"}, "3:flop=4.4e12,byte=1e11"},
		{cli.ExitUsage, []string{"1", "--work", "1:flop=-3"}, "3:flop=4.4e12,byte=1e11"},
		{cli.ExitUsage, []string{"1", "--work", "flop=3"}, "3:flop=4.4e12,byte=1e11"},
		{cli.ExitNotFound, []string{"9"}, "no task 9"},
		{cli.ExitUsage, []string{"sweep", "--rounds", "1,2,2"}, "three different numbers"},
		{cli.ExitUsage, []string{"sweep", "--rounds", "0,1,2,3"}, "--rounds 0"},
		{cli.ExitUsage, []string{"sweep", "--duration", "0s"}, "must be positive"},
	} {
		inside(t, append(append([]string{"roofline"}, c.args...), "--db", db)...).fails(t, c.code, c.want)
	}
}
