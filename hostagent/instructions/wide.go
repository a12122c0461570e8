package instructions

import (
	"fmt"
	"strings"
)

// Tensor cores: a warp multiplies two matrices and adds a third. {x} is the first
// register of the sum, whose others are {d1} to {d3}; the factors are fixed, and
// small enough for the sum to stay finite: x·0 + … would let the hardware rest.
//
// There is no row for 8-bit floats: a Hopper has them for whole warp groups only
// (wgmma), and its compiler makes mma.sync out of conversions and half precision.
func tensorRows() []Instruction {
	row := func(name, shape, types string, a, b int, least int, seed uint64) Instruction {
		list := func(prefix string, n int) string {
			var r []string
			for i := range n {
				r = append(r, fmt.Sprintf("%%%s%d", prefix, i))
			}
			return "{" + strings.Join(r, ", ") + "}"
		}
		var before strings.Builder
		for i := range a {
			fmt.Fprintf(&before, "\txor.b32 %%ma%d, %%r%d, %d;\n", i, i%4, i<<3)
		}
		for i := range b {
			fmt.Fprintf(&before, "\txor.b32 %%mb%d, %%r%d, %d;\n", i, (i+1)%4, i<<4)
		}
		d := "{{x}, %d1, %d2, %d3}"
		return Instruction{
			Name: name, Group: Tensor, Bits: 32, Ops: 1, Threads: 32, Least: least,
			Seeds:  Seeds{0, seed, seed ^ 0x80008000, seed ^ 0x00400040, seed ^ 0x80408040, seed, 0},
			Before: before.String(),
			Step:   fmt.Sprintf("mma.sync.aligned.%s.row.col.%s %s, %s, %s, %s;", shape, types, d, list("ma", a), list("mb", b), d),
		}
	}
	return []Instruction{
		row("mma m16n8k16 f32 += f16·f16", "m16n8k16", "f32.f16.f16.f32", 4, 2, 80, 0x1A001A00),
		row("mma m16n8k16 f32 += bf16·bf16", "m16n8k16", "f32.bf16.bf16.f32", 4, 2, 80, 0x3B803B80),
		row("mma m16n8k8 f32 += tf32·tf32", "m16n8k8", "f32.tf32.tf32.f32", 4, 2, 80, 0x3B803B80),
		row("mma m16n8k32 s32 += s8·s8", "m16n8k32", "s32.s8.s8.s32", 4, 2, 80, 0x01FF02FE),
	}
}

// Memory: each load gives the address of the next. Every thread has a slot of
// its own, a sector of 32 bytes. In L1, L2 and shared memory a slot points to
// itself; in DRAM to the slot of the next lap, through more memory than L2 holds.
func memoryRows() []Instruction {
	load := func(name, op string, p Place) Instruction {
		return Instruction{
			Name: name, Group: Memory, Bits: 64, Ops: 1, Threads: 1, Place: p, Step: op + " {x}, [{x}];", Least: 70,
		}
	}
	shared := load("ld.shared.u32", "ld.shared.u32", InShared)
	shared.Bits = 32
	return []Instruction{
		shared,
		load("ld.global.ca.u64, hits L1", "ld.global.ca.u64", InL1),
		load("ld.global.cg.u64, hits L2", "ld.global.cg.u64", InL2),
		load("ld.global.cg.u64, from DRAM", "ld.global.cg.u64", InDRAM),
	}
}

// SlotBytes is the distance of two threads' slots: a sector.
const SlotBytes = 32
