package store

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

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
