package instructions

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// some is a plan of a few instructions, of every kind that is counted in its own way.
func some(t *testing.T, passes int) Plan {
	t.Helper()
	p := DefaultPlan()
	var err error
	if p.Instructions, err = Find("add.s32", "div.s32", "fma.rn.f64", "add.cc.u32*", "mma m16n8k16 f32 += f16*",
		"ld.global.cg.u64, from DRAM"); err != nil {
		t.Fatal(err)
	}
	p.Passes = passes
	p.Settle[OneThread], p.Length[WholeGPU] = p.Settle[WholeGPU], time.Second
	p.Length[OneThread] = time.Second
	return p
}

// measured runs a plan on a fake GPU, in no time.
func measured(t *testing.T, p Plan, prepare func(*fakeMachine, context.CancelFunc)) (runs []Run, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := &fakeMachine{}
		m.draw(0)
		if prepare != nil {
			prepare(m, cancel)
		}
		err = Measure(ctx, m, fakeSensor{m, nil}, p, func(r Run) error {
			runs = append(runs, r)
			return nil
		})
		if m.loaded != 0 {
			t.Errorf("%d programs are still loaded", m.loaded)
		}
	})
	return runs, err
}

// What each method must find of a true energy and a true time. The sensor's
// offset cancels in what is dynamic, and its gain does not.
func TestEstimatesFindTheTruth(t *testing.T) {
	p := some(t, 2)
	runs, err := measured(t, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	table := Estimates(runs)
	if want := len(p.Instructions) * 2 * 2 * len(Methods()); len(table) != want {
		t.Errorf("%d estimates, want %d", len(table), want)
	}
	for _, e := range table {
		i, err := Find(e.Instruction)
		if err != nil {
			t.Fatal(err)
		}
		c := truth(e.Instruction)
		gain, idle, threads := 1.0, float64(fakeIdle), 1.0
		switch e.Method {
		case Counter:
			gain, idle = counterGain, fakeIdle*counterGain
		case MTSM, SMA, PAPI:
			idle += usageOffset
		case Instant:
		}
		if e.Layout == WholeGPU {
			threads = fakeThreads / float64(i[0].Threads)
		}
		dynamic := gain * float64(c.energy)
		energy := dynamic + idle*c.cycles/fakeHertz/threads
		// Turns are whole, times too; a counter's change is known to 5 ms.
		tolerance := 1e-3
		if e.Method == Counter {
			tolerance = 2e-2
		}
		if off(float64(e.Energy), energy) > tolerance {
			t.Errorf("%s %s %s -O%d: energy %v, truth %v", e.Instruction, e.Method, e.Layout, e.Level, e.Energy,
				measure.Joule(energy))
		}
		// One thread's dynamic energy drowns in the whole GPU's.
		if e.Layout == WholeGPU && math.Abs(float64(e.Dynamic)-dynamic) > tolerance*energy {
			t.Errorf("%s %s -O%d: dynamic %v, truth %v", e.Instruction, e.Method, e.Level, e.Dynamic,
				measure.Joule(dynamic))
		}
		if e.Passes != 2 || off(e.Cycles, c.cycles) > 1e-3 {
			t.Errorf("%s: %d passes, %v cycles, want %v", e.Instruction, e.Passes, e.Cycles, c.cycles)
		}
		if e.Checked != (i[0].Next != nil) {
			t.Errorf("%s: checked %v", e.Instruction, e.Checked)
		}
	}
}

func off(got, want float64) float64 { return math.Abs(got-want) / math.Abs(want) }

// A program that does not load is a run with an error, and costs no other row.
func TestProgramThatDoesNotLoad(t *testing.T) {
	runs, err := measured(t, some(t, 1), func(m *fakeMachine, _ context.CancelFunc) {
		m.least = map[string]bool{"div.s32": true}
	})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, r := range runs {
		if r.Error != "" {
			failed++
			if r.Instruction != "div.s32" || !strings.Contains(r.Error, errFake.Error()) || r.Power != nil {
				t.Errorf("got %+v", r)
			}
		}
	}
	// With and without its block, at two levels, in two layouts.
	if failed != 8 {
		t.Errorf("%d runs failed, want 8", failed)
	}
	for _, e := range Estimates(runs) {
		if e.Instruction == "div.s32" {
			t.Fatalf("an energy of what did not run: %+v", e)
		}
	}
}

func TestPlanEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*fakeMachine, context.CancelFunc)
		is      error
		want    []string
	}{
		"wrong result": {
			func(m *fakeMachine, _ context.CancelFunc) { m.lie = "add.s32" }, ErrResult,
			[]string{"add.s32", "-O0", "is right"},
		},
		"levels differ": {
			func(m *fakeMachine, _ context.CancelFunc) { m.lie = "mma m16n8k16 f32 += f16·f16" },
			ErrResult,
			[]string{
				"mma m16n8k16", "at -O3", "at -O0",
			},
		},
		"lost while it is checked": {
			func(m *fakeMachine, _ context.CancelFunc) { m.lost = "div.s32" }, errFake,
			[]string{"div.s32"},
		},
		"lost while it is measured": {func(m *fakeMachine, _ context.CancelFunc) {
			m.on = func(name string, block bool, turns uint64) {
				if turns > 500_000 && name == "add.s32" && block {
					m.lost = name
				}
			}
		}, errFake, []string{"add.s32, -O", "one-thread"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := measured(t, some(t, 1), tc.prepare)
			if !errors.Is(err, tc.is) {
				t.Fatalf("got %v, want %v", err, tc.is)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v: want %q in it", err, w)
				}
			}
		})
	}
}

// What is handed on before a cancellation is whole, and no run is half measured.
func TestCancelledMidway(t *testing.T) {
	n := 0
	runs, err := measured(t, some(t, 3), func(m *fakeMachine, cancel context.CancelFunc) {
		m.on = func(_ string, _ bool, turns uint64) {
			if n++; n == 80 {
				cancel() // the kernel cannot be stopped, and runs on
			}
		}
	})
	if !errors.Is(err, context.Canceled) || len(runs) == 0 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	for _, r := range runs {
		if r.Error == "" && (len(r.Power) != len(Methods()) || r.Time <= 0) {
			t.Errorf("a run that was cut short: %+v", r)
		}
	}
	if runs[0].Instruction != Idle {
		t.Errorf("%s comes first: without the idle GPU nothing can be told", runs[0].Instruction)
	}
	if len(Estimates(runs)) == 0 {
		t.Error("nothing can be told from what was measured")
	}
}

// A sensor that fails ends the plan and is named.
func TestSensorFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeMachine{}
		m.draw(0)
		err := Measure(t.Context(), m, fakeSensor{m, errFake}, some(t, 1), func(Run) error { return nil })
		if !errors.Is(err, errFake) || m.loaded != 0 {
			t.Errorf("%v, %d loaded", err, m.loaded)
		}
	})
}

// The idle GPU of one campaign is not another's.
func TestIdleBelongsToItsCampaign(t *testing.T) {
	p := some(t, 1)
	a, err := measured(t, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	var both []Run
	both = append(both, a...)
	for _, r := range a {
		r.Campaign = r.Campaign.Add(time.Hour)
		powers := map[Method]measure.Watt{}
		for m, w := range r.Power {
			powers[m] = w + 50 // a warmer card: all of it, the idle power as well
		}
		r.Power = powers
		both = append(both, r)
	}
	one, two := Estimates(a), Estimates(both)
	for n, e := range two {
		if e.Passes != 2 {
			t.Fatalf("%d passes", e.Passes)
		}
		if e.Layout == WholeGPU && off(float64(e.Dynamic), float64(one[n].Dynamic)) > 1e-6 {
			t.Errorf("%s: %v, and alone %v", e.Instruction, e.Dynamic, one[n].Dynamic)
		}
		if off(float64(e.Idle), float64(one[n].Idle)+25) > 1e-6 {
			t.Errorf("idle %v, alone %v", e.Idle, one[n].Idle)
		}
	}
	if len(Campaigns(both)) != 2 || len(Cards(both)) != 1 {
		t.Errorf("%v, %v", Campaigns(both), Cards(both))
	}
}
