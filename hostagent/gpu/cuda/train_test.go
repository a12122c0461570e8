package cuda

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
)

// A train is queued slice by slice with the kernel between, and told by its stamps.
func TestRunTrain(t *testing.T) {
	g := newFakeGPU()
	d := openFake(t, g)
	out, err := d.RunTrain(t.Context(), gpu.Train{
		Carrier: gpu.BenchHalf, Slice: 100 * time.Microsecond, Starts: true,
		Insert: gpu.Insert{Benchmark: gpu.BenchCompute, Length: 10 * time.Microsecond},
		Phases: []gpu.TrainPhase{{Slices: 3}, {Slices: 5, Kernel: true}, {Bare: 7}, {Slices: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if half, compute := g.count("launch "+kernels.Half), g.count("launch "+kernels.Compute); half != 9 ||
		compute != 12 {
		t.Errorf("%d slices and %d launches, want 9 and 12", half, compute)
	}
	if len(out.Phases) != 4 {
		t.Fatalf("got %+v", out)
	}
	for i, want := range []struct {
		carrier  time.Duration
		inserted int
		starts   int
	}{{300 * time.Microsecond, 0, 0}, {500 * time.Microsecond, 5, 5}, {0, 7, 0}, {100 * time.Microsecond, 0, 0}} {
		p := out.Phases[i]
		if p.Carrier != want.carrier || p.Inserted != want.inserted || len(p.Starts) != want.starts {
			t.Errorf("phase %d: %+v", i, p)
		}
		if !within(p.Span.Start, time.Now(), time.Minute) {
			t.Errorf("phase %d begins at %v", i, p.Span.Start)
		}
		if i > 0 && !out.Phases[i-1].Span.End.Equal(p.Span.Start) {
			t.Errorf("phase %d does not begin where the one before ends", i)
		}
	}
	if n := len(g.mem); n != 4 {
		t.Errorf("%d buffers are left beside the device's own 4", n-4)
	}
}

func TestRunTrainRefuses(t *testing.T) {
	g := newFakeGPU()
	d := openFake(t, g)
	phases := []gpu.TrainPhase{{Slices: 2, Kernel: true}}
	for name, bad := range map[string]gpu.Train{
		"nothing":  {Carrier: gpu.BenchHalf},
		"no slice": {Carrier: gpu.BenchHalf, Phases: phases},
		"both":     {Carrier: gpu.BenchHalf, Slice: 1, Phases: []gpu.TrainPhase{{Slices: 1, Bare: 1}}},
		"carrier":  {Carrier: "gemm", Slice: 1, Phases: phases},
		"kernel": {
			Carrier: gpu.BenchHalf, Slice: 1, Phases: phases,
			Insert: gpu.Insert{Benchmark: "gemm", Length: 1},
		},
		"no kernel time": {
			Carrier: gpu.BenchHalf, Slice: 1, Phases: phases,
			Insert: gpu.Insert{Benchmark: gpu.BenchHalf},
		},
		"endless": {Carrier: gpu.BenchHalf, Slice: 1, Phases: []gpu.TrainPhase{{Slices: 1 << 30}}},
		"no PTX":  {Carrier: gpu.BenchHalf, Slice: 1, Phases: phases, Insert: gpu.Insert{PTX: &gpu.PTXLaunch{}}},
	} {
		if _, err := d.RunTrain(t.Context(), bad); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	good := gpu.Train{Carrier: gpu.BenchHalf, Slice: time.Millisecond, Phases: []gpu.TrainPhase{{Slices: 2}}}
	if _, err := d.RunTrain(ctx, good); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	g.hang = true // the kernels leave no time stamps
	if _, err := d.RunTrain(t.Context(), good); !errors.Is(err, ErrCUDA) {
		t.Errorf("without time stamps: %v", err)
	}
	if n := len(g.mem); n != 4 {
		t.Errorf("%d buffers are left beside the device's own 4", n-4)
	}
}
