package instructions

// Integers. Operands are odd and differ, so that values go on changing. The byte
// permutation is opaque to the compiler: without it two additions become one
// IADD3, and two logic operations one LOP3.

const opaque = "prmt.b32 {x}, {x}, {x}, {s};"

// rotate is the selector of opaque: bytes 1, 2, 3, 0.
const rotate = 0x0321

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

// bare takes the permutation away, from steps that the compiler cannot merge.
func bare(i Instruction, next func(x, r uint32) uint32) Instruction {
	i.Glue = ""
	i.Next = func(x, r, _ uint64) uint64 { return uint64(next(uint32(x), uint32(r))) }
	return i
}

const addRow = "add / sub / min / max"

func integerRows() []Instruction {
	signed := func(f func(a, b int32) int32) func(x, r uint32) uint32 {
		return func(x, r uint32) uint32 { return uint32(f(int32(x), int32(r))) }
	}
	mul := bare(whole(Integer, "mul / mad", "mul.lo.s32", nil), func(x, r uint32) uint32 { return x * (r | 1) })
	mad := mul
	mad.Name, mad.Step = "mad.lo.s32", "mad.lo.s32 {x}, {x}, {r}, {s};"
	mad.Next = func(x, r, s uint64) uint64 { return uint64(uint32(x)*uint32(r) + uint32(s)) }
	abs := whole(Integer, "abs", "abs.s32", signed(func(a, _ int32) int32 { return max(a, -a) }))
	abs.Step = "abs.s32 {x}, {x};"
	out := []Instruction{
		whole(Integer, addRow, "add.s32", func(x, r uint32) uint32 { return x + r }),
		whole(Integer, addRow, "sub.s32", func(x, r uint32) uint32 { return x - r }),
		whole(Integer, addRow, "min.s32", signed(func(a, b int32) int32 { return min(a, b) })),
		whole(Integer, addRow, "max.s32", signed(func(a, b int32) int32 { return max(a, b) })),
		mul, mad, abs,
	}
	// Quotients shrink, and remainders settle: an addition keeps both alive.
	for _, d := range []struct {
		name, row string
		f         func(x, r uint32) uint32
	}{
		{"div.s32", "{s} div", signed(func(a, b int32) int32 { return a / b })},
		{"rem.s32", "{s} rem", signed(func(a, b int32) int32 { return a % b })},
		{"div.u32", "{u} div", func(x, r uint32) uint32 { return x / r }},
		{"rem.u32", "{u} rem", func(x, r uint32) uint32 { return x % r }},
	} {
		i := whole(Integer, d.row, d.name, nil)
		i.Seeds = Seeds{2000000011, 7, 1013, 31, 523, 97, 1234567891}
		i.Glue = "add.u32 {x}, {x}, {s};"
		i.Next = func(x, r, s uint64) uint64 { return uint64(d.f(uint32(x), uint32(r)) + uint32(s)) }
		out = append(out, i)
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
		i := whole(Logic, "shl / shr", s.name, nil)
		i.Seeds = Seeds{0x9E3779B9, 1, 3, 2, 5, 4, 0x9E3779B9}
		i.Glue = "xor.b32 {x}, {x}, {s};"
		i.Next = func(x, r, k uint64) uint64 { return uint64(s.f(uint32(x), uint32(r)) ^ uint32(k)) }
		out = append(out, i)
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
	named := func(name, row, step, glue string, next func(x, r, s uint32) uint32) Instruction {
		i := whole(Intrinsic, row, name, nil)
		i.Step, i.Glue, i.Seeds[6] = step, glue, 0x27D4EB2F
		i.Next = func(x, r, s uint64) uint64 { return uint64(next(uint32(x), uint32(r), uint32(s))) }
		return i
	}
	counted := func(name string, f func(x uint32) uint32) Instruction {
		return named(name, name[:indexByte(name, '.')]+"()", name+" {x}, {x};", "xor.b32 {x}, {x}, {s};",
			func(x, _, s uint32) uint32 { return f(x) ^ s })
	}
	return []Instruction{
		named("mul24.lo.u32", "mul24() / mad24()", "mul24.lo.u32 {x}, {x}, {r};", "xor.b32 {x}, {x}, {s};",
			func(x, r, s uint32) uint32 { return (x&low24)*(r&low24) ^ s }),
		named("mad24.lo.u32", "mul24() / mad24()", "mad24.lo.u32 {x}, {x}, {r}, {s};", "",
			func(x, r, s uint32) uint32 { return (x&low24)*(r&low24) + s }),
		named("sad.u32", "sad()", "sad.u32 {x}, {x}, {r}, {s};", "",
			func(x, r, s uint32) uint32 { return max(x, r) - min(x, r) + s }),
		counted("popc.b32", popc), counted("clz.b32", clz), counted("bfind.u32", bfind),
	}
}
