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
// requested optimisation level. Count counts a block's instructions in the PTX; Toolkit
// checks them in the machine code with NVIDIA's tools.
package instructions

import (
	"errors"
	"fmt"
	"strings"

	"github.com/wattmark/wattmark/internal/lazy"
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

// Catalogue lists all instructions, in the order of the table.
func Catalogue() []Instruction {
	var out []Instruction
	for _, part := range [][]Instruction{
		integerRows(), logicRows(), floatRows(), halfRows(), multiRows(), specialRows(), intrinsicRows(),
		conversionRows(), tensorRows(), memoryRows(),
	} {
		out = append(out, part...)
	}
	return out
}

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
			found = true
			if !taken[i.Name] {
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

// Counts are the instructions in a program's text.
type Counts struct {
	// Loop is the number of instructions between the loop's label and its branch,
	// the branch included.
	Loop int
}

var ptxComment = lazy.Regexp(`(?s)//[^\n]*|/\*.*?\*/`)

// Count counts instructions in PTX text: statements that end in a semicolon and
// are no declaration.
func Count(ptx []byte) (c Counts) {
	text := ptxComment().ReplaceAllString(strings.TrimRight(string(ptx), "\x00"), "")
	_, text, _ = strings.Cut(text, "LOOP:")
	loop, _, found := strings.Cut(text, "bra LOOP;")
	if !found {
		return c
	}
	for s := range strings.SplitSeq(loop, ";") {
		if s = strings.TrimSpace(s); s != "" && !strings.HasPrefix(s, ".") {
			c.Loop++
		}
	}
	return c // the branch's own guard is the last statement, without its semicolon
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
