package store

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

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
