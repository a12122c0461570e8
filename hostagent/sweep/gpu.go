package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"

	"wattmark/hostagent"
	"wattmark/hostagent/cuda"
)

// Machine is a GPU that runs the kernels. Calls are made from one goroutine.
type Machine interface {
	Info() hostagent.Info
	// Load makes a kernel ready for grids of up to so many blocks.
	Load(ctx context.Context, k Kernel, most uint64) (Loaded, error)
}

// Loaded is a kernel that is ready to run.
type Loaded interface {
	// Shape is how many multiprocessors there are, and how many blocks each holds.
	Shape() (sms, resident uint64)
	// Run launches blocks whose loops turn so often, and waits for their end.
	Run(ctx context.Context, blocks, loops uint64) (hostagent.Span, error)
	// Check holds the last run's results against what they must be.
	Check(blocks uint64) error
	Close() error
}

// OnGPU makes a Machine of a GPU, which stays the caller's.
func OnGPU(d *cuda.Device) Machine { return gpu{d} }

type gpu struct{ *cuda.Device }

// loaded is a kernel with its data.
type loaded struct {
	k             Kernel
	p             *cuda.Program
	data          [3]*cuda.Buffer // A, B, C
	sms, resident uint64
}

// Load compiles a kernel, and fills its operands.
func (g gpu) Load(ctx context.Context, k Kernel, most uint64) (_ Loaded, err error) {
	if err := k.valid(); err != nil {
		return nil, err
	}
	l := &loaded{k: k}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.p, err = g.Device.Load(Source(), k.Entry(), 4); err != nil {
		return nil, err
	}
	all, err := l.p.Blocks(Threads)
	if err != nil {
		return nil, err
	}
	l.sms = uint64(g.SMs())
	l.resident = max(1, uint64(all)/l.sms)
	for n, floats := range k.floats(most) {
		if l.data[n], err = g.Allocate(4 * floats); err != nil {
			return nil, err
		}
		if n == 2 || ctx.Err() != nil {
			continue
		}
		if err = l.data[n].Upload(pack(n, floats)); err != nil {
			return nil, err
		}
	}
	return l, context.Cause(ctx)
}

func (l *loaded) Shape() (sms, resident uint64) { return l.sms, l.resident }

func (l *loaded) Run(ctx context.Context, blocks, loops uint64) (hostagent.Span, error) {
	args := []uint64{l.data[0].Address(), l.data[1].Address(), l.data[2].Address(), loops}
	if l.k == MatMul {
		args = append(args, 0)
	}
	return l.p.Run(ctx, [3]uint32{uint32(blocks), 1, 1}, [3]uint32{Threads, 1, 1}, args...)
}

// Check reads C back.
func (l *loaded) Check(blocks uint64) error {
	n := l.k.floats(blocks)[2]
	words := make([]uint64, n/2)
	if err := l.data[2].Download(words); err != nil {
		return err
	}
	// Every row and the ends of the grid are among these; all would take longer
	// than the sweep.
	for i := uint64(0); i < n; i += max(1, n/4096) {
		got := math.Float32frombits(uint32(words[i/2] >> (32 * (i % 2))))
		if want := l.k.want(blocks, i); got != want {
			return fmt.Errorf("%w: %s of %d blocks gives %v at %d, %v is right", ErrResult, l.k, blocks, got, i, want)
		}
	}
	return nil
}

// Close unloads the kernel and its data.
func (l *loaded) Close() error {
	var errs []error
	if l.p != nil {
		errs = append(errs, l.p.Close())
	}
	for _, b := range l.data {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	return errors.Join(errs...)
}
