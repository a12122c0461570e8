package sweep

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
)

// Kernel names one of the package's kernels.
type Kernel string

// The kernels.
const (
	// VectorAdd adds two vectors, a sum a thread: it waits for memory.
	VectorAdd Kernel = "vectoradd"
	// MatMul multiplies matrices by tiles in shared memory, a tile a block: it
	// computes.
	MatMul Kernel = "matmul"
)

// Kernels lists them.
func Kernels() []Kernel { return []Kernel{VectorAdd, MatMul} }

// Threads is the size of a block.
const Threads = 1024

// The matrices' sizes: A is tile by depth, B depth by tile·blocks.
const (
	tile  = 32
	depth = 64
)

//go:embed kernels.ptx
var kernelsPTX string

// Source is the PTX of both kernels, NUL-terminated.
func Source() []byte {
	var b strings.Builder
	for k := range tile {
		fmt.Fprintf(&b, "\tld.shared.f32 %%va, [%%ra+%d];\n\tld.shared.f32 %%vb, [%%rb+%d];\n\tfma.rn.f32 %%sum, "+
			"%%va, %%vb, %%sum;\n", 4*k, 4*tile*k)
	}
	return []byte(strings.Replace(kernelsPTX, "$PRODUCTS\n", b.String(), 1) + "\x00")
}

// Entry is the kernel's name in the PTX.
func (k Kernel) Entry() string { return "wm_" + string(k) }

// valid refuses the name of an unknown kernel with ErrPlan.
func (k Kernel) valid() error {
	if k != VectorAdd && k != MatMul {
		return fmt.Errorf("%w: kernel %q: want %s or %s", ErrPlan, k, VectorAdd, MatMul)
	}
	return nil
}

// Flops is the work of a block in one turn of its loop.
func (k Kernel) Flops() float64 {
	if k == MatMul {
		return 2 * depth * Threads
	}
	return Threads
}

// floats is how many numbers A, B and C hold for so many blocks.
func (k Kernel) floats(blocks uint64) [3]uint64 {
	if k == MatMul {
		return [3]uint64{tile * depth, depth * tile * blocks, Threads * blocks}
	}
	return [3]uint64{Threads * blocks, Threads * blocks, Threads * blocks}
}

// value is number i of operand A (0) or B (1): eighths from 1 to 3, all of whose
// products and sums here are exact in single precision, in whatever order.
func value(operand int, i uint64) float32 {
	h := (i + 1) * 0x9e3779b97f4a7c15 >> (20 + 7*operand)
	return 1 + float32(h%17)/8
}

// pack puts floats in pairs into words, as they lie in memory.
func pack(operand int, n uint64) []uint64 {
	out := make([]uint64, (n+1)/2)
	for i := range n {
		out[i/2] |= uint64(math.Float32bits(value(operand, i))) << (32 * (i % 2))
	}
	return out
}

// want is number i of C.
func (k Kernel) want(blocks, i uint64) float32 {
	if k == VectorAdd {
		return value(0, i) + value(1, i)
	}
	width := tile * blocks
	row, x := i/width, i%width
	var sum float32
	for d := range uint64(depth) {
		sum += value(0, row*depth+d) * value(1, d*width+x)
	}
	return sum
}

// Machine is a GPU that runs the kernels. Calls are made from one goroutine.
type Machine interface {
	Info() gpu.Info
	// Load makes a kernel ready for grids of up to so many blocks.
	Load(ctx context.Context, k Kernel, most uint64) (Loaded, error)
}

// Loaded is a kernel that is ready to run.
type Loaded interface {
	// Shape is how many multiprocessors there are, and how many blocks each holds.
	Shape() (sms, resident uint64)
	// Run launches blocks whose loops turn so often, and waits for their end.
	Run(ctx context.Context, blocks, loops uint64) (gpu.Span, error)
	// Check compares the last run's results with those computed here; ErrResult.
	Check(blocks uint64) error
	Close() error
}

// OnGPU makes a Machine of a GPU, which stays the caller's.
func OnGPU(d *cuda.Device) Machine { return programs{d} }

// programs is a Machine on a real GPU.
type programs struct{ *cuda.Device }

// loaded is a kernel with its data.
type loaded struct {
	k             Kernel
	p             *cuda.Program
	data          [3]*cuda.Buffer // A, B, C
	sms, resident uint64
}

// Load compiles a kernel, and fills its operands.
func (g programs) Load(ctx context.Context, k Kernel, most uint64) (_ Loaded, err error) {
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

// Shape returns the multiprocessors, and the blocks that each holds.
func (l *loaded) Shape() (sms, resident uint64) { return l.sms, l.resident }

// Run launches the kernel; matmul has one more parameter, which is zero.
func (l *loaded) Run(ctx context.Context, blocks, loops uint64) (gpu.Span, error) {
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
	return errors.Join(l.p.Close(), l.data[0].Close(), l.data[1].Close(), l.data[2].Close())
}
