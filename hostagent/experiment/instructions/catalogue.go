package instructions

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// Integers. Operands are odd and differ, so that values go on changing. The byte
// permutation is opaque to the compiler: without it two additions become one
// IADD3, and two logic operations one LOP3.

const opaque = "prmt.b32 {x}, {x}, {x}, {s};"

// rotate is the selector of opaque: bytes 1, 2, 3, 0.
const rotate = 0x0321

// feeding is opaque as well, and puts an operand's lowest byte on top: for steps
// that would run a value dry.
const feeding = "prmt.b32 {x}, {x}, {r}, {s};"

// feed is the selector of feeding: bytes 1, 2, 3 of x, byte 0 of the operand.
const feed = 0x4321

// fed is feeding in Go.
func fed(x uint32, r uint64) uint64 { return uint64(x>>8 | uint32(r)<<24) }

var words = Seeds{0x9E3779B9, 0x7F4A7C15, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B1, rotate}

// rotated is opaque in Go.
func rotated(v uint32) uint64 { return uint64(v>>8 | v<<24) }

// whole makes an integer row whose step is OP x, x, r, with the permutation behind.
func whole(group Group, row, name string, next func(x, r uint32) uint32) Instruction {
	return Instruction{
		Name: name, Group: group, Row: row, Bits: 32, Ops: 1, Threads: 1, Seeds: words,
		Step: name + " {x}, {x}, {r};", Glue: opaque,
		Next: func(x, r, _ uint64) uint64 { return rotated(next(uint32(x), uint32(r))) },
	}
}

// dry is whole for a step that runs its value dry, or settles.
func dry(group Group, row, name string, seeds Seeds, next func(x, r uint32) uint32) Instruction {
	i := whole(group, row, name, nil)
	i.Seeds, i.Glue = seeds, feeding
	i.Seeds[6] = feed
	i.Next = func(x, r, _ uint64) uint64 { return fed(next(uint32(x), uint32(r)), r) }
	return i
}

const addRow = "add / sub / min / max"

// integerRows are the rows of Integer, with their results in Go.
func integerRows() []Instruction {
	signed := func(f func(a, b int32) int32) func(x, r uint32) uint32 {
		return func(x, r uint32) uint32 { return uint32(f(int32(x), int32(r))) }
	}
	mul := whole(Integer, "mul / mad", "mul.lo.s32", func(x, r uint32) uint32 { return x * r })
	mad := whole(Integer, "mul / mad", "mad.lo.s32", func(x, r uint32) uint32 { return x*r + rotate })
	mad.Step = "mad.lo.s32 {x}, {x}, {r}, {s};"
	abs := whole(Integer, "abs", "abs.s32", signed(func(a, _ int32) int32 { return max(a, -a) }))
	abs.Step = "abs.s32 {x}, {x};"
	out := []Instruction{
		whole(Integer, addRow, "add.s32", func(x, r uint32) uint32 { return x + r }),
		whole(Integer, addRow, "sub.s32", func(x, r uint32) uint32 { return x - r }),
		whole(Integer, addRow, "min.s32", signed(func(a, b int32) int32 { return min(a, b) })),
		whole(Integer, addRow, "max.s32", signed(func(a, b int32) int32 { return max(a, b) })),
		mul, mad, abs,
	}
	for _, d := range []struct {
		name, row string
		f         func(x, r uint32) uint32
	}{
		{"div.s32", "{s} div", signed(func(a, b int32) int32 { return a / b })},
		{"rem.s32", "{s} rem", signed(func(a, b int32) int32 { return a % b })},
		{"div.u32", "{u} div", func(x, r uint32) uint32 { return x / r }},
		{"rem.u32", "{u} rem", func(x, r uint32) uint32 { return x % r }},
	} {
		out = append(out, dry(Integer, d.row, d.name, Seeds{2000000011, 7, 1013, 31, 523, 97}, d.f))
	}
	return out
}

// logicRows are the rows of Logic.
func logicRows() []Instruction {
	const row = "and / or / not / xor"
	not := whole(Logic, row, "not.b32", func(x, _ uint32) uint32 { return ^x })
	not.Step = "not.b32 {x}, {x};"
	cnot := whole(Logic, "cnot", "cnot.b32", func(x, _ uint32) uint32 {
		if x == 0 {
			return 1
		}
		return 0
	})
	cnot.Step = "cnot.b32 {x}, {x};"
	out := []Instruction{
		whole(Logic, row, "and.b32", func(x, r uint32) uint32 { return x & r }),
		whole(Logic, row, "or.b32", func(x, r uint32) uint32 { return x | r }),
		not,
		whole(Logic, row, "xor.b32", func(x, r uint32) uint32 { return x ^ r }),
		cnot,
	}
	for _, s := range []struct {
		name string
		f    func(x, r uint32) uint32
	}{
		{"shl.b32", func(x, r uint32) uint32 { return x << r }},
		{"shr.u32", func(x, r uint32) uint32 { return x >> r }},
	} {
		out = append(out, dry(Logic, "shl / shr", s.name, Seeds{0x9E3779B9, 1, 3, 2, 5, 4}, s.f))
	}
	return out
}

// Multi precision: the carry flag ties two instructions together, so a step has
// both, and the row is their mean.
func multiRows() []Instruction {
	pair := func(name, row, first, second string, next func(x, r uint64) uint64) Instruction {
		i := whole(Multi, row, name, nil)
		i.Ops, i.Step, i.Glue = 2, first+" {y}, {x}, {r}; "+second, ""
		i.Next = func(x, r, _ uint64) uint64 { return next(x, r) }
		return i
	}
	return []Instruction{
		pair("add.cc.u32, addc.u32", "add.cc / addc / sub.cc", "add.cc.u32", "addc.u32 {x}, {y}, {r};",
			func(x, r uint64) uint64 {
				sum := x + r // 33 bits
				return uint64(uint32(sum) + uint32(r) + uint32(sum>>32))
			}),
		pair("sub.cc.u32, subc.u32", "subc", "sub.cc.u32", "subc.u32 {x}, {y}, {r};", func(x, r uint64) uint64 {
			d := uint32(x) - uint32(r)
			borrow := uint32(0)
			if uint32(x) < uint32(r) {
				borrow = 1
			}
			return uint64(d - uint32(r) - borrow)
		}),
		func() Instruction {
			i := pair("mad.lo.cc.u32, madc.hi.u32", "mad.cc / madc", "", "", nil)
			i.Step = "mad.lo.cc.u32 {y}, {x}, {r}, {s}; madc.hi.u32 {x}, {x}, {r}, {y};"
			i.Next = func(x, r, s uint64) uint64 {
				p := x * r
				low := p&0xFFFFFFFF + s
				return uint64(uint32(p>>32) + uint32(low) + uint32(low>>32))
			}
			return i
		}(),
	}
}

// intrinsicRows are the rows of Intrinsic, named as in CUDA.
func intrinsicRows() []Instruction {
	const low24 = 0xFFFFFF
	threeOperands := func(row, name string, next func(x, r uint32) uint32) Instruction {
		i := whole(Intrinsic, row, name, next)
		i.Step = name + " {x}, {x}, {r}, {s};"
		return i
	}
	counted := func(name string, f func(x uint32) uint32) Instruction {
		i := dry(Intrinsic, name[:strings.IndexByte(name, '.')]+"()", name, words,
			func(x, _ uint32) uint32 { return f(x) })
		i.Step = name + " {x}, {x};"
		return i
	}
	return []Instruction{
		whole(Intrinsic, "mul24() / mad24()", "mul24.lo.u32",
			func(x, r uint32) uint32 { return (x & low24) * (r & low24) }),
		threeOperands("mul24() / mad24()", "mad24.lo.u32",
			func(x, r uint32) uint32 { return (x&low24)*(r&low24) + rotate }),
		threeOperands("sad()", "sad.u32", func(x, r uint32) uint32 { return max(x, r) - min(x, r) + rotate }),
		counted("popc.b32", popc), counted("clz.b32", clz), counted("bfind.u32", bfind),
	}
}

func popc(x uint32) uint32 { return uint32(bits.OnesCount32(x)) }

func clz(x uint32) uint32 { return uint32(bits.LeadingZeros32(x)) }

// bfind is the place of the highest one, all ones for zero (PTX ISA).
func bfind(x uint32) uint32 { return uint32(bits.Len32(x)) - 1 }

// Floating point. The compiler must not reorder it, so that steps stand without
// glue. Five operands in a row undo each other, which keeps values finite over any
// number of steps.

// singles are seeds of single precision, as bit patterns; the rest stays zero.
func singles(v ...float32) (out Seeds) {
	for i, f := range v {
		out[i] = uint64(math.Float32bits(f))
	}
	return out
}

// doubles are seeds of double precision.
func doubles(v ...float64) (out Seeds) {
	for i, f := range v {
		out[i] = math.Float64bits(f)
	}
	return out
}

var (
	sums     = []float64{1.5, 0.3125, -0.171875, 0.25, -0.4375, 0.046875, 0}
	products = []float64{1.37, 1.5, 0.8, 0.75, 1.25, 1 / 1.125, 0}
	// A multiply-add that leads back to 1: x·0.75 + 0.25, and so on.
	around = []float64{1.37, 0.75, 0.8125, 0.6875, 0.78125, 0.71875, 0.25}
)

// f32s rounds seeds to single precision.
func f32s(v []float64) Seeds {
	var s []float32
	for _, x := range v {
		s = append(s, float32(x))
	}
	return singles(s...)
}

// floating makes a row of either precision.
func floating(group Group, row, name string, seeds []float64, f func(x, r, s float64) float64) Instruction {
	i := Instruction{Name: name, Group: group, Row: row, Ops: 1, Threads: 1, Bits: 32, Step: name + " {x}, {x}, {r};"}
	if group == Double {
		i.Bits, i.Seeds = 64, doubles(seeds...)
		i.Next = func(x, r, s uint64) uint64 {
			return math.Float64bits(f(math.Float64frombits(x), math.Float64frombits(r), math.Float64frombits(s)))
		}
		return i
	}
	i.Seeds = f32s(seeds)
	// Sums, products and quotients of two singles, taken in double precision and
	// rounded once more, are those of single precision (Figueroa, 1995).
	i.Next = func(x, r, s uint64) uint64 {
		v := f(float64(math.Float32frombits(uint32(x))), float64(math.Float32frombits(uint32(r))),
			float64(math.Float32frombits(uint32(s))))
		return uint64(math.Float32bits(float32(v)))
	}
	return i
}

// floatRows are the rows of Single and Double. The seeds keep values finite and moving:
// sums that cancel, products near 1, and multiply-adds that lead back to 1.
func floatRows() []Instruction {
	var out []Instruction
	for _, p := range []struct {
		group       Group
		t, fmaRow   string
		div, addRow string
	}{
		{Single, "f32", "mul / mad / fma", "div.rn.f32", addRow},
		{Double, "f64", "", "div.rn.f64", addRow},
	} {
		out = append(out,
			floating(p.group, p.addRow, "add."+p.t, sums, func(x, r, _ float64) float64 { return x + r }),
			floating(p.group, p.addRow, "sub."+p.t, sums, func(x, r, _ float64) float64 { return x - r }),
			floating(p.group, p.addRow, "min."+p.t, products, func(x, r, _ float64) float64 { return min(x, r) }),
			floating(p.group, p.addRow, "max."+p.t, products, func(x, r, _ float64) float64 { return max(x, r) }),
			floating(p.group, p.fmaRow, "mul."+p.t, products, func(x, r, _ float64) float64 { return x * r }),
		)
		fma := floating(p.group, p.fmaRow, "fma.rn."+p.t, around,
			func(x, r, s float64) float64 { return math.FMA(x, r, s) })
		fma.Step = "fma.rn." + p.t + " {x}, {x}, {r}, {s};"
		if p.group == Single {
			mad := fma
			mad.Name, mad.Step = "mad.rn.f32", "mad.rn.f32 {x}, {x}, {r}, {s};"
			out = append(out, mad)
		}
		out = append(out, fma, floating(p.group, "div", p.div, products,
			func(x, r, _ float64) float64 { return x / r }))
	}
	return out
}

// The special functions are approximations of the hardware: nothing here
// predicts their last bits.
func specialRows() []Instruction {
	row := func(row, name, glue string, seeds ...float64) Instruction {
		i := floating(Special, row, name, seeds, nil)
		i.Step, i.Glue, i.Next = name+" {x}, {x};", glue, nil
		return i
	}
	copysign := floating(Special, "copysign", "copysign.f32", []float64{1.37, 1, -1, 1, -1, 1, 0}, nil)
	copysign.Step, copysign.Glue, copysign.Next = "copysign.f32 {x}, {r}, {x};", opaque, nil
	copysign.Seeds[6] = rotate
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

// narrow makes a row of 16-bit registers.
func narrow(group Group, row, name, step string, least int, seeds Seeds) Instruction {
	return Instruction{
		Name: name, Group: group, Row: row, Bits: 16, Step: step, Ops: 1, Threads: 1, Seeds: seeds,
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

// halfRows are the rows of Half and Bfloat. Packed ones hold two values in 32 bits.
func halfRows() []Instruction {
	const row = "add / sub / mul"
	packed := func(i Instruction) Instruction { i.Bits, i.Seeds = 32, twice(i.Seeds); return i }
	return []Instruction{
		narrow(Half, row, "add.f16", "add.f16 {x}, {x}, {r};", 53, halfSums),
		narrow(Half, row, "sub.f16", "sub.f16 {x}, {x}, {r};", 53, halfSums),
		narrow(Half, row, "mul.f16", "mul.f16 {x}, {x}, {r};", 53, halfProducts),
		narrow(Half, "", "fma.rn.f16", "fma.rn.f16 {x}, {x}, {r}, {s};", 53, halfAround),
		packed(narrow(Half, "", "fma.rn.f16x2", "fma.rn.f16x2 {x}, {x}, {r}, {s};", 53, halfAround)),
		narrow(Bfloat, "", "add.bf16", "add.bf16 {x}, {x}, {r};", 90, bfSums),
		narrow(Bfloat, "", "fma.rn.bf16", "fma.rn.bf16 {x}, {x}, {r}, {s};", 80, bfAround),
		packed(narrow(Bfloat, "", "fma.rn.bf16x2", "fma.rn.bf16x2 {x}, {x}, {r}, {s};", 80, bfAround)),
	}
}

// A conversion leads back in a second one, so that a step has two.
func conversionRows() []Instruction {
	there := func(name, first, second string, bits, least int, seeds Seeds) Instruction {
		i := narrow(Conversion, "", name, first+" {h}, {x}; "+second+" {x}, {h};", least, seeds)
		i.Bits, i.Ops = bits, 2
		return i
	}
	one := singles(1.37)
	fp8 := func(name, kind string) Instruction {
		return there(name, "cvt.rn.satfinite."+kind+".f16x2", "cvt.rn.f16x2."+kind, 32, 89, twice(halfProducts))
	}
	return []Instruction{
		there("cvt f32 to f16, and back", "cvt.rn.f16.f32", "cvt.f32.f16", 32, 53, one),
		there("cvt f32 to bf16, and back", "cvt.rn.bf16.f32", "cvt.f32.bf16", 32, 90, one),
		fp8("cvt f16x2 to e4m3x2, and back", "e4m3x2"),
		fp8("cvt f16x2 to e5m2x2, and back", "e5m2x2"),
	}
}

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
			Step: fmt.Sprintf("mma.sync.aligned.%s.row.col.%s %s, %s, %s, %s;", shape, types, d, list("ma", a),
				list("mb", b), d),
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
