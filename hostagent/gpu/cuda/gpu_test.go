package cuda_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/measure/marker"
)

// These tests run on a real GPU. To carry them to one:
//
//	CGO_ENABLED=0 go test -c -o cuda.test ./hostagent/gpu/cuda && ./cuda.test -test.v -test.run GPU

func openGPU(t *testing.T) *cuda.Device {
	t.Helper()
	d := cuda.Find("", gpu.Info{})
	err := d.Open(t.Context())
	if errors.Is(err, cuda.ErrNoDriver) || errors.Is(err, cuda.ErrNoDevice) {
		t.Skipf("no GPU here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestGPUSaysWhatItIs(t *testing.T) {
	d := openGPU(t)
	i := d.Info()
	t.Logf("%+v", i)
	if i.Name == "" || !strings.HasPrefix(i.UUID, "GPU-") || !strings.Contains(i.PCIBusID, ":") || i.Simulated {
		t.Errorf("got %+v", i)
	}
	for _, selector := range []string{"0", i.UUID, i.PCIBusID} {
		again := cuda.Find(selector, gpu.Info{})
		err := again.Open(t.Context())
		if err != nil {
			t.Fatalf("selector %s: %v", selector, err)
		}
		if again.Info() != i {
			t.Errorf("selector %s: got %+v", selector, again.Info())
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	s, err := nvml.Open(i.UUID)
	if err != nil {
		t.Fatalf("NVML does not know CUDA's UUID: %v", err)
	}
	defer s.Close()
	t.Logf("NVML: %+v %+v", s.Info(), s.Condition())
	if s.Info().UUID != i.UUID {
		t.Errorf("NVML says %s, CUDA %s", s.Info().UUID, i.UUID)
	}
}

// The edges that the GPU saw lie where the code puts them.
func TestGPUMarkerKeepsTime(t *testing.T) {
	d := openGPU(t)
	spec := marker.FastProfile(20000, 0xA5)
	for _, kind := range []marker.Kind{marker.Start, marker.Stop} {
		before := time.Now()
		p, err := d.PlayMarker(t.Context(), spec, kind)
		after := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Edges) != spec.Len()+1 || p.Edges[0].Chip != -spec.CodeStart() {
			t.Fatalf("%d edges from chip %d", len(p.Edges), p.Edges[0].Chip)
		}
		var worst, sum float64
		t0 := p.Edges[0].At
		for i, e := range p.Edges {
			want := float64(i) * float64(spec.Chip)
			late := e.At.Sub(t0).Seconds() - want
			worst, sum = math.Max(worst, math.Abs(late)), sum+late*late
		}
		t.Logf("%v marker: chips of %v, edges off by %.1f µs rms, %.1f µs at worst; call %v, marker %v",
			kind, spec.Chip, 1e6*math.Sqrt(sum/float64(len(p.Edges))), 1e6*worst, after.Sub(before),
			p.Span.End.Sub(p.Span.Start))
		if worst > 100e-6 {
			t.Errorf("an edge is off by %v s", worst)
		}
		// The host's stamps are good to some microseconds; a millisecond is a wrong clock.
		if p.Span.Start.Before(before.Add(-time.Millisecond)) || p.Span.End.After(after.Add(time.Millisecond)) {
			t.Errorf("played %v to %v, but called %v to %v", p.Span.Start, p.Span.End, before, after)
		}
	}
}

func TestGPUBenchmarksLastAndLoad(t *testing.T) {
	d := openGPU(t)
	for _, b := range []gpu.Benchmark{gpu.BenchMemory, gpu.BenchCompute, gpu.BenchHalf} {
		const want = 400 * time.Millisecond
		before := time.Now()
		r, err := d.Benchmark(t.Context(), b, want)
		if err != nil {
			t.Fatal(err)
		}
		got := r.Ended.Sub(r.Begin)
		t.Logf("%s: %v, %d blocks, %.0f GB/s, %.2f TFLOP/s, clock known to %v, call %v",
			b, got, r.Blocks, r.BytesPerSec/1e9, r.FlopsPerSec/1e12, r.ClockU, time.Since(before))
		if got < want || got > want+5*time.Millisecond {
			t.Errorf("%s ran for %v, wanted %v", b, got, want)
		}
		if r.Batches == 0 {
			t.Errorf("%s did nothing", b)
		}
		if r.Begin.Before(before.Add(-time.Millisecond)) || r.Ended.After(time.Now().Add(time.Millisecond)) {
			t.Errorf("%s: its stamps lie outside of the call", b)
		}
	}
}

// A mix lasts as long as it is told, and is bound by memory at its low end and by
// arithmetic at its high end.
func TestGPUMixMeetsBothRoofs(t *testing.T) {
	d := openGPU(t)
	const length = 300 * time.Millisecond
	rate := func(rounds uint32) (flops, bytes float64) {
		r, err := d.RunMix(t.Context(), rounds, length)
		if err != nil {
			t.Fatal(err)
		}
		took := r.Kernel.Span.End.Sub(r.Kernel.Span.Start)
		if took < length || took > length+50*time.Millisecond {
			t.Errorf("%d rounds took %v", rounds, took)
		}
		t.Logf("%d rounds, %g flop/byte: %.4g flop/s, %.4g byte/s", rounds, gpu.MixIntensity(rounds),
			r.Flops/took.Seconds(), r.Bytes/took.Seconds())
		return r.Flops / took.Seconds(), r.Bytes / took.Seconds()
	}
	low, streamed := rate(1)
	high, _ := rate(1024)
	_, twice := rate(2)
	if high < 5*low || twice < 0.7*streamed {
		t.Errorf("%.3g flop/s at 0.5 flop/byte, %.3g at 512; %.3g byte/s at 0.5, %.3g at 1", low, high, streamed, twice)
	}
}

func TestGPUObeysCancellation(t *testing.T) {
	d := openGPU(t)
	for name, play := range map[string]func(context.Context) error{
		"benchmark": func(ctx context.Context) error {
			_, err := d.RunBenchmark(ctx, gpu.BenchMemory, 20*time.Second)
			return err
		},
		"marker": func(ctx context.Context) error {
			_, err := d.PlayMarker(ctx, marker.Spec{Code: marker.M31, Chip: 0.5, Guard: 2}, marker.Start)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		begin := time.Now()
		err := play(ctx)
		cancel()
		took := time.Since(begin)
		t.Logf("%s: cancelled after %v", name, took)
		if !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
			t.Errorf("%s: %v after %v", name, err, took)
		}
	}
	if _, err := d.RunBenchmark(t.Context(), gpu.BenchCompute, 10*time.Millisecond); err != nil {
		t.Errorf("after a cancellation: %v", err)
	}
}

const spinPTX = `
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 n)
{
	.reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];
	cvta.to.global.u64 %rd1, %rd1;
	mov.u32 %r2, 0;
L:	st.volatile.global.u32 [%rd1], %r2;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra L;
	ret;
}
`

func TestGPURunsPTX(t *testing.T) {
	d := openGPU(t)
	one := [3]uint32{1, 1, 1}
	launch := gpu.PTXLaunch{
		Source: []byte(spinPTX), Entry: "spin", Grid: one, Block: one, Buffers: []uint64{4096},
		Scalars: []uint32{100000}, Repeat: 3,
	}
	before := time.Now()
	k, err := d.RunPTX(t.Context(), launch)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %v, call %v", k[0].Name, k[0].Span.End.Sub(k[0].Span.Start), time.Since(before))
	if !k[0].Span.Start.Before(k[0].Span.End) {
		t.Errorf("got %+v", k)
	}
	launch.Scalars = nil
	if _, err := d.RunPTX(t.Context(), launch); !errors.Is(err, kernels.ErrPTX) {
		t.Errorf("a missing parameter: %v", err)
	}
	launch.Scalars, launch.Source = []uint32{1}, []byte(strings.Replace(spinPTX, "add.u32", "add.nonsense", 1))
	_, err = d.RunPTX(t.Context(), launch)
	t.Logf("broken PTX: %v", err)
	if err == nil || !strings.Contains(err.Error(), "compiler says") {
		t.Errorf("broken PTX: %v", err)
	}
}

// What the marker's detector lives on: high draws far more than low, and low
// about as much as a resident sleeping kernel.
func TestGPUPowerFollows(t *testing.T) {
	d := openGPU(t)
	s, err := nvml.Open(d.Info().UUID)
	if err != nil {
		t.Skipf("no NVML: %v", err)
	}
	defer s.Close()
	// settled is the instant power at the end of a load of 1.2 s.
	settled := func(load func(context.Context) error) float64 {
		done := make(chan error, 1)
		go func() { done <- load(t.Context()) }()
		last := math.NaN()
		for {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				return last
			default:
				r, err := s.Read()
				if err != nil {
					t.Fatal(err)
				}
				last = float64(r.Instant)
				if math.IsNaN(last) {
					last = float64(r.Usage)
				}
			}
		}
	}
	const long = 1200 * time.Millisecond
	bench := func(b gpu.Benchmark) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := d.RunBenchmark(ctx, b, long)
			return err
		}
	}
	high := settled(func(ctx context.Context) error { return d.WarmUp(ctx, long) })
	// A marker that ends on two guards of 1.2 s of low chips.
	low := settled(func(ctx context.Context) error {
		_, err := d.PlayMarker(ctx, marker.Spec{Code: marker.UpDown, Chip: 0.15, Guard: 8}, marker.Start)
		return err
	})
	t.Logf("high %.1f W, low %.1f W, memory %.1f W, compute %.1f W, half %.1f W", high, low,
		settled(bench(gpu.BenchMemory)), settled(bench(gpu.BenchCompute)), settled(bench(gpu.BenchHalf)))
	if !(high > 1.5*low) {
		t.Errorf("high chips draw %.1f W, low ones %.1f W: too close to be told apart", high, low)
	}
	e, err := s.ReadEnergy()
	t.Logf("energy counter: %v %v", e, err)
}
