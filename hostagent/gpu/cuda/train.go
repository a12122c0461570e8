package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
)

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
	if _, ok := benchKernels[t.Carrier]; !ok {
		return gpu.Ran{}, fmt.Errorf("cuda: train: carrier %q: want half, compute or memory", t.Carrier)
	}
	return ask(d, "train", func() (gpu.Ran, error) {
		r := trainRun{arena: arena{d: d}, t: &t, lengths: t.Lengths()}
		defer r.close()
		if err := r.prepare(); err != nil {
			return gpu.Ran{}, err
		}
		return r.run(ctx)
	})
}

// trainRun is a train on its way. Slot i of the control words belongs to the
// i-th slice; phases of bare launches have two slots for their stamps. One more
// stands for the end.
type trainRun struct {
	arena
	t       *gpu.Train
	lengths []time.Duration
	slots   int
	ctl     uint64 // control words of the slots
	own     uint64 // of the kernel's launches, where it is a built-in one
	launch  func(i int) error
}

// prepare counts the slots and the launches, and makes the kernel ready.
func (r *trainRun) prepare() (err error) {
	launches := 0
	for _, p := range r.t.Phases {
		if p.Bare > 0 {
			r.slots += 2
			launches += p.Bare
		} else {
			r.slots += p.Slices
			if p.Kernel {
				launches += p.Slices
			}
		}
	}
	if r.ctl, err = r.alloc(uint64(r.slots) * kernels.CtlSize); err != nil {
		return err
	}
	switch {
	case launches == 0:
		return nil
	case r.t.Insert.PTX != nil:
		launch, _, err := r.load(r.t.Insert.PTX)
		r.launch = func(int) error { return launch() }
		return err
	default:
		return r.prepareBenchmark(launches)
	}
}

// prepareBenchmark makes a built-in benchmark the kernel: each launch gets control words of
// its own, for it ends itself by the GPU's clock.
func (r *trainRun) prepareBenchmark(launches int) (err error) {
	name, ok := benchKernels[r.t.Insert.Benchmark]
	if !ok {
		return fmt.Errorf("kernel %q: want half, compute or memory, or a PTX file", r.t.Insert.Benchmark)
	}
	if r.own, err = r.alloc(uint64(launches) * kernels.CtlSize); err != nil {
		return err
	}
	r.launch = func(i int) error {
		return r.timed(name, r.t.Insert.Benchmark, r.own+uint64(i)*kernels.CtlSize, r.t.Insert.Length)
	}
	return nil
}

// timed queues a built-in kernel with control words of its own.
func (r *trainRun) timed(name string, b gpu.Benchmark, ctl uint64, length time.Duration) error {
	ns, mask := uint64(length), r.d.maskOf(b)
	return r.d.launch(r.d.fns[name], params(&ctl, &r.d.buf, &mask, &ns)...)
}

// stampSlot queues the kernel that writes the GPU's time into a slot's begin.
func (r *trainRun) stampSlot(slot int) error {
	return r.d.stamp(r.d.work, r.ctl+uint64(slot)*kernels.CtlSize+kernels.CtlBegin)
}

// run queues the train between two relations of the clocks. It waits for the queue also
// after an error: the control words must outlive every kernel that writes them.
func (r *trainRun) run(ctx context.Context) (gpu.Ran, error) {
	before, err := r.d.relate()
	if err != nil {
		return gpu.Ran{}, err
	}
	queueErr := r.queue(ctx)
	if err := r.d.sync(); err != nil {
		return gpu.Ran{}, errors.Join(queueErr, err)
	}
	if queueErr != nil {
		return gpu.Ran{}, queueErr
	}
	words := make([]byte, r.slots*kernels.CtlSize)
	if err := r.d.download(words, r.ctl); err != nil {
		return gpu.Ran{}, err
	}
	after, err := r.d.relate()
	if err != nil {
		return gpu.Ran{}, err
	}
	return r.read(words, span{before, after})
}

// queue launches the phases in order. A slice's launch costs some microseconds on the host,
// less than the slice takes, so the GPU does not run dry.
func (r *trainRun) queue(ctx context.Context) error {
	slot, launched, slice := 0, 0, 0
	carrier := benchKernels[r.t.Carrier]
	kernel := func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		launched++
		return r.launch(launched - 1)
	}
	for _, p := range r.t.Phases {
		if p.Bare > 0 {
			if err := r.stampSlot(slot); err != nil {
				return err
			}
			for range p.Bare {
				if err := kernel(); err != nil {
					return err
				}
			}
			if err := r.stampSlot(slot + 1); err != nil {
				return err
			}
			slot += 2
			continue
		}
		for range p.Slices {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			err := r.timed(carrier, r.t.Carrier, r.ctl+uint64(slot)*kernels.CtlSize, r.lengths[slice])
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
	// slot is the first of a phase: one a slice, or two for a phase of bare launches.
	var out gpu.Ran
	slot := 0
	for k, p := range r.t.Phases {
		first, last := slot, slot+p.Slices-1
		ran := gpu.RanPhase{}
		if p.Bare > 0 {
			last = slot + 1
			ran.Inserted = p.Bare
			ran.Span.End = s.host(begin(last))
		} else {
			ran.Span.End = s.host(end(last))
		}
		for i := first; i <= last; i++ {
			if begin(i) == 0 || p.Bare == 0 && end(i) <= begin(i) {
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
		ran.Span.Start = s.host(begin(first))
		out.Phases = append(out.Phases, ran)
		slot = last + 1
	}
	for k := range len(out.Phases) - 1 {
		out.Phases[k].Span.End = out.Phases[k+1].Span.Start
	}
	return out, nil
}
