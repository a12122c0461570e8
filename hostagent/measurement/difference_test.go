package measurement

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// A line that holds nearly all of the window is as certain as the window less the others: figures of a
// training step on an H200, 4060 ± 269 J in all.
func TestLinesAreBoundedByTheRest(t *testing.T) {
	line := func(e, u measure.Joule) store.NameEnergy {
		return store.NameEnergy{Energy: measure.Estimate{Energy: e, U: u}}
	}
	lines := []store.NameEnergy{line(3048, 2175), line(1011, 128)}
	byDifference(lines, 269)
	if diff := cmp.Diff([]store.NameEnergy{line(3048, 397), line(1011, 128)}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
