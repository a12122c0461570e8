package instructions

import (
	"context"
	"errors"
	"fmt"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
)

// GPU is a Machine on a real GPU.
type GPU struct {
	*cuda.Device
	memories map[memoryKey]*cuda.Buffer
}

// memoryKey names the data of memory rows: it takes long to lay out.
type memoryKey struct {
	place   Place
	threads uint64
}

// OnGPU makes a Machine of a GPU, which stays the caller's.
func OnGPU(d *cuda.Device) *GPU { return &GPU{d, map[memoryKey]*cuda.Buffer{}} }

// Close frees the memory that is kept for the next program.
func (g *GPU) Close() error {
	var errs []error
	for k, b := range g.memories {
		errs = append(errs, b.Close())
		delete(g.memories, k)
	}
	return errors.Join(errs...)
}

// gpuProgram is a program with its data.
type gpuProgram struct {
	p           *cuda.Program
	out, seeds  *cuda.Buffer
	grid, block [3]uint32
}

// Load compiles a program and lays out its data.
func (g *GPU) Load(ctx context.Context, i Instruction, source []byte, s Setting) (_ Loaded, err error) {
	l := &gpuProgram{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.p, err = g.Device.Load(source, Entry, s.Level); err != nil {
		return nil, fmt.Errorf("%s: %w", i.Name, err)
	}
	resident, err := l.p.Blocks(blockThreads)
	if err != nil {
		return nil, err
	}
	if l.grid, l.block, err = s.Layout.shape(i, resident); err != nil {
		return nil, err
	}
	seeds := append(i.Seeds[:], rotate)
	if i.Place == InL1 || i.Place == InL2 || i.Place == InDRAM {
		memory, err := g.chains(ctx, i.Place, l.threads())
		if err != nil {
			return nil, err
		}
		seeds[0] = memory.Address()
	}
	if l.seeds, err = g.Allocate(8 * uint64(len(seeds))); err != nil {
		return nil, err
	}
	if err = l.seeds.Upload(seeds); err != nil {
		return nil, err
	}
	l.out, err = g.Allocate(outBytes * l.threads())
	return l, err
}

// threads is how many threads a launch has.
func (l *gpuProgram) threads() uint64 { return uint64(l.grid[0]) * uint64(l.block[0]) }

// Run runs the loop so many times in every thread.
func (l *gpuProgram) Run(ctx context.Context, turns uint64) (Launch, error) {
	span, err := l.p.Run(ctx, l.grid, l.block, l.out.Address(), l.seeds.Address(), turns)
	if err != nil {
		return Launch{}, err
	}
	var left [2]uint64
	if err := l.out.Download(left[:]); err != nil {
		return Launch{}, err
	}
	return Launch{Span: span, Threads: l.threads(), X: left[0], Cycles: left[1]}, nil
}

// Close frees it.
func (l *gpuProgram) Close() error { return errors.Join(l.p.Close(), l.out.Close(), l.seeds.Close()) }

// Layout is the number of threads that run a program.
type Layout string

// The layouts.
const (
	// OneThread is that of Arafa et al.: one block of one thread, or of the one warp that a
	// tensor core's instruction needs. The power is nearly that of a GPU that is awake; the
	// instruction adds time.
	OneThread Layout = "one-thread"
	// WholeGPU fills all multiprocessors: the instruction's own power stands out.
	WholeGPU Layout = "whole-gpu"
)

// Setting is how a program is compiled and run.
type Setting struct {
	Layout Layout `json:"layout"`
	// Level is that of the driver's compiler: 0 or 3.
	Level int `json:"level"`
	// Steps of the loop's body.
	Steps int `json:"steps"`
}

// Launch is one run of a program.
type Launch struct {
	Span    gpu.Span
	Threads uint64
	// X is the working register of thread 0 at the end, Cycles the length of its loop.
	X, Cycles uint64
}

// Loaded is a program that is ready to run.
type Loaded interface {
	// Run runs the loop so many times in every thread.
	Run(ctx context.Context, turns uint64) (Launch, error)
	Close() error
}

// Machine is a GPU that runs programs. Calls are made from one goroutine.
type Machine interface {
	Info() gpu.Info
	// Capability is the compute capability, as 90 for 9.0.
	Capability() (int, error)
	// Load compiles a program and lays out its data.
	Load(ctx context.Context, i Instruction, source []byte, s Setting) (Loaded, error)
}

// shape returns the grid and block of a layout; resident is how many blocks of
// blockThreads the whole GPU holds.
func (l Layout) shape(i Instruction, resident uint32) (grid, block [3]uint32, err error) {
	switch l {
	case OneThread:
		return [3]uint32{1, 1, 1}, [3]uint32{uint32(i.Threads), 1, 1}, nil
	case WholeGPU:
		return [3]uint32{resident, 1, 1}, [3]uint32{blockThreads, 1, 1}, nil
	}
	return grid, block, fmt.Errorf("instructions: layout %q: want %s or %s", l, OneThread, WholeGPU)
}

// blockThreads is the block size of a whole GPU.
const blockThreads = 256
