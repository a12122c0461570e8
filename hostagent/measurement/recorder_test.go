package measurement_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure/quality"
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
