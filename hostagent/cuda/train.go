package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"wattmark/hostagent"
	"wattmark/hostagent/kernels"
)

var _ hostagent.TrainRunner = (*Device)(nil)

// RunTrain queues a train on one stream. Every slice of the carrier has control
// words of its own, in which it leaves its begin and its end by the GPU's clock;
// a launch of the kernel lies between the end of a slice and the begin of the
// next. A bare launch has the time stamps of the whole phase only. The span of a
// phase runs from its first slice's begin to that of the next phase.
//
// ctx is looked at between launches: what is queued (some thousand launches) runs
// to its end.
func (d *Device) RunTrain(ctx context.Context, t hostagent.Train) (hostagent.Ran, error) {
	if err := t.Validate(); err != nil {
		return hostagent.Ran{}, fmt.Errorf("cuda: %w", err)
	}
	if _, ok := benchKernels[t.Carrier]; !ok {
		return hostagent.Ran{}, fmt.Errorf("cuda: train: carrier %q: want half, compute or memory", t.Carrier)
	}
	var out hostagent.Ran
	err := d.w.do(func() error {
		r := trainRun{d: d, t: &t, lengths: t.Lengths()}
		defer r.free()
		if err := r.prepare(); err != nil {
			return err
		}
		ran, err := r.run(ctx)
		out = ran
		return err
	})
	if err != nil {
		return hostagent.Ran{}, fmt.Errorf("cuda: train: %w", err)
	}
	return out, nil
}

// trainRun is a train on its way. Slot i of the control words belongs to the
// i-th slice; phases of bare launches have two slots for their stamps. One more
// stands for the end.
type trainRun struct {
	d       *Device
	t       *hostagent.Train
	lengths []time.Duration
	slots   int
	ctl     uint64 // control words of the slots
	own     uint64 // of the kernel's launches, where it is a built-in one
	launch  func(i int) error
	cleanup []func()
}

func (r *trainRun) free() {
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		r.cleanup[i]()
	}
}

func (r *trainRun) alloc(size uint64) (uint64, error) {
	p := new(uint64)
	if err := r.d.drv.check("cuMemAlloc", r.d.drv.MemAlloc(p, uintptr(size))); err != nil {
		return 0, fmt.Errorf("%d bytes on the GPU: %w", size, err)
	}
	r.cleanup = append(r.cleanup, func() { r.d.drv.MemFree(*p) })
	return *p, r.d.zero(*p, size)
}

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
		return r.preparePTX(r.t.Insert.PTX)
	default:
		return r.prepareBenchmark(launches)
	}
}

func (r *trainRun) preparePTX(l *hostagent.PTXLaunch) error {
	e, err := kernels.Find(l.Source, l.Entry)
	if err == nil {
		err = e.CheckLaunch(len(l.Buffers), len(l.Scalars))
	}
	if err == nil {
		err = checkGrid(*l)
	}
	if err != nil {
		return err
	}
	mod, err := r.d.drv.compile(append(append([]byte(nil), l.Source...), 0))
	if err != nil {
		return err
	}
	r.cleanup = append(r.cleanup, func() { r.d.drv.ModuleUnload(mod) })
	fn, err := r.d.drv.function(mod, e.Name)
	if err != nil {
		return err
	}
	var list []unsafe.Pointer
	for _, size := range l.Buffers {
		p, err := r.alloc(size)
		if err != nil {
			return err
		}
		list = append(list, unsafe.Pointer(&p))
	}
	for i := range l.Scalars {
		list = append(list, unsafe.Pointer(&l.Scalars[i]))
	}
	r.launch = func(int) error { return r.d.launchGrid(fn, l.Grid, l.Block, l.Shared, list) }
	return nil
}

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
func (r *trainRun) timed(name string, b hostagent.Benchmark, ctl uint64, length time.Duration) error {
	f, ns, mask := r.d.fns[name], uint64(length), r.d.bufSize-16
	if b == hostagent.BenchMemory {
		mask = r.d.part(f.blocks) - 16
	}
	return r.d.launch(f, params(&ctl, &r.d.buf, &mask, &ns)...)
}

// stampSlot queues the kernel that writes the GPU's time into a slot's begin.
func (r *trainRun) stampSlot(slot int) error {
	at := r.ctl + uint64(slot)*kernels.CtlSize + kernels.CtlBegin
	return r.d.launchGrid(r.d.fns[kernels.Clock].handle, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, params(&at))
}

func (r *trainRun) run(ctx context.Context) (hostagent.Ran, error) {
	before, err := r.d.relate()
	if err != nil {
		return hostagent.Ran{}, err
	}
	queueErr := r.queue(ctx)
	if err := r.d.sync(); err != nil {
		return hostagent.Ran{}, errors.Join(queueErr, err)
	}
	if queueErr != nil {
		return hostagent.Ran{}, queueErr
	}
	words := make([]byte, r.slots*kernels.CtlSize)
	if err := r.d.download(words, r.ctl); err != nil {
		return hostagent.Ran{}, err
	}
	after, err := r.d.relate()
	if err != nil {
		return hostagent.Ran{}, err
	}
	return r.read(words, span{before, after})
}

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
func (r *trainRun) read(words []byte, s span) (hostagent.Ran, error) {
	begin := func(i int) uint64 { return binary.LittleEndian.Uint64(words[i*kernels.CtlSize+kernels.CtlBegin:]) }
	end := func(i int) uint64 { return binary.LittleEndian.Uint64(words[i*kernels.CtlSize+kernels.CtlEnd:]) }
	var out hostagent.Ran
	slot := 0
	for k, p := range r.t.Phases {
		first, last := slot, slot+p.Slices-1
		ran := hostagent.RanPhase{}
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
