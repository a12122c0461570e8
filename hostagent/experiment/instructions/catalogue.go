package instructions

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Catalogue lists all instructions, in the order of the table.
func Catalogue() []Instruction {
	return slices.Concat(integerRows(), logicRows(), floatRows(), halfRows(), multiRows(), specialRows(),
		intrinsicRows(), conversionRows(), tensorRows(), memoryRows())
}

// Integers. Operands are odd and differ, so that values go on changing. The byte
// permutation is opaque to the compiler: without it two additions become one
// IADD3, and two logic operations one LOP3.
const (
	opaque = "prmt.b32 {x}, {x}, {x}, {s};"
	// rotate is the selector of opaque: bytes 1, 2, 3, 0.
	rotate = 0x0321

	// feeding is opaque as well, and puts an operand's lowest byte on top: for steps
	// that would run a value dry.
	feeding = "prmt.b32 {x}, {x}, {r}, {s};"
	// feed is the selector of feeding: bytes 1, 2, 3 of x, byte 0 of the operand.
	feed = 0x4321
)

var words = Seeds{0x9E3779B9, 0x7F4A7C15, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B1, rotate}

// whole makes an integer row whose step is OP x, x, r, with the permutation behind.
func whole(group Group, row, name string, next func(x, r uint32) uint32) Instruction {
	return Instruction{
		Name: name, Group: group, Row: row, Bits: 32, Ops: 1, Threads: 1, Seeds: words,
		Step: name + " {x}, {x}, {r};", Glue: opaque,
		Next: func(x, r, _ uint64) uint64 {
			v := next(uint32(x), uint32(r))
			return uint64(v>>8 | v<<24)
		},
	}
}

// dry is whole for a step that runs its value dry, or settles.
func dry(group Group, row, name string, seeds Seeds, next func(x, r uint32) uint32) Instruction {
	i := whole(group, row, name, nil)
	i.Seeds, i.Glue = seeds, feeding
	i.Seeds[6] = feed
	i.Next = func(x, r, _ uint64) uint64 {
		return uint64(next(uint32(x), uint32(r))>>8 | uint32(r)<<24)
	}
	return i
}

// stepped gives an instruction another step, as one with fewer or more operands has.
func stepped(i Instruction, step string) Instruction {
	i.Step = step
	return i
}

const addRow = "add / sub / min / max"

// integerRows are the rows of Integer, with their results in Go.
func integerRows() []Instruction {
	signed := func(f func(a, b int32) int32) func(x, r uint32) uint32 {
		return func(x, r uint32) uint32 { return uint32(f(int32(x), int32(r))) }
	}
	quotients := Seeds{2000000011, 7, 1013, 31, 523, 97}
	return []Instruction{
		whole(Integer, addRow, "add.s32", func(x, r uint32) uint32 { return x + r }),
		whole(Integer, addRow, "sub.s32", func(x, r uint32) uint32 { return x - r }),
		whole(Integer, addRow, "min.s32", signed(func(a, b int32) int32 { return min(a, b) })),
		whole(Integer, addRow, "max.s32", signed(func(a, b int32) int32 { return max(a, b) })),
		whole(Integer, "mul / mad", "mul.lo.s32", func(x, r uint32) uint32 { return x * r }),
		stepped(whole(Integer, "mul / mad", "mad.lo.s32", func(x, r uint32) uint32 { return x*r + rotate }),
			"mad.lo.s32 {x}, {x}, {r}, {s};"),
		stepped(whole(Integer, "abs", "abs.s32", signed(func(a, _ int32) int32 { return max(a, -a) })),
			"abs.s32 {x}, {x};"),
		dry(Integer, "{s} div", "div.s32", quotients, signed(func(a, b int32) int32 { return a / b })),
		dry(Integer, "{s} rem", "rem.s32", quotients, signed(func(a, b int32) int32 { return a % b })),
		dry(Integer, "{u} div", "div.u32", quotients, func(x, r uint32) uint32 { return x / r }),
		dry(Integer, "{u} rem", "rem.u32", quotients, func(x, r uint32) uint32 { return x % r }),
	}
}

// logicRows are the rows of Logic.
func logicRows() []Instruction {
	const row = "and / or / not / xor"
	shifts := Seeds{0x9E3779B9, 1, 3, 2, 5, 4}
	isZero := func(x, _ uint32) uint32 {
		if x == 0 {
			return 1
		}
		return 0
	}
	return []Instruction{
		whole(Logic, row, "and.b32", func(x, r uint32) uint32 { return x & r }),
		whole(Logic, row, "or.b32", func(x, r uint32) uint32 { return x | r }),
		stepped(whole(Logic, row, "not.b32", func(x, _ uint32) uint32 { return ^x }), "not.b32 {x}, {x};"),
		whole(Logic, row, "xor.b32", func(x, r uint32) uint32 { return x ^ r }),
		stepped(whole(Logic, "cnot", "cnot.b32", isZero), "cnot.b32 {x}, {x};"),
		dry(Logic, "shl / shr", "shl.b32", shifts, func(x, r uint32) uint32 { return x << r }),
		dry(Logic, "shl / shr", "shr.u32", shifts, func(x, r uint32) uint32 { return x >> r }),
	}
}

// Multi precision: the carry flag ties two instructions together, so a step has
// both, and the row is their mean.
func multiRows() []Instruction {
	pair := func(name, row, step string, next func(x, r, s uint64) uint64) Instruction {
		i := stepped(whole(Multi, row, name, nil), step)
		i.Ops, i.Glue, i.Next = 2, "", next
		return i
	}
	return []Instruction{
		pair("add.cc.u32, addc.u32", "add.cc / addc / sub.cc", "add.cc.u32 {y}, {x}, {r}; addc.u32 {x}, {y}, {r};",
			func(x, r, _ uint64) uint64 {
				sum := x + r // 33 bits
				return uint64(uint32(sum) + uint32(r) + uint32(sum>>32))
			}),
		pair("sub.cc.u32, subc.u32", "subc", "sub.cc.u32 {y}, {x}, {r}; subc.u32 {x}, {y}, {r};",
			func(x, r, _ uint64) uint64 {
				d, borrow := bits.Sub32(uint32(x), uint32(r), 0)
				return uint64(d - uint32(r) - borrow)
			}),
		pair("mad.lo.cc.u32, madc.hi.u32", "mad.cc / madc",
			"mad.lo.cc.u32 {y}, {x}, {r}, {s}; madc.hi.u32 {x}, {x}, {r}, {y};",
			func(x, r, s uint64) uint64 {
				p := x * r
				low := p&0xFFFFFFFF + s
				return uint64(uint32(p>>32) + uint32(low) + uint32(low>>32))
			}),
	}
}

// intrinsicRows are the rows of Intrinsic, named as in CUDA.
func intrinsicRows() []Instruction {
	const low24 = 0xFFFFFF
	threeOperands := func(row, name string, next func(x, r uint32) uint32) Instruction {
		return stepped(whole(Intrinsic, row, name, next), name+" {x}, {x}, {r}, {s};")
	}
	counted := func(name string, f func(x uint32) int) Instruction {
		i := dry(Intrinsic, name[:strings.IndexByte(name, '.')]+"()", name, words,
			func(x, _ uint32) uint32 { return uint32(f(x)) })
		return stepped(i, name+" {x}, {x};")
	}
	return []Instruction{
		whole(Intrinsic, "mul24() / mad24()", "mul24.lo.u32",
			func(x, r uint32) uint32 { return (x & low24) * (r & low24) }),
		threeOperands("mul24() / mad24()", "mad24.lo.u32",
			func(x, r uint32) uint32 { return (x&low24)*(r&low24) + rotate }),
		threeOperands("sad()", "sad.u32", func(x, r uint32) uint32 { return max(x, r) - min(x, r) + rotate }),
		counted("popc.b32", bits.OnesCount32),
		counted("clz.b32", bits.LeadingZeros32),
		// The place of the highest one, all ones for zero (PTX ISA).
		counted("bfind.u32", func(x uint32) int { return bits.Len32(x) - 1 }),
	}
}

// Floating point. The compiler must not reorder it, so that steps stand without
// glue. Five operands in a row undo each other, which keeps values finite over any
// number of steps: sums that cancel, products near 1, and multiply-adds that lead
// back to 1, as x·0.75 + 0.25.
var (
	sums     = []float64{1.5, 0.3125, -0.171875, 0.25, -0.4375, 0.046875, 0}
	products = []float64{1.37, 1.5, 0.8, 0.75, 1.25, 1 / 1.125, 0}
	around   = []float64{1.37, 0.75, 0.8125, 0.6875, 0.78125, 0.71875, 0.25}
)

// floating makes a row of either precision. Its seeds are bit patterns; missing ones are zero.
func floating(group Group, row, name string, seeds []float64, f func(x, r, s float64) float64) Instruction {
	i := Instruction{Name: name, Group: group, Row: row, Ops: 1, Threads: 1, Bits: 32, Step: name + " {x}, {x}, {r};"}
	// Sums, products and quotients of two singles, taken in double precision and
	// rounded once more, are those of single precision (Figueroa, 1995).
	number := func(bits uint64) float64 { return float64(math.Float32frombits(uint32(bits))) }
	pattern := func(v float64) uint64 { return uint64(math.Float32bits(float32(v))) }
	if group == Double {
		i.Bits, number, pattern = 64, math.Float64frombits, math.Float64bits
	}
	for n, v := range seeds {
		i.Seeds[n] = pattern(v)
	}
	if f != nil {
		i.Next = func(x, r, s uint64) uint64 { return pattern(f(number(x), number(r), number(s))) }
	}
	return i
}

// floatRows are the rows of Single and Double.
func floatRows() []Instruction {
	var out []Instruction
	for _, p := range []struct {
		group     Group
		t, fmaRow string
	}{
		{Single, "f32", "mul / mad / fma"},
		{Double, "f64", ""},
	} {
		row := func(row, op string, seeds []float64, f func(x, r, _ float64) float64) Instruction {
			return floating(p.group, row, op+"."+p.t, seeds, f)
		}
		out = append(out,
			row(addRow, "add", sums, func(x, r, _ float64) float64 { return x + r }),
			row(addRow, "sub", sums, func(x, r, _ float64) float64 { return x - r }),
			row(addRow, "min", products, func(x, r, _ float64) float64 { return min(x, r) }),
			row(addRow, "max", products, func(x, r, _ float64) float64 { return max(x, r) }),
			row(p.fmaRow, "mul", products, func(x, r, _ float64) float64 { return x * r }),
		)
		fused := []string{"mad.rn", "fma.rn"}
		if p.group == Double {
			fused = fused[1:]
		}
		for _, op := range fused {
			out = append(out, stepped(row(p.fmaRow, op, around, math.FMA), op+"."+p.t+" {x}, {x}, {r}, {s};"))
		}
		out = append(out, row("div", "div.rn", products, func(x, r, _ float64) float64 { return x / r }))
	}
	return out
}

// The special functions are approximations of the hardware: nothing here
// predicts their last bits.
func specialRows() []Instruction {
	row := func(row, name, glue string, seeds ...float64) Instruction {
		i := stepped(floating(Special, row, name, seeds, nil), name+" {x}, {x};")
		i.Glue = glue
		return i
	}
	copysign := row("copysign", "copysign.f32", opaque, 1.37, 1, -1, 1, -1, 1)
	copysign.Step, copysign.Seeds[6] = "copysign.f32 {x}, {r}, {x};", rotate
	return []Instruction{
		row("rcp", "rcp.rn.f32", "", 1.37),
		row("sqrt", "sqrt.rn.f32", "", 1.37),
		row("approx.sqrt", "sqrt.approx.f32", "", 1.37),
		row("rsqrt", "rsqrt.approx.f32", "", 1.37),
		row("sin / cos", "sin.approx.f32", "", 1.37),
		row("sin / cos", "cos.approx.f32", "", 1.37),
		row("lg2", "lg2.approx.f32", "add.f32 {x}, {x}, {s};", 2.2, 0, 0, 0, 0, 0, 1.6),
		row("ex2", "ex2.approx.f32", "mul.f32 {x}, {x}, {s};", 0.3, 0, 0, 0, 0, 0, 0.3),
		copysign,
	}
}

// Sixteen bits and fewer. Seeds are bit patterns: 0x3C00 is 1 in half precision,
// 0x3F80 in bfloat16.
var (
	// 1.5; 0.3125, -0.171875, 0.25, -0.4375, 0.046875, which add up to nothing.
	halfSums = Seeds{0x3E00, 0x3500, 0xB180, 0x3400, 0xB700, 0x2A00, 0x3400}
	bfSums   = Seeds{0x3FC0, 0x3EA0, 0xBE30, 0x3E80, 0xBEE0, 0x3D40, 0x3E80}
	// 1.37; 1.5, 0.8, 0.75, 1.25, 0.889, whose product is about 1.
	halfProducts = Seeds{0x3D7A, 0x3E00, 0x3A66, 0x3A00, 0x3D00, 0x3B1C, 0x3400}
	// 1.37; 0.75, 0.8125, 0.6875, 0.78125, 0.71875; 0.25.
	halfAround = Seeds{0x3D7A, 0x3A00, 0x3A80, 0x3980, 0x3A40, 0x39C0, 0x3400}
	bfAround   = Seeds{0x3FAF, 0x3F40, 0x3F50, 0x3F30, 0x3F48, 0x3F38, 0x3E80}
)

// narrow makes a row of 16-bit registers.
func narrow(group Group, row, name, operands string, least int, seeds Seeds) Instruction {
	return Instruction{
		Name: name, Group: group, Row: row, Bits: 16, Step: name + operands, Ops: 1, Threads: 1, Seeds: seeds,
		Least: least,
	}
}

// twice packs a half into both halves of a word.
func twice(s Seeds) (out Seeds) {
	for i, v := range s {
		out[i] = v | v<<16
	}
	return out
}

// halfRows are the rows of Half and Bfloat. Packed ones hold two values in 32 bits.
func halfRows() []Instruction {
	const row, two, three = "add / sub / mul", " {x}, {x}, {r};", " {x}, {x}, {r}, {s};"
	packed := func(i Instruction) Instruction { i.Bits, i.Seeds = 32, twice(i.Seeds); return i }
	return []Instruction{
		narrow(Half, row, "add.f16", two, 53, halfSums),
		narrow(Half, row, "sub.f16", two, 53, halfSums),
		narrow(Half, row, "mul.f16", two, 53, halfProducts),
		narrow(Half, "", "fma.rn.f16", three, 53, halfAround),
		packed(narrow(Half, "", "fma.rn.f16x2", three, 53, halfAround)),
		narrow(Bfloat, "", "add.bf16", two, 90, bfSums),
		narrow(Bfloat, "", "fma.rn.bf16", three, 80, bfAround),
		packed(narrow(Bfloat, "", "fma.rn.bf16x2", three, 80, bfAround)),
	}
}

// A conversion leads back in a second one, so that a step has two.
func conversionRows() []Instruction {
	there := func(name, first, second string, least int, seeds Seeds) Instruction {
		i := stepped(narrow(Conversion, "", name, "", least, seeds), first+" {h}, {x}; "+second+" {x}, {h};")
		i.Bits, i.Ops = 32, 2
		return i
	}
	one := Seeds{uint64(math.Float32bits(1.37))}
	fp8 := func(kind string) Instruction {
		return there("cvt f16x2 to "+kind+", and back", "cvt.rn.satfinite."+kind+".f16x2", "cvt.rn.f16x2."+kind, 89,
			twice(halfProducts))
	}
	return []Instruction{
		there("cvt f32 to f16, and back", "cvt.rn.f16.f32", "cvt.f32.f16", 53, one),
		there("cvt f32 to bf16, and back", "cvt.rn.bf16.f32", "cvt.f32.bf16", 90, one),
		fp8("e4m3x2"), fp8("e5m2x2"),
	}
}

// Tensor cores: a warp multiplies two matrices and adds a third. {x} is the first
// register of the sum, whose others are {d1} to {d3}; the factors are fixed, and
// small enough for the sum to stay finite: x·0 + … would let the hardware rest.
//
// There is no row for 8-bit floats: a Hopper has them for whole warp groups only
// (wgmma), and its compiler makes mma.sync out of conversions and half precision.
func tensorRows() []Instruction {
	const sum = "{{x}, %d1, %d2, %d3}"
	// The factors' registers: four of the one, two of the other, made of the operands.
	var before strings.Builder
	for i := range 4 {
		fmt.Fprintf(&before, "\txor.b32 %%ma%d, %%r%d, %d;\n", i, i%4, i<<3)
	}
	for i := range 2 {
		fmt.Fprintf(&before, "\txor.b32 %%mb%d, %%r%d, %d;\n", i, (i+1)%4, i<<4)
	}
	row := func(name, shape, types string, seed uint64) Instruction {
		return Instruction{
			Name: "mma " + shape + " " + name, Group: Tensor, Bits: 32, Ops: 1, Threads: 32, Least: 80,
			Seeds:  Seeds{0, seed, seed ^ 0x80008000, seed ^ 0x00400040, seed ^ 0x80408040, seed, 0},
			Before: before.String(),
			Step: "mma.sync.aligned." + shape + ".row.col." + types + " " + sum +
				", {%ma0, %ma1, %ma2, %ma3}, {%mb0, %mb1}, " + sum + ";",
		}
	}
	return []Instruction{
		row("f32 += f16·f16", "m16n8k16", "f32.f16.f16.f32", 0x1A001A00),
		row("f32 += bf16·bf16", "m16n8k16", "f32.bf16.bf16.f32", 0x3B803B80),
		row("f32 += tf32·tf32", "m16n8k8", "f32.tf32.tf32.f32", 0x3B803B80),
		row("s32 += s8·s8", "m16n8k32", "s32.s8.s8.s32", 0x01FF02FE),
	}
}

// Memory: each load gives the address of the next. Every thread has a slot of
// its own, a sector of 32 bytes. In L1, L2 and shared memory a slot points to
// itself; in DRAM to the slot of the next lap, through more memory than L2 holds.
func memoryRows() []Instruction {
	load := func(op, where string, bits int, p Place) Instruction {
		return Instruction{
			Name: op + where, Group: Memory, Bits: bits, Ops: 1, Threads: 1, Place: p, Step: op + " {x}, [{x}];",
			Least: 70,
		}
	}
	return []Instruction{
		load("ld.shared.u32", "", 32, InShared),
		load("ld.global.ca.u64", ", hits L1", 64, InL1),
		load("ld.global.cg.u64", ", hits L2", 64, InL2),
		load("ld.global.cg.u64", ", from DRAM", 64, InDRAM),
	}
}
