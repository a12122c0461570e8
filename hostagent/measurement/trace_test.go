package measurement

import (
	"errors"
	"testing"
)

// A measurement that nobody traces pays nothing for the possibility.
func TestUntracedStepsAllocateNothing(t *testing.T) {
	ctx, failed := t.Context(), errors.New("x")
	n := testing.AllocsPerRun(100, func() {
		inside, done := step(ctx, "read capture")
		done(failed)
		if inside != ctx || traceID(ctx) != "" {
			t.Error("a trace out of nowhere")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
