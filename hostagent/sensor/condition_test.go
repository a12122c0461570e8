package sensor

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

func TestConditionsComeBack(t *testing.T) {
	nan := math.NaN()
	begin, end := time.Unix(1000, 1).UTC(), time.Unix(1001, 0).UTC()
	before := gpu.Condition{SM: 1.98e9, Memory: 2.619e9, Temperature: 45}
	after := gpu.Condition{SM: 1.755e9, Memory: measure.Hertz(nan), Temperature: 61, Throttle: 0x4 | 0x40}
	var rows []store.Reading
	rows = append(rows, ConditionReadings(after, end)...)
	rows = append(rows, store.Reading{Method: InstantPower, At: begin.Add(time.Millisecond), Value: 300})
	rows = append(rows, ConditionReadings(before, begin)...)
	if len(rows) != 3+1+4 {
		t.Errorf("%d rows", len(rows))
	}
	got := Conditions(rows)
	if len(got) != 2 || got[0] != (ConditionAt{begin, before}) || !got[1].At.Equal(end) {
		t.Fatalf("got %+v", got)
	}
	if c := got[1]; c.SM != after.SM || !math.IsNaN(float64(c.Memory)) || c.Temperature != 61 ||
		c.Throttle != after.Throttle {
		t.Errorf("after: %+v", c)
	}
	if by := got[1].Throttled(); !slices.Equal(by, []string{"its power cap", "heat (hardware)"}) {
		t.Errorf("throttled by %q", by)
	}
	if by := (gpu.Condition{Throttle: 1}).Throttled(); len(by) != 0 {
		t.Errorf("an idle GPU is throttled by %q", by)
	}
	none := gpu.Condition{SM: measure.Hertz(nan), Memory: measure.Hertz(nan), Temperature: nan}
	if rows := ConditionReadings(none, begin); len(rows) != 0 || len(Conditions(nil)) != 0 {
		t.Errorf("a GPU that tells nothing: %+v", rows)
	}
}
