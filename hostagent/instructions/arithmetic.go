package instructions

import "strings"

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

func fed(x uint32, r uint64) uint64 { return uint64(x>>8 | uint32(r)<<24) }

var words = Seeds{0x9E3779B9, 0x7F4A7C15, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B1, rotate}

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
		pair("add.cc.u32, addc.u32", "add.cc / addc / sub.cc", "add.cc.u32", "addc.u32 {x}, {y}, {r};", func(x, r uint64) uint64 {
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

func intrinsicRows() []Instruction {
	const low24 = 0xFFFFFF
	threeOperands := func(row, name string, next func(x, r uint32) uint32) Instruction {
		i := whole(Intrinsic, row, name, next)
		i.Step = name + " {x}, {x}, {r}, {s};"
		return i
	}
	counted := func(name string, f func(x uint32) uint32) Instruction {
		i := dry(Intrinsic, name[:strings.IndexByte(name, '.')]+"()", name, words, func(x, _ uint32) uint32 { return f(x) })
		i.Step = name + " {x}, {x};"
		return i
	}
	return []Instruction{
		whole(Intrinsic, "mul24() / mad24()", "mul24.lo.u32", func(x, r uint32) uint32 { return (x & low24) * (r & low24) }),
		threeOperands("mul24() / mad24()", "mad24.lo.u32", func(x, r uint32) uint32 { return (x&low24)*(r&low24) + rotate }),
		threeOperands("sad()", "sad.u32", func(x, r uint32) uint32 { return max(x, r) - min(x, r) + rotate }),
		counted("popc.b32", popc), counted("clz.b32", clz), counted("bfind.u32", bfind),
	}
}
