package sweep

import (
	_ "embed"
	"fmt"
	"math"
	"strings"
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
		fmt.Fprintf(&b, "\tld.shared.f32 %%va, [%%ra+%d];\n\tld.shared.f32 %%vb, [%%rb+%d];\n\tfma.rn.f32 %%sum, %%va, %%vb, %%sum;\n", 4*k, 4*tile*k)
	}
	return []byte(strings.Replace(kernelsPTX, "$PRODUCTS\n", b.String(), 1) + "\x00")
}

// Entry is the kernel's name in the PTX.
func (k Kernel) Entry() string { return "wm_" + string(k) }

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
