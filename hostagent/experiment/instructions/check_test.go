package instructions

import (
	"testing"

	"github.com/wattmark/wattmark/measure"
)

func figure(name string, layout Layout, level int, e, spread measure.Joule, passes int) Estimate {
	return Estimate{
		Instruction: name, Setting: Setting{Layout: layout, Level: level}, Method: SMA,
		Energy: e, Dynamic: e, Spread: spread, DynamicSpread: spread, Passes: passes,
	}
}

// find returns the check of a pair.
func find(t *testing.T, checks []Check, dearer, cheaper string, level int) Check {
	t.Helper()
	for _, c := range checks {
		if c.Dearer.Instruction == dearer && c.Cheaper.Instruction == cheaper && c.Dearer.Level == level {
			return c
		}
	}
	t.Fatalf("no check of %s against %s among %d", dearer, cheaper, len(checks))
	return Check{}
}

func TestChecks(t *testing.T) {
	const dram, l2, l1, shared = "ld.global.cg.u64, from DRAM", "ld.global.cg.u64, hits L2",
		"ld.global.ca.u64, hits L1", "ld.shared.u32"
	table := []Estimate{
		figure("div.s32", OneThread, 3, 60, 1, 3), figure("mul.lo.s32", OneThread, 3, 6, 0.1, 3),
		figure("add.s32", OneThread, 3, 6.1, 0.1, 3),
		figure("add.f32", OneThread, 3, 4, 0, 1), figure("add.f64", OneThread, 3, 3, 0, 1),
		figure("add.f32", OneThread, 0, 4.05, 0, 1),
		figure(dram, WholeGPU, 3, 50, 1, 3), figure(l2, WholeGPU, 3, 60, 1, 3), figure(l1, WholeGPU, 3, 3, 9, 3),
		figure(shared, WholeGPU, 3, 2, 0.1, 3),
	}
	other := figure("div.s32", OneThread, 3, 1, 0.01, 3)
	other.Method = PAPI
	checks := Checks(append(table, other), SMA)
	for _, tc := range []struct {
		dearer, cheaper string
		level           int
		want            Verdict
	}{
		{"div.s32", "mul.lo.s32", 3, Holds},
		{"mul.lo.s32", "add.s32", 3, WithinNoise},
		{"add.f64", "add.f32", 3, Fails},
		{"add.f32", "add.f32", 0, WithinNoise}, // a single pass: 1 % is assumed
		{dram, l2, 3, Fails},
		{l2, l1, 3, Holds},
		{l1, shared, 3, WithinNoise},
	} {
		c := find(t, checks, tc.dearer, tc.cheaper, tc.level)
		if c.Verdict != tc.want {
			t.Errorf("%s > %s: %s, want %s (%+v)", tc.dearer, tc.cheaper, c.Verdict, tc.want, c)
		}
	}
	if len(checks) != 7 || Failed(checks) != 2 {
		t.Errorf("%d checks, %d failed", len(checks), Failed(checks))
	}
	if c := find(t, checks, "div.s32", "mul.lo.s32", 3); c.Dearer.Energy != 60 || c.Cheaper.Energy != 6 || c.U < 1 {
		t.Errorf("got %+v", c)
	}
}

// The fake GPU obeys physics, and its table shows it.
func TestChecksOfAWholeTable(t *testing.T) {
	p := some(t, 2)
	var err error
	if p.Instructions, err = Find("add.s32", "mul.lo.s32", "div.s32"); err != nil {
		t.Fatal(err)
	}
	runs, err := measured(t, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range Methods() {
		checks := Checks(Estimates(runs), m)
		if find(t, checks, "div.s32", "mul.lo.s32", 3).Verdict != Holds {
			t.Errorf("%s: a division costs no more than a multiplication", m)
		}
		if m == Instant && Failed(checks) > 0 {
			t.Errorf("%+v", checks)
		}
	}
}
