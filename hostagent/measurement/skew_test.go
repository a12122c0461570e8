package measurement_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// aged is a monitor of another version.
type aged struct {
	measurement.Monitor
	bridged string
	err     error
}

func (a aged) GetBench(ctx context.Context) (session.Bench, error) {
	b, err := a.Monitor.GetBench(ctx)
	b.Bridged = a.bridged
	return b, errors.Join(err, a.err)
}

// A difference that is bridged is told in the task, which is complete all the
// same; one that is not leaves no task and a free bench.
func TestVersionSkewIsTold(t *testing.T) { inVirtualTime(t, versionSkewIsTold) }

func versionSkewIsTold(t *testing.T, b *bench) {
	cfg := b.config()
	own := cfg.Monitor
	const note = "the monitor (wattmark 0.0.9, protocol 1.0) is older than this host"
	cfg.Monitor = aged{Monitor: own, bridged: note}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if x := b.task(t, id); x.State != store.Complete || !strings.Contains(x.Reason, note) {
		t.Errorf("state %v, reason %q", x.State, x.Reason)
	}
	cfg.Monitor = aged{Monitor: own, err: monitorclient.ErrVersion}
	if id, err := measurement.Measure(t.Context(), cfg, b.memory(50*time.Millisecond)); id != 0 ||
		!errors.Is(err, monitorclient.ErrVersion) {
		t.Errorf("task %d, %v", id, err)
	}
	b.mustBeFree(t)
}
