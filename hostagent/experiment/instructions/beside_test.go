package instructions

import (
	"math"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

func TestSideBySide(t *testing.T) {
	e := func(name string, level int, joules, spread float64, passes int) Estimate {
		return Estimate{
			Instruction: name, Setting: Setting{Layout: OneThread, Level: level, Steps: 5}, Method: MTSM,
			Energy: measure.Joule(joules), Spread: measure.Joule(spread), Passes: passes,
		}
	}
	rows := SideBySide([][]Estimate{
		{e("add", 3, 2, 0.1, 3), e("only", 3, 1, 0, 1), e("nought", 3, 0, 0, 1)},
		{e("add", 3, 3, 0.1, 3), e("mul", 3, 4, 0, 1), e("nought", 3, 1, 0, 1)},
		{e("mul", 3, 6, 0, 1), e("add", 3, 1, 0, 1), e("add", 0, 9, 0, 1)},
	}, EnergyOf)
	if len(rows) != 3 || rows[0].Instruction != "add" || rows[1].Instruction != "nought" ||
		rows[2].Instruction != "mul" {
		t.Fatalf("got %+v", rows)
	}
	add := rows[0].Cells
	if *add[0].Ratio != 1 || *add[1].Ratio != 1.5 || *add[2].Ratio != 0.5 || add[1].Welch == nil ||
		!add[1].Welch.Differ || add[2].Welch != nil || add[0].Welch != nil {
		t.Errorf("got %+v %+v %+v", add[0], add[1], add[2])
	}
	if c := rows[1].Cells; c[0].Ratio != nil || c[1].Ratio != nil || c[2] != nil {
		t.Errorf("a row whose first figure is zero: %+v", c)
	}
	if c := rows[2].Cells; c[0] != nil || *c[1].Ratio != 1 || math.Abs(*c[2].Ratio-1.5) > 1e-12 {
		t.Errorf("a row that the first table has not: %+v", c)
	}
}
