package instructions

import (
	"errors"
	"fmt"
	"strings"
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
	// Next computes x after a step, where Go computes what the GPU must; nil where
	// it does not. r is the operand of the step.
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
