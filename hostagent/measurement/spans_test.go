package measurement_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/store"
)

// Each of many kernels in one capture has the power that the board drew.
func TestMeansOfManyKernels(t *testing.T) { inVirtualTime(t, meansOfManyKernels) }

func meansOfManyKernels(t *testing.T, b *bench) {
	var spans []gpu.Span
	work := func(ctx context.Context) ([]gpu.Kernel, error) {
		var all []gpu.Kernel
		for n := range 6 {
			kind := []gpu.Benchmark{gpu.BenchMemory, gpu.BenchCompute, gpu.BenchHalf}[n%3]
			k, err := b.device.RunBenchmark(ctx, kind, time.Duration(40+20*n)*time.Millisecond)
			if err != nil {
				return nil, err
			}
			all = append(all, k...)
			spans = append(spans, k[0].Span)
		}
		return all, nil
	}
	id, err := measurement.Measure(t.Context(), b.config(), work)
	if err != nil {
		t.Fatal(err)
	}
	// In any order, and one that nobody measured.
	asked := append(slices.Clone(spans),
		gpu.Span{Start: spans[0].Start.Add(-time.Hour), End: spans[0].Start.Add(-time.Minute)}, gpu.Span{})
	slices.Reverse(asked)
	got, err := measurement.Means(t.Context(), b.db, id, asked)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(got)
	for n, s := range spans {
		e, err := b.live.Energy(s.Start, s.End)
		if err != nil {
			t.Fatal(err)
		}
		truth := float64(e.Total) / s.End.Sub(s.Start).Seconds()
		if off := float64(got[n])/truth - 1; math.IsNaN(off) || math.Abs(off) > 0.005 {
			t.Errorf("kernel %d: %v, truth %.2f W", n, got[n], truth)
		}
	}
	for n := len(spans); n < len(got); n++ {
		if !math.IsNaN(float64(got[n])) {
			t.Errorf("%v of a span without samples", got[n])
		}
	}
}

// Without markers there is no telling when anything was.
func TestMeansNeedTheClock(t *testing.T) { inVirtualTime(t, meansNeedTheClock) }

func meansNeedTheClock(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.Device = silent{b.device}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(20*time.Millisecond))
	if id == 0 {
		t.Fatal(err)
	}
	if _, err := measurement.Means(t.Context(), b.db, id, nil); !errors.Is(err, measurement.ErrNoClock) {
		t.Errorf("got %v", err)
	}
	if _, err := measurement.Means(t.Context(), b.db, 99, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
