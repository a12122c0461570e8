package measurement_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/store"
)

// recorded writes the logs of two processes: one on the GPU that is measured, one
// on another; and a file that is no log.
func recorded(t *testing.T, spans []gpu.Span, uuid [16]byte) (logs []string) {
	t.Helper()
	dir := t.TempDir()
	for pid := range uint32(2) {
		path := filepath.Join(dir, fmt.Sprint(pid))
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := launchlog.NewWriter(f, pid, 130001, spans[0].Start.UnixNano())
		w.Device(pid, [16]byte{uuid[0], uuid[1] + byte(pid)})
		for i, s := range spans {
			n, _ := w.Name(fmt.Appendf(nil, "kernel%d", (i+int(pid))%2))
			w.Kernel(&launchlog.Kernel{Name: n, Start: s.Start.UnixNano(), End: s.End.UnixNano(), Device: pid})
		}
		if pid == 0 {
			err = w.End()
		} else {
			err = w.Flush()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, path)
	}
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("not a log"), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(logs, junk)
}

// Kernels on another GPU have no part in the energy; those on the measured one have
// the board's, under each calibration.
func TestAttribute(t *testing.T) {
	for name, c := range map[string]meter.Config{
		"at once":     {Seed: 3, Rate: 20e3},
		"multiplexed": {Seed: 3, Rate: 20e3, Skew: 3 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) { inVirtualTimeWith(t, c, testAttribute) })
	}
}

func testAttribute(t *testing.T, b *bench) {
	ctx := t.Context()
	var spans []gpu.Span
	id, err := measurement.Measure(ctx, b.config(), func(ctx context.Context) ([]gpu.Kernel, error) {
		begin := time.Now()
		for range 4 {
			k, err := b.memory(30 * time.Millisecond)(ctx)
			if err != nil {
				return nil, err
			}
			spans = append(spans, k[0].Span)
		}
		return []gpu.Kernel{{Name: "program", Span: gpu.Span{Start: begin, End: time.Now()}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := measurement.Attribute(ctx, b.db, id); !errors.Is(err, measurement.ErrNoShares) {
		t.Errorf("a task that was not recorded: %v", err)
	}
	card := gpu.Info{UUID: "GPU-07000000-0000-0000-0000-000000000000"}
	tables, err := measurement.StoreLaunches(ctx, b.db, id, recorded(t, spans, [16]byte{7}), card)
	if err != nil {
		t.Fatal(err)
	}
	if len(tables.Names) != 2 || len(tables.Devices) != 2 || !tables.Devices[0].Measured ||
		tables.Devices[1].Measured ||
		tables.Devices[1].UUID != "GPU-07010000-0000-0000-0000-000000000000" {
		t.Errorf("%+v", tables)
	}
	if p := tables.Processes; len(p) != 3 || !p[0].Whole || p[1].Whole || p[1].Kernels != 4 ||
		!strings.Contains(p[2].Trouble, "not a log") {
		t.Errorf("%+v", p)
	}
	b.shares(t, id, spans)

	other := b.task(t, id).Setup
	for i := range other.Channels {
		other.Channels[i].Gain *= 1.001
	}
	if _, _, err := measurement.Recalculate(ctx, b.db, id, other); err != nil {
		t.Fatal(err)
	}
	b.shares(t, id, nil)
	if err := b.db.Finish(ctx, id, store.Outcome{State: store.Untrimmed}); err != nil {
		t.Fatal(err)
	}
	if _, err := measurement.Attribute(ctx, b.db, id); !errors.Is(err, measurement.ErrNoShares) {
		t.Errorf("a task without a window: %v", err)
	}
}

// shares holds the lines against the result in use, and against the board.
func (b *bench) shares(t *testing.T, id store.TaskID, spans []gpu.Span) {
	t.Helper()
	lines, err := measurement.Attribute(t.Context(), b.db, id)
	if err != nil {
		t.Fatal(err)
	}
	r := b.task(t, id).Result
	var sum float64
	for _, l := range lines {
		sum += float64(l.Energy.Energy)
	}
	if d := math.Abs(sum/float64(r.Total.Energy) - 1); d > 1e-12 {
		t.Errorf("the lines are off by %g of the result", d)
	}
	if len(lines) != 4 || lines[2].Class != store.ActiveIdleEnergy || lines[3].Class != store.IdleEnergy {
		t.Fatalf("%+v", lines)
	}
	task := b.task(t, id)
	tables, err := b.db.LaunchTables(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	times, err := measurement.NameTimes(t.Context(), b.db, &task, &tables)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines[:2] {
		n := times[slices.Index(tables.Names, l.Name)]
		if n.Launches != l.Launches || math.Abs(float64(n.Busy-l.Busy)) > 1e-9 {
			t.Errorf("%s: %+v, its line has %d launches in %v", l.Name, n, l.Launches, l.Busy)
		}
	}
	for i, s := range spans {
		e, err := b.live.Energy(s.Start, s.End)
		if err != nil {
			t.Fatal(err)
		}
		for l := range lines {
			if lines[l].Name == fmt.Sprintf("kernel%d", i%2) {
				lines[l].Energy.Energy -= e.Total
			}
		}
	}
	for _, l := range lines[:2] {
		if left := math.Abs(float64(l.Energy.Energy)); spans != nil && (left > float64(l.Energy.U) || l.Launches != 2) {
			t.Errorf("%s: %d launches, %v J off, U is %v", l.Name, l.Launches, left, l.Energy.U)
		}
	}
}
