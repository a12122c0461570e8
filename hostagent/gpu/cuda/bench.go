package cuda

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
)

var benchKernels = map[gpu.Benchmark]string{
	gpu.BenchHalf: kernels.Half, gpu.BenchCompute: kernels.Compute, gpu.BenchMemory: kernels.Memory,
}

// Rates are the rates that a benchmark achieved: how well it loaded the GPU.
type Rates struct {
	Batches      uint64
	BytesPerSec  float64
	FlopsPerSec  float64
	Blocks       uint32
	ClockU       time.Duration // uncertainty of the kernel's time stamps
	Begin, Ended time.Time
}

// RunBenchmark runs a built-in kernel for length by the GPU's clock.
func (d *Device) RunBenchmark(ctx context.Context, b gpu.Benchmark, length time.Duration) ([]gpu.Kernel, error) {
	r, err := d.Benchmark(ctx, b, length)
	if err != nil {
		return nil, err
	}
	return []gpu.Kernel{{Name: string(b), Span: gpu.Span{Start: r.Begin, End: r.Ended}}}, nil
}

// Benchmark is RunBenchmark with the rates that the kernel achieved.
func (d *Device) Benchmark(ctx context.Context, b gpu.Benchmark, length time.Duration) (Rates, error) {
	name, ok := benchKernels[b]
	if !ok {
		return Rates{}, fmt.Errorf("cuda: benchmark %q: want half, compute or memory", b)
	}
	if length <= 0 {
		return Rates{}, fmt.Errorf("cuda: benchmark %s for %v: the time must be positive", b, length)
	}
	return ask(d, fmt.Sprint("benchmark ", b), func() (Rates, error) {
		ns, mask := uint64(length), d.maskOf(b)
		return d.runBatches(ctx, name, batch{batchBytes[b], batchFlops[b]}, params(&d.ctl, &d.buf, &mask, &ns))
	})
}

// batch is the work of one batch, a thread.
type batch struct{ bytes, flops float64 }

// runBatches runs a kernel that counts its batches and computes its rates, by the GPU's
// clock, from the begin of its first block to the end of its last.
func (d *Device) runBatches(ctx context.Context, name string, w batch, list []unsafe.Pointer) (Rates, error) {
	f := d.fns[name]
	s, err := d.runTimed(ctx, f, list)
	if err != nil {
		return Rates{}, err
	}
	ctl := make([]byte, kernels.CtlSize)
	if err := d.download(ctl, d.ctl); err != nil {
		return Rates{}, err
	}
	begin := binary.LittleEndian.Uint64(ctl[kernels.CtlBegin:])
	end := binary.LittleEndian.Uint64(ctl[kernels.CtlEnd:])
	if begin == 0 || end <= begin {
		return Rates{}, fmt.Errorf("%w: kernel %s left no time stamps", ErrCUDA, name)
	}
	out := Rates{Batches: binary.LittleEndian.Uint64(ctl[kernels.CtlBatches:]), Blocks: f.blocks}
	out.Begin, out.Ended = s.host(begin), s.host(end)
	out.ClockU = time.Duration(max(s.a.u, s.b.u))
	perSecond := float64(out.Batches) * kernels.Threads / (float64(end-begin) * 1e-9)
	out.BytesPerSec, out.FlopsPerSec = perSecond*w.bytes, perSecond*w.flops
	return out, nil
}

var _ gpu.MixRunner = (*Device)(nil)

// RunMix runs the kernel of a chosen intensity for length by the GPU's clock.
func (d *Device) RunMix(ctx context.Context, rounds uint32, length time.Duration) (gpu.MixRan, error) {
	if rounds == 0 || length <= 0 {
		return gpu.MixRan{}, fmt.Errorf("cuda: mix of %d rounds for %v: both must be positive", rounds, length)
	}
	name := fmt.Sprintf("mix of %d rounds", rounds)
	w := batch{kernels.MixBytes, 2 * kernels.MixFMA * float64(rounds)}
	r, err := ask(d, name, func() (Rates, error) {
		if _, loaded := d.fns[kernels.Mix]; !loaded {
			if err := d.loadModule(kernels.MixSource, kernels.Mix); err != nil {
				return Rates{}, err
			}
		}
		ns, mask, n := uint64(length), d.part(d.fns[kernels.Mix].blocks)-16, rounds
		return d.runBatches(ctx, kernels.Mix, w, append(params(&d.ctl, &d.buf, &mask, &ns), ptr(&n)))
	})
	if err != nil {
		return gpu.MixRan{}, err
	}
	did := float64(r.Batches) * kernels.Threads
	return gpu.MixRan{
		Kernel: gpu.Kernel{Name: name, Span: gpu.Span{Start: r.Begin, End: r.Ended}},
		Bytes:  did * w.bytes, Flops: did * w.flops,
	}, nil
}

var (
	batchBytes = map[gpu.Benchmark]float64{gpu.BenchMemory: kernels.MemoryBytes, gpu.BenchHalf: kernels.HalfBytes}
	batchFlops = map[gpu.Benchmark]float64{gpu.BenchCompute: 2 * kernels.ComputeFMA, gpu.BenchHalf: 2 * kernels.HalfFMA}
)

// WarmUp loads memory and SMs for length, as a marker's high chip does.
func (d *Device) WarmUp(ctx context.Context, length time.Duration) error {
	if length <= 0 {
		return fmt.Errorf("cuda: warm up for %v: the time must be positive", length)
	}
	_, err := ask(d, "warm up", func() ([]uint64, error) {
		edges, _, err := d.playChips(ctx, []bool{true}, uint64(length))
		return edges, err
	})
	return err
}

// RunPTX compiles a PTX text, allocates and zeroes its buffers, and launches
// its kernel Repeat times (once when zero) in one stream. The span runs from
// the first launch's begin to the last one's end by the GPU's clock. A kernel
// that does not end cannot be stopped: ctx is looked at before the launch only.
func (d *Device) RunPTX(ctx context.Context, l gpu.PTXLaunch) ([]gpu.Kernel, error) {
	var out []gpu.Kernel
	var name string
	err := d.w.do(func() (err error) {
		a := arena{d: d}
		defer a.close()
		var launch func() error
		if launch, name, err = a.load(&l); err != nil {
			return err
		}
		out, err = d.runStamped(ctx, name, max(1, l.Repeat), launch)
		return err
	})
	switch {
	case err == nil:
		return out, nil
	case name == "":
		return nil, fmt.Errorf("cuda: run PTX: %w", err)
	}
	return nil, fmt.Errorf("cuda: run PTX kernel %s: %w", name, err)
}

// runStamped launches a kernel repeat times between two readings of the GPU's clock in
// the same stream.
func (d *Device) runStamped(ctx context.Context, name string, repeat int, launch func() error) ([]gpu.Kernel, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	before, err := d.relate()
	if err != nil {
		return nil, err
	}
	err = d.stamp(d.work, d.stamps)
	for i := 0; err == nil && i < repeat; i++ {
		err = launch()
	}
	if err == nil {
		err = d.stamp(d.work, d.stamps+8)
	}
	if err == nil {
		err = d.wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, 16)
	if err := d.download(b, d.stamps); err != nil {
		return nil, err
	}
	after, err := d.relate()
	if err != nil {
		return nil, err
	}
	if repeat > 1 {
		name = fmt.Sprintf("%s ×%d", name, repeat)
	}
	s := span{before, after}
	at := gpu.Span{Start: s.host(binary.LittleEndian.Uint64(b)), End: s.host(binary.LittleEndian.Uint64(b[8:]))}
	return []gpu.Kernel{{Name: name, Span: at}}, nil
}

// maskOf masks the addresses of a benchmark: a block streams a part of the buffer, or all of them
// scatter over the whole.
func (d *Device) maskOf(b gpu.Benchmark) uint64 {
	if b == gpu.BenchMemory {
		return d.part(d.fns[kernels.Memory].blocks) - 16
	}
	return d.bufSize - 16
}
