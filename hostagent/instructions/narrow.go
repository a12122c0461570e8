package instructions

// Sixteen bits and fewer. Seeds are bit patterns: 0x3C00 is 1 in half precision,
// 0x3F80 in bfloat16.

func narrow(group Group, row, name, step string, least int, seeds Seeds) Instruction {
	return Instruction{Name: name, Group: group, Row: row, Bits: 16, Step: step, Ops: 1, Threads: 1, Seeds: seeds, Least: least}
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
