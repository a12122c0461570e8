package cuda

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
	"github.com/wattmark/wattmark/measure/marker"
)

func openFake(t *testing.T, g *fakeGPU) *Device {
	t.Helper()
	d, err := open(t.Context(), g.driver(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("closing twice: %v", err)
		}
		if len(g.mem) != 0 {
			t.Errorf("%d buffers were left on the GPU", len(g.mem))
		}
		if g.count("release") != 1 {
			t.Errorf("the context was released %d times", g.count("release"))
		}
	})
	return d
}

func TestOpenFindsTheGPU(t *testing.T) {
	for _, tc := range []struct{ selector, pci, fail string }{
		{"", "0000:3b:00.0", ""},
		{"1", "0000:65:00.0", ""},
		{"GPU-ab000000-0000-0000-0000-000000000001", "0000:65:00.0", ""},
		{"gpu-AB000000-0000-0000-0000-000000000000", "0000:3b:00.0", ""},
		{"00000000:65:00.0", "0000:65:00.0", ""}, // as NVML writes it
		{"65:00.0", "0000:65:00.0", ""},          // as lspci writes it
		{"2", "", "index 2: the driver sees 2"},
		{"-1", "", "index -1"},
		{"first", "", "want an index"},
		{"GPU-ff", "", "the driver sees GPU-ab0"},
		{"0000:66:00.0", "", "the driver sees 0000:3b:00.0, 0000:65:00.0"},
	} {
		t.Run(tc.selector, func(t *testing.T) {
			g := newFakeGPU()
			d, err := open(t.Context(), g.driver(), tc.selector)
			if tc.fail != "" {
				if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), tc.fail) {
					t.Errorf("got %v, want %q", err, tc.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if i := d.Info(); i.PCIBusID != tc.pci || i.Name != "Fake GPU" || i.Driver != "CUDA 13.0" {
				t.Errorf("got %+v", i)
			}
		})
	}
}

func TestOpenFailsCleanly(t *testing.T) {
	for _, tc := range []struct {
		call string
		r    result
		is   error
		want string
	}{
		{"init", 100, ErrNoDevice, "CUDA_VISIBLE_DEVICES"},
		{"init", 999, ErrCUDA, "cuInit: unknown error (999)"},
		{"retain", 2, ErrCUDA, "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"},
		{"load", 218, ErrCUDA, "CUDA_ERROR_INVALID_PTX (218)"},
		{"load", 218, ErrCUDA, "the driver's compiler says: ptxas line 7; error"},
		{"function", 500, ErrCUDA, "cuModuleGetFunction wm_marker"},
		{"occupancy", 1, ErrCUDA, "cuOccupancy"},
		{"host alloc", 2, ErrCUDA, "cuMemHostAlloc"},
		{"alloc", 2, ErrCUDA, "bytes on the GPU"},
		{"launch", 700, nil, ""},
	} {
		t.Run(tc.call, func(t *testing.T) {
			g := newFakeGPU()
			g.fail[tc.call], g.jitLog = tc.r, "ptxas line 7; error"
			if tc.call == "launch" {
				g.fail["launch "+kernels.Fill] = tc.r
				tc.is, tc.want = ErrCUDA, "CUDA_ERROR_ILLEGAL_ADDRESS"
			}
			d, err := open(t.Context(), g.driver(), "")
			if d != nil || !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if len(g.mem) != 0 {
				t.Errorf("%d buffers were left on the GPU", len(g.mem))
			}
			if g.count("retain") == 1 && g.fail["retain"] == success && g.count("release") != 1 {
				t.Error("the context was not released")
			}
		})
	}
}

// The buffer is a power of two, and takes a quarter of what is free at most.
func TestBufferLeavesRoom(t *testing.T) {
	d := openFake(t, newFakeGPU())
	if d.bufSize != 1<<26 {
		t.Errorf("256 MiB are free: got a buffer of %d bytes", d.bufSize)
	}
}

func TestPlayMarkerMapsTheGPUsClock(t *testing.T) {
	g := newFakeGPU()
	d := openFake(t, g)
	spec := marker.Spec{Code: marker.Barker13, Chip: 2e-3, Guard: 4, TagBits: 4, Tag: 9}
	before := time.Now()
	p, err := d.PlayMarker(t.Context(), spec, marker.Stop)
	if err != nil {
		t.Fatal(err)
	}
	if p.Kind != marker.Stop || len(p.Edges) != spec.Len()+1 {
		t.Fatalf("got %d edges of a %v marker", len(p.Edges), p.Kind)
	}
	for i, e := range p.Edges {
		if e.Chip != i-4 {
			t.Fatalf("edge %d is chip %d", i, e.Chip)
		}
		if i > 0 && !within(e.At, p.Edges[0].At.Add(time.Duration(i)*2*time.Millisecond), time.Microsecond) {
			t.Errorf("edge %d at %v after the first", i, e.At.Sub(p.Edges[0].At))
		}
	}
	if begin := p.Edges[0].At.Add(-lead); begin.Before(before) || begin.After(before.Add(time.Second)) {
		t.Errorf("the GPU's clock was mapped %v off", begin.Sub(before))
	}
	if grid := g.grids[kernels.Marker]; grid != [3]uint32{20, 256, 0} {
		t.Errorf("4 SMs × 5 blocks: got grid %v", grid)
	}
	if p.Span.Start != p.Edges[0].At || p.Span.End != p.Edges[len(p.Edges)-1].At {
		t.Errorf("got span %v", p.Span)
	}
}

func TestPlayMarkerRefusesABadSpec(t *testing.T) {
	d := openFake(t, newFakeGPU())
	if _, err := d.PlayMarker(t.Context(), marker.Spec{}, marker.Start); !errors.Is(err, marker.ErrSpec) {
		t.Errorf("got %v", err)
	}
}

func TestBenchmarks(t *testing.T) {
	g := newFakeGPU()
	d := openFake(t, g)
	for b, entry := range benchmarks {
		k, err := d.RunBenchmark(t.Context(), b, 30*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if len(k) != 1 || k[0].Name != string(b) ||
			!within(k[0].Span.End, k[0].Span.Start.Add(30*time.Millisecond), time.Microsecond) {
			t.Errorf("%s: got %+v", b, k)
		}
		if g.count("launch "+entry) != 1 {
			t.Errorf("%s did not launch %s", b, entry)
		}
	}
	r, err := d.Benchmark(t.Context(), gpu.BenchMemory, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if want := 1000.0 * 256 * 144; r.BytesPerSec != want || r.FlopsPerSec != 0 {
		t.Errorf("rates: got %+v, want %v B/s", r, want)
	}
	if _, err := d.RunBenchmark(t.Context(), "gemm", time.Second); err == nil {
		t.Error("an unknown benchmark was run")
	}
	if _, err := d.RunBenchmark(t.Context(), gpu.BenchHalf, 0); err == nil {
		t.Error("a benchmark of no time was run")
	}
	if err := d.WarmUp(t.Context(), time.Second); err != nil || g.count("launch "+kernels.Marker) != 1 {
		t.Errorf("warm-up: %v, %d marker launches", err, g.count("launch "+kernels.Marker))
	}
}

func TestMix(t *testing.T) {
	g := newFakeGPU()
	d := openFake(t, g)
	r, err := d.RunMix(t.Context(), 40, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	// 1000 batches of 256 threads, each 128 bytes and 40 rounds of 32 multiply-adds.
	if r.Bytes != 1000*256*128 || r.Flops != 1000*256*40*64 || r.Flops/r.Bytes != gpu.MixIntensity(40) {
		t.Errorf("got %+v", r)
	}
	if !within(r.Kernel.Span.End, r.Kernel.Span.Start.Add(2*time.Second), time.Microsecond) ||
		g.count("launch "+kernels.Mix) != 1 {
		t.Errorf("got %+v, %d launches", r.Kernel, g.count("launch "+kernels.Mix))
	}
	if _, err := d.RunMix(t.Context(), 0, time.Second); err == nil {
		t.Error("a mix of no rounds was run")
	}
	if _, err := d.RunMix(t.Context(), 1, 0); err == nil {
		t.Error("a mix of no time was run")
	}
}

func TestCancellationRaisesTheStopWord(t *testing.T) {
	for name, play := range map[string]func(context.Context, *Device) error{
		"marker": func(ctx context.Context, d *Device) error {
			_, err := d.PlayMarker(ctx, marker.Spec{Code: marker.M31, Chip: 1, Guard: 4}, marker.Start)
			return err
		},
		"benchmark": func(ctx context.Context, d *Device) error {
			_, err := d.RunBenchmark(ctx, gpu.BenchCompute, time.Hour)
			return err
		},
		"warm-up": func(ctx context.Context, d *Device) error { return d.WarmUp(ctx, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newFakeGPU()
			d := openFake(t, g)
			g.hang = true
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if err := play(ctx, d); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			// The next kernel finds its stop word cleared.
			g.hang = false
			if _, err := d.RunBenchmark(t.Context(), gpu.BenchHalf, time.Millisecond); err != nil {
				t.Errorf("afterwards: %v", err)
			}
			launches := g.count("launch")
			ctx, cancel = context.WithCancel(t.Context())
			cancel()
			if err := play(ctx, d); !errors.Is(err, context.Canceled) || g.count("launch") != launches {
				t.Errorf("with a dead context: %v, %d launches", err, g.count("launch")-launches)
			}
		})
	}
}

func TestKernelFailureHasItsName(t *testing.T) {
	g := newFakeGPU()
	d := openFake(t, g)
	g.fail["query"] = 700
	_, err := d.RunBenchmark(t.Context(), gpu.BenchHalf, time.Millisecond)
	if !errors.Is(err, ErrCUDA) || !strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS (700)") {
		t.Errorf("got %v", err)
	}
}

const userPTX = ".version 7.0\n.target sm_80\n.visible .entry user(.param .u64 a, .param .u32 b, .param .f32 c) { " +
	"ret; }\n"

func TestRunPTX(t *testing.T) {
	g := newFakeGPU()
	d := openFake(t, g)
	l := gpu.PTXLaunch{
		Source: []byte(userPTX), Grid: [3]uint32{7, 1, 1}, Block: [3]uint32{32, 1, 1}, Shared: 64,
		Buffers: []uint64{16}, Scalars: []uint32{11, 22}, Repeat: 4,
	}
	k, err := d.RunPTX(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if k[0].Name != "user ×4" || g.count("launch user") != 4 || k[0].Span.End.Before(k[0].Span.Start) {
		t.Errorf("got %+v after %d launches", k, g.count("launch user"))
	}
	if g.grids["user"] != [3]uint32{7, 32, 64} {
		t.Errorf("grid, block, shared: got %v", g.grids["user"])
	}
	if d := cmp.Diff([]uint32{11, 22}, g.scalars); d != "" {
		t.Error(d)
	}
	if len(g.mem) != 4 {
		t.Errorf("%d buffers are there, want the device's own four", len(g.mem))
	}
	for name, spoil := range map[string]func(*gpu.PTXLaunch){
		"no grid":      func(l *gpu.PTXLaunch) { l.Grid[2] = 0 },
		"no block":     func(l *gpu.PTXLaunch) { l.Block[0] = 0 },
		"empty buffer": func(l *gpu.PTXLaunch) { l.Buffers = []uint64{0} },
		"parameters":   func(l *gpu.PTXLaunch) { l.Scalars = nil },
		"entry":        func(l *gpu.PTXLaunch) { l.Entry = "other" },
	} {
		bad := l
		bad.Buffers, bad.Scalars = append([]uint64(nil), l.Buffers...), append([]uint32(nil), l.Scalars...)
		spoil(&bad)
		if _, err := d.RunPTX(t.Context(), bad); !errors.Is(err, kernels.ErrPTX) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestSpanFollowsDrift(t *testing.T) {
	const hour = 3_600_000_000_000
	s := span{
		relation{gpu: 1000, host: time.Unix(0, 5000)},
		relation{gpu: 1000 + hour, host: time.Unix(0, 5000+hour+360_000_000)},
	}
	if got := s.host(1000 + hour/2).UnixNano(); got != 5000+hour/2+180_000_000 {
		t.Errorf("half an hour at 100 ppm: got %d", got)
	}
	s.b = relation{gpu: 2000, host: time.Unix(0, 6500)} // a microsecond apart: the rate is noise
	if got := s.host(3000).UnixNano(); got != 7000 {
		t.Errorf("got %d", got)
	}
	if got := s.host(500).UnixNano(); got != 4500 {
		t.Errorf("before the first relation: got %d", got)
	}
}
