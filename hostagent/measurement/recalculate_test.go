package measurement_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/store"
)

// The same calibration gives the same result, to the last joule of its budget;
// another one gives its own beside it.
func TestRecalculate(t *testing.T) { inVirtualTime(t, recalculate) }

func recalculate(t *testing.T, b *bench) {
	ctx := t.Context()
	id, err := measurement.Measure(ctx, b.config(), b.memory(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	was := b.task(t, id)

	// The same numbers by another hand: a record makes it a calibration of its own.
	same := was.Setup
	same.Records = []measure.CalibrationRecord{{ID: "abc", Text: "{}"}}
	no, added, err := measurement.Recalculate(ctx, b.db, id, same)
	if no != 2 || !added || err != nil {
		t.Fatal(no, added, err)
	}
	if d := cmp.Diff(was.Result, b.task(t, id).Result, cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Errorf("the same calibration gives another result: %s", d)
	}

	other := was.Setup
	other.Channels = slices.Clone(other.Channels)
	for i := range other.Channels {
		other.Channels[i].UGain = 1e-3
		if other.Channels[i].Unit == measure.UnitAmpere {
			other.Channels[i].Gain *= 1.01
		}
	}
	if _, _, err := measurement.Recalculate(ctx, b.db, id, other); err != nil {
		t.Fatal(err)
	}
	now := b.task(t, id)
	if r := float64(now.Result.Total.Energy / was.Result.Total.Energy); r < 1.0099 || r > 1.0101 ||
		len(now.Results) != 3 || now.ResultNumber != 3 {
		t.Errorf("one percent more current is %v times the energy; %+v", r, now.Results)
	}
	if no, added, err = measurement.Recalculate(ctx, b.db, id, other); no != 3 || added || err != nil {
		t.Errorf("again: %d, %v, %v", no, added, err)
	}

	// A window by hand keeps both calibrations, and which one is in use.
	w := measurement.Window{From: was.Result.From + 0.05, To: was.Result.To - 0.05}
	if err := measurement.Retrim(ctx, b.db, id, w); err != nil {
		t.Fatal(err)
	}
	cut := b.task(t, id)
	if len(cut.Results) != 3 || cut.CalibrationID != now.CalibrationID || cut.Result.From != w.From {
		t.Errorf("%+v", cut.Results)
	}
	first, err := b.db.TaskResult(ctx, id, 1)
	if err != nil || first.CalibrationID != was.CalibrationID || first.Result.From != w.From {
		t.Errorf("%+v, %v", first.Result, err)
	}

	strange := was.Setup
	strange.Channels = slices.Clone(strange.Channels)
	strange.Channels[0].Name = "another"
	if _, _, err := measurement.Recalculate(ctx, b.db, id, strange); !errors.Is(err, calib.ErrMismatch) {
		t.Errorf("other channels: %v", err)
	}
	if _, _, err := measurement.Recalculate(ctx, b.db, 99, other); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a task that is not there: %v", err)
	}
	if err := b.db.Finish(ctx, id, store.Outcome{State: store.Untrimmed}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := measurement.Recalculate(ctx, b.db, id, other); !errors.Is(err, measurement.ErrNoResult) {
		t.Errorf("a task without a window: %v", err)
	}
}
