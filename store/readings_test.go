package store

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"wattmark/measure"
)

// read stores so many readings of a method, one a millisecond from the epoch on: the
// time in milliseconds, and every hundredth none.
func read(t *testing.T, d *DB, id TaskID, method string, n int) {
	t.Helper()
	list := make([]Reading, n)
	for i := range list {
		list[i] = Reading{Method: method, At: epoch.Add(time.Duration(i) * time.Millisecond), Value: float64(i)}
		if i%100 == 50 {
			list[i].Value = math.NaN()
		}
	}
	ok(t, d.PutReadings(t.Context(), id, list))
}

func TestTraces(t *testing.T) {
	noRaces(t)
	d, ctx := open(t), t.Context()
	id := begin(t, d, threeRails(evenly)) // device time begins at the epoch
	read(t, d, id, "nvml.instant", 3000)
	read(t, d, id, "nvml.average", 10)
	got := must(d.Traces(ctx, id, []string{"nvml.instant", "none"}, 1.0005, 1.0995, 200))(t)
	if !slices.Equal(got.Methods, []string{"nvml.average", "nvml.instant"}) || !got.Unfitted || len(got.Traces) != 1 {
		t.Fatalf("%+v", got)
	}
	// The reading of 1.000 s still holds at the begin.
	r := got.Traces[0]
	if r.Method != "nvml.instant" || r.Thinned || len(r.At) != 100 || r.At[0] != 1 || r.Value[0] != 1000 || r.Value[99] != 1099 || !math.IsNaN(r.Value[50]) || math.Abs(float64(r.Until-1.1)) > 1e-9 {
		t.Errorf("%+v", r)
	}
	if all := must(d.Traces(ctx, id, nil, 0, 10, 5000))(t); len(all.Traces) != 2 || len(all.Traces[0].At) != 10 || len(all.Traces[1].At) != 3000 {
		t.Errorf("all: %d traces", len(all.Traces))
	}
	// Nothing is read after the last one, and how long it holds is not known.
	if late := must(d.Traces(ctx, id, nil, 5, 6, 10))(t); len(late.Traces) != 2 || late.Traces[1].Value[0] != 2999 || late.Traces[1].Until != late.Traces[1].At[0] {
		t.Errorf("behind: %+v", late)
	}
}

// Of too many readings the extremes of each stretch are left, in order.
func TestTracesAreThinned(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	read(t, d, id, "nvml.instant", 3000)
	r := must(d.Traces(t.Context(), id, nil, -0.0005, 2.9995, 60))(t).Traces[0]
	if !r.Thinned || r.Until != 2.999 || len(r.At) != 60 || !slices.IsSorted(r.At) {
		t.Fatalf("%d readings, thinned %v: %v", len(r.At), r.Thinned, r.At)
	}
	for i := range 30 {
		if r.Value[2*i] != float64(100*i) || r.Value[2*i+1] != float64(100*i+99) {
			t.Errorf("stretch %d: %v to %v", i, r.Value[2*i], r.Value[2*i+1])
		}
	}
}

func TestTracesRefuses(t *testing.T) {
	d, ctx := open(t), t.Context()
	if _, err := d.Traces(ctx, 99, nil, 0, 1, 10); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no task: %v", err)
	}
	bare := must(d.BeginTask(ctx, newTask("x", "y")))(t)
	if _, err := d.Traces(ctx, bare, nil, 0, 1, 10); !errors.Is(err, ErrNoClock) {
		t.Errorf("before the capture began: %v", err)
	}
	for _, bad := range []measure.Seconds{0, measure.Seconds(math.NaN())} {
		if _, err := d.Traces(ctx, bare, nil, 0, bad, 10); err == nil {
			t.Errorf("to %v: taken", bad)
		}
	}
}
