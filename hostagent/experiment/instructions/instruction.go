// Package instructions measures the energy of single GPU instructions, after Arafa et al.,
// "Verified instruction-level energy consumption measurement for NVIDIA GPUs" (2020): a
// kernel whose loop has a block of dependent instructions, and the same kernel without the
// block; the difference of their energies, over the number of instructions, is the
// instruction's energy.
//
//	Catalogue ─ Instruction.PTX ─ Machine.Load ─ Plan: idle, with block, without, … idle
//	                                                │
//	              Comparison, Check ◀─ Estimates ◀─ Run (one program, measured once)
//
// The kernels are PTX text that this package writes and the driver compiles, at the
// requested optimisation level. Toolkit checks a block's instructions in the machine code with
// NVIDIA's tools.
package instructions

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
)

// ErrUnknown: there is no instruction of that name.
var ErrUnknown = errors.New("unknown instruction")

// Group is a heading of Table I of Arafa et al., or one of ours.
type Group string

// The groups. The first eight are those of Table I.
const (
	Integer    Group = "Integer arithmetic"
	Logic      Group = "Logic and shift"
	Single     Group = "Single precision"
	Double     Group = "Double precision"
	Half       Group = "Half precision"
	Multi      Group = "Multi precision"
	Special    Group = "Special mathematical"
	Intrinsic  Group = "Integer intrinsics"
	Bfloat     Group = "bfloat16"
	Conversion Group = "Conversions"
	Tensor     Group = "Tensor cores"
	Memory     Group = "Memory"
)

// Instruction is one row: a step that the block repeats, each step depending on
// the one before.
type Instruction struct {
	// Name is the PTX opcode with its type, and the row's key.
	Name  string `json:"name"`
	Group Group  `json:"group"`
	// Row is the row of Table I that it belongs to; empty where that has none.
	Row string `json:"row,omitempty"`
	// Bits is the width of the working register, 16, 32 or 64.
	Bits int `json:"bits"`
	// Step is PTX text. {x} is the working register, {y} a second one, {r} one of
	// five operands in turn, {s} a sixth.
	Step string `json:"step"`
	// Glue is PTX text that follows each step, in the kernel without the block as
	// well: it keeps the compiler from merging or dropping steps, or the value from
	// settling. Its cost cancels.
	Glue string `json:"glue,omitempty"`
	// Ops is how many of the instruction a step has.
	Ops int `json:"ops"`
	// Seeds are the bits of x, five operands and s.
	Seeds Seeds `json:"-"`
	// Threads is how many threads execute one instruction together: 1, or 32 of a
	// tensor core's.
	Threads int `json:"threads"`
	// Place is where a memory instruction finds its data.
	Place Place `json:"-"`
	// Before is PTX text ahead of the loop.
	Before string `json:"-"`
	// Next computes x after a step, as the GPU must; nil where Go cannot. r is the operand of
	// the step.
	Next func(x, r, s uint64) uint64 `json:"-"`
	// Least is the compute capability it needs, as 90 for 9.0; 0 for any.
	Least int `json:"least_compute_capability,omitempty"`
}

// Seeds are the bits that a program begins with: x, r0 to r4, s.
type Seeds [7]uint64

// Place is a level of the memory hierarchy.
type Place int

// The places.
const (
	NoMemory Place = iota
	InShared
	InL1
	InL2
	InDRAM
)

// Find returns the instructions whose names match; all for no names. A name may
// end in * to take all that begin so.
func Find(names ...string) ([]Instruction, error) {
	all := Catalogue()
	if len(names) == 0 {
		return all, nil
	}
	var out []Instruction
	taken := map[string]bool{}
	for _, n := range names {
		found := false
		prefix, wild := strings.CutSuffix(n, "*")
		for _, i := range all {
			if i.Name != n && !(wild && strings.HasPrefix(i.Name, prefix)) {
				continue
			}
			if found = true; !taken[i.Name] {
				taken[i.Name] = true
				out = append(out, i)
			}
		}
		if !found {
			return nil, fmt.Errorf("%w %q: wattmark instructions list names them all", ErrUnknown, n)
		}
	}
	return out, nil
}

// Result computes x after so many turns of a loop of steps, for thread 0. Only
// for instructions that have Next.
func (i Instruction) Result(turns uint64, steps int) uint64 {
	x := i.Seeds[0]
	for range turns {
		for n := range steps {
			x = i.Next(x, i.Seeds[1+n%operands], i.Seeds[1+operands])
		}
	}
	return x
}

// Kernel is the layout of a program.
type Kernel struct {
	// Steps is how many steps the loop's body has, a multiple of 5; 5 in Arafa et al.
	Steps int
	// Block is false for the kernel without the block: loop and glue alone.
	Block bool
	// Capability of the GPU, as 90 for 9.0.
	Capability int
}

// programPTX is the text of all programs; the parts that differ replace the words behind a $.
//
//go:embed instruction.ptx
var programPTX string

// Entry is the name of the programs' kernel. Its parameters are
//
//	u64 out    32 bytes a thread: u64 working register at the end, u64 cycles
//	u64 seeds  eight u64: x, five operands, s, and the loop's own selector; x is an
//	           address for memory rows
//	u64 count  how often the loop runs
//
// Thread i works on slot i. The counter has 64 bits: a full second of the
// fastest loop does not wrap it.
const Entry = "wm_instruction"

const (
	operands  = 5
	mostSteps = 4000
)

const (
	outBytes  = 32 // of each thread's output
	slotBytes = 32 // distance of two threads' slots: a sector
)

// PTX writes the program, NUL-terminated as the driver wants it.
func (i Instruction) PTX(k Kernel) ([]byte, error) {
	if k.Steps < operands || k.Steps%operands != 0 || k.Steps > mostSteps {
		return nil, fmt.Errorf("instructions: %d steps: want a multiple of %d, up to %d", k.Steps, operands, mostSteps)
	}
	if k.Capability < i.Least || k.Capability < 50 {
		return nil, fmt.Errorf("instructions: %s needs compute capability %.1f, this GPU has %.1f", i.Name,
			float64(max(i.Least, 50))/10, float64(k.Capability)/10)
	}
	version := "6.3"
	if i.Least >= 80 || k.Capability >= 89 {
		version = "8.4"
	}
	var body strings.Builder
	for n := range k.Steps {
		fill := strings.NewReplacer("{x}", "%x", "{y}", "%y", "{h}", "%h", "{s}", "%s",
			"{r}", fmt.Sprintf("%%r%d", n%operands))
		if k.Block {
			fmt.Fprintf(&body, "\t%s\n", fill.Replace(i.Step))
		}
		if i.Glue != "" {
			fmt.Fprintf(&body, "\t%s\n", fill.Replace(i.Glue))
		}
	}
	registers, begin, result := i.around()
	return []byte(strings.NewReplacer(
		"$VERSION", version, "$CAPABILITY", fmt.Sprint(k.Capability), "$BITS", fmt.Sprint(i.Bits),
		"$REGISTERS\n", registers, "$BEGIN\n", begin, "$BEFORE\n", i.Before, "$BODY\n", body.String(),
		"$RESULT\n", result,
	).Replace(programPTX) + "\x00"), nil
}

// around returns the PTX that an instruction needs besides its loop: registers of its own, the
// begin, which gives each thread's x a value of its own, and the result in %wide.
func (i Instruction) around() (registers, begin, result string) {
	result = map[int]string{
		16: "\tcvt.u64.u16 %wide, %x;\n", 32: "\tcvt.u64.u32 %wide, %x;\n", 64: "\tmov.b64 %wide, %x;\n",
	}[i.Bits]
	switch {
	case i.Place == InShared:
		registers = "\t.shared .align 8 .b32 own[1024];\n\t.reg .b32 %here;\n"
		begin = "\tmov.u32 %here, own;\n\tshl.b32 %x, %me, 2;\n\tadd.u32 %x, %x, %here;\n" +
			"\tst.shared.u32 [%x], %x;\n\tbar.sync 0;\n"
	case i.Place != NoMemory:
		begin = "\tcvta.to.global.u64 %x, %x;\n\tadd.u64 %x, %x, %slot;\n"
	case i.Group == Tensor:
		registers = "\t.reg .b32 %ma0, %ma1, %ma2, %ma3, %mb0, %mb1, %d1, %d2, %d3;\n"
		begin = "\tmov.b32 %d1, 0;\n\tmov.b32 %d2, 0;\n\tmov.b32 %d3, 0;\n"
		result = "\txor.b32 %x, %x, %d1;\n\txor.b32 %x, %x, %d2;\n\txor.b32 %x, %x, %d3;\n" + result
	case i.Bits == 32 && i.Group != Half && i.Group != Bfloat && i.Group != Conversion:
		// The lowest bits differ: sixteen values are enough to let bits toggle.
		begin = "\tand.b32 %thread, %thread, 15;\n\txor.b32 %x, %x, %thread;\n"
	}
	return registers, begin, result
}

// chainPTX writes the slots of a memory row, on the GPU: from the host it would
// take longer than the measurement.
//
//go:embed chain.ptx
var chainPTX string

const chainEntry = "wm_chain"

// dramBytes is many times the size of any L2 cache: threads that run ahead by a whole lap
// would leave lines in it for those that follow.
const (
	dramBytes      = 16 << 30
	leastDRAMBytes = 1 << 29
)

// chains makes the slots of a memory row: each holds the address of the next. They are linked on
// the GPU: slot i to slot i + stride, modulo slots.
func (g *GPU) chains(ctx context.Context, p Place, threads uint64) (_ *cuda.Buffer, err error) {
	if b := g.memories[memoryKey{p, threads}]; b != nil {
		return b, nil
	}
	slots, stride := threads, uint64(0)
	size := slots * slotBytes
	if p == InDRAM {
		size = dramBytes
	}
	b, err := g.Allocate(size)
	for err != nil && p == InDRAM && size > leastDRAMBytes { // a smaller card
		size /= 2
		b, err = g.Allocate(size)
	}
	if err != nil {
		return nil, err
	}
	if p == InDRAM {
		// The whole front of threads moves on by more than its own length, by an odd
		// number of slots: it comes back only when it has been everywhere.
		slots, stride = size/slotBytes, max(threads, 100_000)|1
	}
	program, err := g.Device.Load([]byte(chainPTX+"\x00"), chainEntry, 4)
	if err == nil {
		_, err = program.Run(ctx, [3]uint32{1024, 1, 1}, [3]uint32{256, 1, 1}, b.Address(), slots, stride)
		err = errors.Join(err, program.Close())
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	g.memories[memoryKey{p, threads}] = b
	return b, nil
}

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
	switch s.Layout {
	case OneThread:
		l.grid, l.block = [3]uint32{1, 1, 1}, [3]uint32{uint32(i.Threads), 1, 1}
	case WholeGPU:
		l.grid, l.block = [3]uint32{resident, 1, 1}, [3]uint32{blockThreads, 1, 1}
	default:
		return nil, fmt.Errorf("instructions: layout %q: want %s or %s", s.Layout, OneThread, WholeGPU)
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

// blockThreads is the block size of a whole GPU.
const blockThreads = 256
