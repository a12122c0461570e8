package store

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

func TestLaunchesComeBackInOrder(t *testing.T) {
	d := open(t)
	id := must(d.BeginTask(t.Context(), newTask("gemm", "lab")))(t)
	rng := rand.New(rand.NewPCG(1, 1))
	var want []Launch
	for i := range 2*launchPage + 17 {
		l := Launch{
			Start: rng.Int64N(2000), Name: i % 7, Device: i % 2, Stream: rng.Uint32(), Correlation: rng.Uint32(), Graph: rng.Uint32(),
			Grid: [3]uint32{rng.Uint32(), 1, 2}, Block: [3]uint32{3, rng.Uint32(), 4},
		}
		l.End = l.Start + rng.Int64N(100)
		want = append(want, l)
	}
	ok(t, d.PutLaunches(t.Context(), id, 0, want[:5000]))
	ok(t, d.PutLaunches(t.Context(), id, 5000, want[5000:]))
	ok(t, d.PutLaunches(t.Context(), id, 5000, want[5000:])) // again
	slices.SortStableFunc(want, func(a, b Launch) int { return int(a.Start - b.Start) })
	var got []Launch
	for l, err := range d.Launches(t.Context(), id) {
		ok(t, err)
		got = append(got, l)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	tables := LaunchTables{
		Processes: []LaunchProcess{{PID: 4711, CUPTI: 130001, Kernels: 3, Reported: 4, Dropped: 5, Whole: true, Trouble: "some"}},
		Names:     []string{"a", "_Z1bv"}, Devices: []LaunchDevice{{0, 1, "GPU-1", true}, {0, 2, "", false}},
	}
	ok(t, d.PutLaunchTables(t.Context(), id, tables))
	if diff := cmp.Diff(tables, must(d.LaunchTables(t.Context(), id))(t)); diff != "" {
		t.Error(diff)
	}
	if err := d.PutLaunchTables(t.Context(), 99, tables); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no task: %v", err)
	}
	ok(t, d.DeleteTask(t.Context(), id))
	for _, table := range []string{"launch", "launch_name", "launch_device", "launch_process"} {
		var n int
		ok(t, d.SQL().QueryRow("SELECT count(*) FROM "+table).Scan(&n))
		if n != 0 {
			t.Errorf("%d rows of a deleted task are left in %s", n, table)
		}
	}
}

// Energies by name belong to a result and go with it.
func TestNameEnergiesBelongToAResult(t *testing.T) {
	path := older(t)
	d := must(Open(t.Context(), path))(t)
	t.Cleanup(func() { ok(t, d.Close()) })
	e := []NameEnergy{
		{Class: KernelEnergy, Name: "gemm", Launches: 7, Short: 2, Busy: 0.5, Share: 0.4, Energy: measure.Estimate{Energy: 60, U: 1}},
		{Class: ActiveIdleEnergy, Share: 0.1, Energy: measure.Estimate{Energy: 30, U: 2}},
		{Class: IdleEnergy, Share: 0.5, Energy: measure.Estimate{Energy: 10, U: 3}},
	}
	ok(t, d.PutNameEnergies(t.Context(), 7, 1, e[:1]))
	ok(t, d.PutNameEnergies(t.Context(), 7, 1, e))
	if diff := cmp.Diff(e, must(d.NameEnergies(t.Context(), 7, 1))(t)); diff != "" {
		t.Error(diff)
	}
	if err := d.PutNameEnergies(t.Context(), 7, 2, e); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no result: %v", err)
	}
	ok(t, d.Finish(t.Context(), 7, Outcome{State: Untrimmed}))
	if got := must(d.NameEnergies(t.Context(), 7, 1))(t); got != nil {
		t.Errorf("a result that is gone has %+v", got)
	}
}
