package tiny_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/experiment/tiny"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
)

var quietMeter = tiny.Meter{Noise: 1, Reading: 50e-6, Scale: 1e-3}

// More is asked of a plan, and it takes longer.
func TestPlanContrastFollowsTheNeed(t *testing.T) {
	plan := func(e tiny.Expect, m tiny.Meter, u float64) tiny.Plan {
		t.Helper()
		p, err := tiny.PlanContrast(e, m, u)
		if err != nil {
			t.Fatal(err)
		}
		if p.U > u || p.Blocks < 3 || p.Slice < 100*time.Microsecond || p.Dither <= 0 {
			t.Errorf("%v to %v: %+v", e.Length, u, p)
		}
		return p
	}
	e := tiny.Expect{Length: 10e-6, Energy: 2.8e-3}
	easy, hard := plan(e, quietMeter, 0.05), plan(e, quietMeter, 0.01)
	if hard.Takes(e.Length) <= easy.Takes(e.Length) {
		t.Errorf("1 %% takes %v, 5 %% %v", hard.Takes(e.Length), easy.Takes(e.Length))
	}
	noisy := quietMeter
	noisy.Noise = 50
	if n := plan(e, noisy, 0.05); n.Takes(e.Length) <= easy.Takes(e.Length) {
		t.Errorf("fifty times the noise takes %v, not more than %v", n.Takes(e.Length), easy.Takes(e.Length))
	}
	drifting := quietMeter
	drifting.Drift = 5
	if d := plan(e, drifting, 0.02); d.Slices > plan(e, quietMeter, 0.02).Slices {
		t.Errorf("drift made the phases longer: %d slices", d.Slices)
	}
	slow := tiny.Meter{Noise: 0.3, Reading: 0.1, Response: measure.Response{Update: 0.1, Window: 0.025}}
	if p := plan(tiny.Expect{Length: 1e-3, Energy: 0.4}, slow, 0.3); p.Takes(1e-3) < 3*4*2*time.Second {
		t.Errorf("a meter of 100 ms gets %v in all", p.Takes(1e-3))
	}
	// A kernel that pushes nothing out of the caches is not put next to the last one.
	if p := plan(tiny.Expect{Length: 1e-3}, quietMeter, 0.01); p.Slice < time.Millisecond {
		t.Errorf("a kernel of 1 ms has %v of carrier", p.Slice)
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	coarse := quietMeter
	coarse.Scale = 0.05
	_, err := tiny.PlanContrast(tiny.Expect{Length: 10e-6}, coarse, 0.02)
	if !errors.Is(err, tiny.ErrPlan) || !strings.Contains(err.Error(), "calibrate it") {
		t.Errorf("a scale of 5 %%: %v", err)
	}
	noisy := quietMeter
	noisy.Noise = 1e5
	if _, err = tiny.PlanContrast(tiny.Expect{Length: 10e-6}, noisy, 0.02); !errors.Is(err, tiny.ErrPlan) ||
		strings.Contains(err.Error(), "calibrate") {
		t.Errorf("noise of 100 kW: %v", err)
	}
	for _, l := range []measure.Seconds{0, -1, measure.Seconds(math.NaN())} {
		if _, err := tiny.PlanContrast(tiny.Expect{Length: l}, quietMeter, 0.02); !errors.Is(err, tiny.ErrPlan) {
			t.Errorf("a length of %v: %v", l, err)
		}
	}
	nvml := tiny.Meter{Noise: 0.3, Reading: 0.1, Response: measure.Response{Update: 0.1, Window: 0.025}}
	if _, err := tiny.PlanFold(tiny.Expect{Length: 200e-6}, nvml, 0.02, 1e-3, 100); !errors.Is(err, tiny.ErrPlan) ||
		!strings.Contains(err.Error(), "use contrast") {
		t.Errorf("to fold what NVML shows: %v", err)
	}
	if _, err := tiny.PlanRepeat(tiny.Expect{}, quietMeter); !errors.Is(err, tiny.ErrPlan) {
		t.Errorf("to repeat nothing: %v", err)
	}
}

// A probe tells how long a launch takes.
func TestProbe(t *testing.T) {
	b := newBench(t, 1, &sim.Kernel{Cold: []load.Step{{Level: 250, For: 13 * time.Microsecond}}}, meter.Config{})
	got, err := tiny.Probe(t.Context(), b.device, gpu.BenchHalf, gpu.Insert{Name: "k"})
	if err != nil || math.Abs(float64(got.Length)-13e-6) > 1e-9 || got.Gap != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	b = newBench(t, 1, nil, meter.Config{})
	for name, i := range map[string]gpu.Insert{
		"PTX":     {PTX: &gpu.PTXLaunch{}},
		"unknown": {Benchmark: "gemm", Length: 1},
	} {
		if _, err := tiny.Probe(t.Context(), b.device, gpu.BenchHalf, i); !errors.Is(err, sim.ErrKernel) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tiny.Probe(t.Context(), broken{}, gpu.BenchHalf, gpu.Insert{}); err == nil ||
		!strings.Contains(err.Error(), "state its length") {
		t.Errorf("a kernel of no time: %v", err)
	}
}

// broken runs every train in no time.
type broken struct{}

func (broken) RunTrain(_ context.Context, t gpu.Train) (gpu.Ran, error) {
	out := gpu.Ran{}
	for _, p := range t.Phases {
		out.Phases = append(out.Phases, gpu.RanPhase{Inserted: p.Slices})
	}
	return out, nil
}

func TestAnalyseWantsThePlannedTrain(t *testing.T) {
	b := newBench(t, 1, nil, meter.Config{})
	s := b.meter.Setup()
	src := tiny.Source{Setup: &s, Fit: b.fit(), Blocks: b.blocks(b.clock.now)}
	if _, err := tiny.Analyse(tiny.Plan{Method: tiny.Contrast, Blocks: 3}, gpu.Ran{}, src); !errors.Is(err,
		tiny.ErrRan) {
		t.Errorf("nothing ran: %v", err)
	}
}

// What did not run as wanted is said.
func TestMissed(t *testing.T) {
	o := tiny.Outcome{
		Energy: measure.Estimate{Energy: 1, U: 0.05},
		Budget: []measure.Contribution{{Source: "gain x", U: 0.025}},
	}
	if o.Missed(0.1); len(o.Warnings) != 0 {
		t.Errorf("5 %% where 10 %% is wanted: %q", o.Warnings)
	}
	if o.Missed(0.02); len(o.Warnings) != 1 || !strings.Contains(o.Warnings[0], "gain x") {
		t.Errorf("5 %% where 2 %% is wanted: %q", o.Warnings)
	}
}

// A meter whose scale is known to 2.2 % cannot reach 2 %: without a wish it gets a plan
// all the same, with one it gets the flag that makes one.
func TestPlanWithoutWish(t *testing.T) {
	m := tiny.Meter{Reading: 50e-6, Noise: 1, Scale: 0.011}
	e := tiny.Expect{Length: 100e-6, Energy: 0.03}
	p, err := tiny.PlanContrast(e, m, 0)
	if err != nil || p.Blocks == 0 || p.U < 0.022 || p.U > 0.025 {
		t.Errorf("%+v: %v", p, err)
	}
	if _, err := tiny.PlanContrast(e, m, tiny.DefaultU); err == nil || !strings.Contains(err.Error(), "--until-u 0.02") ||
		!strings.Contains(err.Error(), "calibrate it") {
		t.Error(err)
	}
	m.Scale = 0
	if p, err := tiny.PlanContrast(e, m, 0); err != nil || p.U > tiny.DefaultU {
		t.Errorf("%+v: %v", p, err)
	}
}
