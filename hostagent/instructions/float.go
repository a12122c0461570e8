package instructions

import "math"

// Floating point. The compiler must not reorder it, so that steps stand without
// glue. Five operands in a row undo each other, which keeps values finite over any
// number of steps.

func singles(v ...float32) (out Seeds) {
	for i, f := range v {
		out[i] = uint64(math.Float32bits(f))
	}
	return out
}

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
		v := f(float64(math.Float32frombits(uint32(x))), float64(math.Float32frombits(uint32(r))), float64(math.Float32frombits(uint32(s))))
		return uint64(math.Float32bits(float32(v)))
	}
	return i
}

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
		fma := floating(p.group, p.fmaRow, "fma.rn."+p.t, around, func(x, r, s float64) float64 { return math.FMA(x, r, s) })
		fma.Step = "fma.rn." + p.t + " {x}, {x}, {r}, {s};"
		if p.group == Single {
			mad := fma
			mad.Name, mad.Step = "mad.rn.f32", "mad.rn.f32 {x}, {x}, {r}, {s};"
			out = append(out, mad)
		}
		out = append(out, fma, floating(p.group, "div", p.div, products, func(x, r, _ float64) float64 { return x / r }))
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
