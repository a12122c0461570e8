package api_test

import (
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/client"
	"wattmark/api/internal/testdb"
	"wattmark/measure"
	"wattmark/store"
)

// A task that was recalculated can be read under either calibration.
func TestTwoResults(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	address, stop, err := testdb.Serve(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c, err := client.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	db, err := store.Open(ctx, filepath.Join(dir, "power.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	was, err := db.Task(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	now := was.Setup
	now.Channels = slices.Clone(now.Channels)
	now.Channels[0].Gain *= 2
	now.Records = []measure.CalibrationRecord{{ID: "abcd", Text: "{}"}}
	r := *was.Result
	r.Total.Energy *= 2
	if _, _, err := db.AddResult(ctx, 1, now, &r); err != nil {
		t.Fatal(err)
	}
	first := func(number uint32) (measure.Joule, measure.Ampere) {
		t.Helper()
		d, err := c.TaskResult(ctx, 1, number)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Results) != 2 || d.Results[0].InUse || !d.Results[1].InUse || d.Results[1].Energy != r.Total {
			t.Errorf("%+v", d.Results)
		}
		for item, err := range c.Samples(ctx, 1, client.Range{Limit: 1, Result: number}) {
			if err != nil {
				t.Fatal(err)
			}
			return d.Window.Energy.Energy, item.Batch.Rails[0].Current[0]
		}
		return 0, 0
	}
	e0, i0 := first(0)
	e1, i1 := first(1)
	e2, i2 := first(2)
	if e1 != was.Result.Total.Energy || e2 != r.Total.Energy || e0 != e2 || i2 != 2*i1 || i0 != i2 {
		t.Errorf("in use %v, %v; original %v, %v; recalculated %v, %v", e0, i0, e1, i1, e2, i2)
	}
	if d, err := c.Task(ctx, 1); err != nil || d.Result != 2 || len(d.Setup.Records) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.TaskResult(ctx, 1, 3); status.Code(err) != codes.NotFound {
		t.Errorf("a result that is not there: %v", err)
	}
	for _, err := range c.Samples(ctx, 1, client.Range{Result: 3}) {
		if status.Code(err) != codes.NotFound {
			t.Errorf("samples of a result that is not there: %v", err)
		}
	}
}
