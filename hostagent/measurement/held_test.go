package measurement_test

import (
	"context"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/store"
)

// A capture that is held stays at its monitor, noted with its task; recovery, which releases
// what was left behind, leaves it to who publishes the task.
func TestHeldCapturesAreNotReleased(t *testing.T) { inVirtualTime(t, heldCapturesAreNotReleased) }

func heldCapturesAreNotReleased(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.Monitor = measurement.Held{Monitor: b.client, DB: b.db}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if x := b.task(t, id); x.State != store.Complete || x.Tags[store.TagHeld] != b.client.Address() ||
		b.captures(t) != 1 {
		t.Fatalf("%v, %v, %d captures are kept", x.State, x.Tags, b.captures(t))
	}
	recovered := func() {
		t.Helper()
		dial := func(context.Context, string) (measurement.Monitor, func() error, error) {
			return b.client, func() error { return nil }, nil
		}
		if _, err := measurement.Recover(t.Context(), b.db, dial); err != nil {
			t.Fatal(err)
		}
	}
	recovered()
	if b.captures(t) != 1 {
		t.Error("recovery released it")
	}
	if err := b.db.SetTags(t.Context(), id, nil, []string{store.TagHeld}); err != nil {
		t.Fatal(err)
	}
	recovered()
	if b.captures(t) != 0 {
		t.Error("what nobody holds is kept")
	}
}
