package measurement_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/store"
)

// A recording is a task of all that was sampled between start and stop; a bench is recorded once at a time, and free
// afterwards.
func TestRecorder(t *testing.T) { inVirtualTime(t, recorder) }

func recorder(t *testing.T, b *bench) {
	r := measurement.NewRecorder(b.db, func(context.Context, string) (measurement.Monitor, func() error, error) {
		return b.client, func() error { return nil }, nil
	}, "")
	id, err := r.Start(t.Context(), "bench", "idle, door open", "ada")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Start(t.Context(), "bench", "again", "ada"); !errors.Is(err, measurement.ErrRecording) || !r.Recording("bench") {
		t.Errorf("recorded twice: %v", err)
	}
	time.Sleep(2 * time.Second) // of virtual time
	if got, err := r.Stop(t.Context(), "bench"); err != nil || got != id {
		t.Fatalf("task %d, %v; want %d", got, err, id)
	}
	x := b.task(t, id)
	if x.State != store.Complete || x.Name != "idle, door open" || x.User != "ada" || x.Result == nil {
		t.Fatalf("%v %q of %q: %s", x.State, x.Name, x.User, x.Reason)
	}
	if d := float64(x.Result.To - x.Result.From); math.Abs(d-2.1) > 0.3 {
		t.Errorf("%v s of 2 s", d)
	}
	v, _ := x.Verdict()
	amiss := slices.ContainsFunc(v.Reasons, func(r quality.Reason) bool { return r.Cause == quality.NoMarker || r.Cause == quality.NoClock })
	if amiss || x.Reason != "" {
		t.Errorf("markers are missed in a recording that plays none: %v %q", v, x.Reason)
	}
	if _, err := r.Stop(t.Context(), "bench"); !errors.Is(err, measurement.ErrNotRecording) {
		t.Errorf("stopped twice: %v", err)
	}
	if b.captures(t) != 0 {
		t.Error("the monitor keeps the capture")
	}
	// Who closes the host ends what it records, with its outcome.
	if id, err = r.Start(t.Context(), "bench", "closing", "ada"); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if x := b.task(t, id); x.State != store.Complete {
		t.Errorf("%v: %s", x.State, x.Reason)
	}
	if _, err := r.Start(t.Context(), "bench", "late", "ada"); err == nil {
		t.Error("recorded after the close")
	}
}

// A GPU that plays no markers: the clocks are related by when the capture began.
func TestWorkWithoutMarkers(t *testing.T) {
	inVirtualTimeWith(t, meter.Config{Seed: 9, Rate: 4.8e3, Draw: true}, func(t *testing.T, b *bench) {
		cfg := b.config()
		cfg.Device, cfg.Unmarked, cfg.WarmUp = measurement.Onlooker{Name: "AMD Instinct MI300X"}, true, 0
		var begin, end time.Time
		id, err := measurement.Measure(t.Context(), cfg, func(context.Context) ([]gpu.Kernel, error) {
			begin = time.Now()
			_, err := b.live.SetLevel(begin, 250)
			time.Sleep(5 * time.Second)
			end = time.Now()
			_, idle := b.live.SetLevel(end, 60)
			return nil, errors.Join(err, idle)
		})
		if err != nil {
			t.Fatal(err)
		}
		task := b.task(t, id)
		if task.State != store.Complete || task.Clock == nil || task.Result == nil || !strings.Contains(task.Reason, "plays no markers") {
			t.Fatalf("%v: %s: %+v", task.State, task.Reason, task.Clock)
		}
		truth, err := b.live.Energy(begin, end)
		if err != nil {
			t.Fatal(err)
		}
		within(t, "the work", task.Result.Total, truth.Total)
		if again := b.task(t, id); measurement.Recompute(t.Context(), b.db, id) != nil || again.Result.Total != task.Result.Total {
			t.Errorf("computed again: %v", again.Result.Total)
		}
	})
}
