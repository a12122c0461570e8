package measurement_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/store"
)

// brief writes the log of kernels of 20 and 30 µs in turn that fill the spans.
func brief(t *testing.T, spans []gpu.Span, uuid [16]byte) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "1")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := launchlog.NewWriter(f, 1, 130001, spans[0].Start.UnixNano())
	w.Device(0, uuid)
	one, _ := w.Name([]byte("one"))
	two, _ := w.Name([]byte("two"))
	for _, s := range spans {
		for at := s.Start.UnixNano(); at+50e3 <= s.End.UnixNano(); at += 50e3 {
			w.Kernel(&launchlog.Kernel{Name: one, Start: at, End: at + 20e3})
			w.Kernel(&launchlog.Kernel{Name: two, Start: at + 20e3, End: at + 50e3})
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

// Kernels shorter than a scan are fitted: the lines come to the window's energy, those of kernels and pauses to the
// board's within U, and no line has a U above what makes it nothing or everything.
func TestShortKernelsAreFitted(t *testing.T) {
	inVirtualTimeWith(t, meter.Config{Seed: 3, Rate: 20e3}, testShortKernels)
}

func testShortKernels(t *testing.T, b *bench) {
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
	card := gpu.Info{UUID: "GPU-07000000-0000-0000-0000-000000000000"}
	if _, err := measurement.StoreLaunches(ctx, b.db, id, brief(t, spans, [16]byte{7}), card); err != nil {
		t.Fatal(err)
	}
	if _, err := measurement.Attribute(ctx, b.db, id); err != nil {
		t.Fatal(err)
	}
	r := b.task(t, id).Result
	lines, err := b.db.NameEnergies(ctx, id, 1)
	if err != nil {
		t.Fatal(err)
	}
	var sum, kernels, truth, u float64
	for _, l := range lines {
		t.Logf("%d %s, fitted %v: %v ± %v J", l.Class, l.Name, l.Fitted, l.Energy.Energy, l.Energy.U)
		sum += float64(l.Energy.Energy)
		if l.Energy.U > max(l.Energy.Energy, r.Total.Energy+r.Total.U-l.Energy.Energy) {
			t.Errorf("%s: U is %v J of a window of %v J", l.Name, l.Energy.U, r.Total.Energy)
		}
		if l.Class != store.IdleEnergy {
			kernels, u = kernels+float64(l.Energy.Energy), u+float64(l.Energy.U)
			if l.Class == store.KernelEnergy && (!l.Fitted || l.Short != l.Launches) {
				t.Errorf("%+v", l)
			}
		}
	}
	e, err := b.live.Energy(spans[0].Start, spans[len(spans)-1].End)
	if err != nil {
		t.Fatal(err)
	}
	truth = float64(e.Total)
	if math.Abs(kernels-truth) > u || math.Abs(sum/float64(r.Total.Energy)-1) > 1e-12 {
		t.Errorf("kernels %v ± %v J, the board drew %v J; all lines %v of %v J", kernels, u, truth, sum, r.Total.Energy)
	}
}
