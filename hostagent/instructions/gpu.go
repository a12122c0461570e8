package instructions

import (
	"context"
	"errors"
	"fmt"

	"wattmark/hostagent/cuda"
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

// Close frees what was kept for the next program.
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
	l.out, err = g.Allocate(OutBytes * l.threads())
	return l, err
}

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
func (l *gpuProgram) Close() error {
	var errs []error
	if l.p != nil {
		errs = append(errs, l.p.Close())
	}
	for _, b := range []*cuda.Buffer{l.out, l.seeds} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	return errors.Join(errs...)
}
