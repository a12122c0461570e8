package cuda

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"wattmark/hostagent"
	"wattmark/hostagent/kernels"
)

var benchKernels = map[hostagent.Benchmark]string{
	hostagent.BenchHalf: kernels.Half, hostagent.BenchCompute: kernels.Compute, hostagent.BenchMemory: kernels.Memory,
}

// Rates is what a benchmark achieved: how well it loaded the GPU.
type Rates struct {
	Batches      uint64
	BytesPerSec  float64
	FlopsPerSec  float64
	Blocks       uint32
	ClockU       time.Duration // uncertainty of the kernel's time stamps
	Begin, Ended time.Time
}

// RunBenchmark runs a built-in kernel for length by the GPU's clock.
func (d *Device) RunBenchmark(ctx context.Context, b hostagent.Benchmark, length time.Duration) ([]hostagent.Kernel, error) {
	r, err := d.Benchmark(ctx, b, length)
	if err != nil {
		return nil, err
	}
	return []hostagent.Kernel{{Name: string(b), Span: hostagent.Span{Start: r.Begin, End: r.Ended}}}, nil
}

// Benchmark is RunBenchmark with the rates that the kernel achieved.
func (d *Device) Benchmark(ctx context.Context, b hostagent.Benchmark, length time.Duration) (Rates, error) {
	name, ok := benchKernels[b]
	if !ok {
		return Rates{}, fmt.Errorf("cuda: benchmark %q: want half, compute or memory", b)
	}
	if length <= 0 {
		return Rates{}, fmt.Errorf("cuda: benchmark %s for %v: the time must be positive", b, length)
	}
	var out Rates
	err := d.w.do(func() (err error) {
		f, ns := d.fns[name], uint64(length)
		mask := d.bufSize - 16
		if b == hostagent.BenchMemory {
			mask = d.part(f.blocks) - 16
		}
		out, err = d.runBatches(ctx, name, batch{batchBytes[b], batchFlops[b]}, params(&d.ctl, &d.buf, &mask, &ns))
		return err
	})
	if err != nil {
		return Rates{}, fmt.Errorf("cuda: benchmark %s: %w", b, err)
	}
	return out, nil
}

// batch is the work of one batch, a thread.
type batch struct{ bytes, flops float64 }

// runBatches runs a kernel that counts its batches, and says what it did.
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

var _ hostagent.MixRunner = (*Device)(nil)

// RunMix runs the kernel of a chosen intensity for length by the GPU's clock.
func (d *Device) RunMix(ctx context.Context, rounds uint32, length time.Duration) (hostagent.MixRan, error) {
	if rounds == 0 || length <= 0 {
		return hostagent.MixRan{}, fmt.Errorf("cuda: mix of %d rounds for %v: both must be positive", rounds, length)
	}
	var r Rates
	err := d.w.do(func() (err error) {
		if _, loaded := d.fns[kernels.Mix]; !loaded {
			if err := d.loadModule(kernels.MixSource, kernels.Mix); err != nil {
				return err
			}
		}
		ns, mask, n := uint64(length), d.part(d.fns[kernels.Mix].blocks)-16, rounds
		w := batch{kernels.MixBytes, 2 * kernels.MixFMA * float64(rounds)}
		r, err = d.runBatches(ctx, kernels.Mix, w, append(params(&d.ctl, &d.buf, &mask, &ns), ptr(&n)))
		return err
	})
	if err != nil {
		return hostagent.MixRan{}, fmt.Errorf("cuda: mix of %d rounds: %w", rounds, err)
	}
	did := float64(r.Batches) * kernels.Threads
	return hostagent.MixRan{
		Kernel: hostagent.Kernel{Name: fmt.Sprintf("mix of %d rounds", rounds), Span: hostagent.Span{Start: r.Begin, End: r.Ended}},
		Bytes:  did * kernels.MixBytes, Flops: did * 2 * kernels.MixFMA * float64(rounds),
	}, nil
}

var (
	batchBytes = map[hostagent.Benchmark]float64{hostagent.BenchMemory: kernels.MemoryBytes, hostagent.BenchHalf: kernels.HalfBytes}
	batchFlops = map[hostagent.Benchmark]float64{hostagent.BenchCompute: 2 * kernels.ComputeFMA, hostagent.BenchHalf: 2 * kernels.HalfFMA}
)

// WarmUp loads memory and SMs for length, as a marker's high chip does.
func (d *Device) WarmUp(ctx context.Context, length time.Duration) error {
	if length <= 0 {
		return fmt.Errorf("cuda: warm up for %v: the time must be positive", length)
	}
	err := d.w.do(func() error {
		_, _, err := d.playChips(ctx, []bool{true}, uint64(length))
		return err
	})
	if err != nil {
		return fmt.Errorf("cuda: warm up: %w", err)
	}
	return nil
}

// RunPTX compiles a PTX text, allocates and zeroes its buffers, and launches
// its kernel Repeat times (once when zero) in one stream. The span runs from
// the first launch's begin to the last one's end by the GPU's clock. A kernel
// that does not end cannot be stopped: ctx is looked at before the launch only.
func (d *Device) RunPTX(ctx context.Context, l hostagent.PTXLaunch) ([]hostagent.Kernel, error) {
	e, err := kernels.Find(l.Source, l.Entry)
	if err == nil {
		err = e.CheckLaunch(len(l.Buffers), len(l.Scalars))
	}
	if err == nil {
		err = checkGrid(l)
	}
	if err != nil {
		return nil, fmt.Errorf("cuda: run PTX: %w", err)
	}
	var out []hostagent.Kernel
	err = d.w.do(func() (err error) {
		out, err = d.runPTX(ctx, e.Name, l)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: run PTX kernel %s: %w", e.Name, err)
	}
	return out, nil
}

func checkGrid(l hostagent.PTXLaunch) error {
	for i := range 3 {
		if l.Grid[i] == 0 || l.Block[i] == 0 {
			return fmt.Errorf("%w: grid %v, block %v: every dimension must be at least 1", kernels.ErrPTX, l.Grid, l.Block)
		}
	}
	for i, size := range l.Buffers {
		if size == 0 {
			return fmt.Errorf("%w: buffer %d has no bytes", kernels.ErrPTX, i)
		}
	}
	return nil
}

func (d *Device) runPTX(ctx context.Context, entry string, l hostagent.PTXLaunch) ([]hostagent.Kernel, error) {
	mod, err := d.drv.compile(append(append([]byte(nil), l.Source...), 0))
	if err != nil {
		return nil, err
	}
	defer d.drv.ModuleUnload(mod)
	fn, err := d.drv.function(mod, entry)
	if err != nil {
		return nil, err
	}
	var list []unsafe.Pointer
	for _, size := range l.Buffers {
		p := new(uint64)
		if err := d.drv.check("cuMemAlloc", d.drv.MemAlloc(p, uintptr(size))); err != nil {
			return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
		}
		defer func() { d.drv.MemFree(*p) }()
		if err := d.zero(*p, size); err != nil {
			return nil, err
		}
		list = append(list, unsafe.Pointer(p))
	}
	for i := range l.Scalars {
		list = append(list, unsafe.Pointer(&l.Scalars[i]))
	}
	return d.runStamped(ctx, fn, entry, l, list)
}

// runStamped launches a kernel between two readings of the GPU's clock in the
// same stream.
func (d *Device) runStamped(ctx context.Context, fn uintptr, name string, l hostagent.PTXLaunch, list []unsafe.Pointer) ([]hostagent.Kernel, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	before, err := d.relate()
	if err != nil {
		return nil, err
	}
	if err := d.stamp(0); err != nil {
		return nil, err
	}
	repeat := max(1, l.Repeat)
	for range repeat {
		if err := d.launchGrid(fn, l.Grid, l.Block, l.Shared, list); err != nil {
			return nil, err
		}
	}
	if err := d.stamp(1); err != nil {
		return nil, err
	}
	if err := d.wait(ctx); err != nil {
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
	at := hostagent.Span{Start: s.host(binary.LittleEndian.Uint64(b)), End: s.host(binary.LittleEndian.Uint64(b[8:]))}
	return []hostagent.Kernel{{Name: name, Span: at}}, nil
}
