package store

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

func TestTinyIsKept(t *testing.T) {
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	if got, err := d.Tiny(t.Context(), id); got != nil || err != nil {
		t.Fatalf("before it was put: %+v, %v", got, err)
	}
	want := Tiny{
		Method: "fold", Kernel: "vadd", Launches: 4000, Energy: measure.Estimate{Energy: 2.8e-3, U: 1e-5},
		Budget: []measure.Contribution{{Source: "gain x", U: 4e-6, Systematic: true}, {Source: "scatter", U: 3e-6}},
		Length: 1e-5, Gap: 1e-6, Carrier: 190, DOF: 8, Residual: 1e-3,
		Above:   measure.Estimate{Energy: 1e-3, U: 1e-5},
		Profile: []TinyBin{{-1e-5, 190, 0.1, 31}, {1e-5, 250, 0.2, 29}},
		Plan:    json.RawMessage(`{"Blocks":3}`), Warnings: []string{"warm"},
	}
	ok(t, d.PutTiny(t.Context(), id, want))
	same := func() {
		t.Helper()
		got := must(d.Tiny(t.Context(), id))(t)
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Error(diff)
		}
	}
	same()
	// Once more replaces all of it.
	want.Method, want.Profile, want.Budget, want.Warnings = "contrast", nil, want.Budget[:1], nil
	ok(t, d.PutTiny(t.Context(), id, want))
	want.Warnings = []string{}
	same()
	want.Carrier = measure.Watt(math.NaN()) // there was none
	ok(t, d.PutTiny(t.Context(), id, want))
	if got := must(d.Tiny(t.Context(), id))(t); !math.IsNaN(float64(got.Carrier)) {
		t.Errorf("a carrier of %v", got.Carrier)
	}
	if err := d.PutTiny(t.Context(), 99, want); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no task: %v", err)
	}
	if err := d.PutTiny(t.Context(), id, Tiny{Plan: json.RawMessage("{")}); err == nil {
		t.Error("a plan that is no JSON was stored")
	}
	// It goes with its task.
	ok(t, d.DeleteTask(t.Context(), id))
	var rows int
	ok(t, d.SQL().QueryRow(`SELECT (SELECT count(*) FROM tiny)+(SELECT count(*) FROM tiny_budget)+(SELECT count(*) FROM tiny_profile)`).Scan(&rows))
	if rows != 0 {
		t.Errorf("%d rows are left of a task that was deleted", rows)
	}
}
