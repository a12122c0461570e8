package instructions

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// The first of Welch's figures follow from his formulae by hand: means 20 and 23,
// standard deviations 2 and 4, 8 and 16 values: t = 3/√(0.5+1) = 2.449, and
// (1.5)²/(0.25/7 + 1/15) = 21.98 degrees of freedom.
func TestWelch(t *testing.T) {
	w := welch(Side{20, 2, 8}, Side{23, 4, 16})
	if math.Abs(w.T-2.4495) > 1e-4 || math.Abs(w.DoF-21.977) > 1e-3 || !w.Differ {
		t.Errorf("got %+v", w)
	}
	if w := welch(Side{20, 2, 3}, Side{23, 4, 3}); w.Differ {
		t.Errorf("three passes of such a spread tell nothing: %+v", w)
	}
	for _, p := range [][2]Side{{{20, 0, 1}, {23, 4, 16}}, {{20, 2, 8}, {23, 0, 1}}, {{20, 0, 3}, {23, 0, 3}}} {
		if w := welch(p[0], p[1]); w != nil {
			t.Errorf("%v: %+v of passes that tell nothing of chance", p, w)
		}
	}
}

// Of two tables that differ by chance alone, one row in 22 is called different.
func TestWelchErrsAsOftenAsItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	side := func(mean, sigma float64, n int) Side {
		v := make([]float64, n)
		for i := range v {
			v[i] = mean + sigma*rng.NormFloat64()
		}
		m, s := meanOf(v)
		return Side{measure.Joule(m), measure.Joule(s), n}
	}
	const trials = 20000
	chance, seen := 0, 0
	for range trials {
		if welch(side(10, 1, 5), side(10, 1, 5)).Differ {
			chance++
		}
		if welch(side(10, 1, 5), side(14, 2, 5)).Differ {
			seen++
		}
	}
	if f := float64(chance) / trials; f < 0.035 || f > 0.055 {
		t.Errorf("equal means differ in %.3f of the cases", f)
	}
	if f := float64(seen) / trials; f < 0.8 {
		t.Errorf("means 4 apart differ in %.3f of the cases only", f)
	}
}

func TestTwoSideBySide(t *testing.T) {
	row := func(name string, m Method, e, d measure.Joule) Estimate {
		return Estimate{
			Instruction: name, Setting: Setting{Layout: WholeGPU, Level: 3, Steps: 200}, Method: m,
			Energy: e, Dynamic: d, Spread: 0.1 * e, DynamicSpread: 0.2 * d, Passes: 3,
		}
	}
	a := []Estimate{
		row("add.s32", SMA, 2, 1), row("add.s32", PAPI, 2, 1), row("div.s32", SMA, 9, 8),
		row("not.b32", SMA, 1, 0),
	}
	b := []Estimate{row("div.s32", SMA, 18, 4), row("add.s32", SMA, 2, 1), row("not.b32", SMA, 1, 1)}
	b[1].Steps = 5 // an energy is an energy
	energy, dynamic := SideBySide([][]Estimate{a, b}, EnergyOf), SideBySide([][]Estimate{a, b}, DynamicOf)
	if len(energy) != 3 || energy[0].Instruction != "add.s32" || energy[1].Instruction != "div.s32" {
		t.Fatalf("got %+v", energy)
	}
	add, div, faint := energy[0].Cells[1], energy[1].Cells[1], dynamic[1].Cells[1]
	if *add.Ratio != 1 || *div.Ratio != 2 || *faint.Ratio != 0.5 || dynamic[2].Cells[1].Ratio != nil {
		t.Errorf("got %+v, %+v, %+v, %+v", add, div, faint, dynamic[2].Cells[1])
	}
	if add.Welch.Differ || !div.Welch.Differ || div.Spread != 1.8 || faint.Spread != 0.8 {
		t.Errorf("got %+v and %+v", add, div)
	}
}
