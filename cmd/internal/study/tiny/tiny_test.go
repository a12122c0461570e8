package tiny

import (
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/experiment/tiny"
)

// Times of a plan are written as all others of the program.
func TestPlanText(t *testing.T) {
	for _, c := range []struct {
		plan tiny.Plan
		want string
	}{
		{
			tiny.Plan{Method: tiny.Contrast, Slice: 100 * time.Microsecond, Dither: 50 * time.Microsecond, Slices: 8, Blocks: 3},
			"plan: 3 blocks of 4 phases of 8 slices of 100 µs to 150 µs; 48 launches of 10 µs, 12.73 ms in all",
		},
		{
			tiny.Plan{Method: tiny.Fold, Slice: time.Millisecond, Dither: 100 * time.Microsecond, Launches: 70000, Bins: 10},
			"plan: 70000 launches of 10 µs, 1 ms to 1.1 ms apart, 10 bins, 77.88 s in all",
		},
	} {
		if got := planText(c.plan, 10e-6); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
