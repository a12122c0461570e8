package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
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
	d := open(t)
	id := captured(t, d, "gemm", "ada", "c-1", 1)
	e := []NameEnergy{
		{Class: KernelEnergy, Name: "gemm", Launches: 7, Short: 2, Busy: 0.5, Share: 0.4, Energy: measure.Estimate{Energy: 60, U: 1}},
		{Class: ActiveIdleEnergy, Share: 0.1, Energy: measure.Estimate{Energy: 30, U: 2}},
		{Class: IdleEnergy, Share: 0.5, Energy: measure.Estimate{Energy: 10, U: 3}},
	}
	ok(t, d.PutNameEnergies(t.Context(), id, 1, e[:1]))
	ok(t, d.PutNameEnergies(t.Context(), id, 1, e))
	if diff := cmp.Diff(e, must(d.NameEnergies(t.Context(), id, 1))(t)); diff != "" {
		t.Error(diff)
	}
	if err := d.PutNameEnergies(t.Context(), id, 2, e); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no result: %v", err)
	}
	ok(t, d.Finish(t.Context(), id, Outcome{State: Untrimmed}))
	if got := must(d.NameEnergies(t.Context(), id, 1))(t); got != nil {
		t.Errorf("a result that is gone has %+v", got)
	}
}

func TestMethodsComeBack(t *testing.T) {
	d := open(t)
	id := must(d.BeginTask(t.Context(), newTask("gemm", "lab")))(t)
	nan := math.NaN()
	none := Timing{P50: measure.Seconds(nan), P99: measure.Seconds(nan), Max: measure.Seconds(nan)}
	want := []MethodResult{
		{
			Method: "sma", From: epoch, To: epoch.Add(time.Second), Energy: 300, Mean: 300, Readings: 66,
			Call: Timing{200, 6e-7, 1e-6, 3e-3}, Alone: Timing{150, 0.015, 0.016, 0.02}, Beside: Timing{49, 0.015, 0.018, 0.02},
		},
		{
			Method: "counter", From: epoch, To: epoch.Add(time.Second), Energy: measure.Joule(nan), Mean: measure.Watt(nan),
			Call: none, Alone: none, Beside: none, Note: "the GPU has no energy counter",
		},
	}
	ok(t, d.PutMethods(t.Context(), id, want))
	got := must(d.Methods(t.Context(), id))(t)
	if diff := cmp.Diff(shown(want), shown(got)); diff != "" {
		t.Error(diff)
	}
	// The same method again takes its place, another comes behind.
	want[0].Energy, want[0].Note = 301, "again"
	imported := want[1]
	imported.Method = "nvidia-smi power.draw"
	ok(t, d.PutMethods(t.Context(), id, []MethodResult{imported, want[0]}))
	want = append(want, imported)
	got = must(d.Methods(t.Context(), id))(t)
	if diff := cmp.Diff(shown(want), shown(got)); diff != "" {
		t.Error(diff)
	}
	if err := d.PutMethods(t.Context(), id, []MethodResult{{Method: "\x1b[2J"}}); !errors.Is(err, measure.ErrText) {
		t.Errorf("a name that a terminal would obey: %v", err)
	}
	if err := d.PutMethods(t.Context(), id+1, want); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such task: %v", err)
	}
	if _, err := d.Methods(t.Context(), id+1); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such task: %v", err)
	}
	ok(t, d.DeleteTask(t.Context(), id))
	var left int
	ok(t, d.reader.QueryRow(`SELECT count(*) FROM method_result`).Scan(&left))
	if left != 0 {
		t.Errorf("%d results are left of a task that is gone", left)
	}
}

// shown lets results be compared: NaN is not NaN.
func shown(m []MethodResult) (out []string) {
	for _, x := range m {
		out = append(out, fmt.Sprintf("%+v", x))
	}
	return out
}

// judged makes a task with a meter's mean and what methods said.
func judged(t *testing.T, d *DB, kind string, mean measure.Watt, missing []string, methods ...MethodResult) TaskID {
	t.Helper()
	id := must(d.BeginTask(t.Context(), newTask("gemm", "lab")))(t)
	h := header(threeRails(evenly))
	h.Instrument.Kind, h.Setup.Missing = kind, missing
	ok(t, d.PutHeader(t.Context(), id, h))
	ok(t, d.PutMethods(t.Context(), id, methods))
	if mean > 0 {
		ok(t, d.Finish(t.Context(), id, Outcome{State: Complete, Result: &measure.Result{To: 1, Samples: 1, Mean: mean, Total: measure.Estimate{Energy: measure.Joule(mean), U: 1}}}))
	}
	return id
}

func TestMethodErrors(t *testing.T) {
	d := open(t)
	sma := func(w float64) MethodResult {
		return MethodResult{Method: "sma", From: epoch, To: epoch, Mean: measure.Watt(w), Energy: 1}
	}
	papi := sma(90)
	papi.Method = "papi"
	judged(t, d, "emulated", 100, nil, sma(110), papi)
	partial := judged(t, d, "emulated", 200, []string{"pcie_3v3"}, sma(190))
	judged(t, d, "nvml", 100, nil, sma(100))           // no meter
	judged(t, d, "amdsmi", 100, nil, sma(100))         // nor that
	judged(t, d, "emulated", 0, nil, sma(100))         // no window
	judged(t, d, "emulated", 100, nil)                 // no methods
	judged(t, d, "emulated", 50, nil, sma(math.NaN())) // one that had nothing to say
	at := func(id TaskID, method string, said, truth measure.Watt, partial bool) MethodError {
		return MethodError{Task: id, GPU: "H200", GPUUUID: "GPU-1", Driver: "570.1", Method: method, Said: said, Truth: truth, Partial: partial}
	}
	want := []MethodError{at(partial, "sma", 190, 200, true), at(1, "sma", 110, 100, false), at(1, "papi", 90, 100, false)}
	for limit, n := range map[int]int{10: 3, 2: 3, 1: 1} {
		got, tasks, more, err := d.MethodErrors(t.Context(), limit)
		ok(t, err)
		if diff := cmp.Diff(want[:n], got); diff != "" || more != (limit == 1) || tasks != min(limit, 2) {
			t.Errorf("limit %d: %d tasks, more %v, %s", limit, tasks, more, diff)
		}
	}
}

func TestTaskOfCapture(t *testing.T) {
	d := open(t)
	for _, c := range []string{"c-1", "c-2", "c-1"} {
		n := newTask("gemm", "lab")
		n.CaptureID = c
		must(d.BeginTask(t.Context(), n))(t)
	}
	for capture, want := range map[string]TaskID{"c-1": 3, "c-2": 2, "c-3": 0, "": 0} {
		if got := must(d.TaskOfCapture(t.Context(), capture))(t); got != want {
			t.Errorf("%q: task %d, want %d", capture, got, want)
		}
	}
}
