package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
)

// benchmarks are the entries of the built-in benchmarks' kernels.
var benchmarks = map[gpu.Benchmark]string{
	gpu.BenchHalf: kernels.Half, gpu.BenchCompute: kernels.Compute, gpu.BenchMemory: kernels.Memory,
}

// RunBenchmark runs a built-in kernel for length by the GPU's clock.
func (d *Device) RunBenchmark(ctx context.Context, b gpu.Benchmark, length time.Duration) ([]gpu.Kernel, error) {
	r, err := d.benchmark(ctx, b, length)
	if err != nil {
		return nil, err
	}
	return []gpu.Kernel{{Name: string(b), Span: r.on()}}, nil
}

// benchmark runs a built-in kernel, and returns its batches.
func (d *Device) benchmark(ctx context.Context, b gpu.Benchmark, length time.Duration) (batches, error) {
	entry, ok := benchmarks[b]
	if !ok {
		return batches{}, fmt.Errorf("cuda: benchmark %q: want half, compute or memory", b)
	}
	if length <= 0 {
		return batches{}, fmt.Errorf("cuda: benchmark %s for %v: the time must be positive", b, length)
	}
	return ask(d, fmt.Sprint("benchmark ", b), func() (batches, error) {
		ns, mask := uint64(length), d.maskOf(b)
		return d.runBatches(ctx, entry, params(&d.ctl, &d.buf, &mask, &ns))
	})
}

// batches are those that a kernel did, from the begin of its first block to the end of its last
// in ns of the GPU's clock.
type batches struct {
	n, begin, end uint64
	clocks        span
}

// on is when the batches ran, on the host's wall clock.
func (r *batches) on() gpu.Span {
	return gpu.Span{Start: r.clocks.host(r.begin), End: r.clocks.host(r.end)}
}

// runBatches runs a kernel that counts its batches.
func (d *Device) runBatches(ctx context.Context, name string, list []unsafe.Pointer) (r batches, err error) {
	if r.clocks, err = d.runTimed(ctx, d.fns[name], list); err != nil {
		return r, err
	}
	ctl := make([]byte, kernels.CtlSize)
	if err := d.download(ctl, d.ctl); err != nil {
		return r, err
	}
	r.n = binary.LittleEndian.Uint64(ctl[kernels.CtlBatches:])
	r.begin = binary.LittleEndian.Uint64(ctl[kernels.CtlBegin:])
	r.end = binary.LittleEndian.Uint64(ctl[kernels.CtlEnd:])
	if r.begin == 0 || r.end <= r.begin {
		return r, fmt.Errorf("%w: kernel %s left no time stamps", ErrCUDA, name)
	}
	return r, nil
}

var _ gpu.MixRunner = (*Device)(nil)

// RunMix runs the kernel of a chosen intensity for length by the GPU's clock.
func (d *Device) RunMix(ctx context.Context, rounds uint32, length time.Duration) (gpu.MixRan, error) {
	if rounds == 0 || length <= 0 {
		return gpu.MixRan{}, fmt.Errorf("cuda: mix of %d rounds for %v: both must be positive", rounds, length)
	}
	name := fmt.Sprintf("mix of %d rounds", rounds)
	r, err := ask(d, name, func() (batches, error) {
		if _, loaded := d.fns[kernels.Mix]; !loaded {
			if err := d.loadModule(kernels.MixSource, kernels.Mix); err != nil {
				return batches{}, err
			}
		}
		ns, mask, n := uint64(length), d.part(d.fns[kernels.Mix].blocks)-16, rounds
		return d.runBatches(ctx, kernels.Mix, append(params(&d.ctl, &d.buf, &mask, &ns), unsafe.Pointer(&n)))
	})
	if err != nil {
		return gpu.MixRan{}, err
	}
	did := float64(r.n) * kernels.Threads
	return gpu.MixRan{
		Kernel: gpu.Kernel{Name: name, Span: r.on()},
		Bytes:  did * kernels.MixBytes, Flops: did * 2 * kernels.MixFMA * float64(rounds),
	}, nil
}

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
	b := make([]byte, 16)
	s, err := d.related(func() error {
		err := d.stamp(d.work, d.stamps)
		for i := 0; err == nil && i < repeat; i++ {
			err = launch()
		}
		if err == nil {
			err = d.stamp(d.work, d.stamps+8)
		}
		if err == nil {
			err = d.wait(ctx)
		}
		if err == nil {
			// Before the clocks are related again: that writes to the same place.
			err = d.download(b, d.stamps)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if repeat > 1 {
		name = fmt.Sprintf("%s ×%d", name, repeat)
	}
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

var _ gpu.TrainRunner = (*Device)(nil)

// RunTrain queues a train on one stream and blocks until it has run. Every slice of the
// carrier has control words of its own, in which it leaves its begin and its end by the
// GPU's clock; a launch of the kernel lies between the end of a slice and the begin of the
// next. A bare launch has the time stamps of the whole phase only. The span of a phase runs
// from its first slice's begin to that of the next phase.
//
// ctx is checked between launches: the launches in the queue, up to some thousand, run to
// their end.
func (d *Device) RunTrain(ctx context.Context, t gpu.Train) (gpu.Ran, error) {
	if err := t.Validate(); err != nil {
		return gpu.Ran{}, fmt.Errorf("cuda: %w", err)
	}
	if _, ok := benchmarks[t.Carrier]; !ok {
		return gpu.Ran{}, fmt.Errorf("cuda: train: carrier %q: want half, compute or memory", t.Carrier)
	}
	return ask(d, "train", func() (gpu.Ran, error) {
		r := trainRun{arena: arena{d: d}, t: &t, lengths: t.Lengths()}
		defer r.close()
		if err := r.prepare(); err != nil {
			return gpu.Ran{}, err
		}
		// The train runs between two relations of the clocks. The queue is waited for also after an error: the control
		// words must outlive every kernel that writes them.
		words := make([]byte, r.slots*kernels.CtlSize)
		s, err := d.related(func() error {
			if err := errors.Join(r.queue(ctx), d.sync()); err != nil {
				return err
			}
			return d.download(words, r.ctl)
		})
		if err != nil {
			return gpu.Ran{}, err
		}
		return r.read(words, s)
	})
}

// trainRun is a train on its way. Slot i of the control words belongs to the
// i-th slice; a phase of bare launches has one slot for its stamps.
type trainRun struct {
	arena
	t       *gpu.Train
	lengths []time.Duration
	slots   int
	ctl     uint64 // control words of the slots
	own     uint64 // of the kernel's launches, where it is a built-in one
	launch  func(i int) error
}

// prepare counts the slots and the launches, and makes the kernel ready. Of a built-in benchmark
// each launch gets control words of its own, for it ends itself by the GPU's clock.
func (r *trainRun) prepare() (err error) {
	launches := 0
	for _, p := range r.t.Phases {
		r.slots += max(p.Slices, 1)
		launches += p.Bare
		if p.Kernel {
			launches += p.Slices
		}
	}
	if r.ctl, err = r.alloc(uint64(r.slots) * kernels.CtlSize); err != nil || launches == 0 {
		return err
	}
	insert := r.t.Insert
	if insert.PTX != nil {
		launch, _, err := r.load(insert.PTX)
		r.launch = func(int) error { return launch() }
		return err
	}
	if _, ok := benchmarks[insert.Benchmark]; !ok {
		return fmt.Errorf("kernel %q: want half, compute or memory, or a PTX file", insert.Benchmark)
	}
	if r.own, err = r.alloc(uint64(launches) * kernels.CtlSize); err != nil {
		return err
	}
	r.launch = func(i int) error {
		return r.timed(insert.Benchmark, r.own+uint64(i)*kernels.CtlSize, insert.Length)
	}
	return nil
}

// timed queues a built-in kernel with control words of its own.
func (r *trainRun) timed(b gpu.Benchmark, ctl uint64, length time.Duration) error {
	ns, mask := uint64(length), r.d.maskOf(b)
	return r.d.launch(r.d.fns[benchmarks[b]], params(&ctl, &r.d.buf, &mask, &ns)...)
}

// stampSlot queues the kernel that writes the GPU's time into a slot's begin or end.
func (r *trainRun) stampSlot(slot int, word uint64) error {
	return r.d.stamp(r.d.work, r.ctl+uint64(slot)*kernels.CtlSize+word)
}

// queue launches the phases in order. A slice's launch costs some microseconds on the host,
// less than the slice takes, so the GPU does not run dry.
func (r *trainRun) queue(ctx context.Context) error {
	slot, launched, slice := 0, 0, 0
	kernel := func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		launched++
		return r.launch(launched - 1)
	}
	for _, p := range r.t.Phases {
		if p.Bare > 0 {
			err := r.stampSlot(slot, kernels.CtlBegin)
			for i := 0; err == nil && i < p.Bare; i++ {
				err = kernel()
			}
			if err == nil {
				err = r.stampSlot(slot, kernels.CtlEnd)
			}
			if err != nil {
				return err
			}
			slot++
			continue
		}
		for range p.Slices {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			err := r.timed(r.t.Carrier, r.ctl+uint64(slot)*kernels.CtlSize, r.lengths[slice])
			if err == nil && p.Kernel {
				err = kernel()
			}
			if err != nil {
				return err
			}
			slot, slice = slot+1, slice+1
		}
	}
	return nil
}

// read turns the slots' stamps into phases.
func (r *trainRun) read(words []byte, s span) (gpu.Ran, error) {
	begin := func(i int) uint64 { return binary.LittleEndian.Uint64(words[i*kernels.CtlSize+kernels.CtlBegin:]) }
	end := func(i int) uint64 { return binary.LittleEndian.Uint64(words[i*kernels.CtlSize+kernels.CtlEnd:]) }
	var out gpu.Ran
	first := 0 // slot of a phase
	for k, p := range r.t.Phases {
		next := first + max(p.Slices, 1)
		ran := gpu.RanPhase{Inserted: p.Bare, Span: gpu.Span{Start: s.host(begin(first)), End: s.host(end(next - 1))}}
		for i := first; i < next; i++ {
			if begin(i) == 0 || end(i) < begin(i) || p.Bare == 0 && end(i) == begin(i) {
				return out, fmt.Errorf("%w: slice %d of phase %d left no time stamps", ErrCUDA, i-first+1, k+1)
			}
			if p.Bare > 0 {
				continue
			}
			ran.Carrier += time.Duration(end(i) - begin(i))
			if p.Kernel {
				ran.Inserted++
				if r.t.Starts {
					ran.Starts = append(ran.Starts, s.host(end(i)))
				}
			}
		}
		out.Phases = append(out.Phases, ran)
		first = next
	}
	for k := range len(out.Phases) - 1 {
		out.Phases[k].Span.End = out.Phases[k+1].Span.Start
	}
	return out, nil
}
