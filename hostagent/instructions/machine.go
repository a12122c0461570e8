package instructions

import (
	"context"
	"fmt"

	"wattmark/hostagent"
)

// Layout says how many threads run a program.
type Layout string

// The layouts.
const (
	// OneThread is that of Arafa et al.: one block of one thread, or of the one
	// warp that a tensor core's instruction needs. Its power is that of a GPU which
	// is awake; what the instruction adds is its time.
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
	Span    hostagent.Span
	Threads uint64
	// X is the working register of thread 0 at the end, and Cycles what its loop took.
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
	Info() hostagent.Info
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
